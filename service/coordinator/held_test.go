package coordinator

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/sealed"
)

// withCorrelated is withProofs with noise that is correlated over rounds: 6 clients, each in one of 3
// rounds, by its number.
func withCorrelated(w *world) {
	s, err := toeplitz.New(toeplitz.Band, 5, 3)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(s.Weights) != 3 {
		w.t.Fatalf("weights %v", s.Weights)
	}
	correlatedBy(s, 3)(w)
}

// correlatedBy is withCorrelated for another strategy, and clients of which each is in one of every rounds.
func correlatedBy(s toeplitz.Strategy, every int64) option {
	return func(w *world) { w.correlate(s, every) }
}

func (w *world) correlate(s toeplitz.Strategy, every int64) {
	w.t.Helper()
	withProofs(w)
	w.n, w.task.Every, w.task.Rounds, w.task.MinReports = 2*every, every, 5, 2
	w.config.Gamma = 1 / float64(every)
	p, err := vecsum.NewCorrelated(w.n, dim, 1, 2, s)
	if err != nil {
		w.t.Fatal(err)
	}
	sigma, _, err := p.Sigma(w.task.Rounds)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, sigma, w.n)
	if err != nil {
		w.t.Fatal(err)
	}
	w.task.Mechanism = m.Describe()
}

// byClients has the clients of a task with correlated noise send it, each of at least n-min, apart from their vectors.
func byClients(w *world) {
	w.t.Helper()
	s := toeplitz.Strategy{Bits: int(w.task.Mechanism.WeightBits), Weights: w.task.Mechanism.Weights}
	p, err := vecsum.NewCorrelatedByClients(w.n, w.task.MinReports, 1, dim, 1, 2, s)
	if err != nil {
		w.t.Fatal(err)
	}
	sigma, _, err := p.Sigma(w.task.Rounds)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, sigma, w.n)
	if err != nil {
		w.t.Fatal(err)
	}
	w.task.Mechanism = m.Describe()
}

// whoAdds runs a test of correlated noise with that of the aggregators, and with that of clients, each
// in a bubble.
func whoAdds(t *testing.T, f func(t *testing.T, by ...option)) {
	t.Helper()
	bubble(t, "noise by aggregators", func(t *testing.T) { f(t, withCorrelated) })
	bubble(t, "noise by clients", func(t *testing.T) { f(t, withCorrelated, byClients) })
}

// sent says whether clients send the noise.
func (w *world) sent() bool {
	m, ok := w.mech.(*mechanism.AggregatedSum)
	return ok && m.ByClients()
}

// noiseOf is the noise that a client sends in a round, the same whenever it is asked; nil if it sends none.
func (w *world) noiseOf(round, client int64) []int64 {
	if !w.sent() {
		return nil
	}
	g, err := sample.NewDiscreteGaussian(sample.Ratio{Num: w.mech.(*mechanism.AggregatedSum).Variance, Den: 1})
	if err != nil {
		w.t.Error(err)
		return nil
	}
	out := make([]int64, dim)
	g.Fill(rng.Replay(11, uint64(round), uint64(client)), out)
	return out
}

// void makes rounds void.
func void(rounds ...int64) option {
	return func(w *world) {
		w.present = func(round, _ int64) bool { return !slices.Contains(rounds, round) }
	}
}

// failing makes rounds end without a sum.
func failing(rounds ...int64) option {
	return func(w *world) {
		w.fails = func(round int64) bool { return slices.Contains(rounds, round) }
		w.spoils = w.fails
	}
}

// noises returns the vectors of noise that are in a round's release: of both aggregators, or of the clients
// whose reports are in the round.
func (w *world) noises(a wire.Announcement, r aggRecord, out ...int) (all [][]int64) {
	w.t.Helper()
	digest := hash(wire.Digest(a))
	own, named := w.disk.named[digest]
	if named == w.sent() || r.Sent != w.sent() || (r.Noise == "") != w.sent() {
		w.t.Fatalf("round %d: noise is named %v by the coordinator, and as %q by the aggregator; clients sent it %v, the record says %v", a.Round, named, r.Noise, w.sent(), r.Sent)
	}
	if w.sent() {
		for place, client := range w.who(a) {
			if !slices.Contains(out, place) {
				all = append(all, w.noiseOf(a.Round, client))
			}
		}
		return all
	}
	for _, n := range []struct {
		ring *envelope.Keyring
		role envelope.Reader
		b    []byte
	}{{w.ring, envelope.Coordinator, w.disk.drawn[hex.EncodeToString(own[:])]}, {w.second, envelope.Aggregator, w.aggDisk.drawn[r.Noise]}} {
		noise, err := sealed.Noise.OpenVector(n.ring, n.role, digest, n.b, dim)
		if err != nil {
			w.t.Fatalf("round %d: %v", a.Round, err)
		}
		all = append(all, noise)
	}
	return all
}

