package feature

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"github.com/riffle-dp/riffle/internal/safetensors"
)

// maxPCAInputs bounds the covariance at 128 MiB.
const maxPCAInputs = 4096

// PCA projects on principal axes: (x − mean)·components. It is immutable and safe for
// concurrent use.
//
// PUBLIC DATA ONLY. Mean and axes are statistics of the rows that FitPCA was given. They are
// sent to every client and published with the model, and no accountant here charges for them.
// Fit them on public rows, never on the clients' own; the caller answers for that. Chen, Cao
// and Ge (arXiv:2401.04306, section 4) take 60 components of MNIST itself and do not say how
// they are paid for.
type PCA struct {
	Inputs, Dim int // the lengths of x and of its projection

	mean []float64
	// components holds Dim orthonormal axes, row-major, by falling variance.
	components []float64
	variance   []float64
	// columns holds the axes input-major, so that a pixel of 0 costs no time; offset is
	// −components·mean.
	columns []float32
	offset  []float32
}

// FitPCA returns the PCA on the first principal axes of public rows, computed as eigenvectors of
// the rows' covariance in float64. inputs is the length of a row, and components, at least 1, is
// the number of axes. It needs at least 2 rows, finite values, and components ≤ inputs ≤ 4096.
// The largest entry of an axis (the first of equals) is made positive. The result is
// deterministic on one machine; if eigenvalues coincide the axes are some basis of their space.
//
// Time O(rows·inputs² + inputs³), memory O(inputs²).
func FitPCA(rows []float32, inputs, components int) (*PCA, error) {
	if inputs < 1 || inputs > maxPCAInputs {
		return nil, fmt.Errorf("feature: pca: %d inputs must be at least 1 and at most %d", inputs, maxPCAInputs)
	}
	if components < 1 || components > inputs {
		return nil, fmt.Errorf("feature: pca: %d components must be at least 1 and at most the %d inputs", components, inputs)
	}
	n := len(rows) / inputs
	if n < 2 || len(rows) != n*inputs {
		return nil, fmt.Errorf("feature: pca: %d values must be at least 2 rows of %d inputs", len(rows), inputs)
	}
	mean := make([]float64, inputs)
	for i, v := range rows {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("feature: pca: input %d of row %d is %v, must be finite", i%inputs, i/inputs, v)
		}
		mean[i%inputs] += float64(v)
	}
	for j := range mean {
		mean[j] /= float64(n)
	}
	values, vectors, err := axes(covariance(rows, mean), components)
	if err != nil {
		return nil, err
	}
	return newPCA(mean, vectors, values)
}

// covariance returns Σ(x − mean)(x − mean)ᵀ/(n − 1). It makes two passes over the rows: a
// single pass would lose digits where the mean is large.
func covariance(rows []float32, mean []float64) blas64.Symmetric {
	d := len(mean)
	n := len(rows) / d
	const chunk = 256
	c := blas64.Symmetric{Uplo: blas.Upper, N: d, Stride: d, Data: make([]float64, d*d)}
	centred := make([]float64, chunk*d)
	for from := 0; from < n; from += chunk {
		m := min(chunk, n-from)
		part := rows[from*d : (from+m)*d]
		for i := range m {
			for j, mu := range mean {
				centred[i*d+j] = float64(part[i*d+j]) - mu
			}
		}
		blas64.Syrk(blas.Trans, 1/float64(n-1), blas64.General{Rows: m, Cols: d, Stride: d, Data: centred}, 1, c)
	}
	return c
}

// axes returns the k largest eigenvalues in falling order, and their vectors as rows.
func axes(c blas64.Symmetric, k int) (values, vectors []float64, err error) {
	d := c.N
	var eigen mat.EigenSym
	if !eigen.Factorize(mat.NewSymDense(d, c.Data), true) {
		return nil, nil, errors.New("feature: pca: the eigenvalue iteration did not converge")
	}
	var v mat.Dense
	eigen.VectorsTo(&v)
	rising := eigen.Values(nil)
	for i := d - 1; i >= d-k; i-- {
		axis := mat.Col(nil, i, &v)
		top := 0
		for j, x := range axis {
			if math.Abs(x) > math.Abs(axis[top]) {
				top = j
			}
		}
		if axis[top] < 0 {
			for j := range axis {
				axis[j] = -axis[j]
			}
		}
		vectors = append(vectors, axis...)
		values = append(values, max(0, rising[i])) // rounding can leave −1e-17
	}
	return values, vectors, nil
}

// orthonormal is the allowed error of the axes' scalar products, which should be 0 and 1.
const orthonormal = 1e-8

