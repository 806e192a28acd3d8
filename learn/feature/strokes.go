package feature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// strokesConfig describes strokes.
type strokesConfig struct {
	// Width and Height of an image in pixels, one byte each. Required.
	Width, Height int
	// Images is the number of images. Required.
	Images int
	// Seed determines the images.
	Seed uint64
}

// maxStrokes bounds the memory of strokes.
const maxStrokes = 1 << 28

// strokes draws random pen strokes, bright on black, as images one after the other. They
// stand for handwriting where no one's data may be used. The same configuration gives the
// same images, but for single grey levels on machines that round differently.
//
// An image holds one to three cubic Bézier curves with control points uniform in a box 0.7
// times as wide as high. Every other curve begins where the one before ends. The drawing is
// scaled to 18/28 of the shorter side and centred; the pen's radius is uniform between 0.7/28
// and 1.5/28 of that side, its edge one pixel soft.
func strokes(c strokesConfig) ([]byte, error) {
	if c.Width < 2 || c.Height < 2 || c.Images < 1 || c.Width > 1<<12 || c.Height > 1<<12 ||
		c.Images > maxStrokes/(c.Width*c.Height) {
		return nil, fmt.Errorf("feature: strokes: %d images of %d×%d must have sides from 2 to %d and at most %d bytes in all",
			c.Images, c.Width, c.Height, 1<<12, maxStrokes)
	}
	out := make([]byte, c.Images*c.Width*c.Height)
	p := pen{width: c.Width, height: c.Height, random: rng.Constant(c.Seed, 0x7374726f6b6573), near: make([]float64, c.Width*c.Height)}
	for i := range c.Images {
		p.draw(out[i*len(p.near) : (i+1)*len(p.near)])
	}
	return out, nil
}

// pen draws one image after the other.
type pen struct {
	width, height int
	random        func() float64
	path          []point
	near          []float64 // each pixel's squared distance from the path
}

type point struct{ x, y float64 }

func (p *pen) uniform() float64 { return p.random() }

// curveSteps is the number of points that are drawn of a curve; neighbouring points are less
// than a pixel apart.
const curveSteps = 48

// draw overwrites img with one drawing.
func (p *pen) draw(img []byte) {
	p.path = p.path[:0]
	for range 1 + int(3*p.uniform()) {
		p.curve()
	}
	low, high := p.path[0], p.path[0]
	for _, q := range p.path {
		low.x, low.y = min(low.x, q.x), min(low.y, q.y)
		high.x, high.y = max(high.x, q.x), max(high.y, q.y)
	}
	side := float64(min(p.width, p.height)) / 28
	scale := 18 * side / max(high.x-low.x, high.y-low.y, 1e-3)
	radius := (0.7 + 0.8*p.uniform()) * side
	reach := int(math.Ceil(radius + 0.5))
	const far = 1e9
	for i := range p.near {
		p.near[i] = far
	}
	for _, q := range p.path {
		x := (q.x-(low.x+high.x)/2)*scale + float64(p.width-1)/2
		y := (q.y-(low.y+high.y)/2)*scale + float64(p.height-1)/2
		for j := max(0, int(y)-reach); j <= min(p.height-1, int(y)+reach+1); j++ {
			dy := float64(j) - y
			for i := max(0, int(x)-reach); i <= min(p.width-1, int(x)+reach+1); i++ {
				dx := float64(i) - x
				at := &p.near[j*p.width+i]
				*at = min(*at, dx*dx+dy*dy)
			}
		}
	}
	for i, square := range p.near {
		img[i] = byte(255 * max(0, min(1, radius+0.5-math.Sqrt(square))))
	}
}

// curve adds a curve to the path.
func (p *pen) curve() {
	var c [4]point
	for i := range c {
		c[i] = point{0.7 * p.uniform(), p.uniform()}
	}
	if n := len(p.path); n > 0 && p.uniform() < 0.5 {
		c[0] = p.path[n-1]
	}
	for i := range curveSteps + 1 {
		t := float64(i) / curveSteps
		u := 1 - t
		w := [4]float64{u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t}
		var q point
		for j, v := range w {
			q.x += v * c[j].x
			q.y += v * c[j].y
		}
		p.path = append(p.path, q)
	}
}
