package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/safetensors"
)

func newSoftmax(t testing.TB, inputs, classes int) *Model {
	t.Helper()
	m, err := NewSoftmax(inputs, classes)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// exactLoss computes the cross-entropy in float64, independently of Forward.
func exactLoss(m *Model, theta []float64, x []float32, y int) float64 {
	k := m.Classes
	z := make([]float64, k)
	for c := range z {
		z[c] = theta[m.Inputs*k+c]
		for i, v := range x {
			z[c] += theta[i*k+c] * float64(v)
		}
	}
	top := slices.Max(z)
	sum := 0.0
	for _, v := range z {
		sum += math.Exp(v - top)
	}
	return math.Log(sum) + top - z[y]
}

func widen(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, f := range v {
		w[i] = float64(f)
	}
	return w
}

// TestGradAgainstDifferences covers the path for ten classes and the general
// one, dense and sparse features.
func TestGradAgainstDifferences(t *testing.T) {
	for _, c := range []struct {
		inputs, classes int
		zeros           float64
	}{{7, 10, 0}, {30, 10, 0.5}, {9, 2, 0}, {12, 3, 0.5}, {5, 11, 0}, {1, 26, 0}} {
		m := newSoftmax(t, c.inputs, c.classes)
		for seed := range uint64(5) {
			theta, x := example(m, c.zeros, seed)
			y := int(seed) % c.classes
			grad := make([]float32, m.Params)
			for i := range grad {
				grad[i] = 1e9 // must be overwritten
			}
			loss := m.Grad(theta, x, float64(y), grad, m.NewScratch())
			wide := widen(theta)
			if want := exactLoss(m, wide, x, y); math.Abs(loss-want) > 1e-5*(1+want) {
				t.Errorf("%+v seed %d: loss %v, want %v", c, seed, loss, want)
			}
			const h = 1e-5
			for j := range wide {
				v := wide[j]
				wide[j] = v + h
				up := exactLoss(m, wide, x, y)
				wide[j] = v - h
				down := exactLoss(m, wide, x, y)
				wide[j] = v
				if want := (up - down) / (2 * h); math.Abs(float64(grad[j])-want) > 2e-6 {
					t.Errorf("%+v seed %d: gradient[%d] = %v, want %v", c, seed, j, grad[j], want)
				}
			}
		}
	}
}

// TestBatchIsSumOfClients compares Batch with the closed form Σ (x,1) ⊗ (p − e)
// in float64.
func TestBatchIsSumOfClients(t *testing.T) {
	m := newSoftmax(t, 20, 10)
	theta, _ := example(m, 0, 1)
	const n = 50
	r := rand.New(rand.NewPCG(2, 2))
	x := make([]float32, n*20)
	y := make([]int32, n)
	want := make([]float64, m.Params)
	wantLoss := 0.0
	for i := range y {
		row := x[i*20 : (i+1)*20]
		for j := range row {
			row[j] = float32(r.NormFloat64())
		}
		y[i] = r.Int32N(10)
		wantLoss += exactLoss(m, widen(theta), row, int(y[i]))
		for c := range 10 {
			e := math.Exp(-exactLoss(m, widen(theta), row, c))
			if c == int(y[i]) {
				e--
			}
			for j, v := range row {
				want[j*10+c] += float64(v) * e
			}
			want[200+c] += e
		}
	}
	got := make([]float64, m.Params)
	loss := sumGradients(m, theta, x, y, got, make([]float32, m.Params), m.NewScratch())
	if math.Abs(loss-wantLoss) > 1e-4 {
		t.Errorf("loss %v, want %v", loss, wantLoss)
	}
	for j := range got {
		if math.Abs(got[j]-want[j]) > 1e-4 {
			t.Errorf("gradient[%d] = %v, want %v", j, got[j], want[j])
		}
	}
}

// TestTenClassesAgree: the path for ten classes is the general path.
func TestTenClassesAgree(t *testing.T) {
	m := newSoftmax(t, 33, 10)
	theta, x := example(m, 0.3, 4)
	want := make([]float32, 10)
	scores(theta, x, want)
	var got [10]float32
	scores10(theta, x, &got)
	for c := range got {
		if math.Abs(float64(got[c]-want[c])) > 1e-5 {
			t.Errorf("score %d = %v, want %v", c, got[c], want[c])
		}
	}
	e := [10]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	a, b := make([]float32, m.Params), make([]float32, m.Params)
	outer10(x, &e, a)
	outer(x, e[:], b)
	if !slices.Equal(a, b) {
		t.Error("outer products differ")
	}
}

// TestLargeLogits: no NaN or infinity, also where float32 sums overflow.
func TestLargeLogits(t *testing.T) {
	for _, classes := range []int{10, 3} {
		m := newSoftmax(t, 4, classes)
		for _, size := range []float32{1, 1e3, 1e10, 1e30, math.MaxFloat32} {
			for _, feature := range []float32{1, 1e10, math.MaxFloat32} {
				theta := make([]float32, m.Params)
				for i := range theta {
					theta[i] = size
					if i%3 == 0 || i%7 == 0 {
						theta[i] = -size
					}
				}
				x := []float32{feature, -feature, feature, feature}
				logits := make([]float32, classes)
				grad := make([]float32, m.Params)
				s := m.NewScratch()
				for y := range classes {
					m.kind.forward(theta, x, logits, s)
					loss := m.Grad(theta, x, float64(y), grad, s)
					if math.IsNaN(loss) || math.IsInf(loss, 0) || loss < 0 {
						t.Fatalf("parameters ±%v, features ±%v: loss %v", size, feature, loss)
					}
					for _, v := range append(slices.Clone(logits), grad...) {
						if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
							t.Fatalf("parameters ±%v, features ±%v: %v", size, feature, v)
						}
					}
				}
			}
		}
	}
	// The loss of a certain mistake is the distance of the logits.
	m := newSoftmax(t, 1, 2)
	grad := make([]float32, m.Params)
	loss := m.Grad([]float32{1e6, -1e6, 0, 0}, []float32{1}, 1, grad, m.NewScratch())
	if loss != 2e6 || grad[0] != 1 || grad[1] != -1 {
		t.Errorf("loss %v, gradient %v", loss, grad)
	}
	// A certain hit keeps its small gradient: 1 − p = e^-20, not 0.
	loss = m.Grad([]float32{20, 0, 0, 0}, []float32{1}, 0, grad, m.NewScratch())
	if want := math.Log1p(math.Exp(-20)); math.Abs(loss-want) > 1e-9 || math.Abs(float64(grad[0])/-math.Exp(-20)-1) > 1e-6 {
		t.Errorf("loss %v, want %v; gradient %v", loss, want, grad)
	}
}

