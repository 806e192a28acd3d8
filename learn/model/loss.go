package model

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Loss is a convex loss of a score s and a target y; the zero value is no loss:
//
//	hinge     max(0, 1 − ys) for y = ±1: the linear support vector machine
//	logistic  log(1 + e^−ys) for y = ±1, in nats
//	absolute  |y − s|: its minimum is the conditional median
//	pinball   τ(y − s) for y ≥ s and (1 − τ)(s − y) otherwise: its minimum is
//	          the conditional τ-quantile, 0 < τ < 1
type Loss struct {
	Name      string  // as ParseLoss reads it
	Binary    bool    // targets are −1 and 1
	Lipschitz float64 // the largest size of the slope

	kind string
	tau  float64
}

// The names of the losses that need no number.
const (
	Hinge    = "hinge"
	Logistic = "logistic"
	Absolute = "absolute"
)

// ParseLoss returns the loss of that name: Hinge, Logistic, Absolute or
// "pinball:" and τ, such as "pinball:0.9".
func ParseLoss(text string) (Loss, error) {
	if tau, ok := strings.CutPrefix(text, "pinball:"); ok {
		v, err := strconv.ParseFloat(tau, 64)
		if err != nil {
			return Loss{}, fmt.Errorf("model: tau = %q must be a number above 0 and below 1", tau)
		}
		if !(v > 0 && v < 1) {
			return Loss{}, fmt.Errorf("model: tau = %v must be above 0 and below 1", v)
		}
		return Loss{Name: "pinball:" + strconv.FormatFloat(v, 'g', -1, 64), Lipschitz: max(v, 1-v), kind: "pinball", tau: v}, nil
	}
	switch text {
	case Hinge, Logistic, Absolute:
		return Loss{Name: text, Binary: text != Absolute, Lipschitz: 1, kind: text}, nil
	}
	return Loss{}, fmt.Errorf("model: loss = %q must be hinge, logistic, absolute or pinball:τ", text)
}

// side returns the target of a binary loss that y stands for: 1 if y is above 0, otherwise −1.
func side(y float64) float64 {
	if y > 0 {
		return 1
	}
	return -1
}

// checkTarget refuses targets the loss has no meaning for.
func (l Loss) checkTarget(y float64) error {
	if l.Binary && y != 1 && y != -1 {
		return fmt.Errorf("model: target = %v must be -1 or 1 for %s loss", y, l.Name)
	}
	if math.IsNaN(y) || math.IsInf(y, 0) {
		return fmt.Errorf("model: target = %v must be finite", y)
	}
	return nil
}

// at returns the loss and its slope by the score. At a kink the slope is 0,
// which is a subgradient of each of these losses there.
func (l Loss) at(score, y float64) (loss, slope float64) {
	switch l.kind {
	case Hinge:
		if gap := 1 - y*score; gap > 0 {
			return gap, -y
		}
		return 0, 0
	case Logistic:
		// e^−|margin| cannot overflow, and keeps its digits where it is small.
		margin := y * score
		e := math.Exp(-math.Abs(margin))
		if margin > 0 {
			return math.Log1p(e), -y * (e / (1 + e))
		}
		return math.Log1p(e) - margin, -y / (1 + e)
	case Absolute:
		return math.Abs(score - y), sign(score - y)
	case "pinball":
		switch gap := y - score; {
		case gap > 0:
			return l.tau * gap, -l.tau
		case gap < 0:
			return (l.tau - 1) * gap, 1 - l.tau
		}
		return 0, 0
	}
	panic("model: the zero Loss")
}

func sign(v float64) float64 {
	switch {
	case v > 0:
		return 1
	case v < 0:
		return -1
	}
	return 0
}
