package wire

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Task is the part of a task that never changes while it runs; its digest names the task. The
// coordinator signs it under LabelTask.
type Task struct {
	Population Population
	Name       string // for people
	Trust      dp.Trust
	// Participation, Mechanism and MinReports hold for every round.
	Participation dp.Participation
	MinReports    int64
	Rounds        int64 // the most rounds that the task may have
	Delta         float64
	Mechanism     Mechanism
	// Config describes the model. It is opaque here and the same for all.
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
}

// Sum describes a vector sum; the fields are those of vecsum.Params.
type Sum struct {
	Users, MinUsers int64
	Honest          float64
	Grid, Norm      int64
	Noise           string
	NoiseBits       int64
	NoiseP          float64
	NoiseVariance   float64
	Split           bool
	Sigma           float64 // the σ that a client's noise is worth, in clip norms
}

func (e *encoder) mechanism(m Mechanism) {
	e.text(m.Name)
	e.i64(m.Dim)
	e.f64(m.Clip)
	e.text(m.ClipMode)
	e.f64(m.Eps0)
	e.i64(m.Bits)
	s := m.Sum
	for _, v := range []int64{s.Users, s.MinUsers, s.Grid, s.Norm, s.NoiseBits} {
		e.i64(v)
	}
	for _, v := range []float64{s.Honest, s.NoiseP, s.NoiseVariance, s.Sigma} {
		e.f64(v)
	}
	e.text(s.Noise)
	e.flag(s.Split)
}

func (d *decoder) mechanism() (m Mechanism) {
	m.Name, m.Dim, m.Clip, m.ClipMode = d.text(), d.count("dim"), d.f64("clip"), d.text()
	m.Eps0, m.Bits = d.f64("eps0"), d.count("bits")
	s := &m.Sum
	s.Users, s.MinUsers, s.Grid = d.count("users"), d.count("min users"), d.count("grid")
	s.Norm, s.NoiseBits = d.count("norm"), d.count("noise bits")
	s.Honest, s.NoiseP, s.NoiseVariance, s.Sigma = d.f64("honest"), d.f64("p"), d.f64("variance"), d.f64("sigma")
	s.Noise, s.Split = d.text(), d.flag()
	return m
}

// Append appends the encoding to dst.
func (m Task) Append(dst []byte) []byte {
	e := encode(dst, KindTask)
	e.raw(m.Population[:])
	e.text(m.Name)
	e.text(string(m.Trust))
	e.text(string(m.Participation))
	e.i64(m.MinReports)
	e.i64(m.Rounds)
	e.f64(m.Delta)
	e.mechanism(m.Mechanism)
	e.blob(m.Config)
	return e.b
}

// DecodeTask is the inverse of Append.
func DecodeTask(b []byte) (m Task, err error) {
	d := decode(b, KindTask)
	d.fixed(m.Population[:])
	m.Name = d.text()
	m.Trust, m.Participation = d.trust(), d.participation()
	m.MinReports, m.Rounds, m.Delta = d.count("n-min"), d.count("rounds"), d.f64("delta")
	m.Mechanism = d.mechanism()
	m.Config = d.blob()
	if d.err == nil && (m.MinReports < 1 || m.Rounds < 1 || m.Mechanism.Dim < 1) {
		d.fail("task with n-min %d, %d rounds, dimension %d", m.MinReports, m.Rounds, m.Mechanism.Dim)
	}
	if err := d.end(); err != nil {
		return Task{}, err
	}
	return m, nil
}

// LastRound returns the highest round number that may be announced. At most Rounds of these
// rounds are charged: a void round is announced again under the next number, at most Rounds +
// 10 times in total. Participation Once has no such repetitions: a block whose round was void
// has had its turn. Nor has trust local: reports that were sent have been seen, however few
// they were.
func (m Task) LastRound() int64 {
	if m.Participation == dp.Once || m.Trust.Alone() || m.Rounds > (math.MaxInt64-voidRounds)/2 {
		return m.Rounds
	}
	return 2*m.Rounds + voidRounds
}

const voidRounds = 10

// ID is the task's digest.
func (m Task) ID() [32]byte { return Digest(LabelTask, m.Append(nil)) }

func (d *decoder) trust() dp.Trust {
	t := dp.Trust(d.text())
	if !t.InEvents() {
		d.fail("trust %q", t)
	}
	return t
}

func (d *decoder) participation() dp.Participation {
	p := dp.Participation(d.text())
	switch p {
	case dp.All, dp.Sampled, dp.CheckIn, dp.Once:
	default:
		d.fail("participation %q", p)
	}
	return p
}
