package coordinator

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/service/sealed"
)

// withProofs makes the task's reports carry proofs, and the aggregators add the noise.
func withProofs(w *world) {
	p, err := vecsum.NewAggregated(w.n, dim, 1, 2)
	if err != nil {
		w.t.Fatal(err)
	}
	sigma, _, err := p.Sigma(w.task.Rounds)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := mechanism.NewAggregatedSum(p, sigma, w.n)
	if err != nil {
		w.t.Fatal(err)
	}
	w.config.Budget = limit(mechanism.MostEps)
	w.task.Mechanism, w.proofs, w.sums = m.Describe(), true, map[int64][][]int64{}
	w.config.RecordSum = func(round int64, counts []int64, _ int64) error {
		w.disk.Lock()
		defer w.disk.Unlock()
		w.sums[round] = append(w.sums[round], slices.Clone(counts))
		return nil
	}
}

// provedParts makes the halves of a report, with the client's noise unless it is nil, and has them attacked.
func (w *world) provedParts(sum *mechanism.AggregatedSum, announcement [32]byte, place int, r *randomizer.Report, noise []int64) (part, share []byte) {
	of, err := sum.Proved(announcement)
	if err != nil {
		w.t.Error(err)
		return nil, nil
	}
	x := [][]int64{make([]int64, len(r.Value))}
	for j, v := range r.Value {
		x[0][j] = int64(v)
	}
	if noise != nil {
		x = append(x, noise)
	}
	if share, part, err = of.Report(rng.Secure(), x...); err != nil {
		w.t.Error(err)
	}
	if w.attack != nil {
		part, share = w.attack(place, announcement, of, x, part, share)
	}
	return part, share
}

// aggRecord is what the tests read of an aggregator's record.
type aggRecord struct {
	Format, NMin                                       int64
	Round                                              int64
	Closed, Own, IDs, Receipts, Summed, Noise, Partial string
	Key, Agreed                                        []byte
	Sent                                               bool `json:"noise_sent"`
}

func parseAgg(b []byte) (r aggRecord) {
	if err := json.Unmarshal(b, &r); err != nil {
		panic(err)
	}
	for _, d := range []*string{&r.Summed, &r.Noise, &r.Partial} {
		*d = strings.TrimPrefix(*d, strings.Repeat("0", 64))
	}
	return r
}

func (w *world) aggRecords() map[hash]aggRecord {
	w.t.Helper()
	w.aggDisk.Lock()
	defer w.aggDisk.Unlock()
	out := map[hash]aggRecord{}
	for key, value := range w.aggDisk.Values {
		r := parseAgg(value)
		var a hash
		if err := a.UnmarshalText([]byte(key[len("sum."):])); err != nil {
			w.t.Fatal(err)
		}
		out[a] = r
	}
	return out
}

// bare returns the sum of a round's reports without noise.
func (w *world) bare(round int64, model [32]byte, out ...int) []int64 {
	sum := make([]int64, dim)
	for client := range w.n {
		if slices.Contains(out, int(client)) {
			continue
		}
		for j, v := range w.report(round, client, model, 0).Value {
			sum[j] += int64(v)
		}
	}
	return sum
}

// noised holds that whatever was summed of a round, whenever, is the bare sum with the one noise
// that each aggregator's record names.
func (w *world) noised(round int64, announcement hash, model [32]byte, out ...int) {
	w.t.Helper()
	want := w.bare(round, model, out...)
	add := func(ring *envelope.Keyring, role envelope.Reader, b []byte) {
		noise, err := sealed.Noise.OpenVector(ring, role, announcement, b, dim)
		if err != nil {
			w.t.Fatalf("round %d: %v", round, err)
		}
		for j := range want {
			want[j] += noise[j]
		}
	}
	own, ok := w.disk.named[announcement]
	if !ok {
		w.t.Fatalf("round %d names no noise", round)
	}
	add(w.ring, envelope.Coordinator, w.disk.drawn[hex.EncodeToString(own[:])])
	add(w.second, envelope.Aggregator, w.aggDisk.drawn[w.aggRecords()[announcement].Noise])
	if len(w.sums[round]) == 0 {
		w.t.Errorf("round %d was not summed", round)
	}
	for _, got := range w.sums[round] {
		if !slices.Equal(got, want) {
			w.t.Errorf("round %d is summed as %v, want %v", round, got, want)
		}
	}
}

// provedTally returns the tally of a round whose noise is known only from what was stored.
func (w *world) provedTally(co *pure.Coordinator, round, reports int64) *pure.Tally {
	w.t.Helper()
	tally, err := co.NewTally()
	if err == nil && len(w.sums[round]) > 0 {
		err = tally.AddSum(w.sums[round][0], reports)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return tally
}

// checkNoise holds the sums of all rounds against the reports and the noise that was named, and
// that what has no further use is deleted.
func (w *world) checkNoise(out ...int) {
	w.t.Helper()
	records := w.aggRecords()
	if len(records) != int(w.task.Rounds) || len(w.disk.named) != len(records) || len(w.aggDisk.partials) != len(records) {
		w.t.Errorf("%d rounds, %d name noise, %d partial sums", len(records), len(w.disk.named), len(w.aggDisk.partials))
	}
	models := map[int64][32]byte{}
	for _, a := range w.sh.Opened {
		models[a.Round] = a.ModelDigest
	}
	for announcement, r := range records {
		w.noised(r.Round, announcement, models[r.Round], out...)
	}
	if len(w.aggDisk.changed) > 0 {
		w.t.Errorf("the aggregator has changed what it promised: %v", w.aggDisk.changed)
	}
	if len(listed(w.aggDisk.Objects, "noise/")) > 0 {
		w.startAggregator(nil) // it deletes what a crash has left
	}
	if len(listed(w.disk.Objects, "noise/")) > 0 {
		w.run()
	}
	for what, objects := range map[string]map[string][]byte{"coordinator": w.disk.Objects, "aggregator": w.aggDisk.Objects} {
		if left := listed(objects, "noise/"); len(left) > 0 {
			w.t.Errorf("the %s keeps noise of rounds that were released: %v", what, left)
		}
	}
}

func TestSumsWithProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.Once} {
			w := newWorld(t, dp.Distributed, p, withProofs)
			s := w.run()
			w.check(s)
			if s.Released != 3 || s.Failed != 0 || len(s.Rejected) != 0 {
				t.Errorf("%s: %+v", p, s)
			}
		}
	})
}

// An fsck looks for the noise that the open round names.
func TestNoiseOfTheOpenRoundIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, withProofs)
		m := w.disk.store(nil)
		b := []byte("noise")
		r := &runner{record: record{Open: &openRound{Noise: digestOf(b)}}}
		found := func() (n int) {
			r.checkNoise(t.Context(), m, func(string, ...any) { n++ })
			return n
		}
		if found() != 1 {
			t.Error("noise that is gone")
		}
		name := noiseName(r.id, digestOf(b))
		if err := m.PutObject(t.Context(), name, b); err != nil || found() != 0 {
			t.Errorf("it is there: %d problems, %v", found(), err)
		}
		if w.disk.Objects[name] = []byte("other"); found() != 1 {
			t.Error("it is other noise")
		}
		if r.record.Open = nil; found() != 0 {
			t.Error("no round is open")
		}
	})
}
