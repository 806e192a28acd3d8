package feature

import (
	"fmt"
	"math"
)

// pixels are the raw pixels: byte/255, optionally scaled to one norm.
type pixels struct{ norm float64 }

// NewPixels returns the pixels themselves as features, for images of size ≥ 1 bytes. norm is the
// Euclidean norm every image is scaled to; 0 leaves the values at byte/255, between 0 and 1. An
// image of zeros stays zero.
func NewPixels(size int, norm float64) (*Extractor, error) {
	if size < 1 {
		return nil, fmt.Errorf("feature: image size = %d bytes must be at least 1", size)
	}
	if math.IsNaN(norm) || norm < 0 || norm > maxNorm {
		return nil, fmt.Errorf("feature: norm = %v must be at least 0 and at most %v", norm, float64(maxNorm))
	}
	name := "pixels"
	if norm != 0 {
		name = fmt.Sprintf("pixels(norm=%g)", norm)
	}
	return &Extractor{name, size, size, &pixels{norm}}, nil
}

// maxNorm keeps every feature, and sums over them, far from overflow.
const maxNorm = 1e6

// newScratch returns an empty scratch: pixels need none.
func (p *pixels) newScratch() *scratch { return &scratch{} }

// extract overwrites dst with the scaled pixels.
func (p *pixels) extract(img []byte, dst []float32, _ *scratch) {
	scale := 1.0 / 255
	if p.norm > 0 {
		sum := 0
		for _, v := range img {
			sum += int(v) * int(v)
		}
		if sum == 0 {
			clear(dst)
			return
		}
		scale = p.norm / math.Sqrt(float64(sum))
	}
	for i, v := range img {
		dst[i] = float32(scale * float64(v))
	}
}
