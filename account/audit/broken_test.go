package audit

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// broken is a randomizer in which something was done wrong.
type broken struct {
	randomizer.Mechanism
	randomize func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report)
}

func (b broken) Randomize(src rng.Source, x []float32, r *randomizer.Report) {
	b.randomize(b.Mechanism, src, x, r)
}

// clean is what the randomizers do with values that are not numbers.
func clean(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = entry(v)
	}
	return y
}

// intoBall1 returns x in the unit ball of ℓ₁.
func intoBall1(x []float32) []float64 {
	y := clean(x)
	var size float64
	for _, v := range y {
		size += math.Abs(v)
	}
	for i := range y {
		y[i] /= math.Max(1, size)
	}
	return y
}

const steps = 1 << 16 // of the Laplace grid in the radius

// laplaceOf is a Laplace mechanism of radius 1 with a noise of its own.
func laplaceOf(noise func(src rng.Source, i int) int64) func(randomizer.Mechanism, rng.Source, []float32, *randomizer.Report) {
	return func(_ randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
		for i, v := range intoBall1(x) {
			r.Value[i] = int32(int64(math.Trunc(v*steps)) + noise(src, i))
		}
	}
}

// plus returns a bit with mean v in −1 … 1.
func plus(src rng.Source, v float64) bool {
	return sample.Bernoulli(src, (1+math.Max(-1, math.Min(1, v)))/2)
}

func bit(plus bool) int32 {
	if plus {
		return 1
	}
	return -1
}

// subtle tells which variants exceed their claim by a little, and rare which of them do so rarely.
func subtle(name string) bool {
	return rare(name) || has(name, "wrong p", "cap mass", "odds", "all of eps0", "may be the truth", "counted twice")
}

func rare(name string) bool { return has(name, "one row", "cut off", "forgotten", "gaussian") }

func has(name string, marks ...string) bool {
	return slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(name, mark) })
}

