package account_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Questions at the ends of what may be asked are refused or answered with numbers. The
// first panicked: a lower bound's grid of 1e19 points passed a test of its int64.
func TestAskExtremes(t *testing.T) {
	eps, none := 4., 1e-300
	for _, d := range []account.DocumentQuery{
		{Trust: dp.Distributed, Participation: dp.CheckIn, Randomizer: dp.Gaussian, Sigma: .8, N: 3e9, Gamma: 1e-12, Rounds: 9, Eps: &eps},
		// No outcome is within float64's range.
		{Trust: dp.Distributed, Participation: dp.All, Randomizer: dp.Gaussian, Sigma: 1e-7, N: 58740602745, Dropout: .001, Rounds: 9, Eps: &none},
		// Nodes a twentieth apart of numbers that have no digits left.
		{Trust: dp.Distributed, Participation: dp.CheckIn, Randomizer: dp.Gaussian, Sigma: 5e-8, N: 1 << 52, Gamma: 5e-324, Dropout: .5, Rounds: 5744678,
			Adjacency: dp.AddRemoveOne, Eps: &none},
	} {
		if problems, _ := askExtreme(t.Context(), d); len(problems) > 0 {
			t.Errorf("%+v: %v", d, problems)
		}
	}
}

// askSeeds are questions that were answered badly once (an infinite epsilon as a proved
// bound, δ = 0 a little below an ε₀ of 1e-15), and a few others.
var askSeeds = []uint64{4, 224, 341, 10222, 3754876575848011085, 687400186551912970, 2, 3, 5, 7, 1, 6}

// TestAskAnything asks what nobody thought of: those and, with the tag long, twelve
// questions that no run before had; three hundred with the tag soak. It is no fuzz target, for a fuzzer gives
// a case ten seconds, which the widest grids take on a busy machine.
func TestAskAnything(t *testing.T) { askAnything(t, longtest.Pick(0, 12)) }

// askAnything asks the queries of askSeeds and as many new ones.
func askAnything(t *testing.T, more int) {
	seeds := slices.Clone(askSeeds)
	if !longtest.On {
		seeds = seeds[:len(seeds)-2] // these take longest
	}
	for range more {
		seeds = append(seeds, rand.Uint64())
	}
	for _, seed := range seeds {
		d := extremeDocument(rand.New(rand.NewPCG(seed, 1)))
		if problems, _ := askExtreme(t.Context(), d); len(problems) > 0 {
			t.Errorf("seed %d, %+v: %v", seed, d, problems)
		}
	}
}

// TestAskTiny asks likewise at an ε₀ so small that e^ε₀ − 1 has few digits left, or none: where
// a formula subtracts exponentials its ε was below a lower bound. The first two seeds are such, and by default there are no others.
func TestAskTiny(t *testing.T) {
	seeds := []uint64{18327750425290017328, 8188959090371677654}
	for range longtest.Pick3(0, 60, 600) {
		seeds = append(seeds, rand.Uint64())
	}
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		d := extremeDocument(r)
		if d.Eps0 == 0 {
			continue
		}
		d.Eps0, d.Rounds = math.Exp(r.Float64()*30-40), min(d.Rounds, 3)
		if r.IntN(2) == 0 {
			d.Randomizer, d.Symbols, d.TV = dp.BinaryRR, 0, 0
		}
		if d.N > 1e6 {
			d.N = int64(1 + r.IntN(100))
			d.K = min(d.K, d.N)
		}
		if problems, _ := askExtreme(t.Context(), d); len(problems) > 0 {
			t.Errorf("seed %d, %+v: %v", seed, d, problems)
		}
	}
}

// pick draws one of the corners that a number has, or a number between the two on a
// logarithmic scale.
func pick(r *rand.Rand, lo, hi float64, corners ...float64) float64 {
	if len(corners) > 0 && r.IntN(3) == 0 {
		return corners[r.IntN(len(corners))]
	}
	return logUniform(r, lo, hi)
}