func TestGradDoesNotAllocate(t *testing.T) {
	for _, classes := range []int{10, 4} {
		m := newSoftmax(t, 50, classes)
		theta, x := example(m, 0.2, 1)
		grad, s := make([]float32, m.Params), m.NewScratch()
		if n := testing.AllocsPerRun(20, func() { m.Grad(theta, x, 1, grad, s) }); n != 0 {
			t.Errorf("%d classes: %v allocations", classes, n)
		}
	}
}

func TestNewSoftmaxRefuses(t *testing.T) {
	for want, c := range map[string][2]int{
		"model: inputs = 0 must be at least 1":  {0, 10},
		"model: inputs = -5 must be at least 1": {-5, 10},
		"model: classes = 1 must be at least 2": {5, 1},
		"exceed 1073741824 parameters":          {1 << 20, 1 << 20},
		"classes exceed 1073741824 parameters":  {math.MaxInt, 2},
	} {
		if _, err := NewSoftmax(c[0], c[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", c, err, want)
		}
	}
}

func TestTensors(t *testing.T) {
	m := newSoftmax(t, 3, 4)
	theta, _ := example(m, 0, 1)
	tensors, err := m.Tensors(theta)
	if err != nil {
		t.Fatal(err)
	}
	b, err := safetensors.Marshal(safetensors.File{Tensors: tensors})
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Theta(f.Tensors)
	if err != nil || !slices.Equal(got, theta) {
		t.Errorf("parameters read back as %v, %v; want %v", got, err, theta)
	}
	if w, ok := f.Find("weight"); !ok || !slices.Equal(w.Shape, []int{3, 4}) {
		t.Errorf("weight has shape %v", w.Shape)
	}
	if _, err := m.Tensors(theta[1:]); err == nil {
		t.Error("wrote too few parameters")
	}
	weight, bias := tensors[0], tensors[1]
	bad := slices.Clone(theta)
	bad[2] = float32(math.NaN())
	nan, err := m.Tensors(bad)
	if err != nil {
		t.Fatal(err)
	}
	for want, tensors := range map[string][]safetensors.Tensor{
		`no tensor "bias"`:                     {weight},
		`no tensor "weight"`:                   {bias},
		`unexpected tensor "extra"`:            {weight, bias, safetensors.New[float32]("extra", []int{0}, nil)},
		`unexpected tensor "weight"`:           {weight, weight},
		"has shape [4 3], want [3 4]":          {safetensors.New("weight", []int{4, 3}, theta[:12]), bias},
		`tensor "bias" is F64, want F32`:       {weight, safetensors.New("bias", []int{4}, make([]float64, 4))},
		`"weight" holds NaN at 2, must be fin`: nan,
	} {
		if _, err := m.Theta(tensors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