// newPCA checks its arguments and returns the PCA that holds them.
func newPCA(mean, components, variance []float64) (*PCA, error) {
	d, k := len(mean), len(variance)
	for what, values := range map[string][]float64{"mean": mean, "components": components, "variance": variance} {
		for i, v := range values {
			if math.IsNaN(v) || math.Abs(v) > math.MaxFloat32 {
				return nil, fmt.Errorf("feature: pca: value %d of the %s is %v, must be finite in float32", i, what, v)
			}
		}
	}
	for i, v := range variance {
		if v < 0 || i > 0 && v > variance[i-1] {
			return nil, fmt.Errorf("feature: pca: variance %v of component %d must not be negative nor above the one before", v, i)
		}
	}
	for a := range k {
		for b := range a + 1 {
			want := 0.0
			if a == b {
				want = 1
			}
			got := dot(components[a*d:(a+1)*d], components[b*d:(b+1)*d])
			if math.Abs(got-want) > orthonormal {
				return nil, fmt.Errorf("feature: pca: components %d and %d have the product %v, want %v (orthonormal within %v)", b, a, got, want, orthonormal)
			}
		}
	}
	p := &PCA{
		Inputs: d, Dim: k, mean: mean, components: components, variance: variance,
		columns: make([]float32, d*k), offset: make([]float32, k),
	}
	for a := range k {
		axis := components[a*d : (a+1)*d]
		p.offset[a] = float32(-dot(axis, mean))
		for j, v := range axis {
			p.columns[j*k+a] = float32(v)
		}
	}
	return p, nil
}

func dot(a, b []float64) float64 {
	var sum float64
	for i, v := range a {
		sum += float64(v * b[i])
	}
	return sum
}

// Project overwrites dst, of length Dim, with the projection of x, of length
// Inputs. It panics if a length is wrong and allocates nothing.
func (p *PCA) Project(x, dst []float32) {
	if len(x) != p.Inputs || len(dst) != p.Dim {
		panic(fmt.Sprintf("feature: pca: %d values into %d, want %d into %d", len(x), len(dst), p.Inputs, p.Dim))
	}
	copy(dst, p.offset)
	for j, v := range x {
		if v != 0 {
			p.add(dst, j, v)
		}
	}
}

// add adds v times input j's column.
func (p *PCA) add(dst []float32, j int, v float32) {
	column := p.columns[j*p.Dim : (j+1)*p.Dim]
	dst = dst[:len(column)]
	for a, w := range column {
		dst[a] += float32(v * w)
	}
}

// The tensors' names.
const (
	pcaMean       = "pca.mean"       // F64, inputs
	pcaComponents = "pca.components" // F64, components × inputs
	pcaVariance   = "pca.variance"   // F64, components
)

// Tensors returns pca.mean, pca.components and pca.variance in float64, from
// which PCAFromTensors makes the same PCA bit for bit.
func (p *PCA) Tensors() []safetensors.Tensor {
	return []safetensors.Tensor{
		safetensors.New(pcaMean, []int{p.Inputs}, p.mean),
		safetensors.New(pcaComponents, []int{p.Dim, p.Inputs}, p.components),
		safetensors.New(pcaVariance, []int{p.Dim}, p.variance),
	}
}

// PCAFromTensors restores the PCA that Tensors wrote; it ignores other tensors. Shapes must
// agree and the axes be orthonormal within 1e-8.
func PCAFromTensors(tensors []safetensors.Tensor) (*PCA, error) {
	find := func(name string, dims int) (safetensors.Tensor, []float64, error) {
		file := safetensors.File{Tensors: tensors}
		t, ok := file.Find(name)
		if !ok {
			return t, nil, fmt.Errorf("feature: pca: no tensor %q", name)
		}
		if len(t.Shape) != dims {
			return t, nil, fmt.Errorf("feature: pca: tensor %q has the shape %v, want %d dimensions", name, t.Shape, dims)
		}
		v, err := safetensors.Values[float64](t)
		if err != nil {
			return t, nil, fmt.Errorf("feature: pca: %w", err)
		}
		return t, v, nil
	}
	_, mean, err := find(pcaMean, 1)
	if err != nil {
		return nil, err
	}
	shape, components, err := find(pcaComponents, 2)
	if err != nil {
		return nil, err
	}
	_, variance, err := find(pcaVariance, 1)
	if err != nil {
		return nil, err
	}
	d, k := len(mean), len(variance)
	if d < 1 || d > maxPCAInputs || k < 1 || k > d || shape.Shape[0] != k || shape.Shape[1] != d {
		return nil, fmt.Errorf("feature: pca: tensors of %d inputs (at most %d), %d variances and components %v do not agree",
			d, maxPCAInputs, k, shape.Shape)
	}
	return newPCA(mean, components, variance)
}
