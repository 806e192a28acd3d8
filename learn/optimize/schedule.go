package optimize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Schedule gives the learning rate η_t of step t = 1, 2, ...
type Schedule func(t int64) float64

// ParseSchedule reads rates that are constant from a step on: "0.3,0.18@420" is .3, and .18
// from step 420 on.
func ParseSchedule(text string) (Schedule, error) {
	type piece struct {
		rate float64
		from int64
	}
	var pieces []piece
	for i, part := range strings.Split(text, ",") {
		value, from, found := strings.Cut(strings.TrimSpace(part), "@")
		if found != (i > 0) {
			return nil, fmt.Errorf("optimize: lr %q: every rate but the first needs @step, the first none (as in 0.3,0.18@420)", text)
		}
		rate, err := strconv.ParseFloat(value, 64)
		if err != nil || !(rate > 0) || math.IsInf(rate, 0) {
			return nil, fmt.Errorf("optimize: lr %q: rate %q must be a number above 0", text, value)
		}
		p := piece{rate, 1}
		if found {
			p.from, err = strconv.ParseInt(from, 10, 64)
			if err != nil || p.from <= pieces[i-1].from {
				return nil, fmt.Errorf("optimize: lr %q: step %q must be a whole number above the step before it", text, from)
			}
		}
		pieces = append(pieces, p)
	}
	return func(t int64) (rate float64) {
		for i, p := range pieces {
			if i == 0 || t >= p.from {
				rate = p.rate
			}
		}
		return rate
	}, nil
}

// Theorem3Config are the quantities of Girgis et al. 2021 (NeurIPS), Theorem 3.
type Theorem3Config struct {
	Diameter  float64 // D of the feasible set, ℓ2
	Lipschitz float64 // L, the clip radius, in the ℓp norm
	Norm      float64 // p of the randomizer's ball: 1, 2 or +Inf
	Dim       int
	MSE       float64 // G_p²(L): sup E‖R(x) − x‖₂² of one report
	Reports   float64 // γn, reports a round
}

// NewTheorem3 returns η_t = D/(G√t) with G² = max{d^(1−2/p), 1}L² + G_p²(L)/(γn), a bound on
// the mean squared norm of the noisy mean gradient.
func NewTheorem3(c Theorem3Config) (Schedule, error) {
	if !(c.Diameter > 0) || math.IsInf(c.Diameter, 1) {
		return nil, fmt.Errorf("optimize: lr theorem3 needs a bounded feasible set: diameter = %v must be above 0 and finite", c.Diameter)
	}
	if !(c.Lipschitz > 0) || !(c.Reports > 0) || c.Dim < 1 || !(c.MSE >= 0) || !(c.Norm >= 1) {
		return nil, fmt.Errorf("optimize: lr theorem3: L = %v, reports = %v, d = %d, MSE = %v, p = %v out of range",
			c.Lipschitz, c.Reports, c.Dim, c.MSE, c.Norm)
	}
	widen := math.Max(1, math.Pow(float64(c.Dim), 1-2/c.Norm))
	g := math.Sqrt(widen*c.Lipschitz*c.Lipschitz + c.MSE/c.Reports)
	return func(t int64) float64 { return c.Diameter / (g * math.Sqrt(float64(t))) }, nil
}
