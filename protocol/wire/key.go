package wire

import (
	"fmt"
	"time"
)

// Suite names the algorithms of a sealing key; package envelope implements them.
type Suite byte

const (
	// X25519 is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM.
	X25519 Suite = 1
	// X25519MLKEM768 is the hybrid MLKEM768-X25519, HKDF-SHA256, AES-128-GCM.
	X25519MLKEM768 Suite = 2
)

// Key is a role's public key for sealing.
type Key struct {
	Suite   Suite
	Public  []byte
	Expires int64 // Unix seconds; nothing may be sealed to it afterwards
}

// ID names the key: the first 8 bytes of the digest of its suite and public bytes.
func (k Key) ID() (id [8]byte) {
	d := hash(LabelKey, []byte{byte(k.Suite)}, k.Public)
	copy(id[:], d[:])
	return id
}

// None says whether there is no key.
func (k Key) None() bool { return k.Suite == 0 && len(k.Public) == 0 && k.Expires == 0 }

// Valid returns an error unless messages may be sealed to the key at that time.
func (k Key) Valid(now time.Time) error {
	if k.None() {
		return fmt.Errorf("wire: there is no key")
	}
	if now.Unix() >= k.Expires {
		return fmt.Errorf("wire: key %x expired at %s", k.ID(), time.Unix(k.Expires, 0).UTC().Format(time.RFC3339))
	}
	return nil
}

func (c *codec) key(k *Key) {
	c.suite(&k.Suite)
	c.blob(&k.Public)
	c.i64(&k.Expires)
	if c.read() && !k.None() && (k.Suite != X25519 && k.Suite != X25519MLKEM768 || len(k.Public) == 0) {
		c.fail("key of suite %d with %d bytes", k.Suite, len(k.Public))
	}
}

func (c *codec) suite(s *Suite) { c.u8((*byte)(s)) }
