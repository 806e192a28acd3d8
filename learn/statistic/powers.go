package statistic

// powers is a way to encode a value t, scaled to −1 … 1, with its square: (t, w·t² − b, 1 − c)/R,
// and a row outside as (0, −b, −c)/R. The ball around (0, b, c) of radius R holds (t, w·t², 1) for
// all t, and the origin. statistic.md, section 3.
type powers struct {
	weight         float64 // w
	square, inside float64 // b and c
	radius         float64 // R
	everyone       bool    // nobody is outside: the third coordinate is not there
}

// everyone encodes t as (t, t² − 1), which is in the unit ball.
var everyone = powers{weight: 1, square: 1, radius: 1, everyone: true}

// shrink keeps what is rounded to float32 in the ball.
const shrink = 1 - 0x1p-22

func (p powers) dim() int {
	if p.everyone {
		return 2
	}
	return 3
}

func (p powers) coder(q Question) coder {
	scale := shrink / p.radius
	return coder{values: func(row Row, ok bool, _ []float32, x []float32) {
		t, ok := q.unit(row, ok)
		x[0], x[1] = float32(t*scale), float32((p.weight*t*t-p.square)*scale)
		if p.everyone {
			return
		}
		inside := 0.
		if ok {
			inside = 1
		}
		x[2] = float32((inside - p.inside) * scale)
	}}
}

// answer returns the mean and the number inside, and what they are made of. Each holds with the
// chance joint.
func (p powers) answer(q Question, r Release, joint float64) (Answer, moments) {
	unit, n := p.radius/shrink, float64(r.Reports)
	r.Law = scaledLaw{r.Law, unit}
	m := moments{sum: r.Sums[0] * unit, squares: (r.Sums[1]*unit + p.square*n) / p.weight, inside: n, law: r.Law, finite: r.finite(), everyone: p.everyone}
	if !p.everyone {
		m.inside = r.Sums[2]*unit + p.inside*n
	}
	mean := ratio{m.sum, m.inside, p.everyone, m.squares / m.inside}.number(r, joint).moved(q.middle(), q.half())
	a := Answer{Mean: &mean}
	if !p.everyone {
		inside := r.count(m.inside, joint)
		a.Count = &inside
	}
	return a, m
}
