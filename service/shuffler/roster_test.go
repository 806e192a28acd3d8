package shuffler

import (
	"crypto/ed25519"
	"crypto/rand"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/protocol/wire"
)

func TestRosterFindsItsClients(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 7, 8, 9, 100, 5000} {
		keys := make([]ed25519.PublicKey, n)
		for i := range keys {
			keys[i] = make([]byte, ed25519.PublicKeySize) // any bytes make an id
			rand.Read(keys[i])
		}
		r, err := newRoster(slices.Concat(asBytes(keys)...))
		if err != nil {
			t.Fatal(err)
		}
		places := map[int]bool{}
		for _, k := range keys {
			id := wire.ClientID(k)
			at, key, ok := r.find(id)
			if !ok || !key.Equal(k) || r.ids[at] != id {
				t.Fatalf("%d clients: one is not found", n)
			}
			places[at] = true
			for i := range id {
				other := id
				other[i] ^= 1
				if _, _, ok := r.find(other); ok {
					t.Fatalf("%d clients: a stranger is found", n)
				}
			}
		}
		if len(places) != n {
			t.Errorf("%d places of %d clients", len(places), n)
		}
		for _, b := range []byte{0, 0xff} {
			var id wire.ID
			for i := range id {
				id[i] = b
			}
			if _, _, ok := r.find(id); ok {
				t.Errorf("%d clients: %x is found", n, id)
			}
		}
	}
}
