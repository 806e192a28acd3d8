package coordinator

import (
	"crypto/sha256"
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// report is message j, from 0, of a client's report in a round, in the clear; the same whenever it
// is asked.
func (w *world) report(round, client int64, model [32]byte, j int) *randomizer.Report {
	r := w.mech.NewReport()
	x := make([]float32, dim)
	src := rng.Replay(7, uint64(round), uint64(client), uint64(model[0]))
	for j := range x {
		x[j] = float32(int64(src.Uint64()%200)-100) / 300
	}
	for range j + 1 {
		w.mech.Randomize(src, x, r)
	}
	return r
}

// batched is the batch's order: who sends at a place, and which message. A run of second messages
// begins with another client than the run of the first.
func (w *world) batched(a wire.Announcement) (who []int64, message []int) {
	one := w.who(a)
	for j := range int(a.PerClient()) {
		for i := range one {
			who, message = append(who, one[(i+j)%len(one)]), append(message, j)
		}
	}
	return who, message
}

// who reports in a round.
func (w *world) who(a wire.Announcement) []int64 {
	var out []int64
	from, to := int64(0), w.n
	switch a.Participation {
	case dp.Sampled:
		to = a.Sample
	case dp.Once:
		b, _ := schedule.NewBlocks(w.n, w.config.BlockSize)
		_, block := b.Of(a.Round)
		from, to = b.Range(block)
	}
	for c := from; c < to; c++ {
		in := a.Participation != dp.CheckIn || c%4 != a.Round%4
		if w.task.Every > 0 {
			in = c%w.task.Every == a.Round%w.task.Every
		}
		if w.present(a.Round, c) && in {
			out = append(out, c)
		}
	}
	return out
}

func (w *world) fill(a wire.Announcement) (parts, shares [][]byte) {
	digest := wire.Digest(a)
	who, message := w.batched(a)
	for place, c := range who {
		r := w.report(a.Round, c, a.ModelDigest, message[place])
		var part, share []byte
		if sum, ok := w.mech.(*mechanism.VectorSum); ok {
			s, err := sum.Shares(digest)
			if err != nil {
				w.t.Error(err)
				return nil, nil
			}
			counts := make([]int64, len(r.Value))
			for j, v := range r.Value {
				counts[j] = int64(v)
			}
			m, err := s.Messages(rng.Secure(), counts)
			if err != nil {
				w.t.Error(err)
				return nil, nil
			}
			part, share = m[0], m[1]
		} else if sum, ok := w.mech.(*mechanism.AggregatedSum); ok {
			part, share = w.provedParts(sum, digest, place, r, w.noiseOf(a.Round, c))
			if w.spoils != nil && w.spoils(a.Round) {
				share[200] ^= 1
			}
		} else {
			var err error
			if part, err = randomizer.AppendReport(nil, w.mech, r); err != nil {
				w.t.Error(err)
			}
		}
		key := a.Coordinator
		with := wire.Attached{Receipt: receipt(digest, c, message[place])}
		if w.bureau != nil {
			with.Token = w.bureau.token(a.Round, int64(place), c, message[place])
		}
		other := with
		kind := w.garbage[place]
		if place == 3 && w.lie != nil && w.lie(a.Round) {
			kind = 5
		}
		switch kind {
		case 1: // not of the mechanism
			for i := range part {
				part[i] = 0xff
			}
		case 2: // to another key
			key = ring(w.t).Keys[0]
		case 3: // a share that cannot be summed
			share[0] = 9
		case 4: // two halves with different report ids
			share[24] ^= 1
		case 8: // a token for the coordinator alone
			other.Token[200] ^= 1
		case 7: // receipts that differ
			other.Receipt[15] ^= 1
		case 6: // a share that is off by an eighth of the modulus in one coordinate
			bits := w.mech.(*mechanism.VectorSum).Params.Modulus()
			bit := 3*bits - 3
			share[40+bit/8] ^= 1 << (bit % 8)
		case 5: // a share that is off by half of the modulus, in every coordinate
			bits := w.mech.(*mechanism.VectorSum).Params.Modulus()
			for j := range dim {
				top := (j+1)*bits - 1
				share[40+top/8] ^= 1 << (top % 8)
			}
		}
		sealed, err := envelope.SealPart(key, envelope.Coordinator, digest, w.task.Attachments().Append(part, with))
		if err != nil {
			w.t.Error(err)
		}
		parts = append(parts, sealed)
		if share != nil {
			if sealed, err = envelope.SealPart(a.Aggregator, envelope.Aggregator, digest, w.task.Attachments().Append(share, other)); err != nil {
				w.t.Error(err)
			}
			shares = append(shares, sealed)
		}
	}
	return parts, shares
}

// receipt is that of a client's message.
func receipt(announcement [32]byte, client int64, message int) (id wire.ID) {
	d := sha256.Sum256(fmt.Appendf(announcement[:], "%d %d", client, message))
	copy(id[:], d[:])
	return id
}
