package coordinator

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum/pine"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// crowd has so many clients in each round, of which n-min must report.
func crowd(each, least int64) option {
	return func(w *world) { w.n, w.task.MinReports = each*w.task.Every, least }
}

// sender makes reports of a vector and of noise with proofs, which need not hold, as
// mechanism/vecsum/proved/proved.md describes them.
type sender struct {
	t     testing.TB
	name  []byte
	parts [2]*pine.Pine
	sizes [2]pine.Sizes
}

// twice is a report's nonce and, of its vector and its noise, the public share and both input shares.
type twice struct {
	nonce  []byte
	public [2][]byte
	inputs [2][2][]byte // by vector, then by role
}

// newSender returns a sender of a round, whose proofs are for other bounds of vector and noise.
func newSender(t testing.TB, announcement [32]byte, m *mechanism.AggregatedSum, bounds [2]int64) sender {
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved round 1\x00"))
	h.Write(announcement[:])
	for _, v := range []int64{int64(m.Dim), m.Bound, m.Users, m.NoiseBound()} {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v)))
	}
	s := sender{t: t, name: h.Sum(nil)}
	for i, context := range []string{"riffle/vecsum/proved 1", "riffle/vecsum/proved noise 1"} {
		var err error
		if s.parts[i], err = pine.New(pine.Config{Dim: m.Dim, Bound: bounds[i], Context: context + string(s.name)}); err != nil {
			t.Error(err)
			return s
		}
		s.sizes[i] = s.parts[i].Sizes()
	}
	return s
}

// share splits a vector, of which i says whether it is the noise, under a nonce.
func (s sender) share(r *twice, i int, x []int64) {
	var nonce pine.Nonce
	copy(nonce[:], r.nonce)
	var err error
	if r.public[i], r.inputs[i], err = s.parts[i].Shard(rng.Secure(), nonce, x); err != nil {
		s.t.Error(err)
	}
}

// split is the inverse of halves.
func (s sender) split(part, share []byte) (r twice) {
	r.nonce = slices.Clone(part[:16])
	for role, b := range [2][]byte{proved.Coordinator: part, proved.Aggregator: share} {
		b = b[16:]
		for i, of := range s.sizes {
			r.public[i] = slices.Clone(b[:of.Public])
			r.inputs[i][role] = slices.Clone(b[of.Public : of.Public+of.Input[role]])
			b = b[of.Public+of.Input[role]:]
		}
	}
	return r
}

// halves puts a report together, with commitments that fit.
func (s sender) halves(r twice) (part, share []byte) {
	var halves, digests [2][]byte
	for role := range halves {
		h := sha256.New()
		h.Write([]byte("riffle/vecsum/proved half 1\x00"))
		h.Write(s.name[:16])
		h.Write([]byte{byte(role)})
		h.Write(r.nonce)
		h.Write(r.inputs[0][role])
		h.Write(r.inputs[1][role])
		digests[role] = h.Sum(nil)
	}
	for role := range halves {
		halves[role] = slices.Concat(r.nonce, r.public[0], r.inputs[0][role], r.public[1], r.inputs[1][role], digests[1-role])
	}
	return halves[proved.Coordinator], halves[proved.Aggregator]
}

