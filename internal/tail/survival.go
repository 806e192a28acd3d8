package tail

import "math"

// Survival returns Pr[Bin(n, p) ≥ x]; q = 1 − p is an argument of its own, so that it keeps
// its digits.
//
// Relative error: LogPMF's plus 1e-12, also far into the tail; a result below 1e-300 may be
// rounded to 0. Time O(1): the incomplete beta integral
//
//	Pr[X ≥ x] = x·b(x)·∫₀¹ (1−v)^{x−1} (1 + vp/q)^{n−x} dv
//
// has a log-concave integrand that falls from about 1, so 32 Gauss nodes on the part where it
// matters suffice. Below the mean the mirrored integral gives 1 minus the lower tail.
func Survival(n, x int64, p, q float64) float64 {
	switch {
	case x <= 0:
		return 1
	case x > n:
		return 0
	case p == 0:
		return 0
	case q < 0x1p-1000: // also for q = 0: q/p and p/q overflow
		return 1
	case p < 0x1p-1000 && x == 1:
		return float64(n) * p
	case p < 0x1p-1000:
		return 0
	}
	// The integrand has slope −slope/q at 0 for the upper tail, and slope/p for the mirrored
	// one. Above the mean the upper tail is at most about a half, also for a slope slightly
	// below 0.
	slope := distance(n-1, x-1, p, q)
	if float64(x) >= float64(n)*p {
		return math.Exp(LogPMF(n, x, p, q)) * float64(x) * integral(float64(x-1), float64(n-x), p/q, slope/q)
	}
	// Pr[X ≤ x−1] = Pr[n − X ≥ n−x+1].
	y := n - x + 1
	return 1 - math.Exp(LogPMF(n, y, q, p))*float64(y)*integral(float64(y-1), float64(n-y), q/p, -slope/p)
}

// integral returns ∫₀¹ (1−v)^a (1+ρv)^b dv. The logarithm of the integrand has slope −slope
// at 0; slope = a − ρb is an argument of its own, so that it keeps its digits.
func integral(a, b, rho, slope float64) float64 {
	log := func(v float64) float64 {
		return a*log1pMinus(-v) + b*log1pMinus(rho*v) - slope*v
	}
	// Find where the integrand falls below e^-depth; its logarithm is concave and falling.
	const depth = 40.
	curve := math.Hypot(math.Sqrt(a), rho*math.Sqrt(b)) // Hypot, because the square of a tiny ρ would underflow to 0
	end := math.Min(1, 2*depth/(slope+math.Hypot(slope, math.Sqrt(2*depth)*curve)))
	for end < 1 && log(end) > -depth {
		end = math.Min(1, end*1.25)
	}
	for log(end*.7) < -depth*1.3 {
		end *= .7
	}
	var sum float64
	half := end / 2
	for _, g := range gauss32 {
		sum += g[1] * (math.Exp(log(half*(1-g[0]))) + math.Exp(log(half*(1+g[0]))))
	}
	return sum * half
}

// log1pMinus returns log(1+v) − v for v > −1.
func log1pMinus(v float64) float64 {
	if math.Abs(v) > 0.3 {
		return math.Log1p(v) - v
	}
	// log(1+v) = 2(r + r³/3 + …) with r = v/(2+v), and 2r − v = −rv.
	r := v / (2 + v)
	s := r * r
	if s < 5e-5 {
		return r * (2*s*(1./3+s*(1./5+s*(1./7))) - v)
	}
	return r * (2*s*(1./3+s*(1./5+s*(1./7+s*(1./9+s*(1./11+s*(1./13+s*(1./15+s*(1./17+s*(1./19+s*(1./21)))))))))) - v)
}

// gauss32 holds the positive nodes of the 32-point Gauss-Legendre rule and
// their weights.
var gauss32 = [16][2]float64{
	{0.048307665687738316235, 0.096540088514727800567}, {0.14447196158279649349, 0.095638720079274859419},
	{0.23928736225213707454, 0.093844399080804565639}, {0.33186860228212764978, 0.091173878695763884713},
	{0.42135127613063534536, 0.087652093004403811143}, {0.50689990893222939002, 0.083311924226946755222},
	{0.58771575724076232904, 0.078193895787070306472}, {0.66304426693021520098, 0.072345794108848506225},
	{0.73218211874028968039, 0.065822222776361846838}, {0.79448379596794240696, 0.058684093478535547145},
	{0.84936761373256997013, 0.050998059262376176196}, {0.89632115576605212397, 0.042835898022226680657},
	{0.93490607593773968917, 0.034273862913021433103}, {0.96476225558750643077, 0.025392065309262059456},
	{0.9856115115452683354, 0.016274394730905670605}, {0.99726386184948156354, 0.0070186100094700966004},
}
