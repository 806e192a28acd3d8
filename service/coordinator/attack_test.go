package coordinator

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum/pine"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// forger makes reports with proofs for a round, which need not hold, as
// mechanism/vecsum/proved/proved.md describes them.
type forger struct {
	t    testing.TB
	name []byte // digest of the round and its parameters
	pine *pine.Pine
}

func newForger(t testing.TB, announcement [32]byte, m *mechanism.AggregatedSum, bound int64) forger {
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved round 1\x00"))
	h.Write(announcement[:])
	for _, v := range []int64{int64(m.Dim), m.Bound, m.Users} {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(v)))
	}
	f := forger{t: t, name: h.Sum(nil)}
	var err error
	if f.pine, err = pine.New(pine.Config{Dim: m.Dim, Bound: bound, Context: "riffle/vecsum/proved 1" + string(f.name)}); err != nil {
		t.Error(err)
	}
	return f
}

// report is one of x, with a proof for the forger's bound.
func (f forger) report(x []int64) (part, share []byte) {
	var nonce pine.Nonce
	copy(nonce[:], binary.LittleEndian.AppendUint64(nil, rng.Secure().Uint64()))
	public, inputs, err := f.pine.Shard(rng.Secure(), nonce, x)
	if err != nil {
		f.t.Error(err)
		return nil, nil
	}
	return f.halves(append(nonce[:], public...), inputs)
}

// halves puts a report together, with commitments that fit.
func (f forger) halves(head []byte, inputs [2][]byte) (part, share []byte) {
	var halves, digests [2][]byte
	for k, input := range inputs {
		h := sha256.New()
		h.Write([]byte("riffle/vecsum/proved half 1\x00"))
		h.Write(f.name[:16])
		h.Write([]byte{byte(k)})
		h.Write(head[:16])
		h.Write(input)
		digests[k] = h.Sum(nil)
	}
	for k, input := range inputs {
		halves[k] = slices.Concat(head, input, digests[1-k])
	}
	return halves[proved.Coordinator], halves[proved.Aggregator]
}

// change returns the report with other input shares or another head, which is nonce and public share.
func (f forger) change(part, share []byte, by func(head []byte, inputs [2][]byte)) (newPart, newShare []byte) {
	const head = 16 + 64
	h := slices.Clone(share[:head])
	inputs := [2][]byte{slices.Clone(share[head : len(share)-32]), slices.Clone(part[head : len(part)-32])}
	by(h, inputs)
	return f.halves(h, inputs)
}

// Clients attack a round with proofs in every way that their reports let them. The coordinator and the
// aggregator leave out all of these, for the right reasons, and the sums are exactly those of the
// others, with the noise that was named.
func TestAttacksOnSumsWithProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, func(w *world) { w.n = 16 }, receipts, withProofs)
		m := w.mech.(*mechanism.AggregatedSum)
		elsewhere, err := m.Proved([32]byte{99})
		if err != nil {
			t.Fatal(err)
		}
		other := func(of *proved.Round, x []int64) (part, share []byte) {
			share, part, err := of.Report(rng.Secure(), x)
			if err != nil {
				t.Error(err)
			}
			return part, share
		}
		large := make([]int64, dim) // of norm 1.01 times the bound
		large[2] = -m.Bound - m.Bound/100
		var seen [2][]byte
		w.attack = func(place int, announcement [32]byte, of *proved.Round, vectors [][]int64, part, share []byte) ([]byte, []byte) {
			x := vectors[0]
			f := newForger(t, announcement, m, m.Bound)
			switch place {
			case 0: // a share that is shifted inside the range
				return f.change(part, share, func(_ []byte, in [2][]byte) { in[0][0]++ })
			case 1: // the same, and the commitments do not fit
				share[16+64]++
				return part, share
			case 2: // random shares
				return f.change(part, share, func(_ []byte, in [2][]byte) {
					for i := 0; i+8 <= len(in[0]); i += 8 {
						binary.LittleEndian.PutUint64(in[0][i:], rng.Secure().Uint64()>>1)
					}
				})
			case 3: // halves of two reports
				part, _ = other(of, x)
				return part, share
			case 4: // another round's report
				return other(elsewhere, x)
			case 5: // and with commitments of this one
				part, share := other(elsewhere, x)
				return f.change(part, share, func([]byte, [2][]byte) {})
			case 6: // a norm of 1.01 times the bound, with a proof for that
				return newForger(t, announcement, m, m.Bound+m.Bound/50).report(large)
			case 7: // a false part of the leader's share in the public share
				return f.change(part, share, func(head []byte, _ [2][]byte) { head[16] ^= 1 })
			case 8: // an honest report
				seen = [2][]byte{part, share}
			case 9: // which another client replays
				return seen[0], seen[1]
			case 10: // an honest one of the norm's bound
				return f.report(x)
			}
			return part, share
		}
		w.garbage[11] = 2 // to another key
		s := w.run()
		w.check(s, 0, 1, 2, 3, 4, 5, 6, 7, 9, 11)
		want := map[wire.Reason]int64{wire.BadProof: 5, wire.Unequal: 3, wire.SecondReport: 1, wire.WrongKey: 1}
		for reason := range want {
			want[reason] *= w.task.Rounds
		}
		if s.Released != w.task.Rounds || s.Failed != 0 || !maps.Equal(s.Rejected, want) {
			t.Errorf("%+v", s)
		}
		got := w.agg.Load().Snapshot().Refused
		delete(got, wire.Closed)
		if !maps.Equal(got, want) {
			t.Errorf("the aggregator refuses %v, want %v", got, want)
		}
	})
}
