package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/model/internal/kernel"
)

// wideCNN is the network as its description reads, in float64 and without any
// of the tricks of CNN: 14×14 and 13×13 values, explicit bounds, scatter.
type wideCNN struct {
	theta, grad []float64
	at          int
}

// take returns the next n parameters and their gradients.
func (n *wideCNN) take(count int) (w, g []float64) {
	w, g = n.theta[n.at:n.at+count], n.grad[n.at:n.at+count]
	n.at += count
	return w, g
}

// conv returns a convolution's outputs and the function that goes back.
func (n *wideCNN) conv(x []float64, side, in, size, pad, out int) (y []float64, back func(dy []float64) []float64) {
	w, dw := n.take(size * size * in * 16)
	b, db := n.take(16)
	y = make([]float64, out*out*16)
	each := func(f func(o, i, t int)) {
		for oy := range out {
			for ox := range out {
				for ky := range size {
					for kx := range size {
						iy, ix := 2*oy+ky-pad, 2*ox+kx-pad
						if iy < 0 || ix < 0 || iy >= side || ix >= side {
							continue
						}
						for c := range in {
							f((oy*out+ox)*16, (iy*side+ix)*in+c, ((ky*size+kx)*in+c)*16)
						}
					}
				}
			}
		}
	}
	for i := range y {
		y[i] = b[i%16]
	}
	each(func(o, i, t int) {
		for c := range 16 {
			y[o+c] += x[i] * w[t+c]
		}
	})
	return y, func(dy []float64) []float64 {
		dx := make([]float64, len(x))
		each(func(o, i, t int) {
			for c := range 16 {
				dx[i] += dy[o+c] * w[t+c]
				dw[t+c] += dy[o+c] * x[i]
			}
		})
		for i, v := range dy {
			db[i%16] += v
		}
		return dx
	}
}

// reluPool applies ReLU, then the pool, as two steps.
func reluPool(x []float64, side int) (y []float64, back func(dy []float64) []float64) {
	r := slices.Clone(x)
	for i, v := range r {
		r[i] = max(0, v)
	}
	out := side - 1
	y = make([]float64, out*out*16)
	from := make([]int, len(y))
	for i := range y {
		p, c := i/16, i%16
		at := ((p/out)*side+p%out)*16 + c
		from[i] = at
		for _, q := range []int{at + 16, at + side*16, at + side*16 + 16} {
			if r[q] > r[from[i]] {
				from[i] = q
			}
		}
		y[i] = r[from[i]]
	}
	return y, func(dy []float64) []float64 {
		dx := make([]float64, len(x))
		for i, v := range dy {
			if x[from[i]] > 0 {
				dx[from[i]] += v
			}
		}
		return dx
	}
}

func (n *wideCNN) dense(x []float64, out int) (y []float64, back func(dy []float64) []float64) {
	w, dw := n.take(len(x) * out)
	b, db := n.take(out)
	y = slices.Clone(b)
	for i, v := range x {
		for j := range y {
			y[j] += v * w[i*out+j]
		}
	}
	return y, func(dy []float64) []float64 {
		dx := make([]float64, len(x))
		for i, v := range x {
			for j, d := range dy {
				dx[i] += d * w[i*out+j]
				dw[i*out+j] += d * v
			}
		}
		copy(db, dy)
		return dx
	}
}

func (n *wideCNN) loss(image []float32, y int, gradient bool) (float64, []float64) {
	n.at = 0
	x := widen(image)
	a, backA := n.conv(x, 28, 1, 8, 3, 14)
	b, backB := reluPool(a, 14)
	c, backC := n.conv(b, 13, 16, 4, 0, 5)
	d, backD := reluPool(c, 5)
	e, backE := n.dense(d, 32)
	f := slices.Clone(e)
	for i, v := range f {
		f[i] = max(0, v)
	}
	z, backZ := n.dense(f, 10)
	top, sum := slices.Max(z), 0.0
	for _, v := range z {
		sum += math.Exp(v - top)
	}
	loss := math.Log(sum) + top - z[y]
	if gradient {
		clear(n.grad)
		dz := make([]float64, 10)
		for j, v := range z {
			dz[j] = math.Exp(v-top) / sum
		}
		dz[y]--
		df := backZ(dz)
		for i, v := range e {
			if v <= 0 {
				df[i] = 0
			}
		}
		backA(backB(backC(backD(backE(df)))))
	}
	return loss, z
}

