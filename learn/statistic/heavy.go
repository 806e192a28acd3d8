package statistic

import (
	"errors"
	"slices"
)

// heavy asks for the texts that many clients have: those that at least Share of all clients have in
// Column. It goes over several rounds, each client being in one of them: see prefixTree and [Search].
type heavy struct{ Question }

// HeavyHitters is the kind of question that goes over several rounds.
const HeavyHitters = "heavy-hitters"

func (heavy) uses() []string { return []string{"column", "where", "longest", "alphabet", "share"} }
func (heavy) ones() int      { return 1 }

func (h heavy) tree() (prefixTree, error) { return newPrefixTree(h.Longest, h.Alphabet, h.Share) }

func (h heavy) mustTree() prefixTree {
	t, err := h.tree()
	if err != nil {
		panic(err) // it was checked
	}
	return t
}

func (h heavy) dim() int { return h.mustTree().dim() }

func (h heavy) check() error {
	if err := checkName("column", h.Column); err != nil {
		return err
	}
	_, err := h.tree()
	return err
}

func (h heavy) coder() coder {
	t := h.mustTree()
	at := func(state []float32) coder {
		s, err := t.decode(state)
		return coder{places: func(row Row, ok bool, _ []float32, places []int) []int {
			text := h.cell(row, ok)
			if text == "" || err != nil {
				return places // a damaged state asks nothing
			}
			if b := t.bucket(s, text); b >= 0 {
				places = append(places, b)
			}
			return places
		}}
	}
	return coder{
		at: at,
		places: func(row Row, ok bool, state []float32, places []int) []int {
			return at(state).places(row, ok, state, places)
		},
	}
}

func (heavy) answer(Release) (Answer, error) {
	return Answer{}, errors.New("statistic: heavy hitters are found over several rounds, not from one release")
}

// Rounds returns the number of rounds of a valid question. If it is above 1, each client is in one of
// them.
func (q Question) Rounds() int64 {
	if q.Measure == HeavyHitters {
		return int64(heavy{q}.mustTree().rounds())
	}
	return 1
}

// Parameters returns the number of parameters that each round of a valid question publishes.
func (q Question) Parameters() int64 {
	if q.Measure == HeavyHitters {
		return int64(heavy{q}.mustTree().parameters())
	}
	return 1
}

// At returns the encoder of one round, in which state was published. It encodes as e does with that
// state, and faster.
func (e *Encoder) At(state []float32) *Encoder {
	if e.coder.at == nil {
		return e
	}
	at := *e
	at.coder = e.coder.at(slices.Clone(state))
	return &at
}
