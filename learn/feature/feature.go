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

// Extractor computes the features of one image. NewInk, NewHOG and NewPixels make one.
//
// It must not be changed, and is safe for concurrent use.
type Extractor struct {
	// Name identifies the features and their parameters.
	Name string
	// Pixels is the number of bytes of one image, Dim that of its features.
	Pixels, Dim int

	kind kind
}

// kind has the methods in which kinds of features differ.
type kind interface {
	// newScratch returns working memory for extract; it belongs to one goroutine.
	newScratch() *scratch
	// extract overwrites dst with the features of img, whose lengths have been checked. It
	// allocates nothing.
	extract(img []byte, dst []float32, s *scratch)
}

// extract overwrites dst, of length Dim, with the features of img, of length Pixels. It panics
// if a length is wrong and allocates nothing.
func (e *Extractor) extract(img []byte, dst []float32, s *scratch) {
	if len(img) != e.Pixels || len(dst) != e.Dim {
		panic(fmt.Sprintf("feature: %s: image of %d bytes into %d values, want %d into %d",
			e.Name, len(img), len(dst), e.Pixels, e.Dim))
	}
	e.kind.extract(img, dst, s)
}

// scratch is an extractor's working memory.
type scratch struct {
	level []float32 // the image's levels, 0 to 255
	frame []float32 // the image's levels inside a frame of zeros
}

// extractChunk is the number of images a worker takes at once.
const extractChunk = 64

// ExtractAll extracts every image of pixels into dst with the given number of
// goroutines (0: one per processor). Each row depends on its own image only,
// so the result does not depend on workers.
func ExtractAll(e *Extractor, pixels []byte, dst []float32, workers int) error {
	size, dim := e.Pixels, e.Dim
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
			s := e.kind.newScratch()
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
