package registrar

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Errors of a change that is refused.
var (
	// errRevoked is wrapped if a key is to be enrolled that was revoked before.
	errRevoked = errors.New("registrar: the key was revoked")
	// errUnknown is wrapped if a client is to be revoked that is not enrolled.
	errUnknown = errors.New("registrar: no such client is enrolled")
	// errEmpty is wrapped if nobody would be left.
	errEmpty = errors.New("registrar: a roster enrols one client at least")
	// errKey is wrapped by the refusal of what is no key.
	errKey = errors.New("registrar: not a client's public key")
)

// member is an enrolled client.
type member struct {
	id  wire.ID
	key [ed25519.PublicKeySize]byte
}

// members are the clients that are enrolled and those that were revoked, each in ascending
// order. A value is never changed. A key that was revoked is never enrolled again, so a round
// can count on all clients that are in the rosters of its begin and of its end.
type members struct {
	enrolled []member
	revoked  []wire.ID
}

func compareIDs(a, b wire.ID) int           { return bytes.Compare(a[:], b[:]) }
func compareMember(a member, b wire.ID) int { return compareIDs(a.id, b) }

func (m *members) find(id wire.ID) (ed25519.PublicKey, bool) {
	i, ok := slices.BinarySearchFunc(m.enrolled, id, compareMember)
	if !ok {
		return nil, false
	}
	return m.enrolled[i].key[:], true
}

func (m *members) wasRevoked(id wire.ID) bool {
	_, ok := slices.BinarySearchFunc(m.revoked, id, compareIDs)
	return ok
}

// change enrols and revokes clients, all of them or none. Clients that are enrolled or revoked
// already stay so and are not counted. It returns m itself if nothing changes.
func (m *members) change(add []ed25519.PublicKey, revoke []wire.ID) (next *members, added, revoked int, err error) {
	fresh, gone := map[wire.ID]member{}, map[wire.ID]bool{}
	for i, k := range add {
		if len(k) != ed25519.PublicKeySize {
			return nil, 0, 0, fmt.Errorf("%w: number %d has %d bytes", errKey, i, len(k))
		}
		id := wire.ClientID(k)
		if m.wasRevoked(id) {
			return nil, 0, 0, fmt.Errorf("%w: client %x needs a new one", errRevoked, id)
		}
		if _, ok := m.find(id); !ok {
			fresh[id] = member{id, [ed25519.PublicKeySize]byte(k)}
		}
	}
	for _, id := range revoke {
		if m.wasRevoked(id) {
			continue
		}
		if _, ok := m.find(id); !ok {
			return nil, 0, 0, fmt.Errorf("%w: %x", errUnknown, id)
		}
		gone[id] = true
	}
	if len(fresh)+len(gone) == 0 {
		return m, 0, 0, nil
	}
	next = &members{}
	for _, e := range m.enrolled {
		if !gone[e.id] {
			next.enrolled = append(next.enrolled, e)
		}
	}
	for _, e := range fresh {
		next.enrolled = append(next.enrolled, e)
	}
	if len(next.enrolled) == 0 {
		return nil, 0, 0, errEmpty
	}
	next.revoked = slices.Clone(m.revoked)
	for id := range gone {
		next.revoked = append(next.revoked, id)
	}
	slices.SortFunc(next.enrolled, func(a, b member) int { return compareIDs(a.id, b.id) })
	slices.SortFunc(next.revoked, compareIDs)
	return next, len(fresh), len(gone), nil
}

// digest is the digest of the roster.
func (m *members) digest() [32]byte {
	ids := make([]wire.ID, len(m.enrolled))
	for i, e := range m.enrolled {
		ids[i] = e.id
	}
	return wire.RosterDigest(ids)
}

// keys are the enrolled clients' keys, one after the other.
func (m *members) keys() []byte {
	out := make([]byte, 0, ed25519.PublicKeySize*len(m.enrolled))
	for _, e := range m.enrolled {
		out = append(out, e.key[:]...)
	}
	return out
}

// encode writes the number of enrolled clients in eight bytes, their keys, and the ids of the
// revoked ones.
func (m *members) encode() []byte {
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(m.enrolled))), m.keys()...)
	for _, id := range m.revoked {
		out = append(out, id[:]...)
	}
	return out
}

// decodeMembers is the inverse of encode.
func decodeMembers(b []byte) (*members, error) {
	bad := errors.New("registrar: the stored members are malformed")
	if len(b) < 8 {
		return nil, bad
	}
	n := binary.LittleEndian.Uint64(b)
	if b = b[8:]; n > uint64(len(b))/ed25519.PublicKeySize {
		return nil, bad
	}
	m := &members{enrolled: make([]member, n)}
	for i := range m.enrolled {
		e := &m.enrolled[i]
		copy(e.key[:], b)
		b = b[ed25519.PublicKeySize:]
		e.id = wire.ClientID(e.key[:])
		if i > 0 && compareIDs(m.enrolled[i-1].id, e.id) >= 0 {
			return nil, bad
		}
	}
	if len(b)%len(wire.ID{}) != 0 {
		return nil, bad
	}
	for ; len(b) > 0; b = b[len(wire.ID{}):] {
		id := wire.ID(b[:len(wire.ID{})])
		if k := len(m.revoked); k > 0 && compareIDs(m.revoked[k-1], id) >= 0 {
			return nil, bad
		}
		if _, ok := m.find(id); ok {
			return nil, bad
		}
		m.revoked = append(m.revoked, id)
	}
	return m, nil
}