func newWide(theta []float32) *wideCNN {
	return &wideCNN{theta: widen(theta), grad: make([]float64, len(theta))}
}

// digit draws an image with a dark border and a few strokes of noise; sharp
// pictures have many windows whose corners tie at the bias.
func digit(seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 77))
	x := make([]float32, 784)
	for y := 4; y < 24; y++ {
		for i := 4; i < 24; i++ {
			if r.IntN(3) == 0 {
				x[y*28+i] = float32(1+r.IntN(255)) / 255
			}
		}
	}
	return x
}

// trained returns initial weights with biases that are not 0.
func trained(m *Model, seed uint64) []float32 {
	theta := m.Init(seed)
	r := rand.New(rand.NewPCG(seed, 78))
	for i := range theta {
		theta[i] += float32(r.NormFloat64() / 50)
	}
	return theta
}

// distance returns ‖a − b‖ / ‖b‖.
func distance(a []float32, b []float64) float64 {
	diff := widen(a)
	for i := range diff {
		diff[i] -= b[i]
	}
	return norm(diff) / norm(b)
}

func kernelOf(m *Model) string { return m.kind.(*cnn).k.Name }

func kernels() []*Model { return []*Model{newCNN(kernel.Portable()), NewCNN()} }

// TestWideCNNAgainstDifferences checks the reference itself. Where a kink lies
// between the two points the differences at h and h/2 disagree; such
// coordinates are left out, and must be few.
func TestWideCNNAgainstDifferences(t *testing.T) {
	const h = 1e-5
	kinks, coordinates := 0, 0
	for seed := range uint64(2) {
		m := NewCNN()
		n := newWide(trained(m, seed))
		x, y := digit(seed), int(seed)
		n.loss(x, y, true)
		grad := slices.Clone(n.grad)
		size := norm(grad)
		slope := func(j int, h float64) float64 {
			v := n.theta[j]
			n.theta[j] = v + h
			up, _ := n.loss(x, y, false)
			n.theta[j] = v - h
			down, _ := n.loss(x, y, false)
			n.theta[j] = v
			return (up - down) / (2 * h)
		}
		r := rand.New(rand.NewPCG(seed, 5))
		for _, layer := range [][2]int{{0, cnnB1}, {cnnB1, cnnW2}, {cnnW2, cnnB2}, {cnnB2, cnnW3}, {cnnW3, cnnB3}, {cnnB3, cnnW4}, {cnnW4, cnnParams}} {
			for range 12 {
				j := layer[0] + r.IntN(layer[1]-layer[0])
				a, b := slope(j, h), slope(j, h/2)
				coordinates++
				if math.Abs(a-b) > 1e-7*size {
					kinks++
				} else if math.Abs(a-grad[j]) > 1e-6*size {
					t.Errorf("seed %d: gradient[%d] = %v, differences %v", seed, j, grad[j], a)
				}
			}
		}
	}
	if kinks > coordinates/10 {
		t.Errorf("%d of %d coordinates near a kink", kinks, coordinates)
	}
}

// TestCNNGradient compares every coordinate with the reference, on both
// kernels, and the two kernels with each other.
func TestCNNGradient(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 6
	}
	worst := 0.0
	for seed := range seeds {
		var first []float32
		for _, m := range kernels() {
			theta := trained(m, seed)
			x, y := digit(seed), int(seed%10)
			n := newWide(theta)
			wantLoss, want := n.loss(x, y, true)
			s := m.NewScratch()
			// Traces of another example must not show.
			grad := make([]float32, m.Params)
			m.Grad(theta, digit(seed+99), 3, grad, s)
			for i := range grad {
				grad[i] = 1e9
			}
			loss := m.Grad(theta, x, float64(y), grad, s)
			if math.Abs(loss-wantLoss) > 1e-5 {
				t.Errorf("%s seed %d: loss %v, want %v", kernelOf(m), seed, loss, wantLoss)
			}
			if d := distance(grad, n.grad); d > 2e-6 {
				t.Errorf("%s seed %d: gradient off by %v of its norm", kernelOf(m), seed, d)
			}
			logits := make([]float32, 10)
			m.kind.forward(theta, x, logits, s)
			for c, v := range logits {
				if math.Abs(float64(v)-want[c]) > 1e-5 {
					t.Errorf("%s seed %d: logit %d = %v, want %v", kernelOf(m), seed, c, v, want[c])
				}
			}
			if first == nil {
				first = grad
			} else {
				worst = max(worst, distance(grad, widen(first)))
			}
		}
	}
	t.Logf("kernels differ by at most %.2g of the gradient's norm", worst)
	if worst > 1e-6 {
		t.Errorf("kernels differ by %v of the gradient's norm, want at most 1e-6", worst)
	}
}

