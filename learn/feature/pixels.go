package feature

import (
	"fmt"
	"math"
)

// PixelsConfig describes pixels.
type PixelsConfig struct {
	// Size is the number of bytes of one image. Required.
	Size int
	// Norm is the Euclidean norm every image is scaled to; 0 leaves the values
	// at byte/255, between 0 and 1. An image of zeros stays zero.
	Norm float64
}

// pixels are the raw pixels: byte/255, optionally scaled to one norm.
type pixels struct {
	shape
	c PixelsConfig
}

// NewPixels returns the extractor that c describes.
func NewPixels(c PixelsConfig) (Extractor, error) {
	if c.Size < 1 {
		return nil, fmt.Errorf("feature: image size = %d bytes must be at least 1", c.Size)
	}
	if err := checkNorm(c.Norm); err != nil {
		return nil, err
	}
	name := "pixels"
	if c.Norm != 0 {
		name = fmt.Sprintf("pixels(norm=%g)", c.Norm)
	}
	return &pixels{shape{name, c.Size, c.Size}, c}, nil
}

// maxNorm keeps every feature, and sums over them, far from overflow.
const maxNorm = 1e6

func checkNorm(norm float64) error {
	if math.IsNaN(norm) || norm < 0 || norm > maxNorm {
		return fmt.Errorf("feature: norm = %v must be at least 0 and at most %v", norm, float64(maxNorm))
	}
	return nil
}

// newScratch returns an empty scratch: Pixels needs none.
func (p *pixels) newScratch() *scratch { return &scratch{} }

// extract overwrites dst with the scaled pixels.
func (p *pixels) extract(img []byte, dst []float32, _ *scratch) {
	checkLengths(p, img, dst)
	scale := 1.0 / 255
	if p.c.Norm > 0 {
		sum := 0
		for _, v := range img {
			sum += int(v) * int(v)
		}
		if sum == 0 {
			clear(dst)
			return
		}
		scale = p.c.Norm / math.Sqrt(float64(sum))
	}
	for i, v := range img {
		dst[i] = float32(scale * float64(v))
	}
}
