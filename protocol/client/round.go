// Package client decides for the owner of data whether it takes part in a task or a round and
// what that may cost, and turns its gradient into one report that satisfies its local
// guarantee.
//
// It only computes, so a simulation runs the same code as a client on a network
// (riffle/service/client). [Policy] checks a task and gives [Terms]; these check each round's
// announcement and, against the client's [History], its budget; [Client] clips and
// randomizes.
package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// CheckIn flips the client's own coin: true with probability gamma, exactly. Every client
// flips it, whatever its data. gamma comes from a checked announcement and lies in [0, 1].
func CheckIn(src rng.Source, gamma float64) bool {
	return sample.Bernoulli(src, gamma)
}

// FirstRound draws the first round in which a client may take part of a task where each is in one of
// every rounds at most: uniform among the first `every`, so that not all come at once. It is no chance that
// privacy counts on.
func FirstRound(src rng.Source, every int64) int64 {
	return 1 + int64(sample.Uniform(src, uint64(every)))
}

// OwnFirstRound is FirstRound of a client over a network: the same each time it is computed, and for all who do
// not have the client's secret key as good as drawn.
func OwnFirstRound(secret []byte, task [32]byte, every int64) int64 {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("riffle/1 first round"))
	h.Write(task[:])
	// Of fewer than 2^32 rounds the remainder is uniform within 2^-32.
	return 1 + int64(binary.LittleEndian.Uint64(h.Sum(nil))%uint64(every))
}

// Turn says whether a client takes part in a round of such a task: if at least `every` rounds have begun
// since the last in which it did (0: there was none), and none before its first.
func Turn(every, first, last, round int64) bool {
	if last == 0 {
		return round >= first
	}
	return round-last >= every
}

// ClipMode says how a gradient outside the ball is brought into it. Both modes give the same
// guarantee; they change gradients in different ways.
type ClipMode string

const (
	ClipNorm       ClipMode = "norm"       // rescale, as Girgis et al. 2021, Algorithm 1, line 5
	ClipCoordinate ClipMode = "coordinate" // project each coordinate on [−C, C]; ℓ∞ balls only
)

// Config has the parts of a round's announcement that the client uses.
type Config struct {
	Mechanism randomizer.Mechanism // Required.
	ClipMode  ClipMode             // Required.
	Clip      float64              // C > 0, radius of the ball. Required.
	Norm      float64              // p of the ball: 1, 2 or +Inf. Required.
}

// Client holds no data and no state between reports; one value serves any
// number of clients, one after the other.
type Client struct {
	// Sparse is the number of coordinates of its gradient that a client's report is about. It
	// is 0 if the report needs all of them, as clipping by norm does. It is for reading only.
	Sparse int
	// Sums says whether AddReports can be called. It is for reading only.
	Sums bool

	config Config
}

// New checks the configuration and returns the client.
func New(c Config) (*Client, error) {
	if c.Mechanism == nil {
		return nil, errors.New("client: a mechanism is required")
	}
	if !(c.Clip > 0) || math.IsInf(c.Clip, 1) {
		return nil, fmt.Errorf("client: clip = %v must be above 0 and finite", c.Clip)
	}
	switch {
	case c.Norm != 1 && c.Norm != 2 && !math.IsInf(c.Norm, 1):
		return nil, fmt.Errorf("client: clip norm p = %v must be 1, 2 or +Inf", c.Norm)
	case c.ClipMode == ClipCoordinate && !math.IsInf(c.Norm, 1):
		return nil, fmt.Errorf("client: clip mode %q needs an l-infinity ball, the randomizer's is l%v", c.ClipMode, c.Norm)
	case c.ClipMode != ClipCoordinate && c.ClipMode != ClipNorm:
		return nil, fmt.Errorf("client: unknown clip mode %q", c.ClipMode)
	}
	out := &Client{config: c}
	if m, ok := c.Mechanism.(randomizer.Sparse); ok && c.ClipMode == ClipCoordinate {
		out.Sparse = m.Facts().Coordinates
	}
	_, several := c.Mechanism.(randomizer.Several)
	_, seeds := c.Mechanism.(randomizer.Distinct) // reports of a running system are sent one by one
	out.Sums = several && !seeds
	return out, nil
}