// weighed returns what a round's release is made of, but for the noise: Σ w_s·X_{t−s} over the rounds
// since the last that ended the correlation, without the reports at some places.
func (w *world) weighed(a wire.Announcement, without ...int) []int64 {
	weights := w.task.Mechanism.Weights
	out := make([]int64, dim)
	for s := range int64(len(weights)) {
		i := slices.IndexFunc(w.sh.Opened, func(b wire.Announcement) bool { return b.Round == a.Round-s })
		if i < 0 || w.fails != nil && w.fails(a.Round-s) {
			break
		}
		if who := w.who(w.sh.Opened[i]); int64(len(who)) >= w.task.MinReports {
			for place, client := range who {
				if slices.Contains(without, place) {
					continue
				}
				for j, v := range w.report(a.Round-s, client, w.sh.Opened[i].ModelDigest, 0).Value {
					out[j] += weights[s] * int64(v)
				}
			}
		}
		if w.forgets[a.Round-s] {
			break
		}
	}
	return out
}

// checkMixed holds what was released of every round against the reports of it and of earlier ones,
// with the one noise that each aggregator's record names or with that of the round's clients alone, and that nothing is
// held that has no further use. out are the places whose reports are left out.
func (w *world) checkMixed(out ...int) {
	w.t.Helper()
	records := w.aggRecords()
	released := 0
	for _, a := range w.sh.Opened {
		digest := hash(wire.Digest(a))
		if int64(len(w.who(a))) < w.task.MinReports || w.fails != nil && w.fails(a.Round) {
			if _, ok := w.disk.named[digest]; ok || records[digest].Noise != "" || len(w.sums[a.Round]) > 0 {
				w.t.Errorf("round %d has no sum, and it was released", a.Round)
			}
			continue
		}
		released++
		want := w.weighed(a, out...)
		for _, noise := range w.noises(a, records[digest], out...) {
			for j := range want {
				want[j] += noise[j]
			}
		}
		if len(w.sums[a.Round]) == 0 {
			w.t.Errorf("round %d was not summed", a.Round)
		}
		for _, got := range w.sums[a.Round] {
			if !slices.Equal(got, want) {
				w.t.Errorf("round %d is released as %v, want %v", a.Round, got, want)
			}
		}
	}
	named := released
	if w.sent() {
		if named = 0; len(w.disk.drawn)+len(w.aggDisk.drawn) > 0 {
			w.t.Error("an aggregator has drawn noise")
		}
	}
	if len(w.disk.named) != named || len(w.aggDisk.partials) != released {
		w.t.Errorf("%d rounds have a sum, %d name noise, %d partial sums", released, len(w.disk.named), len(w.aggDisk.partials))
	}
	if len(w.aggDisk.changed) > 0 {
		w.t.Errorf("the aggregator has changed what it promised: %v", w.aggDisk.changed)
	}
	if len(listed(w.disk.Objects, "noise/"))+len(listed(w.disk.Objects, "held/")) > 0 {
		w.run() // it deletes what a crash has left
	}
	if left := append(listed(w.disk.Objects, "noise/"), listed(w.disk.Objects, "held/")...); len(left) > 0 {
		w.t.Errorf("the coordinator keeps secrets of a task that has ended: %v", left)
	}
	w.startAggregator(nil)
	if left := listed(w.aggDisk.Objects, "noise/"); len(left) > 0 {
		w.t.Errorf("the aggregator keeps noise of rounds that were released: %v", left)
	}
	// The rounds before the last one's band were deleted when it was prepared.
	if left := listed(w.aggDisk.Objects, "held/"); len(left) > len(w.task.Mechanism.Weights)+1 {
		w.t.Errorf("the aggregator holds %d sums", len(left))
	}
}

