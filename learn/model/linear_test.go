package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func losses(t testing.TB) []Loss {
	t.Helper()
	var out []Loss
	for _, text := range []string{"hinge", "logistic", "absolute", "pinball:0.5", "pinball:0.9", "pinball:0.05"} {
		l, err := ParseLoss(text)
		if err != nil || l.Name != text {
			t.Fatalf("ParseLoss(%q) = %v, %v", text, l, err)
		}
		out = append(out, l)
	}
	return out
}

// lossOf is a loss that there is.
func lossOf(text string) Loss {
	l, err := ParseLoss(text)
	if err != nil {
		panic(err)
	}
	return l
}

// exactScore sums in a plain order.
func exactScore(theta []float64, x []float32) float64 {
	sum := 0.0
	for i, v := range x {
		sum += theta[i] * float64(v)
	}
	if len(theta) > len(x) {
		sum += theta[len(x)]
	}
	return sum
}

// exactLinear writes the losses down as the literature does.
func exactLinear(l Loss, ridge float64, theta []float64, x []float32, y float64) (loss, kink float64) {
	s := exactScore(theta, x)
	switch name := l.Name; {
	case name == "hinge":
		loss, kink = max(0, 1-y*s), math.Abs(1-y*s)
	case name == "logistic":
		loss, kink = math.Log(1+math.Exp(-y*s)), math.Inf(1)
	case name == "absolute":
		loss, kink = math.Abs(y-s), math.Abs(y-s)
	default:
		loss, kink = max(l.tau*(y-s), (l.tau-1)*(y-s)), math.Abs(y-s)
	}
	for _, v := range theta {
		loss += ridge / 2 * v * v
	}
	return loss, kink
}

func TestLinearGradient(t *testing.T) {
	const h = 1e-6
	kinks, runs := 0, 0
	for _, l := range losses(t) {
		for _, c := range []LinearConfig{{Inputs: 1}, {Inputs: 6, Ridge: 0.3}, {Inputs: 9, NoIntercept: true}, {Inputs: 4, NoIntercept: true, Ridge: 2}} {
			c.Loss = l
			m, err := NewLinear(c)
			if err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(8) {
				r := rand.New(rand.NewPCG(seed, 3))
				theta, x := make([]float32, m.Params), make([]float32, c.Inputs)
				for _, v := range [][]float32{theta, x} {
					for i := range v {
						v[i] = float32(r.NormFloat64())
					}
				}
				y := r.NormFloat64()
				if l.Binary {
					y = float64(2*r.IntN(2) - 1)
				}
				if err := l.checkTarget(y); err != nil {
					t.Fatal(err)
				}
				wide := widen(theta)
				want, kink := exactLinear(l, c.Ridge, wide, x, y)
				runs++
				if kink < 1e-4 {
					kinks++
					continue
				}
				grad := make([]float32, m.Params)
				for i := range grad {
					grad[i] = 1e9
				}
				loss := m.Grad(theta, x, y, grad, nil)
				if math.Abs(loss-want) > 1e-12*(1+want) {
					t.Errorf("%+v: loss %v, want %v", c, loss, want)
				}
				for j, v := range wide {
					wide[j] = v + h
					up, _ := exactLinear(l, c.Ridge, wide, x, y)
					wide[j] = v - h
					down, _ := exactLinear(l, c.Ridge, wide, x, y)
					wide[j] = v
					if want := (up - down) / (2 * h); math.Abs(float64(grad[j])-want) > 1e-6*(1+math.Abs(want)) {
						t.Errorf("%+v seed %d: gradient[%d] = %v, want %v", c, seed, j, grad[j], want)
					}
					if g, l := m.GradCoord(theta, x, y, j, nil); g != grad[j] || l != loss {
						t.Errorf("%+v seed %d: coordinate %d = %v, want %v", c, seed, j, g, grad[j])
					}
				}
				// The documented bound on a client's gradient.
				size := 1.0
				for _, v := range x {
					size += float64(v) * float64(v)
				}
				if bound := l.Lipschitz * math.Sqrt(size); c.Ridge == 0 && norm(widen(grad)) > bound*(1+1e-6) {
					t.Errorf("%+v: gradient of norm %v above %v", c, norm(widen(grad)), bound)
				}
			}
		}
	}
	if kinks > runs/20 {
		t.Errorf("%d of %d near a kink", kinks, runs)
	}
}

// TestLossExtremes: kinks, and margins where e^m is 0 or infinite.
func TestLossExtremes(t *testing.T) {
	pinball := lossOf("pinball:0.9")
	for _, c := range []struct {
		l                    Loss
		score, y, loss, grad float64
	}{
		{lossOf(Hinge), 1, 1, 0, 0}, {lossOf(Hinge), 2, 1, 0, 0}, {lossOf(Hinge), 0, -1, 1, 1},
		{lossOf(Absolute), 3, 3, 0, 0}, {lossOf(Absolute), 3, 5, 2, -1}, {lossOf(Absolute), 5, 3, 2, 1},
		{pinball, 3, 3, 0, 0}, {pinball, 3, 5, 1.8, -0.9}, {pinball, 5, 3, 0.2, 0.1},
		{lossOf(Logistic), 0, 1, math.Ln2, -0.5},
		{lossOf(Logistic), 1e30, 1, 0, 0}, {lossOf(Logistic), -1e30, 1, 1e30, -1}, {lossOf(Logistic), 1e30, -1, 1e30, 1},
		{lossOf(Logistic), 50, 1, math.Exp(-50), -math.Exp(-50)},
	} {
		loss, slope := c.l.at(c.score, c.y)
		if math.Abs(loss-c.loss) > 1e-12*c.loss || math.Abs(slope-c.grad) > 1e-12*math.Abs(c.grad) {
			t.Errorf("%v at %v, %v: %v, %v, want %v, %v", c.l, c.score, c.y, loss, slope, c.loss, c.grad)
		}
	}
}

