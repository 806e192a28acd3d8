package audit

import "math"

// Pair is two inputs whose reports are compared, in both directions.
type Pair struct {
	Name string
	X, Y []float32
}

// far is outside every ball. A randomizer brings such an input to the boundary, so the pairs
// need not know the ball's norm and radius.
const far = 1e36

// pairs returns pairs of inputs as far apart as the usual balls allow, and some pairs that a
// careless randomizer treats differently: zero, one changed coordinate, values that are not
// numbers.
func pairs(dim int) []Pair {
	vector := func(f func(i int) float64) []float32 {
		x := make([]float32, dim)
		for i := range x {
			x[i] = float32(f(i))
		}
		return x
	}
	axis := func(at int, size float64) []float32 {
		return vector(func(i int) float64 {
			if i == at {
				return size
			}
			return 0
		})
	}
	constant := func(size float64) []float32 { return vector(func(int) float64 { return size }) }
	list := []Pair{
		{"opposite corners", constant(far), constant(-far)},
		{"zero and an axis", axis(0, 0), axis(0, far)},
		{"not a number and infinity", constant(math.NaN()), constant(math.Inf(1))},
	}
	if dim > 1 {
		neighbour := constant(far)
		neighbour[0] = -far
		list = append(list,
			Pair{"opposite axes", axis(0, far), axis(0, -far)},
			Pair{"two axes", axis(0, far), axis(dim-1, far)},
			Pair{"neighbouring corners", constant(far), neighbour},
		)
	}
	return list
}

// between returns a direction from y to x, of no particular length.
func (p Pair) between() []float64 {
	u := make([]float64, len(p.X))
	for i := range u {
		u[i] = entry(p.X[i]) - entry(p.Y[i])
	}
	var most float64
	for _, v := range u {
		most = math.Max(most, math.Abs(v))
	}
	if most > 0 {
		for i := range u {
			u[i] /= most
		}
	}
	return u
}

func entry(v float32) float64 {
	if v != v {
		return 0
	}
	return math.Max(-math.MaxFloat32, math.Min(float64(v), math.MaxFloat32))
}