// Clients attack a round to which clients add the noise in every way that their reports let them. The coordinator and
// the aggregator leave out all of these, for the right reasons, and what is released of every round has the vectors and
// the noise of exactly the others.
func TestAttacksOnSumsWithNoiseOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.CheckIn, receipts, withCorrelated, crowd(19, 4), byClients, small)
		m := w.mech.(*mechanism.AggregatedSum)
		bounds := [2]int64{m.Bound, m.NoiseBound()}
		elsewhere, err := m.Proved([32]byte{99})
		if err != nil {
			t.Fatal(err)
		}
		other := func(of *proved.Round, x [][]int64) (part, share []byte) {
			share, part, err := of.Report(rng.Secure(), x...)
			if err != nil {
				t.Error(err)
			}
			return part, share
		}
		// What a client whose task has no noise of clients sends: without noise, and filled up to the length.
		bare, err := proved.New(proved.Config{Dim: m.Dim, Bound: m.Bound, Users: m.Users, Announcement: [32]byte{99}})
		if err != nil {
			t.Fatal(err)
		}
		long := make([]int64, dim)
		long[3] = -bounds[1] - 1
		var seen [2][]byte
		w.attack = func(place int, announcement [32]byte, of *proved.Round, x [][]int64, part, share []byte) ([]byte, []byte) {
			s := newSender(t, announcement, m, bounds)
			r := s.split(part, share)
			if p, q := s.halves(r); place == 0 && (!slices.Equal(p, part) || !slices.Equal(q, share)) {
				t.Error("the test does not make reports as clients do")
			}
			switch place {
			case 1: // noise that is longer by one, with a proof for that
				liar := newSender(t, announcement, m, [2]int64{m.Bound, bounds[1] + 3})
				if liar.sizes != s.sizes {
					t.Error("a longer noise has other sizes")
				}
				liar.share(&r, 1, long)
				return s.halves(r)
			case 2: // vector and noise in each other's place, which are not as long
				r.public[0], r.public[1] = r.public[1], r.public[0]
				r.inputs[0], r.inputs[1] = r.inputs[1], r.inputs[0]
				return s.halves(r)
			case 3: // another report's noise, and commitments that fit
				p, q := other(of, x)
				theirs := s.split(p, q)
				r.public[1], r.inputs[1] = theirs.public[1], theirs.inputs[1]
				return s.halves(r)
			case 4: // the same, and commitments that do not
				p, _ := other(of, x)
				n := 16 + s.sizes[0].Public + s.sizes[0].Input[proved.Coordinator]
				return slices.Concat(part[:n], p[n:len(p)-32], part[len(part)-32:]), share
			case 5: // halves of two reports
				p, _ := other(of, x)
				return p, share
			case 6: // another round's report
				return other(elsewhere, x)
			case 7: // another round's noise, and commitments that fit
				p, q := other(elsewhere, x)
				theirs := s.split(p, q)
				r.public[1], r.inputs[1] = theirs.public[1], theirs.inputs[1]
				r.nonce = theirs.nonce
				s.share(&r, 0, x[0])
				return s.halves(r)
			case 8: // a vector that is too long, with noise that is not
				liar := newSender(t, announcement, m, [2]int64{m.Bound + m.Bound/50, bounds[1]})
				liar.share(&r, 0, []int64{m.Bound + m.Bound/100, 0, 0, 0, 0})
				return s.halves(r)
			case 9: // shifted noise
				r.inputs[1][0][0]++
				return s.halves(r)
			case 10: // without noise
				q, p, err := bare.Report(rng.Secure(), x[0])
				if err != nil {
					t.Error(err)
				}
				return append(p, make([]byte, len(part)-len(p))...), append(q, make([]byte, len(share)-len(q))...)
			case 11: // an honest report
				seen = [2][]byte{part, share}
			case 12: // which another client replays
				return seen[0], seen[1]
			case 13: // its noise again, with another vector, under its nonce
				r = s.split(seen[0], seen[1])
				s.share(&r, 0, x[0])
				return s.halves(r)
			}
			return part, share
		}
		w.garbage[14] = 2 // to another key
		s := w.run()
		got := w.agg.Load().Snapshot().Refused
		w.check(s, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14)
		want := map[wire.Reason]int64{wire.BadProof: 5, wire.Unequal: 5, wire.SecondReport: 2, wire.WrongKey: 1}
		for reason := range want {
			want[reason] *= w.task.Rounds
		}
		if s.Released != w.task.Rounds || s.Failed != 0 || !maps.Equal(s.Rejected, want) {
			t.Errorf("released %d, failed %v, rejected %v, want %v", s.Released, s.FailedBy, s.Rejected, want)
		}
		delete(got, wire.Closed)
		if !maps.Equal(got, want) {
			t.Errorf("the aggregator refuses %v, want %v", got, want)
		}
	})
}