func TestLinearIsFinite(t *testing.T) {
	for _, l := range losses(t) {
		m, err := NewLinear(LinearConfig{Inputs: 5, Loss: l, Ridge: math.MaxFloat32})
		if err != nil {
			t.Fatal(err)
		}
		const big = math.MaxFloat32
		x := []float32{big, -big, big, big, -big}
		theta := []float32{big, big, -big, big, big, -big}
		grad := make([]float32, 6)
		for _, y := range []float64{-1, 1} {
			loss := m.Grad(theta, x, y, grad, nil)
			if loss-loss != 0 || slices.ContainsFunc(grad, func(v float32) bool { return v-v != 0 }) {
				t.Errorf("%v: loss %v, gradient %v", l, loss, grad)
			}
		}
	}
}

// TestClassifier: the logistic classifier's loss by Evaluate is the softmax's.
func TestClassifier(t *testing.T) {
	m, err := NewLinear(LinearConfig{Inputs: 3, Loss: lossOf(Logistic)})
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	r := rand.New(rand.NewPCG(1, 2))
	theta := []float32{1, -2, 0.5, 0.25}
	x, y := make([]float32, 3*n), make([]int32, n)
	sum, correct := 0.0, 0
	for i := range y {
		row := x[3*i : 3*i+3]
		for j := range row {
			row[j] = float32(r.NormFloat64())
		}
		y[i] = r.Int32N(2)
		l, _ := exactLinear(lossOf(Logistic), 0, widen(theta), row, float64(2*y[i]-1))
		sum += l
		if (exactScore(widen(theta), row) > 0) == (y[i] == 1) {
			correct++
		}
	}
	e, err := m.Evaluate(theta, x, class(y), 2)
	if err != nil || math.Abs(e.Loss-sum/n) > 1e-6 || e.Correct != correct {
		t.Errorf("evaluation %+v, %v, want loss %v and %d correct", e, err, sum/n, correct)
	}
	got := make([]float64, 4)
	if loss := sumGradients(m, theta, x, y, got, make([]float32, 4), m.NewScratch()); math.Abs(loss-sum) > 1e-9 {
		t.Errorf("batch loss %v, want %v", loss, sum)
	}
	want := make([]float64, 4)
	for i, class := range y {
		row := x[3*i : 3*i+3]
		e := -float64(2*class-1) / (1 + math.Exp(float64(2*class-1)*exactScore(widen(theta), row)))
		for j, v := range row {
			want[j] += e * float64(v)
		}
		want[3] += e
	}
	for j := range got {
		if math.Abs(got[j]-want[j]) > 1e-5 {
			t.Errorf("batch gradient[%d] = %v, want %v", j, got[j], want[j])
		}
	}
	real, err := NewLinear(LinearConfig{Inputs: 3, Loss: lossOf(Absolute)})
	if err != nil {
		t.Fatal(err)
	}
	if m.Classes != 2 || real.Classes != 0 {
		t.Errorf("a logistic model has %d classes, a regression %d", m.Classes, real.Classes)
	}
	if e, err := real.Evaluate(theta, x, class(y), 1); err != nil || e.Confusion != nil || e.Correct != 0 || !math.IsNaN(e.Accuracy) {
		t.Errorf("evaluation of a regression: %+v, %v", e, err)
	}
}

func TestLinearRefuses(t *testing.T) {
	for want, c := range map[string]LinearConfig{
		"model: inputs = 0 must be at least 1": {Loss: lossOf(Hinge)},
		"model: linear: no loss":               {Inputs: 1},
		"model: ridge = -1 must be at least 0": {Inputs: 1, Loss: lossOf(Hinge), Ridge: -1},
		"model: ridge = NaN must be":           {Inputs: 1, Loss: lossOf(Hinge), Ridge: math.NaN()},
		"model: ridge = +Inf must be":          {Inputs: 1, Loss: lossOf(Hinge), Ridge: math.Inf(1)},
	} {
		if _, err := NewLinear(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	for text, want := range map[string]string{
		"pinball:0":   "model: tau = 0 must be above 0 and below 1",
		"pinball:1":   "model: tau = 1 must be above 0 and below 1",
		"pinball:NaN": "model: tau = NaN must be above 0 and below 1",
		"pinball:x":   `model: tau = "x" must be a number above 0 and below 1`,
		"pinball":     `model: loss = "pinball" must be hinge, logistic, absolute or pinball:τ`,
		"":            `model: loss = "" must be hinge, logistic, absolute or pinball:τ`,
	} {
		if _, err := ParseLoss(text); err == nil || err.Error() != want {
			t.Errorf("ParseLoss(%q): %v, want %q", text, err, want)
		}
	}
	for _, c := range []struct {
		l Loss
		y float64
	}{{lossOf(Hinge), 0}, {lossOf(Logistic), 2}, {lossOf(Hinge), math.NaN()}, {lossOf(Absolute), math.NaN()}, {lossOf(Absolute), math.Inf(1)}} {
		if c.l.checkTarget(c.y) == nil {
			t.Errorf("%v accepts target %v", c.l, c.y)
		}
	}
}

func BenchmarkLinearGrad(b *testing.B) {
	m, err := NewLinear(LinearConfig{Inputs: 441, Loss: lossOf(Logistic)})
	if err != nil {
		b.Fatal(err)
	}
	theta, x, grad := make([]float32, 442), make([]float32, 441), make([]float32, 442)
	for i := range x {
		theta[i], x[i] = float32(i%7)-3, float32(i%5)/5
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Grad(theta, x, 1, grad, nil)
	}
}
