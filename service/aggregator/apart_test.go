package aggregator

import (
	"bytes"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// apartWorld is a task whose clients send correlated noise apart, of which that of least clients is relied on.
func apartWorld(t *testing.T, least int64, bad ...int) *provedWorld {
	t.Helper()
	p, err := vecsum.NewCorrelatedByClients(users, least, 1, dim, 1, 2, bandOf3)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(9)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, bandOf3, sigma, users)
	if err != nil {
		t.Fatal(err)
	}
	return newProvedOf(t, m, 3, bad...)
}

// Where clients send the noise nothing names it, so a round has one set of reports and one share, whatever is asked
// and whenever the aggregator stops; and the share without noise is held as for other rounds.
func TestRoundOfClientsNoiseIsSummedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := apartWorld(t, 5, 2)
		s := w.start()
		w.prepare(s)
		w.exchange(s)
		code, first := ask(s, w.path("sum"), w.exclude(2))
		if code != 200 {
			t.Fatalf("%d %s", code, first)
		}
		if r := w.record(); r.Noise != (hash{}) || !r.Sent || r.Held == (hash{}) {
			t.Errorf("%+v", r)
		}
		if left := listedObjects(w.store, noisePrefix); len(left) != 0 {
			t.Errorf("noise %v", left)
		}
		// It has stopped after each step: the partial sum was not stored, and only the set was.
		for _, forget := range []func(*record){func(*record) {}, func(r *record) { r.Partial, r.Held, r.HeldUntil = hash{}, hash{}, 0 }} {
			digest := wire.Digest(w.a)
			r, revision, err := s.load(t.Context(), digest)
			if err != nil {
				t.Fatal(err)
			}
			forget(&r)
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.Put(t.Context(), key(digest), b, revision); err != nil {
				t.Fatal(err)
			}
			s := w.start()
			w.prepare(s)
			w.exchange(s)
			if code, b := ask(s, w.path("sum"), w.exclude(2, 3)); code != 409 {
				t.Errorf("another set: %d %s", code, b)
			}
			if code, b := ask(s, w.path("sum"), w.exclude(2)); code != 200 || !bytes.Equal(b, first) {
				t.Errorf("again: %d", code)
			}
		}
	})
}

// An aggregator sums no round of a task that relies on the noise of more clients than its rounds need to have.
func TestTooFewClientsForTheirNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := apartWorld(t, 6)
		if code, b := ask(w.start(), "/v1/rounds", w.body(roundKey)); code != 400 {
			t.Errorf("%d %s", code, b)
		}
	})
}