// TestKernelsAgreeOnSureModels: where p is nearly e_y the gradient is a small
// difference, and the rounding of a logit shows in it.
func TestKernelsAgreeOnSureModels(t *testing.T) {
	portable, best := kernels()[0], kernels()[1]
	a, b, logits := make([]float32, cnnParams), make([]float32, cnnParams), make([]float32, 10)
	sp, sb := portable.NewScratch(), best.NewScratch()
	sure := 0
	for seed := range uint64(20) {
		theta, x := trained(best, seed), digit(seed)
		for i := range theta {
			theta[i] *= 4
		}
		best.kind.forward(theta, x, logits, sb)
		y := argmax(logits)
		loss := portable.Grad(theta, x, float64(y), a, sp)
		best.Grad(theta, x, float64(y), b, sb)
		if loss < 0.01 {
			sure++
		}
		if d := distance(b, widen(a)); d > 1e-6 {
			t.Errorf("seed %d, loss %v: kernels differ by %v of the gradient's norm, want at most 1e-6", seed, loss, d)
		}
	}
	if sure < 5 {
		t.Errorf("%d sure models, want 5: the test shows nothing", sure)
	}
}

// TestCNNCoordinates: GradCoord is Grad, on every coordinate.
func TestCNNCoordinates(t *testing.T) {
	for _, m := range kernels() {
		theta, x := trained(m, 7), digit(8)
		grad, s := make([]float32, m.Params), m.NewScratch()
		loss := m.Grad(theta, x, 5, grad, s)
		tol := 1e-6 * norm(widen(grad))
		step := 1
		if testing.Short() || kernelOf(m) == "portable" {
			step = 37
		}
		for j := 0; j < m.Params; j += step {
			g, l := m.GradCoord(theta, x, 5, j, s)
			if math.Abs(float64(g)-float64(grad[j])) > tol || l != loss {
				t.Fatalf("%s: coordinate %d = %v with loss %v, want %v with %v", kernelOf(m), j, g, l, grad[j], loss)
			}
		}
	}
}

func TestCNNBatchIsSumOfClients(t *testing.T) {
	m := NewCNN()
	theta := trained(m, 1)
	var x []float32
	var y []int32
	want, wantLoss := make([]float64, m.Params), 0.0
	for i := range 12 {
		x = append(x, digit(uint64(i))...)
		y = append(y, int32(i%10))
		n := newWide(theta)
		l, _ := n.loss(digit(uint64(i)), i%10, true)
		wantLoss += l
		for j, g := range n.grad {
			want[j] += g
		}
	}
	got := make([]float64, m.Params)
	loss := sumGradients(m, theta, x, y, got, make([]float32, m.Params), m.NewScratch())
	if math.Abs(loss-wantLoss) > 1e-4 {
		t.Errorf("loss %v, want %v", loss, wantLoss)
	}
	for j := range got {
		got[j] -= want[j]
	}
	if d := norm(got) / norm(want); d > 2e-6 {
		t.Errorf("batch gradient off by %v of its norm", d)
	}
}

