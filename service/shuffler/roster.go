package shuffler

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"slices"
	"sort"

	"github.com/riffle-dp/riffle/wire"
)

// roster holds the enrolled clients: 48 bytes each. It does not change.
type roster struct {
	ids    []wire.ClientID // ascending
	keys   []byte          // 32 bytes each, in the same order
	digest [32]byte
}

func newRoster(keys []ed25519.PublicKey) (*roster, error) {
	r := &roster{ids: make([]wire.ClientID, len(keys)), keys: make([]byte, ed25519.PublicKeySize*len(keys))}
	order := make([]int, len(keys))
	ids := make([]wire.ClientID, len(keys))
	for i, k := range keys {
		if len(k) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("shuffler: client %d of the roster has a key of %d bytes", i, len(k))
		}
		ids[i], order[i] = wire.NewClientID(k), i
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
	return r, nil
}

// find returns a client's place and key.
func (r *roster) find(id wire.ClientID) (int, ed25519.PublicKey, bool) {
	i := sort.Search(len(r.ids), func(i int) bool { return bytes.Compare(r.ids[i][:], id[:]) >= 0 })
	if i == len(r.ids) || r.ids[i] != id {
		return 0, nil, false
	}
	return i, r.keys[i*ed25519.PublicKeySize : (i+1)*ed25519.PublicKeySize], true
}