// Check refuses a round whose announcement names another mechanism, ε₀ or ball than those the
// client was made for. A client does not take part in what it did not agree to, and a ledger
// is charged for what the client really does.
func (c *Client) Check(ann wire.Announcement) error {
	m := c.config.Mechanism
	var eps0, sigma float64 // 0 if the mechanism promises nothing
	if r, ok := m.(randomizer.Randomizer); ok {
		eps0, sigma = r.Event().Eps0, r.Event().Sigma
	}
	switch {
	case ann.Randomizer != m.Facts().Name:
		return fmt.Errorf("client: round %d announces mechanism %q, want %q", ann.Round, ann.Randomizer, m.Facts().Name)
	case ann.Eps0 != eps0:
		return fmt.Errorf("client: round %d announces eps0 = %v, want %v", ann.Round, ann.Eps0, eps0)
	case ann.Sigma != sigma:
		return fmt.Errorf("client: round %d announces sigma = %v, want %v", ann.Round, ann.Sigma, sigma)
	case ann.Clip != c.config.Clip:
		return fmt.Errorf("client: round %d announces clip = %v, want %v", ann.Round, ann.Clip, c.config.Clip)
	}
	return nil
}

// ForRound returns the client of a round over a network, which is named by its announcement's
// digest: some mechanisms' reports mean something in one round only.
func (c *Client) ForRound(announcement [32]byte) *Client {
	out := *c
	out.config.Mechanism = randomizer.ForRound(c.config.Mechanism, announcement)
	out.Sums = false
	return &out
}

// NewReport returns a report for Report to write to.
func (c *Client) NewReport() *randomizer.Report { return c.config.Mechanism.NewReport() }

// Report clips grad, randomizes it and writes the report into r; grad is working memory
// afterwards. It cannot fail, because a failure would reveal something about the data.
func (c *Client) Report(src rng.Source, grad []float32, r *randomizer.Report) {
	m, sparse := c.config.Mechanism.(randomizer.Sparse)
	switch {
	case c.config.ClipMode == ClipCoordinate && sparse:
		c.ReportAt(src, func(j int) float32 { return grad[j] }, r)
	case c.config.ClipMode == ClipCoordinate:
		randomizer.ClipCoordinate(grad, c.config.Clip)
		c.config.Mechanism.Randomize(src, grad, r)
	case sparse:
		// Only the reported coordinates need to be scaled.
		f := randomizer.ClipScale(grad, c.config.Norm, c.config.Clip)
		m.RandomizeAt(src, func(j int) float32 {
			if f < 1 {
				return float32(f * float64(grad[j]))
			}
			return grad[j]
		}, r)
	default:
		randomizer.ClipNorm(grad, c.config.Norm, c.config.Clip)
		c.config.Mechanism.Randomize(src, grad, r)
	}
}

// Again writes another report, with randomness of its own, of the gradient that Report was
// called with; grad is as Report left it.
func (c *Client) Again(src rng.Source, grad []float32, r *randomizer.Report) {
	if _, sparse := c.config.Mechanism.(randomizer.Sparse); sparse {
		c.Report(src, grad, r) // it does not change grad
		return
	}
	c.config.Mechanism.Randomize(src, grad, r)
}

// AddReports clips grad and adds to sum what count reports of it add up to, drawn from the sum's
// law: see [randomizer.Several]. It is for simulations, and panics unless Sums is true.
func (c *Client) AddReports(src rng.Source, grad []float32, count int64, sum []int64) {
	if !c.Sums {
		panic("client: the reports have to be made one by one")
	}
	if c.config.ClipMode == ClipCoordinate {
		randomizer.ClipCoordinate(grad, c.config.Clip)
	} else {
		randomizer.ClipNorm(grad, c.config.Norm, c.config.Clip)
	}
	c.config.Mechanism.(randomizer.Several).AddSeveral(src, sum, grad, count)
}

// ReportAt is Report for a gradient given by its coordinates: at returns coordinate j, and is
// called only for the coordinates that the report is about. It panics if Sparse is 0.
func (c *Client) ReportAt(src rng.Source, at func(j int) float32, r *randomizer.Report) {
	if c.Sparse == 0 {
		panic("client: the report needs the whole gradient")
	}
	c.config.Mechanism.(randomizer.Sparse).RandomizeAt(src, func(j int) float32 {
		return randomizer.ClipValue(at(j), c.config.Clip)
	}, r)
}
