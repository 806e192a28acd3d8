package amplify

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// maxSummed is the largest variance of S, see binary, for which its law is summed. Beyond it raiseAll
// bounds the suprema for all inputs at once; from here on that is the tighter bound, and quick.
const maxSummed = 1e7

// raiseAll raises delta to a bound on the divergence for every choice of the inputs of so many
// others, by exponential tilting: binary.md, "Many reports". over is e^ε − 1 and rises.
//
// Result: upper bound, proved. Slack: about z/(3√V) of ε at z deviations, V the variance of S.
// Needs V ≥ 1e4.
func (b *binary) raiseAll(delta, over []float64, others int64) {
	n := float64(others)
	variance := n * b.high * b.low
	// At tilt t the variance of S lies between lower(t), all others hold 1, and upper(t).
	lower := func(t float64) float64 {
		x := b.low + b.high*math.Exp(t)
		return variance * math.Exp(t) / (x * x)
	}
	upper := func(t float64) float64 {
		x := b.high + b.low*math.Exp(t)
		return variance * math.Exp(t) / (x * x)
	}
	// exponent is ∫ s·lower(s) ds from 0 to t: at least what S loses in logarithm of mass at its mean under t.
	exponent := func(t float64) float64 {
		return gauss6(0, t, func(s float64) float64 { return s * lower(s) })
	}
	// Beyond end the mass is at most farMass, for every choice.
	end := 1 / math.Sqrt(variance)
	for exponent(end)*(1-1e-9)-end < -math.Log(farMass) {
		end *= 1.01
	}
	least := lower(end) // lower falls in t ≥ 0
	density := func(t float64) float64 {
		return math.Exp(-exponent(t)*(1-1e-12)) * math.Sqrt(upper(t)/(2*math.Pi)) * (1 + 1/(4*least))
	}
	tilt := func(i int) (gap, t float64) { // gap is (E − e^ε)/(E+1), and e^t = 1 + over/gap
		gap = -math.Expm1(math.Log1p(over[i])-b.eps0) * b.high
		return gap, math.Log1p(over[i] / gap)
	}
	panel := .25 / math.Sqrt(variance)
	// From the far end inwards: above is ∫ density from t on, and rest ∫ density·(e^{s−t} − 1) ds.
	var above, rest float64
	last := end
	for i := len(delta) - 1; i >= 0; i-- {
		gap, t := tilt(i)
		if !(gap > 0 && t < end) {
			continue
		}
		for last > t {
			from := math.Max(t, last-panel)
			near := gauss6(from, last, density)
			rest = gauss6(from, last, func(s float64) float64 { return density(s) * math.Expm1(s-from) }) +
				math.Exp(last-from)*rest + math.Expm1(last-from)*above
			above += near
			last = from
		}
		// A sum over counts is at most its integral and its largest term.
		d := 2 / (t + math.Sqrt(t*t+4/least)) / least
		term := math.Exp(end-exponent(t)*(1-1e-12)-least*d*(t+d/2)) * d * (1 + 1/(4*least)) / math.Sqrt(2*math.Pi*least)
		delta[i] = math.Max(delta[i], (gap+over[i])*(rest+term)*(1+1e-9)+farMass)
	}
}

// gauss6 integrates f from a to b by Gauss's rule with six points.
func gauss6(a, b float64, f func(x float64) float64) (sum float64) {
	mid, h := (a+b)/2, (b-a)/2
	for _, g := range tail.Gauss6 {
		sum += g[1] * (f(mid-g[0]*h) + f(mid+g[0]*h))
	}
	return sum * h
}