// TestCNNIsFinite: whatever overflows, nothing that leaves is NaN or infinite.
func TestCNNIsFinite(t *testing.T) {
	for _, m := range kernels() {
		s, grad, logits := m.NewScratch(), make([]float32, m.Params), make([]float32, 10)
		for _, size := range []float32{1e-40, 1, 1e3, 1e10, 1e20, 1e38, math.MaxFloat32} {
			theta := trained(m, 3)
			for i := range theta {
				theta[i] = max(-1, min(1, theta[i])) * size
			}
			for _, scale := range []float32{1e-40, 1, 1e20, math.MaxFloat32} {
				x := digit(1)
				for i := range x {
					x[i] *= scale
				}
				m.kind.forward(theta, x, logits, s)
				loss := m.Grad(theta, x, 2, grad, s)
				one, _ := m.GradCoord(theta, x, 2, 5, s)
				if math.IsNaN(loss) || math.IsInf(loss, 0) || loss < 0 || one-one != 0 {
					t.Fatalf("%s: parameters × %v, image × %v: loss %v, coordinate %v", kernelOf(m), size, scale, loss, one)
				}
				for _, v := range append(slices.Clone(logits), grad...) {
					if v-v != 0 {
						t.Fatalf("%s: parameters × %v, image × %v: %v", kernelOf(m), size, scale, v)
					}
				}
			}
		}
		// Nothing of it stays behind.
		theta := trained(m, 3)
		m.Grad(theta, digit(1), 2, grad, s)
		fresh := make([]float32, m.Params)
		m.Grad(theta, digit(1), 2, fresh, m.NewScratch())
		if !slices.Equal(grad, fresh) {
			t.Errorf("%s: the gradient depends on earlier examples", kernelOf(m))
		}
	}
}

func TestCNNDoesNotAllocate(t *testing.T) {
	for _, m := range kernels() {
		theta, x := trained(m, 1), digit(1)
		grad, s := make([]float32, m.Params), m.NewScratch()
		if n := testing.AllocsPerRun(5, func() {
			m.Grad(theta, x, 1, grad, s)
			m.GradCoord(theta, x, 1, 3, s)
		}); n != 0 {
			t.Errorf("%s: %v allocations", kernelOf(m), n)
		}
	}
}

func TestCNNInit(t *testing.T) {
	m := NewCNN()
	if m.Params != 13706 || len(m.Init(1)) != 13706 {
		t.Fatalf("%d parameters, %d initial ones, want 13706", m.Params, len(m.Init(1)))
	}
	if !slices.Equal(m.Init(1), m.Init(1)) || slices.Equal(m.Init(1), m.Init(2)) {
		t.Error("initial parameters are not a function of the seed")
	}
	tensors, err := m.Tensors(m.Init(1))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range cnnLayout {
		v, err := safetensors.Values[float32](tensors[i])
		if err != nil {
			t.Fatal(err)
		}
		if p.fanIn == 0 {
			if slices.Max(v) != 0 || slices.Min(v) != 0 {
				t.Errorf("%s does not start at 0", p.name)
			}
			continue
		}
		// A uniform law on ±b: n draws reach within b·20/n of either end but
		// with probability 2e^-10 a side; the seed is fixed.
		b, n := math.Sqrt(6/float64(p.fanIn+p.fanOut)), float64(len(v))
		for _, end := range []float64{float64(slices.Max(v)), -float64(slices.Min(v))} {
			if end > b || end < b*(1-20/n) {
				t.Errorf("%s: extreme value %v, want just within %v", p.name, end, b)
			}
		}
	}
	theta, err := m.Theta(tensors)
	if err != nil || !slices.Equal(theta, m.Init(1)) {
		t.Errorf("parameters do not survive their tensors: %v", err)
	}
}

func benchmarkCNN(b *testing.B, f func(m *Model, theta, x, grad []float32, s *workspace)) {
	for _, m := range kernels() {
		b.Run(kernelOf(m), func(b *testing.B) {
			theta, x := trained(m, 1), digit(1)
			grad, s := make([]float32, m.Params), m.NewScratch()
			b.ReportAllocs()
			for b.Loop() {
				f(m, theta, x, grad, s)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "examples/s")
		})
	}
}

func BenchmarkCNNForward(b *testing.B) {
	benchmarkCNN(b, func(m *Model, theta, x, grad []float32, s *workspace) { m.kind.forward(theta, x, grad[:10], s) })
}

func BenchmarkCNNGrad(b *testing.B) {
	benchmarkCNN(b, func(m *Model, theta, x, grad []float32, s *workspace) { m.Grad(theta, x, 3, grad, s) })
}

// BenchmarkCNNGradCoord takes every coordinate in turn, in a scattered order.
func BenchmarkCNNGradCoord(b *testing.B) {
	j := 0
	benchmarkCNN(b, func(m *Model, theta, x, grad []float32, s *workspace) {
		j = (j + 5471) % cnnParams // no common factor
		m.GradCoord(theta, x, 3, j, s)
	})
}
