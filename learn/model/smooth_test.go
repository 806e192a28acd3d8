package model

import (
	"math"
	"math/rand/v2"
	"testing"
)

// bruteEnvelope minimises φ(t) + (t − v)²/(2c) by golden section: the function
// is convex, and the minimum lies within c of v because slopes are at most 1.
func bruteEnvelope(l Loss, v, c, y float64) (value, at float64) {
	f := func(t float64) float64 {
		loss, _ := l.at(t, y)
		return loss + (t-v)*(t-v)/(2*c)
	}
	const inv = 0.6180339887498949
	lo, hi := v-1.001*c, v+1.001*c
	for range 120 {
		a, b := hi-inv*(hi-lo), lo+inv*(hi-lo)
		if f(a) <= f(b) {
			hi = b
		} else {
			lo = a
		}
	}
	at = (lo + hi) / 2
	return f(at), at
}

func envelopeCases(t *testing.T, visit func(l Loss, v, size, beta, y float64)) {
	t.Helper()
	r := rand.New(rand.NewPCG(17, 4))
	for _, l := range losses(t) {
		for range 400 {
			size := math.Exp(2 * r.NormFloat64())
			beta := math.Exp(3 * r.NormFloat64())
			y := r.NormFloat64()
			if l.Binary {
				y = float64(2*r.IntN(2) - 1)
			}
			visit(l, 3*r.NormFloat64(), size, beta, y)
		}
	}
}

func TestEnvelopeAgainstBruteForce(t *testing.T) {
	envelopeCases(t, func(l Loss, v, size, beta, y float64) {
		s, err := l.smooth(beta)
		if err != nil {
			t.Fatal(err)
		}
		loss, slope := s.at(v, size, y)
		c := size / beta
		want, at := bruteEnvelope(l, v, c, y)
		if math.Abs(loss-want) > 1e-9*max(1, c) {
			t.Errorf("%v at v = %v, c = %v, y = %v: envelope %v, brute force %v", l, v, c, y, loss, want)
		}
		// ∇f_β = β(θ − prox), so that the slope is (v − t)/c.
		if math.Abs(slope*c-(v-at)) > 1e-5*max(1, c) {
			t.Errorf("%v at v = %v, c = %v, y = %v: prox %v, brute force %v", l, v, c, y, v-slope*c, at)
		}
	})
}

func TestEnvelopeProperties(t *testing.T) {
	envelopeCases(t, func(l Loss, v, size, beta, y float64) {
		s, _ := l.smooth(beta)
		loss, slope := s.at(v, size, y)
		plain, _ := l.at(v, y)
		lip := l.Lipschitz
		tiny := 1e-12 * max(1, math.Abs(plain))
		if loss > plain+tiny || plain > loss+lip*lip*size/(2*beta)+tiny {
			t.Errorf("%v: envelope %v, loss %v, L²/(2β) = %v", l, loss, plain, lip*lip*size/(2*beta))
		}
		if math.Abs(slope) > lip {
			t.Errorf("%v: slope %v above %v", l, slope, lip)
		}
		h := 1e-5 * min(1, size/beta)
		up, upSlope := s.at(v+h, size, y)
		down, downSlope := s.at(v-h, size, y)
		_, _, bend := l.envelope(v, size/beta, y)
		// An envelope's second derivative is at most 1/c, so a difference
		// quotient errs by at most h/(2c), plus rounding.
		if err := math.Abs((up-down)/(2*h) - slope); err > h*beta/size+1e-15*max(1, loss)/h {
			t.Errorf("%v at %v, c = %v: slope %v, difference quotient %v", l, v, size/beta, slope, (up-down)/(2*h))
		}
		// The gradient is slope·a: β-Lipschitz along a, where the score moves by ‖a‖².
		if (upSlope-downSlope)*size > beta*2*h*(1+1e-6)+1e-12*size || upSlope < downSlope-1e-12 {
			t.Errorf("%v: slopes %v and %v at distance %v, 1/c = %v", l, downSlope, upSlope, 2*h, beta/size)
		}
		if l.kind == "logistic" && math.Abs((upSlope-downSlope)/(2*h)-bend) > 1e-4*max(1, bend) {
			t.Errorf("logistic: curvature %v, difference quotient %v", bend, (upSlope-downSlope)/(2*h))
		}
	})
}

