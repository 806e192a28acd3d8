package feature

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/safetensors"
)

// spread returns n rows around (10, 20, …) with deviation d−j along axis j of
// a rotated basis that couples neighbours.
func spread(n, d int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	rows := make([]float32, 0, n*d)
	for range n {
		z := make([]float64, d)
		for j := range z {
			z[j] = float64(d-j) * r.NormFloat64()
		}
		for j := range z {
			v := z[j]
			if j+1 < d {
				v += .5 * z[j+1]
			}
			rows = append(rows, float32(10*float64(j+1)+v))
		}
	}
	return rows
}

func fit(t testing.TB, rows []float32, d, k int) *PCA {
	t.Helper()
	p, err := FitPCA(rows, d, k)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPCAByHand: rows ±3 along (3, 4)/5 and ±1 across it, around (10, 20).
func TestPCAByHand(t *testing.T) {
	rows := []float32{10 + 1.8, 20 + 2.4, 10 - 1.8, 20 - 2.4, 10 - .8, 20 + .6, 10 + .8, 20 - .6}
	p := fit(t, rows, 2, 2)
	// Float32 rows: 1e-6 relative.
	near := func(what string, got, want []float64) {
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-5 {
				t.Errorf("%s %v, want %v", what, got, want)
				return
			}
		}
	}
	near("mean", p.mean, []float64{10, 20})
	near("first axis", component(p, 0), []float64{.6, .8})
	near("second axis", component(p, 1), []float64{.8, -.6})
	near("variance", p.variance, []float64{6, 2. / 3})
	dst := make([]float32, 2)
	p.Project([]float32{11.8, 22.4}, dst)
	near("projection", []float64{float64(dst[0]), float64(dst[1])}, []float64{3, 0})
}

// TestPCAGolden compares with numpy's SVD; see testdata/pca.py for the rows.
func TestPCAGolden(t *testing.T) {
	const n, d = 40, 6
	var rows []float32
	for i := range n {
		for j := range d {
			rows = append(rows, float32((7*i*i+3*i*j+5*j*j*j)%31+i*(j+1)%5)/8)
		}
	}
	p := fit(t, rows, d, d)
	for i, line := range golden.Table(t, "pca.tsv", d+1) {
		got := p.mean
		if i > 0 {
			got = append([]float64{p.variance[i-1]}, component(p, i-1)...)
		}
		for j, want := range line {
			if math.Abs(got[j]-want) > 1e-12 {
				t.Errorf("value %d of line %d is %.15g, want %.15g", j, i, got[j], want)
			}
		}
	}
}

// TestPCADiagonalises: the axes are orthonormal, projections of the fitted
// rows have mean 0, uncorrelated entries and the variances stated, and all
// axes together keep every distance.
func TestPCADiagonalises(t *testing.T) {
	const n, d, k = 700, 12, 5
	rows := spread(n, d, 1)
	p := fit(t, rows, d, k)
	for a := range k {
		for b := range k {
			want := 0.0
			if a == b {
				want = 1
			}
			if got := dot(component(p, a), component(p, b)); math.Abs(got-want) > 1e-12 {
				t.Errorf("axes %d and %d have product %v", a, b, got)
			}
		}
	}
	var mean [k]float64
	var second [k][k]float64
	y := make([]float32, k)
	for i := range n {
		p.Project(rows[i*d:(i+1)*d], y)
		for a := range k {
			mean[a] += float64(y[a]) / n
			for b := range k {
				second[a][b] += float64(y[a]) * float64(y[b]) / (n - 1)
			}
		}
	}
	for a := range k {
		if math.Abs(mean[a]) > 1e-4 {
			t.Errorf("mean of component %d is %v", a, mean[a])
		}
		for b := range k {
			want := 0.0
			if a == b {
				want = p.variance[a]
			}
			if math.Abs(second[a][b]-want) > 1e-4*p.variance[0] {
				t.Errorf("covariance of %d and %d is %v, want %v", a, b, second[a][b], want)
			}
		}
	}
	whole := fit(t, rows, d, d)
	full := make([]float32, d)
	whole.Project(rows[:d], full)
	var in, out float64
	for j, v := range rows[:d] {
		c := float64(v) - whole.mean[j]
		in += c * c
		out += float64(full[j]) * float64(full[j])
	}
	if math.Abs(in-out) > 1e-4*in {
		t.Errorf("squared distance to the mean %v became %v", in, out)
	}
}

func TestPCADeterministicAndSigned(t *testing.T) {
	rows := spread(300, 9, 2)
	a, b := fit(t, rows, 9, 4), fit(t, rows, 9, 4)
	if !slices.Equal(a.components, b.components) || !slices.Equal(a.mean, b.mean) || !slices.Equal(a.variance, b.variance) {
		t.Error("two fits of the same rows differ")
	}
	for i := range 4 {
		c := component(a, i)
		if slices.Max(c) < -slices.Min(c) {
			t.Errorf("largest entry of axis %d is negative: %v", i, c)
		}
	}
}

