package shuffler

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// roster holds the enrolled clients, in some 60 bytes each. Its clients do not change.
type roster struct {
	ids    []wire.ID // ascending
	keys   []byte    // 32 bytes each, in the same order
	digest [32]byte
	// statement is the registrar's, also as it was signed; zero if there is no registrar.
	statement wire.Roster
	signed    []byte
	// sessionEnds is when each client's last seen session ends, in the same order.
	sessionEnds []atomic.Int64
	// starts[x] is the place of the first id whose leading bits are at least x. Ids are
	// digests, so only a few share their leading bits.
	starts []uint32
	shift  int
}

// newRoster takes the memory of the keys, 32 bytes each, and puts them in order there: at millions of
// clients a second copy would be most of what a process has.
func newRoster(keys []byte) (*roster, error) {
	n := len(keys) / ed25519.PublicKeySize
	if n*ed25519.PublicKeySize != len(keys) {
		return nil, fmt.Errorf("shuffler: a roster of %d bytes, a key has %d", len(keys), ed25519.PublicKeySize)
	}
	r := &roster{ids: make([]wire.ID, n), keys: keys}
	for i := range r.ids {
		r.ids[i] = wire.ClientID(r.key(i))
	}
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return bytes.Compare(r.ids[a][:], r.ids[b][:]) })
	r.arrange(order)
	for i := 1; i < n; i++ {
		if r.ids[i] == r.ids[i-1] {
			return nil, fmt.Errorf("shuffler: a client of the roster is enrolled twice: %x", r.key(i))
		}
	}
	r.digest, r.sessionEnds = wire.RosterDigest(r.ids), make([]atomic.Int64, len(r.ids))
	bits := max(0, bits.Len(uint(len(r.ids)))-3)
	r.shift = 64 - bits
	r.starts = make([]uint32, 1<<bits+1)
	at := 0
	for x := range r.starts {
		for at < len(r.ids) && r.leading(r.ids[at]) < uint64(x) {
			at++
		}
		r.starts[x] = uint32(at)
	}
	return r, nil
}

// arrange puts the client of place order[i] at place i, cycle by cycle, and forgets order.
func (r *roster) arrange(order []uint32) {
	for i := range order {
		if int(order[i]) == i {
			continue
		}
		id, key := r.ids[i], [ed25519.PublicKeySize]byte(r.key(i))
		at := i
		for from := int(order[at]); from != i; at, from = from, int(order[from]) {
			r.ids[at] = r.ids[from]
			copy(r.key(at), r.key(from))
			order[at] = uint32(at)
		}
		r.ids[at], order[at] = id, uint32(at)
		copy(r.key(at), key[:])
	}
}

// key returns the public key of the client at a place.
func (r *roster) key(i int) ed25519.PublicKey {
	return r.keys[i*ed25519.PublicKeySize : (i+1)*ed25519.PublicKeySize : (i+1)*ed25519.PublicKeySize]
}

func (r *roster) leading(id wire.ID) uint64 { return binary.BigEndian.Uint64(id[:]) >> r.shift }

// find returns a client's place and key.
func (r *roster) find(id wire.ID) (int, ed25519.PublicKey, bool) {
	x := r.leading(id)
	from, to := int(r.starts[x]), int(r.starts[x+1])
	i, ok := slices.BinarySearchFunc(r.ids[from:to], id, func(a, b wire.ID) int { return bytes.Compare(a[:], b[:]) })
	if !ok {
		return 0, nil, false
	}
	i += from
	return i, r.key(i), true
}

// clone returns a roster of the same clients, for another statement.
func (r *roster) clone() *roster {
	return &roster{ids: r.ids, keys: r.keys, digest: r.digest, statement: r.statement, signed: r.signed, sessionEnds: r.sessionEnds, starts: r.starts, shift: r.shift}
}

// inherit takes over the known sessions of the clients that were enrolled before.
func (r *roster) inherit(before *roster) {
	if before == nil {
		return
	}
	for i, id := range before.ids {
		if end := before.sessionEnds[i].Load(); end != 0 {
			if place, _, ok := r.find(id); ok {
				r.sessionEnds[place].Store(end)
			}
		}
	}
}
