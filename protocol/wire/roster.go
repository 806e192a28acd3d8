package wire

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
)

// Roster is a registrar's signed statement of who is enrolled. An enrolment carries it, so that
// the shuffler's operator cannot enrol anybody alone. The registrar's key signs it under
// LabelRegistrar.
type Roster struct {
	Population ID
	Serial     int64    // increases with every statement; an older one never counts again
	Clients    int64    // n
	Digest     [32]byte // RosterDigest of the clients
	From, To   int64    // it is valid between these times, in Unix seconds
}

func (*Roster) kind() byte { return KindRoster }

func (*Roster) label() Label { return LabelRegistrar }

func (m *Roster) fields(c *codec) {
	c.fixed(m.Population[:])
	c.count("serial", &m.Serial)
	c.count("clients", &m.Clients)
	c.fixed(m.Digest[:])
	c.i64(&m.From)
	c.i64(&m.To)
	if c.read() && (m.Serial < 1 || m.Clients < 1 || m.To <= m.From) {
		c.fail("roster %d of %d clients, from %d to %d", m.Serial, m.Clients, m.From, m.To)
	}
}

// VerifyRoster returns a registrar's statement if its key signed it for the population.
func VerifyRoster(registrar ed25519.PublicKey, p ID, signed []byte) (Roster, error) {
	message, err := Verify(registrar, LabelRegistrar, signed)
	if err != nil {
		return Roster{}, err
	}
	r, err := Decode[Roster](message)
	if err != nil {
		return Roster{}, err
	}
	if r.Population != p {
		return Roster{}, fmt.Errorf("%w: roster of population %x, want %x", ErrRoster, r.Population, p)
	}
	return r, nil
}

// ErrRoster is wrapped if an enrolment is not what the registrar signed.
var ErrRoster = errors.New("wire: not the registrar's roster")

// CheckRoster returns the registrar's statement that the enrolment carries. It returns an error
// unless the registrar signed it, it has the enrolment's clients, and it is valid for as long as
// the enrolment.
func (m Enrolment) CheckRoster(registrar ed25519.PublicKey) (Roster, error) {
	if len(m.Registrar) == 0 {
		return Roster{}, fmt.Errorf("%w: the enrolment names none", ErrRoster)
	}
	r, err := VerifyRoster(registrar, m.Population, m.Registrar)
	switch {
	case err != nil:
		return Roster{}, err
	case r.Digest != m.Roster || r.Clients != m.Clients:
		return Roster{}, fmt.Errorf("%w: %d clients with digest %x, the registrar has %d with %x", ErrRoster, m.Clients, m.Roster[:4], r.Clients, r.Digest[:4])
	case m.To > r.To:
		return Roster{}, fmt.Errorf("%w: enrolment until %d, the roster ends at %d", ErrRoster, m.To, r.To)
	}
	return r, nil
}

// EncodeMembers returns what a registrar gives to the shuffler: the length of the signed
// statement in four bytes, the statement, and the clients' public keys, 32 bytes each.
func EncodeMembers(signed, keys []byte) []byte {
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(signed)+len(keys)), uint32(len(signed)))
	return append(append(out, signed...), keys...)
}

// DecodeMembers is the inverse of EncodeMembers. It returns the statement, also as it was signed,
// and the keys of the clients that it is about, in the given order.
func DecodeMembers(registrar ed25519.PublicKey, p ID, b []byte) (r Roster, signed []byte, keys []ed25519.PublicKey, err error) {
	fail := func(format string, args ...any) (Roster, []byte, []ed25519.PublicKey, error) {
		return Roster{}, nil, nil, fmt.Errorf("%w: %w", ErrRoster, fmt.Errorf(format, args...))
	}
	if len(b) < 4 {
		return fail("%d bytes", len(b))
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return fail("a statement of %d bytes in %d", n, len(b))
	}
	if r, err = VerifyRoster(registrar, p, b[:n]); err != nil {
		return Roster{}, nil, nil, err
	}
	signed, b = b[:n:n], b[n:]
	if int64(len(b))%ed25519.PublicKeySize != 0 || int64(len(b)/ed25519.PublicKeySize) != r.Clients {
		return fail("%d bytes of keys of %d clients", len(b), r.Clients)
	}
	ids, seen := make([]ID, r.Clients), make(map[ID]bool, r.Clients)
	for i := range ids {
		key := ed25519.PublicKey(b[i*ed25519.PublicKeySize : (i+1)*ed25519.PublicKeySize])
		if ids[i] = ClientID(key); seen[ids[i]] {
			return fail("a client is listed twice")
		}
		seen[ids[i]], keys = true, append(keys, key)
	}
	if RosterDigest(ids) != r.Digest {
		return fail("other clients than those of statement %d", r.Serial)
	}
	return r, signed, keys, nil
}
