package model

import (
	"fmt"
	"math"
)

// smooth is the Moreau envelope of a Loss, as a client computes it: for one row a with target
// y the client's loss is f(θ) = φ(⟨a, θ⟩; y), and
//
//	f_β(θ) = min over θ' of f(θ') + (β/2)‖θ − θ'‖².
//
// The minimum runs over all θ', not over the feasible set: the loss is convex and Lipschitz
// everywhere. There θ' differs from θ by a multiple of a, so only one number has to be found.
// With L = Loss.Lipschitz·‖a‖: f_β ≤ f ≤ f_β + L²/(2β); f_β is convex, L-Lipschitz and
// β-smooth. Proofs in smooth.md.
//
// Source: Cheu, Joseph, Mao, Peng, "Shuffle private stochastic convex optimization" (ICLR
// 2022), Definition 4.5 and Lemma 4.6, with the constants of smooth.md.
type smooth struct {
	loss Loss
	beta float64
}

// smooth returns the envelope with parameter beta, 0 < beta < ∞.
func (l Loss) smooth(beta float64) (smooth, error) {
	if l == (Loss{}) {
		return smooth{}, fmt.Errorf("model: smoothing without a loss")
	}
	if !(beta > 0) || math.IsInf(beta, 1) {
		return smooth{}, fmt.Errorf("model: smoothing beta = %v must be above 0 and finite", beta)
	}
	return smooth{l, beta}, nil
}

// at returns f_β, and the slope s by the score for which ∇f_β = s·a. size is
// ‖a‖², with the 1 of an intercept; |s| ≤ Loss.Lipschitz.
func (s smooth) at(score, size, y float64) (loss, slope float64) {
	loss, slope, _ = s.loss.envelope(score, size/s.beta, y)
	return loss, slope
}

// envelope returns e(v) = min over t of φ(t) + (t − v)²/(2c), its slope and its
// second derivative, for c = ‖a‖²/β ≥ 0. The minimum lies at t = v − c·slope;
// for c = 0 the envelope is the loss itself.
func (l Loss) envelope(v, c, y float64) (value, slope, curvature float64) {
	if c == 0 {
		value, slope = l.at(v, y)
		if l.kind == Logistic {
			p := math.Abs(slope)
			curvature = p * (1 - p)
		}
		return value, slope, curvature
	}
	switch l.kind {
	case Hinge:
		value, slope, curvature = ramp(1-y*v, c, 1, 0)
		return value, -y * slope, curvature
	case Absolute:
		return ramp(v-y, c, 1, 1)
	case "pinball":
		return ramp(v-y, c, 1-l.tau, l.tau)
	case Logistic:
		t, p := logisticProx(y*v, c)
		curvature = p * (1 - p)
		if math.IsInf(c, 1) {
			return 0, 0, 0
		}
		return logisticLoss(t) + c*p*p/2, -y * p, curvature / (1 + c*curvature)
	}
	panic("model: the zero Loss")
}

// ramp is the envelope of up·max(r, 0) + down·max(−r, 0) at r.
func ramp(r, c, up, down float64) (value, slope, curvature float64) {
	switch {
	case r >= c*up:
		return up*r - up*up*c/2, up, 0
	case r <= -c*down:
		return -down*r - down*down*c/2, -down, 0
	}
	return r / c * r / 2, r / c, 1 / c
}

// logisticProx solves t − m = c·p, p = 1/(1 + e^t), for t in [m, m + c].
// h(t) = t − m − c·p rises at least as fast as t, so Newton's method, held
// inside a bracket that every step narrows, ends within float64's resolution.
func logisticProx(m, c float64) (t, p float64) {
	if math.IsInf(c, 1) {
		return math.Inf(1), 0
	}
	lo, hi := m, m+c*expit(-m)
	t = lo
	for range 200 {
		p = expit(-t)
		h := t - m - c*p
		if h > 0 {
			hi = t
		} else {
			lo = t
		}
		next := t - h/(1+c*p*(1-p))
		if !(next > lo && next < hi) {
			next = lo + (hi-lo)/2
		}
		if math.Abs(next-t) <= 4e-16*math.Max(1, math.Abs(t)) {
			break
		}
		t = next
	}
	return t, expit(-t)
}

// expit is 1/(1 + e^−x).
func expit(x float64) float64 {
	e := math.Exp(-math.Abs(x))
	if x > 0 {
		return 1 / (1 + e)
	}
	return e / (1 + e)
}

// logisticLoss is log(1 + e^−t).
func logisticLoss(t float64) float64 {
	if t > 0 {
		return math.Log1p(math.Exp(-t))
	}
	return math.Log1p(math.Exp(t)) - t
}
