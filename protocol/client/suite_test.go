package client

import (
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// A policy with a suite seals to the shuffler's first valid key of that suite, whatever the enrolment
// prefers, and to none if there is none.
func TestShufflerKeyOfSuite(t *testing.T) {
	now := time.Unix(1000, 0)
	key := func(s wire.Suite, id byte, expires int64) wire.Key {
		return wire.Key{Suite: s, Public: []byte{id}, Expires: expires}
	}
	for _, c := range []struct {
		suite wire.Suite
		keys  []wire.Key
		want  byte // 0: none
	}{
		{0, []wire.Key{key(wire.X25519, 1, 2000), key(wire.X25519MLKEM768, 2, 2000)}, 1},
		{wire.X25519MLKEM768, []wire.Key{key(wire.X25519, 1, 2000), key(wire.X25519MLKEM768, 2, 2000)}, 2},
		{wire.X25519MLKEM768, []wire.Key{key(wire.X25519MLKEM768, 1, 900), key(wire.X25519MLKEM768, 2, 2000)}, 2},
		{wire.X25519MLKEM768, []wire.Key{key(wire.X25519MLKEM768, 1, 900), key(wire.X25519, 2, 2000)}, 0},
		{wire.X25519MLKEM768, []wire.Key{key(wire.X25519, 1, 2000)}, 0},
		{wire.X25519, []wire.Key{key(wire.X25519MLKEM768, 1, 2000)}, 0},
	} {
		k, err := Policy{Suite: c.suite}.ShufflerKey(wire.Enrolment{Shuffler: c.keys}, now)
		if c.want == 0 && err == nil || c.want != 0 && (err != nil || k.Public[0] != c.want) {
			t.Errorf("suite %d of %+v: %+v (%v)", c.suite, c.keys, k, err)
		}
	}
	p := Policy{MaxEps0: 1, MaxEps: 1, Delta: 1e-6, MinReports: 2, Suite: 3}
	if _, err := p.Check(); err == nil {
		t.Error("suite 3 was taken")
	}
}
