package certificate

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// hostile is a document with a pair of so many points that gets as far as the check of a round.
func hostile(method string, points int, change func(q *Query, r *Round)) Document {
	d := Document{
		Format: Format, Version: Version,
		Query: Query{Trust: dp.Shuffle, Participation: dp.CheckIn, Randomizer: dp.Generic, Adjacency: dp.ReplaceOne, Eps0: 1, N: 1 << 20, Gamma: .5, Rounds: 1},
		Claim: Claim{Method: method, Eps: .5, Delta: .5},
		Round: &Round{Step: 1 / float64(points), Infinite: .25, Q: make([]float64, points), Times: 1, Clones: 1},
	}
	change(&d.Query, d.Round)
	w := Composition{Low: -1 << 40, Points: 1 << 41, Beyond: 1e-200, Inflation: 1, WrapAround: 1e-200, Splitting: 1, Truncation: d.Round.Infinite}
	w.Total = w.Window + w.Truncation + w.WrapAround + w.RoundOff
	d.Composition = &w
	return d
}

// Whatever a file asks for, the checker holds little of it at once and stops when it is told to.
func TestHostileDocuments(t *testing.T) {
	everybody := func(q *Query, r *Round) {
		q.Participation, q.Gamma, q.N, r.Infinite = dp.All, 0, 1<<52, 0x1p-170
	}
	blocks := func(q *Query, r *Round) {
		for i := range int64(maxBlocks) {
			r.Reports = append(r.Reports, q.N/2-maxBlocks/2+i)
		}
	}
	tv := func(changes ...func(q *Query, r *Round)) func(q *Query, r *Round) {
		return func(q *Query, r *Round) {
			q.TV = .1
			for _, f := range changes {
				f(q, r)
			}
		}
	}
	for _, c := range []struct {
		name   string
		d      Document
		refuse bool // without being told to stop
		long   bool // takes long before it is refused
	}{
		{"every number of clones of 2^52 reports", hostile(BlanketPLD, 4, everybody), true, false},
		{"a law of 2^52 reports", hostile(BlanketPLD, 4, func(q *Query, r *Round) { everybody(q, r); r.Clones = 1 << 40 }), true, false},
		{"a law of 4e15 reports in one block of clones", hostile(ClonesPLD, 4, func(q *Query, r *Round) { everybody(q, r); q.N, r.Infinite, r.Clones = 4e15, 1e-12, 1<<52 }), true, false},
		{"a law of 2^52 check-ins", hostile(TVPLD, 4, tv(func(q *Query, r *Round) { q.N, r.Infinite = 1<<52, 0x1p-170 })), true, false},
		{"colluders among 2^52", hostile(TVPLD, 4, tv(func(q *Query, r *Round) {
			q.Participation, q.Gamma, q.N, q.K, q.Colluders, r.Infinite = dp.Sampled, 0, 1<<52, 1<<51, 1<<50, 0x1p-170
		})), true, false},
		{"colluders and drop-outs among 2^52", hostile(TVPLD, 4, tv(blocks, func(q *Query, r *Round) {
			q.Participation, q.Gamma, q.N, q.K, q.Colluders, q.Dropout, r.Infinite = dp.Sampled, 0, 1<<52, 1<<51, 1<<50, .5, 0x1p-170
			r.Drawn = r.Reports
		})), true, false},
		{"65,536 blocks of 32,768 losses, by clones", hostile(BlanketPLD, maxNodes, blocks), true, false},
		{"65,536 blocks of 32,768 losses, by sums", hostile(TVPLD, maxNodes, tv(blocks)), true, false},
		{"65,536 blocks of few losses, every number of clones", hostile(BlanketPLD, 4, blocks), true, true},
		{"65,536 blocks of few losses, by sums", hostile(TVPLD, 4, tv(blocks)), false, false},
		{"2^52 reports of losses to e^100", hostile(TVPLD, maxNodes, tv(everybody, func(q *Query, r *Round) { q.Eps0, r.Step = dp.MaxEps0, 100./maxNodes })), false, false},
		{"steps as high as they may be", hostile(RisingPLD, 4, func(q *Query, r *Round) {
			everybody(q, r)
			q.Randomizer, q.Eps0, q.Height, q.Eta = dp.Rising, dp.MaxEps0, math.Expm1(dp.MaxEps0)/dp.MaxSteps, 1e-18
			for j := range dp.MaxSteps {
				q.Shares = append(q.Shares, math.Ldexp(1, -30*(j+1)))
			}
		}), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && !longtest.On {
				t.Skip("with -tags long: it takes seconds until the file is refused")
			}
			if _, err := c.d.Encode(); err != nil {
				t.Fatal(err) // not what a file could hold
			}
			limit := longtest.Pick[time.Duration](60, 300) * time.Millisecond
			if c.refuse {
				limit = 10 * time.Minute
			}
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var most uint64
			done := make(chan error, 1)
			begun := time.Now()
			go func() { _, err := c.d.Verify(ctx); done <- err }()
			for watch := time.Tick(20 * time.Millisecond); ; {
				select {
				case err := <-done:
					if c.refuse && !errors.Is(err, ErrRejected) || !c.refuse && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrRejected) {
						t.Errorf("error %v", err)
					}
					t.Logf("%v after %v, up to %d MB", err, time.Since(begun), most>>20)
					return
				case <-watch:
					runtime.ReadMemStats(&now)
					if now.HeapAlloc > before.HeapAlloc {
						most = max(most, now.HeapAlloc-before.HeapAlloc)
					}
					if most > 2<<30 || time.Since(begun) > limit+20*time.Second {
						t.Fatalf("still at work after %v, %d MB", time.Since(begun), most>>20)
					}
				}
			}
		})
	}
}

// A check that asks for more steps than there are ends, whatever part of it asks; and who watches sees its parts.
func TestStepsAreBounded(t *testing.T) {
	honest := hostile(TVPLD, 64, func(q *Query, r *Round) { q.TV, q.N, r.Infinite = .1, 1000, .25 })
	parts := map[string]bool{}
	w := begin(t.Context(), func(part string, done, of int64) {
		if parts[part] = true; done < 0 || done > of {
			t.Errorf("%s: %d of %d", part, done, of)
		}
	})
	if _, err := honest.verify(w); err != nil && !errors.Is(err, ErrRejected) {
		t.Fatal(err)
	}
	if !parts["one round"] {
		t.Errorf("seen %v", parts)
	}
	for _, d := range []Document{
		honest,
		hostile(BlanketPLD, 64, func(q *Query, r *Round) { q.Participation, q.Gamma, q.N = dp.All, 0, 1e6 }),
		hostile(BlanketPLD, 64, func(q *Query, r *Round) { q.N = 1000 }),
	} {
		w := begin(t.Context(), nil)
		w.most = 100
		if _, err := d.verify(w); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "more than the 100 steps") {
			t.Errorf("%s of %d: %v", d.Claim.Method, d.Query.N, err)
		}
	}
}
