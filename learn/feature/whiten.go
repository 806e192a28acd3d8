package feature

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// whitenConfig describes whitened.
type whitenConfig struct {
	// Inner makes the features to be whitened. Required.
	Inner *Extractor
	// Images, one after the other, give the mean and covariance to whiten Inner's features
	// for. At least 2 images. PUBLIC IMAGES ONLY, or drawn ones as from strokes: their mean
	// and covariance enter every client's features and no accountant here charges for them.
	// Required.
	Images []byte
	// Ridge, as a share of the sum of the features' variances, is added to each variance, so
	// that directions the images hardly show are not blown up. Required, above 0.
	Ridge float64
	// Norm is the Euclidean norm of the whole vector. Required, above 0.
	Norm float64
	// Workers extract Images; 0: one per processor.
	Workers int
}

// whitened makes another extractor's features nearly uncorrelated and of nearly equal
// variance. Let μ and Σ be the mean and the covariance over some public images, λ the ridge
// and L the Cholesky factor of Σ + λI. The features f become L⁻¹(f − μ), scaled to the norm.
// A vector of zeros stays zero.
//
// Gradient descent is then about equally fast in all directions, so it needs fewer steps
// through the same noise. Any other root of (Σ + λI)⁻¹ would do as well: two roots differ by
// a rotation.
type whitened struct {
	c    whitenConfig
	mean []float32
	// inverse holds L⁻¹ row by row, row i with i+1 values.
	inverse []float32
}

// maxWhitened bounds the covariance at 128 MiB.
const maxWhitened = 4096

// newWhitened returns the extractor that c describes. Time O(images·d² + d³).
func newWhitened(c whitenConfig) (*Extractor, error) {
	if c.Inner == nil {
		return nil, fmt.Errorf("feature: whitened: no inner features")
	}
	d, size := c.Inner.Dim, c.Inner.Pixels
	if d > maxWhitened {
		return nil, fmt.Errorf("feature: whitened: %d features must be at most %d", d, maxWhitened)
	}
	n := len(c.Images) / size
	if n < 2 || len(c.Images) != n*size {
		return nil, fmt.Errorf("feature: whitened: %d bytes must be at least 2 images of %d", len(c.Images), size)
	}
	if !(c.Ridge > 0 && c.Ridge <= 1e6) {
		return nil, fmt.Errorf("feature: whitened: ridge = %v must be above 0 and at most 1e6", c.Ridge)
	}
	if !(c.Norm >= 1e-6 && c.Norm <= maxNorm) {
		return nil, fmt.Errorf("feature: whitened: norm = %v must be at least 1e-6 and at most %v", c.Norm, float64(maxNorm))
	}
	rows := make([]float32, n*d)
	if err := ExtractAll(c.Inner, c.Images, rows, c.Workers); err != nil {
		return nil, err
	}
	c.Images = nil // the images may be large
	name := fmt.Sprintf("whitened(ridge=%g,norm=%g,%s)", c.Ridge, c.Norm, c.Inner.Name)
	w := &whitened{c: c, mean: make([]float32, d)}
	mean := make([]float64, d)
	for i, v := range rows {
		mean[i%d] += float64(v)
	}
	for j := range mean {
		mean[j] /= float64(n)
		w.mean[j] = float32(mean[j])
	}
	inverse, err := inverseRoot(mat.NewSymDense(d, covariance(rows, mean).Data), c.Ridge)
	if err != nil {
		return nil, err
	}
	for i := range d {
		for j := range i + 1 {
			w.inverse = append(w.inverse, float32(inverse.At(i, j)))
		}
	}
	return &Extractor{name, size, d, w}, nil
}

// inverseRoot returns L⁻¹ for LLᵀ = c + λI, λ the share ridge of c's trace.
func inverseRoot(c *mat.SymDense, ridge float64) (*mat.TriDense, error) {
	d := c.SymmetricDim()
	total := mat.Trace(c)
	if !(total > 0) {
		return nil, fmt.Errorf("feature: whitened: the images' features do not vary")
	}
	for i := range d {
		c.SetSym(i, i, c.At(i, i)+ridge*total)
	}
	var factor mat.Cholesky
	if !factor.Factorize(c) {
		return nil, fmt.Errorf("feature: whitened: ridge = %v is too small for the images' covariance", ridge)
	}
	var lower, inverse mat.TriDense
	factor.LTo(&lower)
	// An error here means a condition number beyond 1e16, which λ excludes
	// unless the ridge is tiny.
	if err := inverse.InverseTri(&lower); err != nil {
		return nil, fmt.Errorf("feature: whitened: ridge = %v: %v", ridge, err)
	}
	return &inverse, nil
}

// newScratch returns working memory for one goroutine.
func (w *whitened) newScratch() *scratch { return w.c.Inner.kind.newScratch() }

// extract overwrites dst with the features of img.
func (w *whitened) extract(img []byte, dst []float32, s *scratch) {
	w.c.Inner.extract(img, dst, s)
	w.rotate(dst)
	if n := norm(dst); n > 0 {
		rescale(dst, w.c.Norm/n)
	}
}

// rotate replaces x by L⁻¹(x − μ). It goes from the last value to the first, because value i
// needs only the values up to i.
func (w *whitened) rotate(x []float32) {
	for j, mu := range w.mean {
		x[j] -= mu
	}
	for i := len(x) - 1; i >= 0; i-- {
		start := i * (i + 1) / 2
		row := w.inverse[start : start+i+1]
		v := x[:len(row)]
		var a, b, c, d float32
		for len(row) >= 4 && len(v) >= 4 {
			a += row[0] * v[0]
			b += row[1] * v[1]
			c += row[2] * v[2]
			d += row[3] * v[3]
			row, v = row[4:], v[4:]
		}
		for j, r := range row {
			a += r * v[j]
		}
		x[i] = (a + b) + (c + d)
	}
}

// NewInk whitens for 2,000 images of strokes, which do as well as 5,000. If 2,000 images would
// hold more than inkPixels pixels it takes fewer, but at least inkFewest.
const (
	inkStrokes = 2000
	inkFewest  = 16
	inkPixels  = 1 << 24
	inkSeed    = 1
	inkRidge   = 0.0125
)

// NewInk returns features for handwriting: the histograms of h, whitened for randomly drawn
// strokes and scaled to h's norm.
func NewInk(h hogConfig) (*Extractor, error) {
	inner, err := NewHOG(h)
	if err != nil {
		return nil, err
	}
	n := max(inkFewest, min(inkStrokes, inkPixels/(h.Width*h.Height)))
	strokes, err := strokes(strokesConfig{Width: h.Width, Height: h.Height, Images: n, Seed: inkSeed})
	if err != nil {
		return nil, err
	}
	return newWhitened(whitenConfig{Inner: inner, Images: strokes, Ridge: inkRidge, Norm: h.Norm})
}
