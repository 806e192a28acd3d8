package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Gradients are as short and change as slowly as Geometry says, and hardly
// less: a worst case comes close.
func TestGeometryBoundsGradients(t *testing.T) {
	draw := rand.New(rand.NewPCG(5, 6))
	softmax, err := NewSoftmax(3, 4)
	if err != nil {
		t.Fatal(err)
	}
	scratch := softmax.NewScratch()
	type problem struct {
		m    *Model
		grad func(theta, x []float32, y int, grad []float32)
	}
	problems := []problem{{softmax, func(theta, x []float32, y int, grad []float32) { softmax.Grad(theta, x, float64(y), grad, scratch) }}}
	quarter := lossOf("pinball:0.25")
	for _, loss := range []Loss{lossOf(Logistic), lossOf(Hinge), lossOf(Absolute), quarter} {
		for _, bare := range []bool{false, true} {
			m, err := NewLinear(LinearConfig{Inputs: 3, Loss: loss, NoIntercept: bare})
			if err != nil {
				t.Fatal(err)
			}
			problems = append(problems, problem{m, func(theta, x []float32, y int, grad []float32) {
				m.Grad(theta, x, float64(2*(y%2)-1), grad, nil)
			}})
		}
	}
	const norm = 2.5
	for _, p := range problems {
		lipschitz, smoothness := p.m.Geometry(norm)
		var steepest, bent float64
		x, d := make([]float32, 3), p.m.Params
		a, b, ga, gb := make([]float32, d), make([]float32, d), make([]float32, d), make([]float32, d)
		for range 20000 {
			size := 0.0
			for j := range x {
				x[j] = float32(draw.NormFloat64())
				size += float64(x[j]) * float64(x[j])
			}
			for j := range x {
				x[j] *= float32(norm / math.Sqrt(size))
			}
			scale, step := math.Pow(10, 3*draw.Float64()-2), math.Pow(10, -2*draw.Float64()-1)
			for j := range a {
				a[j] = float32(scale * draw.NormFloat64())
				b[j] = a[j] + float32(step*draw.NormFloat64())
			}
			y := draw.IntN(4)
			p.grad(a, x, y, ga)
			p.grad(b, x, y, gb)
			var length, moved, apart float64
			for j := range a {
				length += float64(ga[j]) * float64(ga[j])
				moved += float64(ga[j]-gb[j]) * float64(ga[j]-gb[j])
				apart += float64(a[j]-b[j]) * float64(a[j]-b[j])
			}
			steepest = max(steepest, math.Sqrt(length))
			bent = max(bent, math.Sqrt(moved/apart))
		}
		if steepest > lipschitz*rounded || steepest < .97*lipschitz {
			t.Errorf("%s: longest gradient %v, L = %v", p.m.Name, steepest, lipschitz)
		}
		if smoothness > 0 && (bent > smoothness*(1+1e-4) || bent < .6*smoothness) {
			t.Errorf("%s: gradients change by %v, beta = %v", p.m.Name, bent, smoothness)
		}
	}
}

// sumGradients adds the loss and the gradient of every row to loss and sum, in row
// order and in float64: the batch gradient without privacy. x holds len(y)
// rows; grad is working memory of length Params.
func sumGradients(m *Model, theta, x []float32, y []int32, sum []float64, grad []float32, s *workspace) (loss float64) {
	d := m.Inputs
	for i, c := range y {
		loss += m.Grad(theta, x[i*d:(i+1)*d], float64(c), grad, s)
		for j, g := range grad {
			sum[j] += float64(g)
		}
	}
	return loss
}
