package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

func optimumProblem(l Loss, seed uint64, n, d int) (x []float32, y []float64) {
	r := rand.New(rand.NewPCG(seed, 8))
	x, y = make([]float32, n*d), make([]float64, n)
	for i := range n {
		score := r.NormFloat64() * .5
		for j := range d {
			v := r.NormFloat64() / math.Sqrt(float64(j+1))
			x[i*d+j] = float32(v)
			score += v
		}
		y[i] = score
		if l.Binary {
			y[i] = 1
			if score < 0 {
				y[i] = -1
			}
		}
	}
	return x, y
}

func TestOptimum(t *testing.T) {
	const n, d = 600, 7
	for _, l := range losses(t) {
		for _, c := range []struct{ ridge, radius float64 }{{0, 10}, {0, .5}, {.2, 10}, {.2, .3}} {
			x, y := optimumProblem(l, 5, n, d)
			m, err := NewLinear(LinearConfig{Inputs: d, Loss: l, Ridge: c.ridge})
			if err != nil {
				t.Fatal(err)
			}
			o, err := m.Optimum(x, func(i int) float64 { return y[i] }, OptimumConfig{Radius: c.radius})
			if err != nil {
				t.Fatalf("%v, %+v: %v (%d steps)", l, c, err, o.Steps)
			}
			if size := norm(o.Theta); size > c.radius*(1+1e-9) {
				t.Errorf("%v, %+v: norm %v outside the ball", l, c, size)
			}
			at := func(theta []float64) float64 {
				sum := 0.0
				for i := range n {
					loss, _ := exactLinear(l, c.ridge, theta, x[i*d:(i+1)*d], y[i])
					sum += loss
				}
				return sum / n
			}
			if v := at(o.Theta); math.Abs(v-o.Loss) > 1e-9 {
				t.Errorf("%v, %+v: loss %v, want %v", l, c, o.Loss, v)
			}
			if gap := o.Loss - o.Lower; gap > 1e-6 || gap < -1e-12 {
				t.Errorf("%v, %+v: gap %v", l, c, gap)
			}
			// No point of the ball is better, near or far.
			r := rand.New(rand.NewPCG(2, 2))
			for k := range 300 {
				u := make([]float64, d+1)
				for j := range u {
					u[j] = r.NormFloat64()
				}
				scale := c.radius * r.Float64() / norm(u)
				if near := k%2 == 0; near {
					scale = math.Pow(10, -6*r.Float64())
				}
				for j := range u {
					u[j] *= scale
					if k%2 == 0 {
						u[j] += o.Theta[j]
					}
				}
				if size := norm(u); size > c.radius {
					for j := range u {
						u[j] *= c.radius / size
					}
				}
				if v := at(u); v < o.Lower-1e-12 {
					t.Fatalf("%v, %+v: %v below the bound %v", l, c, v, o.Lower)
				}
			}
		}
	}
}

// One feature that is always 1: the minima are the median, a quantile and the
// log-odds.
func TestOptimumByHand(t *testing.T) {
	ones := []float32{1, 1, 1, 1, 1}
	pinball := lossOf("pinball:0.9")
	for _, c := range []struct {
		loss         Loss
		y            []float64
		theta, loss1 float64
	}{
		{lossOf(Absolute), []float64{1, 2, 3, 5, 9}, 3, (2 + 1 + 0 + 2 + 6) / 5.},
		{pinball, []float64{1, 2, 3, 5, 9}, 9, .1 * (8 + 7 + 6 + 4) / 5.},
		{lossOf(Logistic), []float64{1, 1, 1, 1, -1}, math.Log(4), (4*math.Log(1.25) + math.Log(5)) / 5},
		{lossOf(Hinge), []float64{1, 1, 1, 1, -1}, 1, 2. / 5},
	} {
		m, err := NewLinear(LinearConfig{Inputs: 1, Loss: c.loss, NoIntercept: true})
		if err != nil {
			t.Fatal(err)
		}
		o, err := m.Optimum(ones, func(i int) float64 { return c.y[i] }, OptimumConfig{Radius: 50, Gap: 1e-7})
		if err != nil {
			t.Fatal(c.loss, err)
		}
		if math.Abs(o.Loss-c.loss1) > 1e-7 || math.Abs(o.Theta[0]-c.theta) > 1e-4 {
			t.Errorf("%v: %v at %v, want %v at %v", c.loss, o.Loss, o.Theta, c.loss1, c.theta)
		}
	}
}

func TestOptimumRefuses(t *testing.T) {
	m, _ := NewLinear(LinearConfig{Inputs: 2, Loss: lossOf(Hinge)})
	one := func(int) float64 { return 1 }
	for _, c := range []struct {
		x      []float32
		y      func(int) float64
		config OptimumConfig
	}{
		{nil, one, OptimumConfig{Radius: 1}},
		{[]float32{1, 2, 3}, one, OptimumConfig{Radius: 1}},
		{[]float32{1, 2}, func(int) float64 { return .5 }, OptimumConfig{Radius: 1}},
		{[]float32{1, 2}, one, OptimumConfig{}},
		{[]float32{1, 2}, one, OptimumConfig{Radius: math.Inf(1)}},
		{[]float32{1, 2}, one, OptimumConfig{Radius: 1, Gap: math.NaN()}},
	} {
		if _, err := m.Optimum(c.x, c.y, c.config); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}
