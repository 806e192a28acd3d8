package prio3

import (
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// local is a transport that runs both aggregators in one process.
type local struct {
	*Shares
	Key VerifyKey // required
}

var _ vecsum.Transport = local{}

// Sum implements [vecsum.Transport]. Refused reports are left out and not counted among the
// clients. A malformed message, or a report with one half only, is an error.
func (l local) Sum(messages [][]byte) (counts []int64, clients int64, err error) {
	var all [aggregators]*Aggregator
	for i := range all {
		if all[i], err = l.NewAggregator(i, l.Key); err != nil {
			return nil, 0, err
		}
	}
	halves := map[[idSize]byte]int{}
	var preps [][]byte
	for _, m := range messages {
		i := 0
		if len(m) > 2 {
			i = int(m[2] & 1)
		}
		prep, err := all[i].Begin(m)
		if err != nil && !errors.Is(err, ErrRefused) {
			return nil, 0, err
		}
		halves[[idSize]byte(m[headerSize:])] |= 1 << i
		if err == nil {
			preps = append(preps, prep)
		}
	}
	for _, h := range halves {
		if h != 1<<aggregators-1 {
			return nil, 0, errors.New("prio3: a report came to one aggregator only")
		}
	}
	for _, m := range preps {
		to := all[1-m[2]]
		if p, known := to.reports[[idSize]byte(m[headerSize:])]; known && p == nil {
			continue // the other aggregator refused it on sight
		}
		if err := to.Finish(m); err != nil && !errors.Is(err, ErrRefused) {
			return nil, 0, err
		}
	}
	var partials [aggregators][]byte
	for i, a := range all {
		if partials[i], err = a.Close(); err != nil {
			return nil, 0, fmt.Errorf("prio3: aggregator %d: %w", i, err)
		}
	}
	return l.Combine(partials[:]...)
}
