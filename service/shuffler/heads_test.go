package shuffler

import (
	"crypto/ed25519"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// The furthest head of a coordinator's ledger stays, over restarts: no announcement with an older
// ledger, another one, or none opens a round, and no batch is given before a charge was told.
func TestLedgerHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		second := signer(t)
		c := w.config()
		c.Coordinators = append(c.Coordinators, public(second))
		n := w.start(c)
		head := func(entries int64, digest byte) *wire.Head {
			return &wire.Head{Entries: entries, Digest: [32]byte{digest}}
		}
		announced := func(round int64, h *wire.Head) wire.Announcement {
			return n.announcement(round, func(a *wire.Announcement) { a.Ledger = h })
		}
		tell := func(key ed25519.PrivateKey, h *wire.Head) wire.Head {
			b := n.must(Coordinator, "POST", "/v1/ledger", wire.Sign(key, wire.LabelHead, wire.Encode(wire.HeadStatement{Population: w.config().Population, Head: *h})))
			m, err := wire.Decode[wire.HeadStatement](b)
			if err != nil {
				t.Fatal(err)
			}
			return m.Head
		}
		refused := func(a wire.Announcement) {
			t.Helper()
			n.refused(wire.OldLedger, Coordinator, "POST", "/v1/rounds", w.sign(a))
		}
		n.open(n.announcement(1)) // a coordinator that never told
		first := announced(2, head(0, 0))
		n.open(first)
		for i := range w.clients {
			n.send(w.report(first, i, 0))
		}
		word := n.closed(first)
		n.refused(wire.OldLedger, Coordinator, "GET", path(first, "/chunks"), nil) // not charged
		n.refused(wire.OldLedger, Coordinator, "GET", path(first, "/chunks/0"), nil)
		n.refused(wire.OldLedger, Worker, "GET", path(first, "/chunks/0"), nil) // which may know a key from before
		if got := tell(w.coordinator, head(1, 7)); got != *head(1, 7) {
			t.Errorf("kept %+v", got)
		}
		if got := n.fetch(Coordinator, first, word); len(got) != 5 {
			t.Errorf("%d reports", len(got))
		}
		n.open(announced(3, head(1, 7))) // as after a void round
		n.open(announced(4, head(4, 8)))
		n.stop()
		n = w.start(c)
		refused(announced(5, head(3, 7)))
		refused(announced(5, head(4, 9)))
		refused(n.announcement(5))
		if got := tell(w.coordinator, head(3, 7)); got != *head(4, 8) {
			t.Errorf("after a shorter ledger %+v is kept", got)
		}
		n.open(announced(5, head(4, 8)))
		// Another coordinator has its own ledger, and cannot speak for the first.
		if got := tell(second, head(9, 9)); got != *head(9, 9) {
			t.Errorf("kept %+v", got)
		}
		n.open(announced(6, head(4, 8)))
		strange := wire.Sign(signer(t), wire.LabelHead, wire.Encode(wire.HeadStatement{Population: w.config().Population, Head: *head(99, 1)}))
		n.refused(wire.BadSignature, Coordinator, "POST", "/v1/ledger", strange)
		foreign := wire.Sign(w.coordinator, wire.LabelHead, wire.Encode(wire.HeadStatement{Population: wire.ID{9}, Head: *head(99, 1)}))
		n.refused(wire.Malformed, Coordinator, "POST", "/v1/ledger", foreign)
		n.refused(wire.NotEnrolled, Aggregator, "POST", "/v1/ledger", strange)
	})
}
