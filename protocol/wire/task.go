package wire

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Task is the part of a task that never changes while it runs; its digest names the task. The
// coordinator signs it under LabelTask.
type Task struct {
	Population ID
	Name       string // for people
	Trust      dp.Trust
	// Participation, Mechanism and MinReports hold for every round.
	Participation dp.Participation
	MinReports    int64
	Rounds        int64 // the most rounds that the task may have
	Delta         float64
	Mechanism     Mechanism
	// Messages is the number of messages that each client sends in a round; 0 means one.
	Messages int64
	// Receipts says that each message carries a receipt: see Attachments.
	Receipts bool
	// Tokens says that each message carries a token, and under which keys.
	Tokens Tokens
	// MinClients is the number of enrolled clients that every round counts on: none is announced
	// with fewer. 0: each round counts on all clients of its enrolment.
	MinClients int64
	// ModelDim is the number of published parameters, if it is another than Mechanism.Dim; 0: it is
	// not.
	ModelDim int64
	// Every, if not 0, says that a client takes part in at most one of so many consecutive rounds, by its own
	// count; announcements then have Gamma = 1/Every. It goes with participation check-in and
	// Mechanism.Weights.
	Every int64
	// Config describes the model, or the question. It is opaque here and the same for all.
	Config []byte
}

// Mechanism describes a randomizer, so that client and coordinator build the same one.
type Mechanism struct {
	Name     string
	Dim      int64   // length of a gradient
	Clip     float64 // radius of the ball; 0 if the mechanism has none
	ClipMode string  // "norm" or "coordinate"
	Eps0     float64 // requested ε₀; a report's actual ε₀ may be larger
	Bits     int64   // coordinates or bits of a report, if the mechanism has that choice
	Sum      Sum     // a vector sum; Users is 0 for other mechanisms

	// The following fields are optional parts of the encoding.

	// Encoding is how a report becomes bytes: EncodingSeed, or EncodingValues, which "" stands
	// for.
	Encoding string
	// Edges are the scores, ascending, at which the density of a report rises, each time by
	// Height. Empty, with Height 0: the mechanism has no edges, or its own.
	Edges  []float64
	Height float64
	// Weights and WeightBits are those of toeplitz.Strategy, by which the noise of a vector sum is correlated
	// over rounds: what is released of a round is made of its sum and earlier ones. Empty: it is not.
	// There are at most as many as Task.Every.
	Weights    []int64
	WeightBits int64
}

// Encodings of a report.
const (
	EncodingSeed   = "seed"   // 16 bytes that the report is computed from
	EncodingValues = "values" // the values
)

// Sum describes a vector sum; the fields are those of vecsum.Params or vecsum.Aggregated.
type Sum struct {
	Users, MinUsers int64
	Honest          float64
	Grid, Norm      int64
	Noise           string
	NoiseBits       int64
	NoiseP          float64
	NoiseVariance   float64
	Split           bool
	// Sigma is the σ of each client's noise, in clip norms: see vecsum.Params.Sigma. If NoiseBy is set
	// it is that of each aggregator's noise, or of all relied on clients' together: see vecsum.Aggregated.Sigma.
	Sigma float64

	// The following fields are optional parts of the encoding.

	NoiseBy string // who adds the noise: NoiseByAggregators, NoiseByClients, or "", the clients to their vectors
	Proofs  string // proofs of the norm that reports carry: ProofsPine, or "", none
	// Steps, Bound and Variance are those of vecsum.Aggregated.
	Steps, Bound int64
	Variance     uint64
	// Ones, if not 0, says that inputs are vectors of zeros and at most so many ones, which are
	// counted.
	Ones int64
}

func (m *Mechanism) fields(c *codec) {
	text(c, &m.Name)
	c.count("dim", &m.Dim)
	c.f64("clip", &m.Clip)
	text(c, &m.ClipMode)
	c.f64("eps0", &m.Eps0)
	c.count("bits", &m.Bits)
	s := &m.Sum
	c.count("users", &s.Users)
	c.count("min users", &s.MinUsers)
	c.count("grid", &s.Grid)
	c.count("norm", &s.Norm)
	c.count("noise bits", &s.NoiseBits)
	c.f64("honest", &s.Honest)
	c.f64("p", &s.NoiseP)
	c.f64("variance", &s.NoiseVariance)
	c.f64("sigma", &s.Sigma)
	text(c, &s.Noise)
	c.flag(&s.Split)
}

func (*Task) kind() byte { return KindTask }

func (*Task) label() Label { return LabelTask }

func (m *Task) fields(c *codec) {
	c.fixed(m.Population[:])
	text(c, &m.Name)
	c.trust(&m.Trust)
	c.participation(&m.Participation)
	c.count("n-min", &m.MinReports)
	c.count("rounds", &m.Rounds)
	c.f64("delta", &m.Delta)
	m.Mechanism.fields(c)
	c.blob(&m.Config)
	if c.read() && (m.MinReports < 1 || m.Rounds < 1 || m.Mechanism.Dim < 1) {
		c.fail("task with n-min %d, %d rounds, dimension %d", m.MinReports, m.Rounds, m.Mechanism.Dim)
	}
}

// Parameters returns the number of parameters that every round publishes.
func (m Task) Parameters() int64 {
	if m.ModelDim != 0 {
		return m.ModelDim
	}
	return m.Mechanism.Dim
}

// LastRound returns the highest round number that may be announced. At most Rounds of these
// rounds are charged: a void round is announced again under the next number, at most Rounds +
// 10 times in total. Participation Once has no such repetitions: a block whose round was void
// has had its turn. Nor has trust local: reports that were sent have been seen, however few
// they were.
func (m Task) LastRound() int64 {
	if m.Participation == dp.Once || m.Trust.Is(dp.Alone) || m.Rounds > (math.MaxInt64-voidRounds)/2 {
		return m.Rounds
	}
	return 2*m.Rounds + voidRounds
}

const voidRounds = 10

func (c *codec) trust(t *dp.Trust) {
	if text(c, t); c.read() && !t.Is(dp.InEvents) {
		c.fail("trust %q", *t)
	}
}

func (c *codec) participation(p *dp.Participation) {
	text(c, p)
	switch *p {
	case dp.All, dp.Sampled, dp.CheckIn, dp.Once:
	default:
		if c.read() {
			c.fail("participation %q", *p)
		}
	}
}