// A round of which fewer than n-min valid reports are left is not released, as too little noise would be in it, and
// nothing of it is signed or held; one of n-min is. What was held before it is of no use any more.
func TestTooFewReportsWithNoiseOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.CheckIn, withCorrelated, crowd(5, 4), byClients)
		var order [][32]byte
		w.attack = func(place int, announcement [32]byte, _ *proved.Round, _ [][]int64, part, share []byte) ([]byte, []byte) {
			if !slices.Contains(order, announcement) {
				order = append(order, announcement)
			}
			if place == 0 || place == 1 && len(order) == 3 {
				share[200] ^= 1
			}
			return part, share
		}
		w.fails = func(round int64) bool { return round == 3 }
		s := w.run()
		w.check(s, 0)
		if s.Released != 4 || s.FailedBy[FailedTooFew] != 1 || s.Rejected[wire.Unequal] != 6 {
			t.Errorf("released %d, failed %v, rejected %v", s.Released, s.FailedBy, s.Rejected)
		}
		for _, r := range w.aggRecords() {
			if (r.Summed == "") != (r.Round == 3) || (len(r.Agreed) == 0) != (r.Round == 3) {
				t.Errorf("round %d: %+v", r.Round, r)
			}
		}
	})
}

// A store of the coordinator that was restored from before a released round gives the same release again, or none,
// also if the shuffler still has the round. Noise of the aggregators would be drawn again, so it is none then.
func TestRestoredCoordinatorReleasesTheSame(t *testing.T) {
	forgets := func(w *world) {
		for _, name := range listed(w.disk.Objects, "held/") {
			delete(w.disk.Objects, name)
		}
	}
	for name, c := range map[string]struct {
		destroyed bool // whether the shuffler has destroyed the round, as it should
		restored  func(w *world)
		clients   string // why the round fails where clients send the noise; "": it is released
		others    string
		why       string
	}{
		"all of it":            {true, func(*world) {}, FailedGone, FailedGone, ""},
		"all of it, and batch": {false, func(*world) {}, "", FailedSecret, "old copy"},
		// Without its held sums it would release the round without earlier ones: the difference to what was released would
		// be sums without noise.
		"all but held sums, and batch": {false, forgets, FailedSecret, FailedSecret, "old copy"},
		"all but held sums, batch, and promises": {false, func(w *world) {
			forgets(w)
			w.disk.promised = map[hash]promise{}
		}, FailedUnequal, FailedUnequal, "do not agree"},
	} {
		t.Run(name, func(t *testing.T) {
			whoAdds(t, func(t *testing.T, by ...option) {
				w := newWorld(t, dp.Distributed, dp.CheckIn, append(by, small)...)
				w.sh.Keeps = !c.destroyed
				failed, released := c.others, int64(3)
				if w.sent() {
					failed = c.clients
				}
				if failed != "" {
					released--
				}
				id := wire.Digest(w.task)
				var state []byte
				var values, objects map[string][]byte
				w.disk.released = func(r record) {
					if r.Round == 2 && r.Open != nil && r.Open.Charged && len(r.Open.Key) > 0 && r.Open.Excluded == (hash{}) && state == nil {
						var err error
						if state, err = r.encode(); err != nil {
							t.Error(err)
						}
						values, objects = maps.Clone(w.disk.Values), maps.Clone(w.disk.Objects)
					}
				}
				first := w.run()
				if w.check(first); first.Released != 3 || state == nil || t.Failed() {
					t.Fatalf("%+v", first)
				}
				w.disk.released = nil
				values[stateKey(id)] = state
				w.disk.Values, w.disk.Objects = values, objects
				for key := range w.disk.Leases {
					delete(w.disk.Leases, key)
				}
				c.restored(w)
				if failed != "" {
					delete(w.disk.releases, 3) // no model was released: the last one stays
				}
				s := w.run()
				if s.State != Done || s.Released != released || failed != "" && (s.FailedBy[failed] != 1 || !strings.Contains(s.Failure, c.why)) {
					t.Errorf("%s: released %d, failed %v: %s", s.State, s.Released, s.FailedBy, s.Failure)
				}
				if n := len(w.sums[3]); failed == "" && n != 2 || failed != "" && n != 1 {
					t.Errorf("round 3 was summed %d times", n)
				}
				if failed == "" {
					w.check(s)
				}
				if len(w.aggDisk.partials) != 3 || len(w.aggDisk.changed) > 0 {
					t.Errorf("%d partial sums, changed %v", len(w.aggDisk.partials), w.aggDisk.changed)
				}
				w.fsckAggregator()
			})
		})
	}
}
