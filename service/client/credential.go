package client

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Credential is the key with which an enrolled client signs. It does not print itself.
type Credential struct{ key ed25519.PrivateKey }

// NewCredential makes a credential from crypto/rand.
func NewCredential() (*Credential, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("client: %v", err)
	}
	return &Credential{key}, nil
}

// Public returns the public key that the shuffler enrols.
func (c Credential) Public() ed25519.PublicKey { return c.key.Public().(ed25519.PublicKey) }

// Format shows the client's id only, whatever the verb.
func (c Credential) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "client %x", wire.ClientID(c.Public()))
}

// Prefixes of stored keys, for clients' credentials.
const (
	credentialPrefix = "riffle-client-1"
	enrolPrefix      = "riffle-client-public-1"
)

// Secret returns the line of a client's own file: a prefix and the key's 32-byte seed in
// base64.
func (c Credential) Secret() []byte {
	return fmt.Appendf(nil, "%s %s\n", credentialPrefix, base64.StdEncoding.EncodeToString(c.key.Seed()))
}

// ParseCredential is the inverse of Secret. Errors show nothing of the key.
func ParseCredential(text []byte) (*Credential, error) {
	seed, err := parseKey(string(text), credentialPrefix, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return &Credential{ed25519.NewKeyFromSeed(seed)}, nil
}

// MarshalPublic returns one line for the shuffler's operator: a prefix and the
// public key in base64.
func MarshalPublic(key ed25519.PublicKey) []byte {
	return fmt.Appendf(nil, "%s %s\n", enrolPrefix, base64.StdEncoding.EncodeToString(key))
}

// ParsePublic is the inverse of MarshalPublic.
func ParsePublic(text []byte) (ed25519.PublicKey, error) {
	key, err := parseKey(string(text), enrolPrefix, ed25519.PublicKeySize)
	return ed25519.PublicKey(key), err
}

func parseKey(text, prefix string, size int) ([]byte, error) {
	f := strings.Fields(text)
	if len(f) != 2 || f[0] != prefix {
		return nil, fmt.Errorf("client: no key: want a line %q and the key", prefix)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(f[1])
	if err != nil || len(b) != size {
		return nil, errors.New("client: the key is not base64 of its size")
	}
	return b, nil
}
