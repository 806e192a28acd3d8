// Package feature turns images into vectors by fixed rules that look at one image only. No
// mean, variance, principal axis or scale of a data set enters, so a client computes its
// features alone and they cost no privacy.
//
// PCA and whitened are exceptions: they take axes from rows or images that the caller
// declares public. NewInk takes them from images drawn by strokes, which are nobody's data.
// Given the axes, a client still computes its features alone.
package feature

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Extractor computes the features of one image.
//
// An Extractor is immutable and safe for concurrent use; a scratch belongs to
// one goroutine and to the Extractor that made it.
type Extractor interface {
	// Name identifies the features and their parameters.
	Name() string
	// Pixels returns the bytes of one image.
	Pixels() int
	// Dim returns the number of features of one image.
	Dim() int
	// newScratch returns working memory for Extract.
	newScratch() *scratch
	// extract overwrites dst, of length Dim, with the features of img, of
	// length pixels. It panics if a length is wrong and allocates nothing.
	extract(img []byte, dst []float32, s *scratch)
}

// shape is an Extractor's description of itself.
type shape struct {
	name        string
	inputs, dim int
}

// Name identifies the features and their parameters.
func (s *shape) Name() string { return s.name }

// Pixels returns the bytes of one image.
func (s *shape) Pixels() int { return s.inputs }

// Dim returns the number of features of one image.
func (s *shape) Dim() int { return s.dim }

// scratch is an Extractor's working memory.
type scratch struct {
	level []float32 // the image's levels, 0 to 255
	frame []float32 // the image's levels inside a frame of zeros
}

// extractChunk is the number of images a worker takes at once.
const extractChunk = 64

// ExtractAll extracts every image of pixels into dst with the given number of
// goroutines (0: one per processor). Each row depends on its own image only,
// so the result does not depend on workers.
func ExtractAll(e Extractor, pixels []byte, dst []float32, workers int) error {
	size, dim := e.Pixels(), e.Dim()
	if len(pixels)%size != 0 {
		return fmt.Errorf("feature: %d bytes of pixels are not a multiple of %d", len(pixels), size)
	}
	n := len(pixels) / size
	if len(dst) != n*dim {
		return fmt.Errorf("feature: room for %d values, want %d images × %d", len(dst), n, dim)
	}
	if workers < 0 {
		return fmt.Errorf("feature: workers = %d must be at least 0", workers)
	}
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	workers = min(workers, (n+extractChunk-1)/extractChunk)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			s := e.newScratch()
			for {
				end := int(next.Add(extractChunk))
				if end-extractChunk >= n {
					return
				}
				for i := end - extractChunk; i < min(end, n); i++ {
					e.extract(pixels[i*size:(i+1)*size], dst[i*dim:(i+1)*dim], s)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

func checkLengths(e Extractor, img []byte, dst []float32) {
	if len(img) != e.Pixels() || len(dst) != e.Dim() {
		panic(fmt.Sprintf("feature: %s: image of %d bytes into %d values, want %d into %d",
			e.Name(), len(img), len(dst), e.Pixels(), e.Dim()))
	}
}
