package feature

import (
	"fmt"
	"math"
)

// HOGConfig describes HOG. DefaultHOG has the values for 28×28 digits.
type HOGConfig struct {
	// Width and Height of an image in pixels, one byte each. Required.
	Width, Height int
	// Cells is the number of cells along each side. Required.
	Cells int
	// Spacing is the distance in pixels between the centres of neighbouring
	// cells; the grid is centred in the image. Required.
	Spacing float64
	// Radius in pixels: a pixel at distance t from a cell's centre, along one
	// axis, counts with weight 1 − t/Radius, or not at all beyond it. A Radius
	// equal to Spacing shares each pixel bilinearly between its neighbours.
	// Required.
	Radius float64
	// Orientations is the number of directions of a cell's histogram.
	// Required.
	Orientations int
	// Signed tells dark-to-bright from bright-to-dark: directions are spread
	// over 2π instead of π.
	Signed bool
	// Damping keeps the noise of nearly empty cells small: a cell's histogram
	// h becomes h / √(‖h‖² + (Damping·m)²), m the mean of ‖h‖ over the image's
	// cells. 0 leaves the histograms as they are.
	Damping float64
	// Root takes the square root of each value, which compresses large ones.
	Root bool
	// Centre subtracts the mean of the image's own values.
	Centre bool
	// Norm is the Euclidean norm of the whole vector. Required, above 0.
	Norm float64
}

// DefaultHOG returns the configuration for 28×28 images: 7×7 cells of 9
// unsigned orientations, 441 values.
func DefaultHOG() HOGConfig {
	return HOGConfig{
		Width: 28, Height: 28,
		Cells: 7, Spacing: 4, Radius: 4,
		Orientations: 9,
		Damping:      0.5,
		Root:         true,
		Centre:       true,
		Norm:         3,
	}
}

// HOG are histograms of oriented gradients, after N. Dalal and B. Triggs,
// "Histograms of oriented gradients for human detection", CVPR 2005, with the
// normalisation of HOGConfig. The value of cell (row i, column j) and
// orientation o is at (i·Cells + j)·Orientations + o; orientation o collects
// gradients that point at angle o·π/Orientations (2π if Signed) from the x
// axis, y downwards, and each gradient is shared linearly between the two
// nearest. Pixels outside the image count as 0. An image without gradients
// gives zeros.
type HOG struct {
	c       HOGConfig
	columns []tap // of each pixel column
	rows    []tap
}

// tap lists the cells along one axis that a pixel belongs to, and how much.
type tap struct {
	first  int
	weight []float32
}

// NewHOG returns the extractor that c describes.
func NewHOG(c HOGConfig) (*HOG, error) {
	for _, v := range []struct {
		name       string
		value      int
		low, limit int
	}{
		{"width", c.Width, 2, 1 << 12},
		{"height", c.Height, 2, 1 << 12},
		{"cells", c.Cells, 1, 1 << 10},
		{"orientations", c.Orientations, 2, 1 << 8},
	} {
		if v.value < v.low || v.value > v.limit {
			return nil, fmt.Errorf("feature: hog: %s = %d must be at least %d and at most %d", v.name, v.value, v.low, v.limit)
		}
	}
	for _, v := range []struct {
		name  string
		value float64
		least float64
	}{
		{"spacing", c.Spacing, 0.5},
		{"radius", c.Radius, 0.5},
		{"damping", c.Damping, 0},
		{"norm", c.Norm, 1e-6},
	} {
		if math.IsNaN(v.value) || v.value < v.least || v.value > maxNorm {
			return nil, fmt.Errorf("feature: hog: %s = %v must be at least %v and at most %v", v.name, v.value, v.least, float64(maxNorm))
		}
	}
	return &HOG{c, taps(c.Width, c), taps(c.Height, c)}, nil
}

func taps(size int, c HOGConfig) []tap {
	start := (float64(size-1) - float64(c.Cells-1)*c.Spacing) / 2
	out := make([]tap, size)
	for p := range out {
		for j := range c.Cells {
			w := 1 - math.Abs(float64(p)-start-float64(j)*c.Spacing)/c.Radius
			if w <= 0 {
				continue
			}
			if out[p].weight == nil {
				out[p].first = j
			}
			out[p].weight = append(out[p].weight, float32(w))
		}
	}
	return out
}

