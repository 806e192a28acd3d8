package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

func must[T any](m T, err error) T {
	if err != nil {
		panic(err)
	}
	return m
}

// confidence leaves a false alarm of 1e-9 for each audit of a true claim; there
// are fewer than 100 of them and the seeds are fixed.
const confidence = 1 - 1e-9

func run(t *testing.T, m randomizer.Mechanism, claimed float64, trials int64) Result {
	t.Helper()
	r, err := Run(context.Background(), Config{Mechanism: m, Claimed: claimed, Trials: trials, Confidence: confidence, Seed: 7, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// No true claim is refuted, and the bound comes close to it wherever the
// randomizer reaches its ε₀ on an event of usual size; else the audit would be
// blind. RR of many bits and k-RR of many symbols reach theirs on rare ones.
func TestTrueClaimsStand(t *testing.T) {
	trials := longtest.Pick(int64(25_000), 200_000)
	for _, dim := range []int{1, 2, 9, 40} {
		for _, eps0 := range []float64{.5, 2, 5} {
			for _, kind := range randomizer.Kinds() {
				name := kind.Name
				if name == "krr" && dim < 2 || dim == 40 && eps0 != 2 || !longtest.On && (dim == 2 || dim == 40 || eps0 != 2) {
					continue
				}
				m := must(randomizer.New(name, randomizer.Config{Dim: dim, Radius: 3, Eps0: eps0}))
				t.Run(fmt.Sprintf("%s/d=%d/eps0=%v", name, dim, eps0), func(t *testing.T) {
					trials := trials
					if name == randomizer.StepUnit && eps0 < 1 {
						trials *= 16 // it reaches ε₀ on its smallest cap only
					}
					r := run(t, m, m.Event().Eps0, trials)
					if r.Refuted || r.LowerBound > r.Claimed {
						t.Errorf("refuted: %+v", r)
					}
					rare := dim > 2 && (name == "rr" || name == "krr" || name == "signed-krr" && eps0 < 1)
					if least := .75 * eps0; !rare && longtest.On && r.LowerBound < least {
						t.Errorf("bound %.3f, want %.3f at least: %+v", r.LowerBound, least, r)
					}
				})
			}
		}
	}
}

// Seeds keep their claim too, and nearly reach it: those that a client searches for, and those that
// a simulation draws the values of. Seeds made for more than is claimed are refuted.
func TestSeedsStand(t *testing.T) {
	for _, name := range []string{randomizer.PrivUnit, randomizer.StepUnit} {
		m := must(randomizer.New(name, randomizer.Config{Dim: 9, Radius: 1, Eps0: 2, Encoding: randomizer.Seed}))
		for _, face := range []randomizer.Mechanism{m, randomizer.ForRound(m, [32]byte{3})} {
			// The claim changes nothing but what it is compared with.
			if r := run(t, face, 1.4, longtest.Pick[int64](70_000, 100_000)); !r.Refuted || r.LowerBound < 1.5 || r.LowerBound > m.Event().Eps0 {
				t.Errorf("%s, %d bits, a claim of 1.4: %+v", name, face.Facts().Bits, r)
			}
		}
	}
}

func TestSeveralCoordinatesStand(t *testing.T) {
	for _, name := range []string{"rinf", "r1"} {
		m := must(randomizer.New(name, randomizer.Config{Dim: 6, Radius: 1, Eps0: 4, Bits: 2}))
		if r := run(t, m, 4, 200_000); r.Refuted || r.LowerBound < 3 {
			t.Errorf("%s with two bits: %+v", name, r)
		}
	}
}

// At a confidence of 0.8, audits of a randomizer whose claim is exact refute it
// in a fifth of all cases at most: 400 audits, and a binomial variable of mean 80
// exceeds 130 with probability below 1e-8. With a claim of nine tenths most are
// refuted, so it is not the audit that is blind.
func TestFalseAlarmRate(t *testing.T) {
	m := must(randomizer.New(randomizer.KRR, randomizer.Config{Dim: 3, Eps0: 1}))
	audits, most, wrong := 400, 130, 60
	if !longtest.On {
		audits, most, wrong = 120, 55, 20 // mean 24; above 55 with probability below 1e-9
	}
	if testing.Short() {
		audits, most, wrong = 30, 20, 10 // mean 6; above 20 with probability below 1e-7
	}
	var alarms, found int
	for seed := range audits {
		c := Config{Mechanism: m, Claimed: 1, Trials: 10_000, Confidence: .8, Seed: uint64(seed)}
		r := must(Run(context.Background(), c))
		if r.Refuted {
			alarms++
		}
		if seed < wrong && r.LowerBound > .8 { // would refute a claim of .8
			found++
		}
	}
	if alarms > most {
		t.Errorf("%d false alarms of %d at confidence 0.8", alarms, audits)
	}
	if found < wrong/2 {
		t.Errorf("a claim of four fifths of the truth refuted in %d of %d audits", found, wrong)
	}
	t.Logf("%d false alarms of %d, %d of %d wrong claims refuted", alarms, audits, found, wrong)
}

func TestResultDoesNotDependOnWorkers(t *testing.T) {
	m := must(randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 5, Radius: 1, Eps0: 2}))
	var want Result
	for workers := range 4 {
		var last int64
		c := Config{Mechanism: m, Claimed: 2, Trials: 30_001, Seed: 3, Workers: workers, Progress: func(done int64) {
			if done <= last {
				t.Errorf("progress went from %d to %d", last, done)
			}
			last = done
		}}
		got := must(Run(context.Background(), c))
		if want == (Result{}) {
			want = got
		}
		if got != want {
			t.Errorf("%d workers: %+v, want %+v", workers, got, want)
		}
		if last != 30_000 {
			t.Errorf("%d workers drew %d reports", workers, last)
		}
	}
	c := Config{Mechanism: m, Claimed: 2, Trials: 30_001, Seed: 4}
	if got := must(Run(context.Background(), c)); got == want {
		t.Error("another seed gave the same counts")
	}
}

func TestCancelled(t *testing.T) {
	m := must(randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 5, Radius: 1, Eps0: 2}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := Config{Mechanism: m, Claimed: 2, Trials: 1e12, Workers: 2, Progress: func(done int64) {
		if done > 20_000 {
			cancel()
		}
	}}
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRefusesConfig(t *testing.T) {
	good := Config{Mechanism: must(randomizer.New(randomizer.RR, randomizer.Config{Dim: 2, Radius: 1, Eps0: 1})), Claimed: 1, Trials: MinTrials}
	if _, err := Run(context.Background(), good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no mechanism":       func(c *Config) { c.Mechanism = nil },
		"claim 0":            func(c *Config) { c.Claimed = 0 },
		"claim -1":           func(c *Config) { c.Claimed = -1 },
		"claim NaN":          func(c *Config) { c.Claimed = math.NaN() },
		"claim infinite":     func(c *Config) { c.Claimed = math.Inf(1) },
		"too few trials":     func(c *Config) { c.Trials = MinTrials - 1 },
		"confidence 1":       func(c *Config) { c.Confidence = 1 },
		"confidence -0.1":    func(c *Config) { c.Confidence = -.1 },
		"confidence NaN":     func(c *Config) { c.Confidence = math.NaN() },
		"-1 workers":         func(c *Config) { c.Workers = -1 },
		"no pairs":           func(c *Config) { c.Pairs = []Pair{} },
		"too many pairs":     func(c *Config) { c.Pairs = slices.Repeat(pairs(2), 100) },
		"pair too long":      func(c *Config) { c.Pairs = pairs(3) },
		"pair with one side": func(c *Config) { c.Pairs = []Pair{{"half", make([]float32, 2), nil}} },
	} {
		c := good
		spoil(&c)
		if _, err := Run(context.Background(), c); err == nil {
			t.Errorf("%s: accepted", name)
		} else if !strings.HasPrefix(err.Error(), "audit: ") {
			t.Errorf("%s: error %q does not begin with the package", name, err)
		}
	}
}

func BenchmarkAudit(b *testing.B) {
	for _, name := range []string{"krr", "privunit"} {
		b.Run(name, func(b *testing.B) {
			m := must(randomizer.New(name, randomizer.Config{Dim: 16, Radius: 1, Eps0: 2}))
			for b.Loop() {
				must(Run(context.Background(), Config{Mechanism: m, Claimed: 2, Trials: 1e5}))
			}
			b.ReportMetric(1e5*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mreports/s")
		})
	}
}
