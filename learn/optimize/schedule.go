package optimize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Schedule gives the learning rate η_t of step t = 1, 2, ...
type Schedule interface {
	rate(t int64) float64
	String() string // in the form that ParseSchedule reads, if the schedule has one
}

// Piecewise is a list of constant rates, each of which holds from its step on.
type Piecewise []Piece

// Piece is a rate and the first step (1-based) it holds for.
type Piece struct {
	Rate float64
	From int64
}

// rate returns the rate of the last piece that has begun.
func (p Piecewise) rate(t int64) float64 {
	rate := p[0].Rate
	for _, piece := range p[1:] {
		if t >= piece.From {
			rate = piece.Rate
		}
	}
	return rate
}

func (p Piecewise) String() string {
	parts := make([]string, len(p))
	for i, piece := range p {
		parts[i] = strconv.FormatFloat(piece.Rate, 'g', -1, 64)
		if i > 0 {
			parts[i] += "@" + strconv.FormatInt(piece.From, 10)
		}
	}
	return strings.Join(parts, ",")
}

// ParsePiecewise reads "0.3,0.18@420": rate .3, and .18 from step 420 on.
func ParsePiecewise(text string) (Piecewise, error) {
	var out Piecewise
	for i, part := range strings.Split(text, ",") {
		value, from, found := strings.Cut(strings.TrimSpace(part), "@")
		if found != (i > 0) {
			return nil, fmt.Errorf("optimize: lr %q: every rate but the first needs @step, the first none (as in 0.3,0.18@420)", text)
		}
		rate, err := strconv.ParseFloat(value, 64)
		if err != nil || !(rate > 0) || math.IsInf(rate, 0) {
			return nil, fmt.Errorf("optimize: lr %q: rate %q must be a number above 0", text, value)
		}
		piece := Piece{Rate: rate, From: 1}
		if found {
			piece.From, err = strconv.ParseInt(from, 10, 64)
			if err != nil || piece.From <= out[i-1].From {
				return nil, fmt.Errorf("optimize: lr %q: step %q must be a whole number above the step before it", text, from)
			}
		}
		out = append(out, piece)
	}
	return out, nil
}

// inverseSqrt is η_t = D/(G√t), the schedule of Girgis et al. 2021 (NeurIPS),
// Theorem 3: D the diameter of the feasible set and G² a bound on the mean
// squared norm of the noisy mean gradient.
type inverseSqrt struct{ Diameter, GradientBound float64 }

// rate returns D/(G√t).
func (s inverseSqrt) rate(t int64) float64 {
	return s.Diameter / (s.GradientBound * math.Sqrt(float64(t)))
}

func (s inverseSqrt) String() string { return "theorem3" }

// Theorem3Config are the quantities of Girgis et al. 2021, Theorem 3.
type Theorem3Config struct {
	Diameter  float64 // D of the feasible set, ℓ2
	Lipschitz float64 // L, the clip radius, in the ℓp norm
	Norm      float64 // p of the randomizer's ball: 1, 2 or +Inf
	Dim       int
	MSE       float64 // G_p²(L): sup E‖R(x) − x‖₂² of one report
	Reports   float64 // γn, reports a round
}

// NewTheorem3 returns η_t = D/(G√t) with G² = max{d^(1−2/p), 1}L² + G_p²(L)/(γn).
func NewTheorem3(c Theorem3Config) (Schedule, error) {
	if !(c.Diameter > 0) || math.IsInf(c.Diameter, 1) {
		return inverseSqrt{}, fmt.Errorf("optimize: lr theorem3 needs a bounded feasible set: diameter = %v must be above 0 and finite", c.Diameter)
	}
	if !(c.Lipschitz > 0) || !(c.Reports > 0) || c.Dim < 1 || !(c.MSE >= 0) || !(c.Norm >= 1) {
		return inverseSqrt{}, fmt.Errorf("optimize: lr theorem3: L = %v, reports = %v, d = %d, MSE = %v, p = %v out of range",
			c.Lipschitz, c.Reports, c.Dim, c.MSE, c.Norm)
	}
	widen := math.Max(1, math.Pow(float64(c.Dim), 1-2/c.Norm))
	g2 := widen*c.Lipschitz*c.Lipschitz + c.MSE/c.Reports
	return inverseSqrt{Diameter: c.Diameter, GradientBound: math.Sqrt(g2)}, nil
}