// Name returns "hog" and the configuration.
func (h *HOG) Name() string {
	c := h.c
	return fmt.Sprintf("hog(cells=%d,spacing=%g,radius=%g,orientations=%d,signed=%t,damping=%g,root=%t,centre=%t,norm=%g)",
		c.Cells, c.Spacing, c.Radius, c.Orientations, c.Signed, c.Damping, c.Root, c.Centre, c.Norm)
}

// Config returns the configuration.
func (h *HOG) Config() HOGConfig { return h.c }

// Pixels returns Width × Height.
func (h *HOG) Pixels() int { return h.c.Width * h.c.Height }

// Dim returns Cells² × Orientations.
func (h *HOG) Dim() int { return h.c.Cells * h.c.Cells * h.c.Orientations }

// NewScratch returns an empty Scratch: HOG works in dst.
func (h *HOG) NewScratch() *Scratch { return &Scratch{} }

// Extract overwrites dst with the features of img.
func (h *HOG) Extract(img []byte, dst []float32, _ *Scratch) {
	checkLengths(h, img, dst)
	clear(dst)
	h.collect(img, dst)
	h.normalise(dst)
}

// collect adds every pixel's gradient to the histograms of its cells.
func (h *HOG) collect(img []byte, dst []float32) {
	width, height := h.c.Width, h.c.Height
	turn := math.Pi
	if h.c.Signed {
		turn = 2 * math.Pi
	}
	scale := float64(h.c.Orientations) / turn
	at := func(y, x int) int {
		if x < 0 || y < 0 || x >= width || y >= height {
			return 0
		}
		return int(img[y*width+x])
	}
	for y := range height {
		for x := range width {
			gx := at(y, x+1) - at(y, x-1)
			gy := at(y+1, x) - at(y-1, x)
			if gx == 0 && gy == 0 {
				continue
			}
			// Half the central difference, in units of the full byte range.
			size := math.Sqrt(float64(gx*gx+gy*gy)) / (2 * 255)
			angle := math.Atan2(float64(gy), float64(gx))
			if angle < 0 {
				angle += turn
			}
			bin := angle * scale
			low := math.Floor(bin)
			share := bin - low
			o0 := int(low) % h.c.Orientations
			o1 := (o0 + 1) % h.c.Orientations
			h.spread(dst, y, x, o0, float32(size*(1-share)))
			h.spread(dst, y, x, o1, float32(size*share))
		}
	}
}

// spread adds v to orientation o of the cells that pixel (y, x) belongs to.
func (h *HOG) spread(dst []float32, y, x, o int, v float32) {
	column := &h.columns[x]
	row := &h.rows[y]
	for i, wi := range row.weight {
		base := ((row.first+i)*h.c.Cells+column.first)*h.c.Orientations + o
		for j, wj := range column.weight {
			dst[base+j*h.c.Orientations] += v * wi * wj
		}
	}
}

func (h *HOG) normalise(dst []float32) {
	o := h.c.Orientations
	if h.c.Damping > 0 {
		mean := 0.0
		for i := 0; i < len(dst); i += o {
			mean += norm(dst[i : i+o])
		}
		floor := h.c.Damping * mean / float64(len(dst)/o)
		for i := 0; i < len(dst); i += o {
			cell := dst[i : i+o]
			if n := norm(cell); n > 0 {
				rescale(cell, 1/math.Sqrt(n*n+floor*floor))
			}
		}
	}
	if h.c.Root {
		for i, v := range dst {
			dst[i] = float32(math.Sqrt(float64(v)))
		}
	}
	if h.c.Centre {
		sum := 0.0
		for _, v := range dst {
			sum += float64(v)
		}
		mean := float32(sum / float64(len(dst)))
		for i := range dst {
			dst[i] -= mean
		}
	}
	if n := norm(dst); n > 0 {
		rescale(dst, h.c.Norm/n)
	}
}

func norm(v []float32) float64 {
	sum := 0.0
	for _, f := range v {
		sum += float64(f) * float64(f)
	}
	return math.Sqrt(sum)
}

func rescale(v []float32, by float64) {
	for i, f := range v {
		v[i] = float32(float64(f) * by)
	}
}