// Every broken variant of a randomizer is refuted, at the same confidence at
// which true claims stand. All claim 1.
func TestBrokenAreRefuted(t *testing.T) {
	const eps0 = 1.
	e := math.Exp(eps0)
	named := func(name string, dim int, eps0 float64) randomizer.Mechanism {
		return must(randomizer.New(name, randomizer.Config{Dim: dim, Radius: 1, Eps0: eps0}))
	}
	scale := sample.Ratio{Num: 2 * steps, Den: 1} // ε₀ = 1
	for _, c := range []struct {
		name      string
		m         randomizer.Mechanism
		randomize func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) // nil: m's own
	}{
		{"rr: wrong p", named("rr", 3, 1.3), nil},
		{"krr: wrong p", named("krr", 4, 1.15), nil},
		{"rinf: wrong p", named("rinf", 30, 1.15), nil},
		{"r1: wrong p", named("r1", 30, 1.15), nil},
		{"r2: wrong p", named("r2", 30, 1.15), nil},
		{"privunit: wrong p", named("privunit", 30, 1.15), nil},
		{"laplace: scale of half the sensitivity", named("laplace", 3, 2), nil},
		{"no randomizer", must(randomizer.NewPlain(randomizer.Config{Dim: 3, Radius: 1})), nil},
		{"gaussian", must(randomizer.NewDiscreteGaussian(randomizer.DiscreteGaussianConfig{Dim: 3, Radius: 1, Sigma: 3})), nil},

		{"rr: the coin's odds are E+1, not E", named("rr", 1, eps0),
			func(_ randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				r.Value[0] = bit(plus(src, entry(x[0])) != sample.Bernoulli(src, 1/(e+2)))
			}},
		{"rr: lies about minus only", named("rr", 1, eps0),
			func(_ randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				truth := plus(src, entry(x[0]))
				r.Value[0] = bit(truth || sample.Flip(src, eps0))
			}},
		{"rr: one coin for all bits", named("rr", 4, eps0),
			func(_ randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				lie := sample.Flip(src, eps0)
				for i, v := range clean(x) {
					r.Value[i] = bit(plus(src, v) != lie)
				}
			}},
		{"rr: each bit gets all of eps0", named("rr", 4, eps0),
			func(_ randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				for i, v := range clean(x) {
					r.Value[i] = bit(plus(src, v) != sample.Flip(src, eps0))
				}
			}},
		{"krr: the lie may be the truth", named("krr", 4, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				// Lies as often as it should, but one time in four says the truth.
				m.Randomize(src, x, r)
				if x[0] > 0 && r.Index[0] != 0 || x[3] > 0 && r.Index[0] != 3 {
					if sample.Uniform(src, 4) == 0 {
						r.Index[0] = 0
						if x[3] > 0 {
							r.Index[0] = 3
						}
					}
				}
			}},
		{"rinf: reports the largest coordinate", named("rinf", 20, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				m.Randomize(src, x, r)
				for i, v := range clean(x) {
					if v > 0 {
						r.Index[0] = uint32(i)
					}
				}
			}},
		{"r1: one row in twenty as it is", named("r1", 4, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				m.Randomize(src, x, r)
				if sample.Uniform(src, 20) == 0 { // row 0 is Σx
					var sum float64
					for _, v := range intoBall1(x) {
						sum += v
					}
					r.Index[0], r.Value[0] = 0, bit(plus(src, sum))
				}
			}},
		{"r2: the near side's mass counted twice", named("r2", 40, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				for {
					m.Randomize(src, x, r)
					var dot float64
					for i, v := range clean(x) {
						dot += v * float64(r.Value[i])
					}
					if dot >= 0 || sample.Uniform(src, 2) == 0 {
						return
					}
				}
			}},
		{"privunit: cap mass off by a third", named("privunit", 40, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				// The outside is refused once in four: the same as a cap believed
				// to be a third smaller than it is.
				for {
					m.Randomize(src, x, r)
					var dot, square float64
					for i, v := range clean(x) {
						dot += v * float64(r.Value[i])
						square += v * v
					}
					// The best cap for ε₀ = 1, d = 40 begins near 0.06.
					if dot >= .06*steps*math.Sqrt(square) || sample.Uniform(src, 4) != 0 {
						return
					}
				}
			}},
		{"laplace: noise cut off at four scales", named("laplace", 2, eps0),
			laplaceOf(func(src rng.Source, _ int) int64 {
				for {
					if k := sample.Laplace(src, scale); k < 8*steps && k > -8*steps {
						return k
					}
				}
			})},
		{"laplace: noise on the first coordinate only", named("laplace", 2, eps0),
			laplaceOf(func(src rng.Source, i int) int64 {
				if i > 0 {
					return 0
				}
				return sample.Laplace(src, scale)
			})},
		{"laplace: noise forgotten once in two hundred", named("laplace", 2, eps0),
			laplaceOf(func(src rng.Source, _ int) int64 {
				if sample.Uniform(src, 200) == 0 {
					return 0
				}
				return sample.Laplace(src, scale)
			})},
		{"laplace: input not clipped", named("laplace", 2, eps0),
			func(_ randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				for i, v := range clean(x) {
					v = math.Max(-4, math.Min(4, v))
					r.Value[i] = int32(int64(v*steps) + sample.Laplace(src, scale))
				}
			}},
		{"laplace: nothing to hide in zero", named("laplace", 2, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				m.Randomize(src, x, r)
				for i, v := range x {
					if v == 0 {
						r.Value[i] = 0
					}
				}
			}},
		{"laplace: the same noise for everybody", named("laplace", 3, eps0),
			func(m randomizer.Mechanism, _ rng.Source, x []float32, r *randomizer.Report) {
				m.Randomize(rng.Replay(1), x, r)
			}},
		{"privunit: one of four noises", named("privunit", 3, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				m.Randomize(rng.Replay(1, src.Uint64()&3), x, r)
			}},
		{"rinf: seeded by the input", named("rinf", 3, eps0),
			func(m randomizer.Mechanism, _ rng.Source, x []float32, r *randomizer.Report) {
				m.Randomize(rng.Replay(1, uint64(math.Float32bits(x[0]))), x, r)
			}},
		{"rr: tells when the input is no number", named("rr", 2, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				m.Randomize(src, x, r)
				if x[0] != x[0] {
					r.Value[0], r.Value[1] = 1, 1
				}
			}},
		{"rr: a report that is refused when the input is no number", named("rr", 2, eps0),
			func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
				m.Randomize(src, x, r)
				if x[0] != x[0] {
					r.Value[0] = 0
				}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			trials := int64(200_000)
			switch {
			case longtest.On || rare(c.name):
			case subtle(c.name):
				trials = 100_000
			default:
				trials = 20_000
			}
			if testing.Short() {
				if trials = 40_000; subtle(c.name) {
					t.Skip("needs more reports than a short test has time for")
				}
			}
			m := c.m
			if c.randomize != nil {
				m = broken{c.m, c.randomize}
			}
			// PrivUnit's and R2's slack is below a thousandth here.
			if r := run(t, m, 1.001*eps0, trials); !r.Refuted {
				t.Errorf("not refuted: %+v", r)
			} else {
				t.Logf("%.3f %v %s", r.LowerBound, r.Hits, r.Witness)
			}
		})
	}
}

