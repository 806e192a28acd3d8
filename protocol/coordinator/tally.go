package coordinator

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// Tally sums opened messages: of each client one report, or several. Each tally belongs to one
// goroutine. Sums are exact integers, so it does not matter how messages are spread over tallies.
// Equal messages of a [randomizer.Distinct] mechanism count once: End leaves out the others.
type Tally struct {
	Sum      []int64 // of the accepted messages
	Accepted int64   // number of messages
	Rejected int64   // messages out of shape or range, or that could not be decoded

	mechanism randomizer.Mechanism
	round     int64
	// distinct is the mechanism if equal reports count once; identities are those of the reports
	// in Sum.
	distinct   randomizer.Distinct
	identities [][16]byte
}

// NewTally returns an empty tally of the charged round.
func (c *Coordinator) NewTally() (*Tally, error) {
	if c.opened == 0 {
		return nil, errors.New("coordinator: no round is charged, nothing may be opened")
	}
	if c.reports == nil {
		return nil, errors.New("coordinator: the charged batch was not received again")
	}
	return newTally(c.reports, c.opened), nil
}

func newTally(m randomizer.Mechanism, round int64) *Tally {
	t := &Tally{mechanism: m, round: round, Sum: make([]int64, m.Facts().Dim)}
	t.distinct, _ = m.(randomizer.Distinct)
	return t
}

// Open validates a message and adds it. A message out of shape or range is counted as rejected
// and leaves no other trace.
func (t *Tally) Open(r *randomizer.Report) {
	if t.mechanism.Check(r) != nil {
		t.Rejected++
		return
	}
	t.mechanism.Add(t.Sum, r)
	t.Accepted++
	if t.distinct != nil {
		t.identities = append(t.identities, t.distinct.Identity(r))
	}
}

// repeated takes out of a sum what reports that are equal to another one of the tallies added to
// it, and returns their number.
func repeated(sum []int64, tallies []*Tally) (n int64) {
	// Each tally's list is sorted where it is, and the lists are read in common order: one more
	// list of all of them would double the memory of a large round.
	var lists [][][16]byte
	for _, t := range tallies {
		slices.SortFunc(t.identities, compareIdentities)
		if len(t.identities) > 0 {
			lists = append(lists, t.identities)
		}
	}
	var last [16]byte
	for first := true; len(lists) > 0; first = false {
		at := 0
		for i := range lists {
			if compareIdentities(lists[i][0], lists[at][0]) < 0 {
				at = i
			}
		}
		next := lists[at][0]
		if !first && next == last {
			tallies[0].distinct.Remove(sum, next)
			n++
		}
		last = next
		if lists[at] = lists[at][1:]; len(lists[at]) == 0 {
			lists = slices.Delete(lists, at, at+1)
		}
	}
	return n
}

// compareIdentities is any order that is the same everywhere in a process.
func compareIdentities(a, b [16]byte) int {
	if c := cmp.Compare(binary.LittleEndian.Uint64(a[:8]), binary.LittleEndian.Uint64(b[:8])); c != 0 {
		return c
	}
	return cmp.Compare(binary.LittleEndian.Uint64(a[8:]), binary.LittleEndian.Uint64(b[8:]))
}

// AddSum adds the sum of n reports that nobody has seen one by one.
func (t *Tally) AddSum(sum []int64, n int64) error {
	if len(sum) != len(t.Sum) || n < 0 {
		return fmt.Errorf("coordinator: sum of %d counts over %d reports, want %d counts", len(sum), n, len(t.Sum))
	}
	for j, v := range sum {
		t.Sum[j] += v
	}
	t.Accepted += n
	return nil
}
