package vecsum

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// Largest bounds how far one client's message can move the mean of n clients, in radii and
// times n. The shares hide the message, and a sum is refused only if no messages of Users
// honest clients could add up to it. So a client can put in any vector of that size.
func (p Params) Largest() float64 {
	p = p.withDefaults()
	below, above := p.Noise.reach(p.Users)
	width := below + above + float64(p.Users)*float64(p.top())
	step := 2 / float64(p.Grid)
	if p.Ones != 0 {
		step = p.step() / p.Radius
	}
	return step * math.Sqrt(float64(p.Streams())) * width
}

// MeanBound returns a bound, in the units of the inputs, that the ℓ₂ norm of the mean of n
// honest clients exceeds with probability at most chance, whatever the inputs; see
// ../randomizer/largest.md, section 4.
func (p Params) MeanBound(n int64, chance float64) float64 {
	p = p.withDefaults()
	if n < 1 {
		return 0
	}
	k, d := float64(n), float64(p.Dim)
	v := k * p.Noise.variance()
	if p.Split {
		v *= 2
	}
	var length float64
	if p.Noise.Kind == DiscreteGaussian {
		length = math.Sqrt(v) * tail.Length(p.Dim, math.Log(1/chance))
	} else {
		c := tail.Bernstein(v, 1, math.Log(4*d/chance))
		square := math.Min(d*c*c, d*v+tail.Bernstein(d*(3*v*v+v), c*c, math.Log(2/chance)))
		length = math.Sqrt(square)
	}
	if p.Ones != 0 {
		return p.Radius + p.step()*length/k
	}
	return p.step() * (math.Sqrt(float64(p.Norm))/2 + length/k)
}