// Models are those of the pure functions, and what is released of each round is Σ w_s·X_{t−s} with one noise,
// whichever rounds are void or fail.
func TestCorrelatedSums(t *testing.T) {
	for name, c := range map[string]struct {
		with   []option
		failed int64
	}{
		// Some rounds then add nothing to what was charged before.
		"fewer weights than rounds": {[]option{correlatedBy(toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9}}, 4)}, 0},
		"independent":               {[]option{correlatedBy(toeplitz.Identity(4), 2), void(2)}, 0},
		"all released":              {nil, 0},
		"tokens, receipts":          {[]option{tokens, receipts, void(2)}, 0},
		"void":                      {[]option{void(3)}, 0},
		"void for long":             {[]option{void(3, 4, 5)}, 0},
		"first void":                {[]option{void(1, 3)}, 0},
		"failed":                    {[]option{failing(3)}, 1},
		"failed, then void":         {[]option{failing(2), void(3)}, 1},
		"first failed":              {[]option{failing(1)}, 1},
	} {
		if few := []string{"fewer weights than rounds", "tokens, receipts", "first void", "failed, then void"}; !longtest.On && !slices.Contains(few, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			whoAdds(t, func(t *testing.T, by ...option) {
				w := newWorld(t, dp.Distributed, dp.CheckIn, slices.Concat(by[:1], c.with, by[1:])...)
				s := w.run()
				w.check(s)
				if s.Failed != c.failed || s.Released != w.task.Rounds-c.failed {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// holds returns the rounds whose sums the aggregator holds.
func (w *world) holds() (rounds []int64) {
	records := w.aggRecords()
	for _, name := range listed(w.aggDisk.Objects, "held/") {
		var a hash
		if err := a.UnmarshalText([]byte(name[len("held/"):][:64])); err != nil {
			w.t.Fatal(err)
		}
		rounds = append(rounds, records[a].Round)
	}
	slices.Sort(rounds)
	return rounds
}

// A held sum is deleted once no round needs it.
func TestHeldSumsGo(t *testing.T) {
	for name, c := range map[string]struct {
		with             []option
		own, aggregators [][]int64 // held after the end of each round, from 1
	}{
		"all released": {nil, [][]int64{{1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}, [][]int64{{1}, {1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}}},
		// A void round changes nothing. The round after it has no further use for what is older.
		"void":   {[]option{void(3)}, [][]int64{{1}, {1, 2}, {1, 2}, {4}, {4, 5}, {5, 6}}, [][]int64{{1}, {1, 2}, {1, 2}, {2, 4}, {4, 5}, {4, 5, 6}}},
		"failed": {[]option{failing(3)}, [][]int64{{1}, {1, 2}, nil, {4}, {4, 5}}, [][]int64{{1}, {1, 2}, {1, 2}, {2, 4}, {4, 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			whoAdds(t, func(t *testing.T, by ...option) {
				w := newWorld(t, dp.Distributed, dp.CheckIn, append(by, c.with...)...)
				var own, theirs [][]int64
				w.disk.released = func(r record) {
					if r.Open != nil || r.Round == 0 || int64(len(own)) == r.Round {
						return
					}
					var rounds []int64
					for _, h := range r.Held {
						rounds = append(rounds, h.Round)
						if w.disk.Objects[heldName(wire.Digest(w.task), h.Share)] == nil {
							t.Errorf("after round %d the sum of round %d is not held", r.Round, h.Round)
						}
					}
					own, theirs = append(own, rounds), append(theirs, w.holds())
				}
				w.check(w.run())
				same := func(a, b []int64) bool { return slices.Equal(a, b) }
				if !slices.EqualFunc(own, c.own, same) || !slices.EqualFunc(theirs, c.aggregators, same) {
					t.Errorf("held after each round are %v and %v, want %v and %v", own, theirs, c.own, c.aggregators)
				}
			})
		})
	}
}

// Where a held sum is lost or changed, the next release is made without earlier ones: of the
// coordinator's the round is released so, and one that the aggregator misses costs a round. Models are right.
func TestHeldSumsAreLost(t *testing.T) {
	gone := func(objects map[string][]byte, name string) { delete(objects, name) }
	changed := func(objects map[string][]byte, name string) {
		objects[name] = slices.Clone(objects[name])
		objects[name][len(objects[name])-1] ^= 1
	}
	for name, c := range map[string]struct {
		theirs bool
		spoil  func(map[string][]byte, string)
	}{"coordinator's, gone": {false, gone}, "coordinator's, changed": {false, changed}, "aggregator's, gone": {true, gone}, "aggregator's, changed": {true, changed}} {
		for which := range 2 {
			if !longtest.On && c.theirs == (which == 0) {
				continue // the older of the coordinator's, the newer of the aggregator's
			}
			t.Run(fmt.Sprintf("%s %d", name, which), func(t *testing.T) {
				whoAdds(t, func(t *testing.T, by ...option) {
					w := newWorld(t, dp.Distributed, dp.CheckIn, by...)
					done := false
					w.disk.released = func(r record) {
						if r.Round != 2 || r.Open != nil || done {
							return
						}
						done = true
						objects := w.disk.Objects
						if c.theirs {
							w.aggDisk.Lock()
							defer w.aggDisk.Unlock()
							objects = w.aggDisk.Objects
						}
						names := listed(objects, "held/")
						if len(names) != 2 {
							t.Fatalf("held: %v", names)
						}
						c.spoil(objects, names[which])
					}
					if w.forgets = map[int64]bool{3: true}; c.theirs {
						w.forgets = nil
						w.fails = func(round int64) bool { return round == 3 }
					}
					s := w.run()
					w.check(s)
					if c.theirs && (s.Released != 4 || s.FailedBy[FailedUnequal] != 1) || !c.theirs && s.Released != 5 {
						t.Errorf("released %d, failed %v: %s", s.Released, s.FailedBy, s.Failure)
					}
				})
			})
		}
	}
}

// full has a round wait while the result is true.
func (w *world) full(waits int64) *atomic.Bool {
	told := w.config.RecordSum
	var full atomic.Bool
	full.Store(true)
	w.config.RecordSum = func(round int64, counts []int64, n int64) error {
		if round == waits && full.Load() {
			return errors.New("the disk is full")
		}
		return told(round, counts, n)
	}
	return &full
}

// A coordinator whose task goes on after a restart names what it held; fsck names what is damaged.
func TestHeldSumsAreChecked(t *testing.T) {
	whoAdds(t, heldSumsAreChecked)
}

func heldSumsAreChecked(t *testing.T, by ...option) {
	w := newWorld(t, dp.Distributed, dp.CheckIn, by...)
	full := w.full(3)
	p, err := w.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.await(p, func(s wire.Status) bool { return s.Round >= 2 })
	p.stop()
	<-p.done
	if found := w.found(); len(found) != 0 {
		t.Fatalf("before: %q", found)
	}
	rec, err := decodeRecord(w.disk.Values[stateKey(wire.Digest(w.task))])
	if err != nil || len(rec.Held) == 0 {
		t.Fatalf("%+v, %v", rec, err)
	}
	name := heldName(wire.Digest(w.task), rec.Held[0].Share)
	whole := w.disk.Objects[name]
	if w.disk.Objects[name] = []byte("other"); len(w.found()) != 1 {
		t.Errorf("a changed sum: %q", w.found())
	}
	if delete(w.disk.Objects, name); len(w.found()) != 1 {
		t.Errorf("a lost sum: %q", w.found())
	}
	w.disk.Objects[name] = whole
	for what, change := range map[string]func(*record){
		"out of order":     func(r *record) { r.Held = append(r.Held, r.Held[0]) },
		"of a later round": func(r *record) { r.Held = []heldSum{{Round: r.Round + 1, Share: hash{1}}} },
		"of no round":      func(r *record) { r.Held = []heldSum{{Share: hash{1}}} },
	} {
		bad := rec
		bad.Held = slices.Clone(rec.Held)
		change(&bad)
		b, err := bad.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRecord(b); err == nil {
			t.Errorf("held sums %s are read", what)
		}
	}
	full.Store(false)
	w.check(w.run())
}

// A step that the guard takes back was released all the same: later rounds are made of it, too.
func TestStepsThatAreTakenBackAreMixed(t *testing.T) {
	whoAdds(t, stepsThatAreTakenBackAreMixed)
}

func stepsThatAreTakenBackAreMixed(t *testing.T, by ...option) {
	w := newWorld(t, dp.Distributed, dp.CheckIn, by...)
	w.config.Evaluate = func([]float32) any {
		w.disk.Lock()
		defer w.disk.Unlock()
		if len(w.sums) == 3 {
			return -1.
		}
		return 0.
	}
	w.config.Guard = &Guard{Metric: "measure", Measure: func(v any) float64 { return v.(float64) }, Fall: .5}
	s := w.run()
	if s.Released != 4 || s.FailedBy[FailedGuard] != 1 {
		t.Errorf("released %d, failed %v: %s", s.Released, s.FailedBy, s.Failure)
	}
	w.checkMixed()
	w.fsck()
}

// The operator ends a task in the middle: nothing stays held at the coordinator.
func TestStoppedTaskHoldsNothing(t *testing.T) {
	whoAdds(t, stoppedTaskHoldsNothing)
}

func stoppedTaskHoldsNothing(t *testing.T, by ...option) {
	w := newWorld(t, dp.Distributed, dp.CheckIn, by...)
	w.full(3)
	p, err := w.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.await(p, func(s wire.Status) bool { return s.Round >= 2 })
	if err := p.Stop(t.Context(), wire.Digest(w.task), "enough"); err != nil {
		t.Fatal(err)
	}
	if s := w.end(p); s.State != Stopped || s.Round > 3 {
		t.Errorf("%+v", s)
	}
	if left := append(listed(w.disk.Objects, "held/"), listed(w.disk.Objects, "noise/")...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
