package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/model/internal/kernel"
)

func mlps(t testing.TB, inputs, hidden, classes int) []*Model {
	t.Helper()
	var out []*Model
	for _, k := range []*kernel.Kernel{kernel.Portable(), kernel.Best()} {
		m, err := newMLP(MLPConfig{Inputs: inputs, Hidden: hidden, Classes: classes}, k)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// exactMLP computes the loss in float64, independently of Forward, and the
// smallest distance of a hidden unit to its kink.
func exactMLP(m *Model, theta []float64, x []float32, y int) (loss, kink float64) {
	net := m.kind.(*mlp)
	in, h := m.Inputs, net.hidden
	z := slices.Clone(theta[net.b2:])
	kink = math.Inf(1)
	for j := range h {
		v := theta[in*h+j]
		for i, f := range x {
			v += theta[i*h+j] * float64(f)
		}
		kink = min(kink, math.Abs(v))
		for c := range z {
			z[c] += max(0, v) * theta[net.w2+j*m.Classes+c]
		}
	}
	top, sum := slices.Max(z), 0.0
	for _, v := range z {
		sum += math.Exp(v - top)
	}
	return math.Log(sum) + top - z[y], kink
}

// TestMLPGradient compares Grad and GradCoord with central differences on
// every coordinate, and the kernels with each other. Seeds within reach of a
// kink are left out; there must be few.
func TestMLPGradient(t *testing.T) {
	const h = 1e-5
	kinks, runs := 0, 0
	for _, c := range [][3]int{{7, 5, 3}, {60, 32, 10}, {9, 40, 2}, {3, 70, 11}, {1, 1, 2}} {
		for seed := range uint64(3) {
			var first []float32
			for _, m := range mlps(t, c[0], c[1], c[2]) {
				theta := m.Init(seed)
				_, x := example(m, 0.3, seed)
				r := rand.New(rand.NewPCG(seed, 9))
				for i := range theta {
					theta[i] += float32(r.NormFloat64() / 5)
				}
				y := int(seed) % c[2]
				wide := widen(theta)
				wantLoss, kink := exactMLP(m, wide, x, y)
				runs++
				if kink < 10*h {
					kinks++
					continue
				}
				s := m.NewScratch()
				grad := make([]float32, m.Params)
				for i := range grad {
					grad[i] = 1e9
				}
				loss := m.Grad(theta, x, float64(y), grad, s)
				size := norm(widen(grad))
				if math.Abs(loss-wantLoss) > 1e-5*(1+wantLoss) {
					t.Errorf("%v: loss %v, want %v", c, loss, wantLoss)
				}
				for j, v := range wide {
					wide[j] = v + h
					up, _ := exactMLP(m, wide, x, y)
					wide[j] = v - h
					down, _ := exactMLP(m, wide, x, y)
					wide[j] = v
					if want := (up - down) / (2 * h); math.Abs(float64(grad[j])-want) > 2e-6*(1+size) {
						t.Fatalf("%v seed %d: gradient[%d] = %v, want %v", c, seed, j, grad[j], want)
					}
					g, l := m.GradCoord(theta, x, float64(y), j, s)
					if math.Abs(float64(g)-float64(grad[j])) > 1e-6*size || l != loss {
						t.Fatalf("%v seed %d: coordinate %d = %v, want %v", c, seed, j, g, grad[j])
					}
				}
				if first == nil {
					first = grad
				} else if d := distance(grad, widen(first)); d > 1e-6 {
					t.Errorf("%v seed %d: kernels differ by %v of the gradient's norm", c, seed, d)
				}
			}
		}
	}
	if kinks > runs/5 {
		t.Errorf("%d of %d gradients near a kink", kinks, runs)
	}
}

func TestMLPBatchIsSumOfClients(t *testing.T) {
	m := mlps(t, 12, 32, 4)[1]
	theta := m.Init(5)
	const n = 20
	var x []float32
	y := make([]int32, n)
	for i := range y {
		_, row := example(m, 0, uint64(i))
		x, y[i] = append(x, row...), int32(i%4)
	}
	mean := func(theta []float64) float64 {
		sum := 0.0
		for i := range y {
			l, _ := exactMLP(m, theta, x[i*12:(i+1)*12], int(y[i]))
			sum += l
		}
		return sum
	}
	got := make([]float64, m.Params)
	loss := sumGradients(m, theta, x, y, got, make([]float32, m.Params), m.NewScratch())
	wide := widen(theta)
	if want := mean(wide); math.Abs(loss-want) > 1e-5*want {
		t.Errorf("loss %v, want %v", loss, want)
	}
	const h = 1e-6 // no unit of these seeds is nearer to its kink
	for j, v := range wide {
		wide[j] = v + h
		up := mean(wide)
		wide[j] = v - h
		down := mean(wide)
		wide[j] = v
		if want := (up - down) / (2 * h); math.Abs(got[j]-want) > 1e-5 {
			t.Errorf("gradient[%d] = %v, want %v", j, got[j], want)
		}
	}
}

func TestMLPIsFinite(t *testing.T) {
	for _, m := range mlps(t, 5, 33, 3) {
		s, grad := m.NewScratch(), make([]float32, m.Params)
		for _, size := range []float32{1e-40, 1, 1e20, math.MaxFloat32} {
			for _, scale := range []float32{1e-40, 1, 1e20, math.MaxFloat32} {
				theta, x := example(m, 0, 1)
				for i := range theta {
					theta[i] = max(-1, min(1, theta[i])) * size
				}
				for i := range x {
					x[i] = max(-1, min(1, x[i])) * scale
				}
				loss := m.Grad(theta, x, 1, grad, s)
				one, _ := m.GradCoord(theta, x, 1, 2, s)
				if loss-loss != 0 || one-one != 0 || slices.ContainsFunc(grad, func(v float32) bool { return v-v != 0 }) {
					t.Fatalf("parameters × %v, features × %v: loss %v, coordinate %v, gradient %v", size, scale, loss, one, grad)
				}
			}
		}
	}
}

func TestNewMLPRefuses(t *testing.T) {
	for want, c := range map[string]MLPConfig{
		"inputs = 0 and hidden = 3 must be at least 1": {Inputs: 0, Hidden: 3, Classes: 2},
		"hidden = -1 must be":                          {Inputs: 1, Hidden: -1, Classes: 2},
		"classes = 1 must be at least 2":               {Inputs: 1, Hidden: 1, Classes: 1},
		"exceed 1073741824 parameters":                 {Inputs: 1 << 20, Hidden: 1 << 20, Classes: 2},
		"4 inputs × 2147483647 hidden":                 {Inputs: 4, Hidden: math.MaxInt32, Classes: 2},
	} {
		if _, err := NewMLP(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// TestModels holds what every Model promises.
func TestModels(t *testing.T) {
	ridge, err := NewLinear(LinearConfig{Inputs: 8, Loss: lossOf(Logistic), Ridge: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Model{newSoftmax(t, 6, 10), NewCNN(), mlps(t, 60, 40, 10)[1], ridge} {
		theta := m.Init(3)
		if len(theta) != m.Params || !slices.Equal(theta, m.Init(3)) {
			t.Errorf("%s: Init gives %d values, want %d that repeat", m.Name, len(theta), m.Params)
		}
		theta, x := example(m, 0.2, 4)
		for i := range theta {
			theta[i] /= 10
		}
		tensors, err := m.Tensors(theta)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Theta(tensors)
		if err != nil || !slices.Equal(got, theta) {
			t.Errorf("%s: tensors do not give theta back: %v", m.Name, err)
		}
		if _, err := m.Theta(tensors[1:]); err == nil || !strings.Contains(err.Error(), m.Name+": no tensor") {
			t.Errorf("%s: a tensor too few: %v", m.Name, err)
		}
		grad, s := make([]float32, m.Params), m.NewScratch()
		y := float64(m.Classes - 1)
		loss := m.Grad(theta, x, float64(y), grad, s)
		tol := 1e-6 * norm(widen(grad))
		for j := 0; j < m.Params; j += 1 + m.Params/500 {
			if g, l := m.GradCoord(theta, x, y, j, s); math.Abs(float64(g-grad[j])) > tol || l != loss {
				t.Fatalf("%s: coordinate %d = %v with loss %v, want %v with %v", m.Name, j, g, l, grad[j], loss)
			}
		}
		if n := testing.AllocsPerRun(3, func() {
			m.Grad(theta, x, float64(y), grad, s)
			m.GradCoord(theta, x, y, 1, s)
		}); n != 0 {
			t.Errorf("%s: %v allocations", m.Name, n)
		}
	}
}

func BenchmarkMLPGrad(b *testing.B) {
	for i, m := range mlps(b, 60, 1024, 10) {
		b.Run([]string{"portable", "best"}[i], func(b *testing.B) {
			theta := m.Init(1)
			_, x := example(m, 0, 1)
			grad, s := make([]float32, m.Params), m.NewScratch()
			b.ReportAllocs()
			for b.Loop() {
				m.Grad(theta, x, 3, grad, s)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "examples/s")
		})
	}
}

// BenchmarkMLPGradCoord takes every coordinate in turn, in a scattered order.
func BenchmarkMLPGradCoord(b *testing.B) {
	m := mlps(b, 60, 1024, 10)[1]
	theta := m.Init(1)
	_, x := example(m, 0, 1)
	s, j := m.NewScratch(), 0
	b.ReportAllocs()
	for b.Loop() {
		j = (j + 5471) % m.Params
		m.GradCoord(theta, x, 3, j, s)
	}
}
