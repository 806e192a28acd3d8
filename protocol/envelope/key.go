package envelope

import (
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

// PrivateKey opens what is sealed to its Public key.
type PrivateKey struct {
	suite   wire.Suite
	private hpke.PrivateKey
	public  wire.Key
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
	return &PrivateKey{suite: s, private: p,
		public: wire.Key{Suite: s, Public: p.PublicKey().Bytes(), Expires: expires}}
}

// Public returns the key to seal to.
func (k *PrivateKey) Public() wire.Key { return k.public }

// keyPrefix starts a stored private key.
const keyPrefix = "riffle-hpke-1"

// MarshalText returns one line: a prefix, suite, expiry (Unix seconds), private
// key in base64. It is a secret.
func (k *PrivateKey) MarshalText() ([]byte, error) {
	b, err := k.private.Bytes()
	if err != nil {
		return nil, fmt.Errorf("envelope: %v", err)
	}
	return fmt.Appendf(nil, "%s %d %d %s\n", keyPrefix, k.suite, k.public.Expires, base64.StdEncoding.EncodeToString(b)), nil
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
	keys []*PrivateKey // latest expiry first
	byID map[wire.KeyID]*PrivateKey
}

// NewKeyring takes at least one key.
func NewKeyring(keys ...*PrivateKey) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errors.New("envelope: a keyring needs a key")
	}
	r := &Keyring{keys: slices.Clone(keys), byID: map[wire.KeyID]*PrivateKey{}}
	slices.SortStableFunc(r.keys, func(a, b *PrivateKey) int {
		switch {
		case a.public.Expires > b.public.Expires:
			return -1
		case a.public.Expires < b.public.Expires:
			return 1
		}
		return 0
	})
	for _, k := range r.keys {
		if _, twice := r.byID[k.public.ID()]; twice {
			return nil, fmt.Errorf("envelope: key %x given twice", k.public.ID())
		}
		r.byID[k.public.ID()] = k
	}
	return r, nil
}

// Current returns the key to announce for a round that ends at deadline: the one that expires
// last. If it expires before the deadline, Current returns an error that says when.
func (r *Keyring) Current(deadline time.Time) (wire.Key, error) {
	k := r.keys[0].public
	return k, k.Valid(deadline)
}

// Public returns all keys, the one to use first.
func (r *Keyring) Public() []wire.Key {
	out := make([]wire.Key, len(r.keys))
	for i, k := range r.keys {
		out[i] = k.public
	}
	return out
}