func TestPCAProjects(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	rows := make([]float32, 50*16)
	for i := range rows {
		rows[i] = float32(r.IntN(256)) / 255
	}
	p := fit(t, rows, 16, 6)
	x := make([]float32, 16)
	for j := range x {
		if j%3 > 0 {
			x[j] = float32(r.IntN(256)) / 255
		}
	}
	got := make([]float32, 6)
	p.Project(x, got)
	for a := range got { // the direct sum in float64
		sum := 0.0
		for j := range x {
			sum += component(p, a)[j] * (float64(x[j]) - p.mean[j])
		}
		if math.Abs(sum-float64(got[a])) > 1e-5 {
			t.Errorf("component %d is %v, want %v", a, got[a], sum)
		}
	}
	if p.Inputs != 16 || p.Dim != 6 {
		t.Errorf("%d inputs, %d components", p.Inputs, p.Dim)
	}
	if n := testing.AllocsPerRun(20, func() { p.Project(x, got) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPCATensors(t *testing.T) {
	p := fit(t, spread(100, 7, 4), 7, 3)
	b, err := safetensors.Marshal(safetensors.File{Tensors: p.Tensors()})
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	q, err := PCAFromTensors(f.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.components, q.components) || !slices.Equal(p.mean, q.mean) ||
		!slices.Equal(p.variance, q.variance) || !slices.Equal(p.columns, q.columns) || !slices.Equal(p.offset, q.offset) {
		t.Error("read back another PCA")
	}
	put := func(tensor, at int, v float64) func([]safetensors.Tensor) []safetensors.Tensor {
		return func(ts []safetensors.Tensor) []safetensors.Tensor {
			binary.LittleEndian.PutUint64(ts[tensor].Data[8*at:], math.Float64bits(v))
			return ts
		}
	}
	for want, change := range map[string]func([]safetensors.Tensor) []safetensors.Tensor{
		`no tensor "pca.variance"`:       func(ts []safetensors.Tensor) []safetensors.Tensor { return ts[:2] },
		"is NaN, must be finite":         put(0, 2, math.NaN()),
		"of the components is +Inf":      put(1, 2, math.Inf(1)),
		"orthonormal within":             put(1, 2, p.components[2]+1e-6),
		"must not be negative nor above": put(2, 1, -1),
		"above the one before":           put(2, 2, 1e9),
		"want 2 dimensions":              func(ts []safetensors.Tensor) []safetensors.Tensor { ts[1].Shape = []int{21}; return ts },
		"do not agree":                   func(ts []safetensors.Tensor) []safetensors.Tensor { ts[1].Shape = []int{7, 3}; return ts },
		`tensor "pca.mean"`:              func(ts []safetensors.Tensor) []safetensors.Tensor { ts[0].DType = safetensors.F32; return ts },
	} {
		if _, err := PCAFromTensors(change(p.Tensors())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestFitPCARefuses(t *testing.T) {
	ok := []float32{1, 2, 3, 4}
	for _, c := range []struct {
		rows []float32
		d, k int
	}{
		{ok, 0, 1}, {ok, 4097, 1}, {ok, 2, 0}, {ok, 2, 3}, {ok[:3], 2, 1}, {ok[:2], 2, 1}, {nil, 2, 1},
		{[]float32{1, float32(math.NaN()), 3, 4}, 2, 1}, {[]float32{1, 2, float32(math.Inf(1)), 4}, 2, 1},
	} {
		if _, err := FitPCA(c.rows, c.d, c.k); err == nil {
			t.Errorf("accepted %v as rows of %d with %d components", c.rows, c.d, c.k)
		}
	}
	// Rows that are all alike have axes of variance 0, not NaN.
	if p := fit(t, []float32{5, 7, 5, 7}, 2, 2); p.variance[0] != 0 {
		t.Errorf("variance %v of equal rows", p.variance)
	}
}

func BenchmarkPCAProject784to60(b *testing.B) {
	const d = 784
	p := fit(b, spread(64, d, 5), d, 60)
	x := make([]float32, d)
	for j := range x { // a fifth is ink, as in MNIST
		if j%5 == 0 {
			x[j] = float32(byte(j)) / 255
		}
	}
	dst := make([]float32, 60)
	b.ResetTimer()
	for b.Loop() {
		p.Project(x, dst)
	}
}

func BenchmarkFitPCA784(b *testing.B) {
	const d = 784
	rows := spread(2000, d, 6)
	for b.Loop() {
		fit(b, rows, d, 60)
	}
}

// component returns axis i, of norm 1.
func component(p *PCA, i int) []float64 { return p.components[i*p.Inputs : (i+1)*p.Inputs] }
