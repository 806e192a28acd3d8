package account

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// tally counts the rounds of an event by shape, in order of appearance.
type tally struct {
	parts []part
	at    map[shape]int
	total float64
	// once lists the kinds of disjoint batches; a client is in only one batch.
	once []part
	// batched counts the reports in disjoint batches; fewest is the smallest n that they
	// name.
	batched float64
	fewest  int64
}

// add counts an event.
func (t *tally) add(ev dp.Event, times int64) error {
	switch e := ev.(type) {
	case dp.Round:
		if err := e.Validate(); err != nil {
			return err
		}
		if e.Population > 1<<52 {
			return fmt.Errorf("account: n = %d must be at most 2^52", e.Population)
		}
		s := shapeOf(e)
		if t.total += float64(times); t.total > maxRounds {
			return fmt.Errorf("account: more than 1e12 rounds")
		}
		if e.Participation == dp.Once {
			t.addOnce(s, e, times)
			return nil
		}
		if _, seen := t.at[s]; !seen {
			t.at[s] = len(t.parts)
			t.parts = append(t.parts, part{shape: s})
		}
		t.parts[t.at[s]].times += times
		return nil
	case dp.Repeat:
		if e.Times < 1 || float64(e.Times)*float64(times) > maxRounds {
			return fmt.Errorf("account: %d times %d repetitions must lie between 1 and 1e12", e.Times, times)
		}
		return t.add(e.Event, times*e.Times)
	case dp.Sequence:
		for _, part := range e {
			if err := t.add(part, times); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("account: unknown event %T", ev)
	}
}

// addOnce counts disjoint batches. Of batches with the same randomizer it keeps the smallest,
// which hides its clients least.
func (t *tally) addOnce(s shape, e dp.Round, times int64) {
	t.batched += float64(times) * float64(e.Reports)
	if t.fewest == 0 || e.Population < t.fewest {
		t.fewest = e.Population
	}
	for i, o := range t.once {
		alike := o.shape // but for the batch's size
		alike.population, alike.reports, alike.included = s.population, s.reports, s.included
		if alike == s {
			if s.reports < o.shape.reports {
				t.once[i].shape = s
			}
			return
		}
	}
	t.once = append(t.once, part{s, 1})
}

// worlds returns the possible histories of a client: all other rounds, and one of the
// disjoint batches. The assignment of clients to batches is public, so the guarantee is the
// one for the worst history.
func (t *tally) worlds() ([][]part, error) {
	if len(t.once) == 0 {
		return [][]part{t.parts}, nil
	}
	if t.batched > float64(t.fewest) {
		return nil, fmt.Errorf("account: disjoint batches of %.0f reports in all need more than n = %d clients", math.Ceil(t.batched), t.fewest)
	}
	var out [][]part
	for _, o := range t.once {
		out = append(out, append(append([]part(nil), t.parts...), o))
	}
	return out, nil
}
