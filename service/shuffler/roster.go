package shuffler

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// roster holds the enrolled clients, in some 50 bytes each. It does not change.
type roster struct {
	ids    []wire.ID // ascending
	keys   []byte    // 32 bytes each, in the same order
	digest [32]byte
	// starts[x] is the place of the first id whose leading bits are at least x. Ids are
	// digests, so only a few share their leading bits.
	starts []uint32
	shift  int
}

func newRoster(keys []ed25519.PublicKey) (*roster, error) {
	r := &roster{ids: make([]wire.ID, len(keys)), keys: make([]byte, ed25519.PublicKeySize*len(keys))}
	order := make([]int, len(keys))
	ids := make([]wire.ID, len(keys))
	for i, k := range keys {
		if len(k) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("shuffler: client %d of the roster has a key of %d bytes", i, len(k))
		}
		ids[i], order[i] = wire.ClientID(k), i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(ids[a][:], ids[b][:]) })
	for to, from := range order {
		r.ids[to] = ids[from]
		copy(r.keys[to*ed25519.PublicKeySize:], keys[from])
		if to > 0 && r.ids[to] == r.ids[to-1] {
			return nil, fmt.Errorf("shuffler: client %d of the roster is enrolled twice", from)
		}
	}
	r.digest = wire.RosterDigest(r.ids)
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
	return i, r.keys[i*ed25519.PublicKeySize : (i+1)*ed25519.PublicKeySize], true
}
