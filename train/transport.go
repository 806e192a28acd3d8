package train

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/riffle-dp/riffle/mechanism"
	"github.com/riffle-dp/riffle/randomizer"
	"github.com/riffle-dp/riffle/rng"
	"github.com/riffle-dp/riffle/simulate"
	"github.com/riffle-dp/riffle/vecsum"
)

// carriers returns what carries the reports of a round of a vector sum, message
// by message; nil where a simulation takes the sum's law instead.
func (c Config) carriers(m *mechanism.VectorSum) (func(round int64) (simulate.Carrier, error), error) {
	if c.Transport == "" {
		return nil, nil
	}
	task := c.Digest()
	make := func(round int64) (simulate.Carrier, error) {
		name := sha256.Sum256(binary.LittleEndian.AppendUint64(task[:], uint64(round)))
		id := vecsum.RoundID(name[:16])
		if c.Transport == "bits" {
			b, err := vecsum.NewBits(vecsum.BitsConfig{Params: m.Params(), Round: id})
			if err != nil {
				return nil, err
			}
			return &carrier{transport: b}, nil
		}
		s, err := vecsum.NewShares(vecsum.SharesConfig{Params: m.Params(), Round: id})
		if err != nil {
			return nil, err
		}
		out := &carrier{transport: s, shares: s}
		for i := range aggregators {
			a, err := s.NewAggregator(i)
			if err != nil {
				return nil, err
			}
			out.aggregators = append(out.aggregators, a)
		}
		return out, nil
	}
	first, err := make(1) // so that what cannot be carried is refused at once
	if err != nil {
		return nil, err
	}
	// Bits are kept until a round ends.
	if each, _ := first.(*carrier).transport.Size(); c.Transport == "bits" && float64(each)*c.ExpectedReports() > maxBitMessages {
		return nil, fmt.Errorf("%d bits of each of %g clients are more than the %g messages that a simulation keeps; use transport shares", each, c.ExpectedReports(), float64(maxBitMessages))
	}
	return make, nil
}

// aggregators is how many share a round's reports.
const aggregators = 2

// maxBitMessages bounds a simulated round of single bits, some 70 bytes each.
const maxBitMessages = 1 << 24

// carrier is a round's transport with those at its other end.
type carrier struct {
	transport   vecsum.Transport
	shares      *vecsum.Shares
	mu          sync.Mutex
	aggregators []*vecsum.Aggregator
	messages    [][]byte // of bits, in the order that a shuffler would destroy
}

// Carry sends one client's counts.
func (c *carrier) Carry(src rng.Source, r *randomizer.Report) error {
	counts := make([]int64, len(r.Value))
	for j, v := range r.Value {
		counts[j] = int64(v)
	}
	messages, err := c.transport.Messages(src, counts)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shares == nil {
		c.messages = append(c.messages, messages...)
		return nil
	}
	for i, m := range messages {
		if err := c.aggregators[i].Add(m); err != nil {
			return err
		}
	}
	return nil
}

// Open sums.
func (c *carrier) Open() (sum []int64, n int64, err error) {
	if c.shares == nil {
		return c.transport.Sum(c.messages)
	}
	var partials []vecsum.Partial
	for _, a := range c.aggregators {
		p, err := a.Close()
		if err != nil {
			return nil, 0, err
		}
		partials = append(partials, p)
	}
	return c.shares.Combine(partials...)
}