// The shell of the broken Laplace variants is itself sound.
func TestSoundShellStands(t *testing.T) {
	m := must(randomizer.New(randomizer.Laplace, randomizer.Config{Dim: 2, Radius: 1, Eps0: 1}))
	sound := broken{m, laplaceOf(func(src rng.Source, _ int) int64 {
		return sample.Laplace(src, sample.Ratio{Num: 2 * steps, Den: 1})
	})}
	if r := run(t, sound, 1, 100_000); r.Refuted || r.LowerBound < .7 {
		t.Errorf("%+v", r)
	}
}

// A mechanism that ignores its input has ε₀ = 0, and a thousand cells in which
// one input or the other was lucky. At a confidence of 0.8 each limit misses by
// 1.28 standard errors with probability 0.1; for two equal probabilities both
// together miss with Φ(−1.28·√2) = 0.035, less for counts, if the test has seen
// nothing that the choice has. Of 300 audits a binomial variable of probability
// 0.035 exceeds 35 with probability below 1e-8. A test on reports that the choice
// has seen gives more than twice as many.
func TestLuckIsNotEvidence(t *testing.T) {
	longtest.Only(t, "needs many audits")
	nothing := broken{must(randomizer.New(randomizer.Laplace, randomizer.Config{Dim: 2, Radius: 1, Eps0: 1})),
		func(m randomizer.Mechanism, src rng.Source, _ []float32, r *randomizer.Report) {
			m.Randomize(src, []float32{0, 0}, r)
		}}
	const audits, most = 300, 35
	alarms := 0
	for seed := range audits {
		c := Config{Mechanism: nothing, Claimed: 1e-9, Trials: 10_000, Confidence: .8, Seed: uint64(seed)}
		if must(Run(context.Background(), c)).Refuted {
			alarms++
		}
	}
	if alarms > most {
		t.Errorf("%d false alarms of %d at confidence 0.8", alarms, audits)
	}
	t.Logf("%d false alarms of %d", alarms, audits)
}

// Own pairs: a randomizer that leaks on one input only is refuted by those who
// know the input, not by others.
func TestOwnPairs(t *testing.T) {
	m := broken{must(randomizer.New(randomizer.RR, randomizer.Config{Dim: 1, Radius: 1, Eps0: 1})),
		func(m randomizer.Mechanism, src rng.Source, x []float32, r *randomizer.Report) {
			m.Randomize(src, x, r)
			if x[0] == .125 {
				r.Value[0] = 1
			}
		}}
	c := Config{Mechanism: m, Claimed: 1, Trials: 50_000, Confidence: confidence, Seed: 1}
	if must(Run(context.Background(), c)).Refuted {
		t.Error("refuted without the telling input")
	}
	c.Pairs = []Pair{{"secret", []float32{.125}, []float32{-1}}}
	if !must(Run(context.Background(), c)).Refuted {
		t.Error("not refuted with the telling input")
	}
}
