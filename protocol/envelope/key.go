package envelope

import (
	"cmp"
	"crypto/hpke"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// PrivateKey opens what is sealed to its Public key; it does not change.
type PrivateKey struct {
	Public  wire.Key // the key to seal to
	private hpke.PrivateKey
}

// GenerateKey makes a key from crypto/rand. Messages may be sealed to it until it expires.
func GenerateKey(s wire.Suite, expires time.Time) (*PrivateKey, error) {
	k, err := kem(s)
	if err != nil {
		return nil, err
	}
	p, err := k.GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("envelope: %v", err)
	}
	return newKey(s, p, expires.Unix()), nil
}

func newKey(s wire.Suite, p hpke.PrivateKey, expires int64) *PrivateKey {
	return &PrivateKey{private: p,
		Public: wire.Key{Suite: s, Public: p.PublicKey().Bytes(), Expires: expires}}
}

// keyPrefix starts a stored private key.
const keyPrefix = "riffle-hpke-1"

// MarshalText returns one line: a prefix, suite, expiry (Unix seconds), private
// key in base64. It is a secret.
func (k *PrivateKey) MarshalText() ([]byte, error) {
	b, err := k.private.Bytes()
	if err != nil {
		return nil, fmt.Errorf("envelope: %v", err)
	}
	return fmt.Appendf(nil, "%s %d %d %s\n", keyPrefix, k.Public.Suite, k.Public.Expires, base64.StdEncoding.EncodeToString(b)), nil
}

// ParseKey is the inverse of MarshalText. Errors show nothing of the key.
func ParseKey(text []byte) (*PrivateKey, error) {
	f := strings.Fields(string(text))
	if len(f) != 4 || f[0] != keyPrefix {
		return nil, fmt.Errorf("envelope: no private key: want a line %q, suite, expiry, key", keyPrefix)
	}
	suite, err := strconv.ParseUint(f[1], 10, 8)
	if err != nil {
		return nil, errors.New("envelope: private key with a suite that is not a number")
	}
	k, err := kem(wire.Suite(suite))
	if err != nil {
		return nil, err
	}
	expires, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return nil, errors.New("envelope: private key with an expiry that is not a number")
	}
	raw, err := base64.StdEncoding.DecodeString(f[3])
	if err != nil {
		return nil, errors.New("envelope: private key is not base64")
	}
	p, err := k.NewPrivateKey(raw)
	if err != nil {
		return nil, errors.New("envelope: private key does not fit its suite")
	}
	return newKey(wire.Suite(suite), p, expires), nil
}

// Keyring holds a role's keys: the announced one, and older ones for messages that are under
// way. It does not change.
type Keyring struct {
	Keys []wire.Key // to seal to, the one to announce first: the latest expiry
	byID map[[8]byte]*PrivateKey
}

// NewKeyring takes at least one key.
func NewKeyring(keys ...*PrivateKey) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errors.New("envelope: a keyring needs a key")
	}
	r := &Keyring{byID: map[[8]byte]*PrivateKey{}}
	for _, k := range keys {
		id := k.Public.ID()
		if _, twice := r.byID[id]; twice {
			return nil, fmt.Errorf("envelope: key %x given twice", id)
		}
		r.Keys, r.byID[id] = append(r.Keys, k.Public), k
	}
	slices.SortStableFunc(r.Keys, func(a, b wire.Key) int { return cmp.Compare(b.Expires, a.Expires) })
	return r, nil
}

// Key returns the private key of that id.
func (r *Keyring) Key(id [8]byte) (*PrivateKey, error) {
	k, ok := r.byID[id]
	if !ok {
		return nil, fmt.Errorf("%w: %x", ErrKey, id)
	}
	return k, nil
}
