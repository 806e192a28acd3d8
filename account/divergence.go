package account

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/rdp"
)

// divergence returns the Rényi divergence of one of the rounds, in nats, as a
// function of the order, or why there is none.
type divergence func(e *engine, p part) (func(order float64) (float64, error), error)

// Divergence returns a method's Rényi divergence of one round of a query, as a
// function of its order above 1: in nats, upper or lower as the method's Kind
// says. Some methods have it at whole orders of at least 2 only. Delta, Eps, Rounds
// and Messages of the query are not looked at.
func Divergence(q Query, method string) (func(order float64) (float64, error), error) {
	q.Rounds, q.AskDelta, q.Eps, q.Delta, q.Messages = 1, false, 0, .5, 0
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if q.isSum() {
		return nil, fmt.Errorf("account: method %q has no divergence of vector sums", method)
	}
	s, _ := q.shape()
	for _, m := range Methods() {
		if m.ID != method || m.divergence == nil {
			continue
		}
		if err := m.refusal(q, s); err != nil {
			return nil, err
		}
		return m.divergence(new(engine), part{s, 1})
	}
	return nil, fmt.Errorf("account: method %q has no divergence", method)
}

// orders says which whole orders are searched. The zero value means that all real orders are
// searched.
type orders struct {
	top          int // largest order
	factor, more int // the coarse search ends at factor·best + more, best being the best order so far
}

var (
	integers = orders{1 << 14, 4, 64}
	// The bound at an order needs all lower orders, so the time grows with the square.
	upTo1024 = orders{1 << 10, 4, 64}
	upTo2048 = orders{1 << 11, 4, 64}
	ofSums   = orders{1 << 10, 2, 16}
)

// convert answers a query by the method's Rényi divergence, composed over the rounds.
func (m Method) convert(e *engine, q Query, parts []part) (answer, error) {
	bound, err := m.divergence(e, parts[0])
	if err != nil {
		return answer{}, err
	}
	times := parts[0].times
	if m.orders.top > 0 {
		return m.orders.convert(q, times, func(order int) (float64, error) { return bound(float64(order)) })
	}
	return convert(q, func(order float64) float64 {
		d, err := bound(order)
		if err != nil {
			return math.Inf(1)
		}
		return float64(times) * d
	})
}

// convert answers a query from a Rényi curve at real orders.
func convert(q Query, curve rdp.Curve) (answer, error) {
	if q.AskDelta {
		return answer{eps: q.Eps, delta: rdp.Delta(curve, q.Eps)}, nil
	}
	eps, order := rdp.Minimize(curve, q.Delta)
	if math.IsInf(eps, 1) || math.IsNaN(eps) {
		return answer{}, refuse("no order gives a finite epsilon")
	}
	return answer{eps: eps, delta: q.Delta, order: order}, nil
}

// convert answers a query from a Rényi curve at whole orders, bound, composed over a number of
// rounds, times.
func (o orders) convert(q Query, times int64, bound func(order int) (float64, error)) (answer, error) {
	best, lambda := math.Inf(1), 0
	try := func(l int) error {
		d, err := bound(l)
		d *= float64(times)
		v := rdp.Epsilon(float64(l), d, q.Delta)
		if q.AskDelta {
			v = rdp.DeltaAt(float64(l), d, q.Eps)
		}
		if err == nil && v < best {
			best, lambda = v, l
		}
		return err
	}
	// Every order is valid, so an order that the search skips only makes the bound looser.
	// Orders grow by an eighth, then by ever smaller steps around the best.
	for l := 2; l <= o.top && l <= o.factor*lambda+o.more; l += max(1, l/8) {
		if err := try(l); err != nil {
			return answer{}, err
		}
	}
	for step := lambda / 16; step > 0; step /= 2 {
		for _, l := range []int{lambda - step, lambda + step} {
			if err := try(max(2, l)); err != nil {
				return answer{}, err
			}
		}
	}
	if math.IsInf(best, 1) {
		return answer{}, refuse("no order gives a finite epsilon")
	}
	if q.AskDelta {
		return answer{eps: q.Eps, delta: best, order: float64(lambda)}, nil
	}
	return answer{eps: best, delta: q.Delta, order: float64(lambda)}, nil
}

// pairDivergence returns the divergence of a pair.
func pairDivergence(c clones) divergence {
	return func(e *engine, p part) (func(float64) (float64, error), error) {
		pair, err := e.pair(p.shape, c)
		return func(order float64) (float64, error) { return rdp.Divergence(pair, order), nil }, err
	}
}

func refuse(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, dp.ErrNoBound)...)
}