func TestEnvelopeLimits(t *testing.T) {
	for _, l := range losses(t) {
		for _, y := range []float64{-1, 1} {
			for _, v := range []float64{-1e8, -2, -.5, .3, 1.5, 1e8} {
				plain, slope := l.at(v, y)
				// A row of zeros cannot move its score.
				if got, _, _ := l.envelope(v, 0, y); got != plain {
					t.Errorf("%v: envelope with c = 0 is %v, loss %v", l, got, plain)
				}
				s, _ := l.smooth(1e12)
				if got, gs := s.at(v, 1, y); math.Abs(got-plain) > 1e-12*max(1, plain) || math.Abs(gs-slope) > 1e-9 {
					t.Errorf("%v: beta = 1e12 gives %v, %v, loss %v, %v", l, got, gs, plain, slope)
				}
				s, _ = l.smooth(math.SmallestNonzeroFloat64)
				if got, gs := s.at(v, 1e10, y); got != 0 || gs != 0 {
					t.Errorf("%v: with c = ∞ the envelope is the infimum 0, got %v, %v", l, got, gs)
				}
			}
		}
		for _, beta := range []float64{0, -1, math.NaN(), math.Inf(1)} {
			if _, err := l.smooth(beta); err == nil {
				t.Errorf("%v: accepted beta = %v", l, beta)
			}
		}
	}
	if _, err := (Loss{}).smooth(1); err == nil {
		t.Error("smoothed no loss")
	}
}

// A smoothed model's gradient is the derivative of its loss, and the ridge is
// not smoothed.
func TestSmoothedLinearGradient(t *testing.T) {
	const h = 1e-3
	r := rand.New(rand.NewPCG(3, 9))
	for _, l := range losses(t) {
		for _, noIntercept := range []bool{false, true} {
			plain, err := NewLinear(LinearConfig{Inputs: 4, Loss: l, Ridge: .3, NoIntercept: noIntercept})
			if err != nil {
				t.Fatal(err)
			}
			m, err := plain.Smoothed(.7)
			if err != nil {
				t.Fatal(err)
			}
			theta, x := make([]float32, m.Params), make([]float32, 4)
			grad, other := make([]float32, m.Params), make([]float32, m.Params)
			for range 20 {
				for _, s := range [][]float32{theta, x} {
					for i := range s {
						s[i] = float32(r.NormFloat64())
					}
				}
				y := float64(2*r.IntN(2) - 1)
				loss := m.Grad(theta, x, y, grad, nil)
				full := plain.Grad(theta, x, y, other, nil)
				lip := l.Lipschitz
				if gap := full - loss; gap < -1e-9 || gap > lip*lip*m.kind.(*linear).size(x)/(2*.7)+1e-9 {
					t.Errorf("%v: smoothed by %v", l, gap)
				}
				for j := range theta {
					if g, _ := m.GradCoord(theta, x, y, j, nil); g != grad[j] {
						t.Errorf("%v: coordinate %d is %v, gradient %v", l, j, g, grad[j])
					}
					keep := theta[j]
					theta[j] = keep + h
					up, a := m.Grad(theta, x, y, other, nil), float64(theta[j])
					theta[j] = keep - h
					down, b := m.Grad(theta, x, y, other, nil), float64(theta[j])
					theta[j] = keep
					// (β + λ)-smooth: within (β + λ)h of the derivative.
					if q := (up - down) / (a - b); math.Abs(q-float64(grad[j])) > 1.01*h+1e-6 {
						t.Errorf("%v: coordinate %d is %v, difference quotient %v", l, j, grad[j], q)
					}
				}
			}
		}
	}
	if _, err := NewLinear(LinearConfig{Inputs: 1, Loss: lossOf(Hinge), Smoothing: math.NaN()}); err == nil {
		t.Error("accepted smoothing = NaN")
	}
}
