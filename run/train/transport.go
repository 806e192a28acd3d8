package train

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// carrying is the type of simulate.Config.Carry.
type carrying = func(round int64) (carry func(rng.Source, *randomizer.Report) error, open func() ([]int64, int64, error), err error)

// carriers returns a function that carries a round's reports of a vector sum message by
// message; nil if a simulation uses the sum's law instead.
func (c PrivacyConfig) carriers(task [32]byte, m *mechanism.VectorSum) (carrying, error) {
	if c.Transport == "" {
		return nil, nil
	}
	make := func(round int64) (*carrier, error) {
		name := sha256.Sum256(binary.LittleEndian.AppendUint64(task[:], uint64(round)))
		id := vecsum.RoundID(name[:16])
		switch c.Transport {
		case singleBits:
			b, err := vecsum.NewShuffled(vecsum.Bits, vecsum.Config{Params: m.Params, Round: id})
			return &carrier{transport: b}, err
		case splitAndMix:
			security, err := c.mixSecurity()
			if err != nil {
				return nil, err
			}
			x, err := vecsum.NewShuffled(vecsum.Mix, vecsum.Config{Params: m.Params, Round: id, Security: security})
			return &carrier{transport: x}, err
		}
		s, err := vecsum.NewShares(vecsum.Config{Params: m.Params, Round: id})
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
	first, err := make(1) // so that impossible settings are refused at once
	if err != nil {
		return nil, err
	}
	t := first.transport
	if cost := (1 + math.Exp(c.Epsilon)) * float64(c.Rounds) * t.Cost().Distance; !(cost*(1+1e-12) <= c.transportShare()*c.Delta) {
		return nil, fmt.Errorf("what it shows adds %g to delta in %d rounds, above the %g kept for it", cost, c.Rounds, c.transportShare()*c.Delta)
	}
	// These messages are held until a round ends.
	if each := t.Cost().Messages; c.Transport != shares && float64(each)*c.expectedReports() > maxMessages {
		return nil, fmt.Errorf("%d messages of each of %g clients are more than the %g that a simulation keeps; use transport shares", each, c.expectedReports(), float64(maxMessages))
	}
	return func(round int64) (func(rng.Source, *randomizer.Report) error, func() ([]int64, int64, error), error) {
		c, err := make(round)
		if err != nil {
			return nil, nil, err
		}
		return c.carry, c.open, nil
	}, nil
}

// aggregators is the number of aggregators that share a round's reports.
const aggregators = 2

// maxMessages bounds a simulated round of single messages, of some 70 bytes each.
const maxMessages = 1 << 24

// transportShare returns the share of δ for what a transport reveals besides the sum.
func (c PrivacyConfig) transportShare() float64 {
	if c.Transport == splitAndMix {
		return 1e-3
	}
	return 0
}

// mixSecurity returns the security σ of the transport mix. It is the smallest σ for which all
// rounds together keep to the transport's share of δ. A round adds (1 + e^ε)·2^−σ to δ
// (vecsum.Curve), and ε is at most the budget.
func (c PrivacyConfig) mixSecurity() (int, error) {
	need := math.Log2((1 + math.Exp(c.Epsilon)) * float64(c.Rounds) / (c.transportShare() * c.Delta))
	if !(need <= 119) {
		return 0, fmt.Errorf("epsilon = %v in %d rounds at delta = %v needs a security of 2^-%.0f, at most 2^-120 are supported", c.Epsilon, c.Rounds, c.Delta, need)
	}
	return max(20, int(math.Ceil(need))+1), nil
}

// carrier is a round's transport with its receiving end.
type carrier struct {
	transport   vecsum.Transport
	shares      *vecsum.Shares
	mu          sync.Mutex
	aggregators []*vecsum.Aggregator
	messages    [][]byte // single messages, in an order that a real shuffler would destroy
}

// carry sends one client's counts.
func (c *carrier) carry(src rng.Source, r *randomizer.Report) error {
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

// open returns the sum.
func (c *carrier) open() (sum []int64, n int64, err error) {
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
