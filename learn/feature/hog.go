package feature

import (
	"fmt"
	"math"
)

// hogConfig describes hog. DefaultHOG and ShapeHOG have values that do well.
type hogConfig struct {
	// Width and Height of an image in pixels, one byte each. Required.
	Width, Height int
	// Upright shears the image until its ink stands upright, and centres it, by the image's
	// own moments (align.go). Handwriting slants; without this a model would have to learn
	// every slant through the noise.
	Upright bool
	// Spread, with Upright, is the standard deviation in pixels to which the ink is stretched
	// or squeezed from side to side, by a factor of 2 at most. 0 keeps the ink's width.
	Spread float64
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
	// Orientations is the number of directions of a cell's histogram. Required.
	Orientations int
	// Signed distinguishes dark-to-bright from bright-to-dark: directions are spread over 2π
	// instead of π.
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

// DefaultHOG returns the configuration for digits of the given size: 4×4 cells of 12 signed orientations
// on upright ink, 192 values of norm 3.
//
// The numbers were chosen by validation accuracy under noise, on a split of MNIST's training
// set; like every choice of hyper-parameters, this one is not covered by the guarantee of a
// later run on the same data. The choice hardly matters: 8 to 16 orientations, and a Spread
// from 3.8 to 5.2 at 28×28 pixels, do about as well. Lengths grow with the shorter side.
func DefaultHOG(width, height int) hogConfig {
	return hogConfig{
		Width: 28, Height: 28,
		Upright: true, Spread: 4.2,
		Cells: 4, Spacing: 5, Radius: 5,
		Orientations: 12, Signed: true,
		Root: true, Centre: true,
		Norm: 3,
	}.forSize(width, height)
}

// ShapeHOG returns the configuration for pictures of things of the given size, which do not
// slant as handwriting does: 5×5 cells of 12 signed orientations, each cell
// normalised, 300 values of norm 3. Chosen on a split of Fashion-MNIST's
// training set, 28×28 pixels; lengths grow with the shorter side.
func ShapeHOG(width, height int) hogConfig {
	return hogConfig{
		Width: 28, Height: 28,
		Cells: 5, Spacing: 5, Radius: 5,
		Orientations: 12, Signed: true,
		Damping: 0.5,
		Root:    true, Centre: true,
		Norm: 3,
	}.forSize(width, height)
}

// forSize returns c for images of another size, with all lengths scaled by the
// ratio of the shorter sides.
func (c hogConfig) forSize(width, height int) hogConfig {
	by := float64(min(width, height)) / float64(min(c.Width, c.Height))
	c.Width, c.Height = width, height
	c.Spread *= by
	c.Spacing *= by
	c.Radius *= by
	return c
}

// hog are histograms of oriented gradients, after N. Dalal and B. Triggs,
// "Histograms of oriented gradients for human detection", CVPR 2005, with the
// normalisation of hogConfig. The value of cell (row i, column j) and
// orientation o is at (i·Cells + j)·Orientations + o; orientation o collects
// gradients that point at angle o·π/Orientations (2π if Signed) from the x
// axis, y downwards, and each gradient is shared linearly between the two
// nearest. Pixels outside the image count as 0. An image without gradients
// gives zeros.
type hog struct {
	c             hogConfig
	columns, rows []tap // the taps of each pixel column and row
}

// tap lists the cells along one axis that a pixel belongs to, with its weight in each.
type tap struct {
	first  int
	weight []float32
}

// NewHOG returns the extractor that c describes.
func NewHOG(c hogConfig) (*Extractor, error) {
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
		{"spread", c.Spread, 0},
		{"damping", c.Damping, 0},
		{"norm", c.Norm, 1e-6},
	} {
		if math.IsNaN(v.value) || v.value < v.least || v.value > maxNorm {
			return nil, fmt.Errorf("feature: hog: %s = %v must be at least %v and at most %v", v.name, v.value, v.least, float64(maxNorm))
		}
	}
	if c.Spread > 0 && !c.Upright {
		return nil, fmt.Errorf("feature: hog: spread = %v needs upright", c.Spread)
	}
	name := fmt.Sprintf("hog(upright=%t,spread=%g,cells=%d,spacing=%g,radius=%g,orientations=%d,signed=%t,damping=%g,root=%t,centre=%t,norm=%g)",
		c.Upright, c.Spread, c.Cells, c.Spacing, c.Radius, c.Orientations, c.Signed, c.Damping, c.Root, c.Centre, c.Norm)
	return &Extractor{name, c.Width * c.Height, c.Cells * c.Cells * c.Orientations, &hog{c, taps(c.Width, c), taps(c.Height, c)}}, nil
}

func taps(size int, c hogConfig) []tap {
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

// newScratch returns working memory for one goroutine.
func (h *hog) newScratch() *scratch {
	// A frame of zeros around the image makes tests at its border unnecessary.
	return &scratch{
		level: make([]float32, h.c.Width*h.c.Height),
		frame: make([]float32, (h.c.Width+2)*(h.c.Height+2)),
	}
}

// extract overwrites dst with the features of img.
func (h *hog) extract(img []byte, dst []float32, s *scratch) {
	width, height := h.c.Width, h.c.Height
	if h.c.Upright {
		align(img, width, height, h.c.Spread, s.level)
	} else {
		for i, v := range img {
			s.level[i] = float32(v)
		}
	}
	for y := range height {
		copy(s.frame[(y+1)*(width+2)+1:], s.level[y*width:(y+1)*width])
	}
	clear(dst)
	h.collect(s.frame, dst)
	h.normalise(dst)
}

// collect adds every pixel's gradient to the histograms of its cells.
func (h *hog) collect(frame, dst []float32) {
	width, height, n := h.c.Width, h.c.Height, h.c.Orientations
	turn := math.Pi
	if h.c.Signed {
		turn = 2 * math.Pi
	}
	scale := float64(n) / turn
	for y := range height {
		above := frame[y*(width+2)+1:][:width]
		here := frame[(y+1)*(width+2):][:width+2]
		below := frame[(y+2)*(width+2)+1:][:width]
		for x := range width {
			gx := here[x+2] - here[x]
			gy := below[x] - above[x]
			if gx == 0 && gy == 0 {
				continue
			}
			// Half the central difference, in units of the full byte range.
			size := math.Sqrt(float64(gx)*float64(gx)+float64(gy)*float64(gy)) / (2 * 255)
			angle := math.Atan2(float64(gy), float64(gx))
			if angle < 0 {
				angle += turn
			}
			bin := angle * scale
			low := math.Floor(bin)
			share := bin - low
			// bin is n for an unsigned angle of π, or if it was rounded up; direction n is
			// direction 0.
			o0 := int(low) % n
			o1 := (o0 + 1) % n
			h.spread(dst, y, x, o0, o1, float32(size*(1-share)), float32(size*share))
		}
	}
}

// spread adds v0 and v1 to orientations o0 and o1 of the cells that pixel
// (y, x) belongs to.
func (h *hog) spread(dst []float32, y, x, o0, o1 int, v0, v1 float32) {
	column, row := &h.columns[x], &h.rows[y]
	n := h.c.Orientations
	for i, wi := range row.weight {
		base := ((row.first+i)*h.c.Cells + column.first) * n
		for j, wj := range column.weight {
			w := wi * wj
			cell := dst[base+j*n:][:n]
			cell[o0] += v0 * w
			cell[o1] += v1 * w
		}
	}
}

func (h *hog) normalise(dst []float32) {
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