// extremeDocument draws a question of any participation, randomizer and trust, with
// values from the ends of their ranges and beyond: it may be refused.
func extremeDocument(r *rand.Rand) account.DocumentQuery {
	var d account.DocumentQuery
	d.N = int64(pick(r, 1, 1<<52, 1, 2, 3, 1e3, 3e9, 1<<52))
	d.Rounds = int64(pick(r, 1, 1e12, 1, 1, 1, 2, 9, 1e12))
	d.Participation = []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once}[r.IntN(4)]
	switch d.Participation {
	case dp.Sampled, dp.Once:
		d.K = max(1, min(d.N, int64(pick(r, 1, float64(d.N), 1, 2, float64(d.N), float64(d.N-1)))))
		if d.Participation == dp.Once {
			d.Rounds = min(d.Rounds, d.N/d.K)
		}
	case dp.CheckIn:
		d.Gamma = pick(r, 1e-15, 1, 1, 1-0x1p-53, 1e-12, 1e-300, 5e-324)
	}
	if r.IntN(3) == 0 {
		d.Dropout = pick(r, 1e-17, 1, 1-0x1p-53, 1e-300, .5)
	}
	if r.IntN(2) == 0 {
		eps := pick(r, 1e-12, 1e3, 0, 1e-300, 700, 800, 1e300)
		d.Eps = &eps
	} else {
		delta := pick(r, 1e-40, 1, 1-0x1p-53, 1e-300, 5e-324, .5)
		d.Delta = &delta
	}
	d.Trust = []dp.Trust{dp.Shuffle, dp.Shuffle, dp.Local}[r.IntN(3)]
	d.Eps0 = pick(r, 1e-9, 50, 1e-300, 50, 1e-15)
	switch r.IntN(10) {
	case 0:
		d.Randomizer = dp.BinaryRR
	case 1:
		d.Randomizer, d.Symbols = dp.KRR, int(pick(r, 2, 1<<30, 2, 3, 1<<30))
	case 2:
		d.Randomizer = dp.LaplaceL1
	case 3:
		d.TV = pick(r, 1e-15, 1, 1e-300) / (math.Exp(d.Eps0) + 1)
	case 4, 5, 6:
		d.Randomizer, d.Eps0 = dp.Gaussian, 0
		d.Sigma = pick(r, 1e-9, 1e9, 1e-300, dp.MaxSigma, .8)
		if d.Trust = dp.Distributed; r.IntN(3) == 0 {
			d.Trust = dp.Shuffle
		}
		if d.Participation == dp.CheckIn && d.Trust == dp.Distributed && r.IntN(3) == 0 {
			d.Adjacency = dp.AddRemoveOne
		}
	case 7, 8:
		d.Randomizer, d.Trust, d.Eps0 = account.VectorSumClass, dp.VectorSum, 0
		d.DocumentSum = account.DocumentSum{Dim: int(pick(r, 1, 1<<24, 1, 1<<24)), Grid: int64(pick(r, 1, 1<<24, 1, 1<<24)), Noise: vecsum.Binomial}
		if r.IntN(2) == 0 {
			d.NoiseBits = int64(pick(r, 1, 1<<40, 1, 1<<40))
		} else {
			d.Noise, d.Variance = vecsum.Skellam, pick(r, 1e-9, 1<<32, 1<<32, 1e-300)
		}
		if r.IntN(2) == 0 {
			d.NMin = max(1, int64(pick(r, 1, float64(d.N), 1, float64(d.N), float64(max(1, d.K)))))
		}
		if r.IntN(2) == 0 {
			d.Honest = pick(r, 1e-9, 1, 1-0x1p-53, .5)
		}
	}
	if r.IntN(8) == 0 {
		d.Colluders = int64(pick(r, 1, float64(d.N), 1, float64(d.N-1)))
	}
	d.KHidden, d.Adaptive = r.IntN(12) == 0, r.IntN(12) == 0
	return d
}

// askExtreme returns what is wrong with the answer to a question: nothing if it is
// refused. A panic is.
func askExtreme(ctx context.Context, d account.DocumentQuery) (problems []string, took time.Duration) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	defer func() {
		if p := recover(); p != nil {
			say("panic: %v", p)
		}
	}()
	start := time.Now()
	reply, err := new(account.Accountant).Ask(ctx, d, "all", nil)
	took = time.Since(start)
	if err != nil {
		return nil, took
	}
	for _, b := range reply.Bounds {
		switch {
		case !b.Applies:
			if b.Note == "" {
				say("%s has no bound and no reason", b.Method)
			}
		case !(b.Eps >= 0 && b.Eps <= math.MaxFloat64) || !(b.Delta >= 0 && b.Delta <= 1):
			say("%s: eps %v, delta %v", b.Method, b.Eps, b.Delta)
		case b.Kind == dp.Lower && reply.Upper != nil && (b.Eps > reply.Upper.Eps || b.Delta > reply.Upper.Delta):
			say("%s: lower (%v, %v) above %s (%v, %v)", b.Method, b.Eps, b.Delta, reply.Upper.Method, reply.Upper.Eps, reply.Upper.Delta)
		}
	}
	return problems, took
}
