package shuffler

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/service/store"
)

func testKey() []byte {
	key := make([]byte, sealingKeySize)
	rand.Read(key) // never fails
	return key
}

func TestSealer(t *testing.T) {
	key := testKey()
	s, err := newSealer(key)
	if err != nil {
		t.Fatal(err)
	}
	block := bytes.Repeat([]byte("report"), 1000)
	sealed, err := s.seal([]byte("head"), block, []byte("round 1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) != len("head")+len(block)+sealOverhead || bytes.Contains(sealed, []byte("report")) {
		t.Errorf("%d bytes", len(sealed))
	}
	sealed = sealed[4:]
	got, err := s.open(nil, sealed, []byte("round 1"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, block) {
		t.Error("another block came out")
	}
	again, err := s.seal(nil, block, []byte("round 1"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(again, sealed) {
		t.Error("a nonce was used twice")
	}
	other, err := newSealer(testKey())
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)/2] ^= 1
	_, e1 := s.open(nil, sealed, []byte("round 2"))
	_, e2 := s.open(nil, changed, []byte("round 1"))
	_, e3 := s.open(nil, sealed[:10], []byte("round 1"))
	_, e4 := other.open(nil, sealed, []byte("round 1"))
	if e1 == nil || e2 == nil || e3 == nil || e4 == nil {
		t.Error("a wrong block was opened:", e1, e2, e3, e4)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.ReplaceAll(text, "shuffler.sealer", "") != "   " {
		t.Errorf("prints as %q", text)
	}
	if _, err := newSealer(key[:16]); err == nil {
		t.Error("a short key was taken")
	}
	s.count.Store(1 << 32)
	if _, err := s.seal(nil, block, nil); err == nil {
		t.Error("sealed beyond the limit")
	}
}

func BenchmarkSeal(b *testing.B) {
	s, err := newSealer(testKey())
	if err != nil {
		b.Fatal(err)
	}
	block, buf := make([]byte, store.MaxBlock), make([]byte, 0, store.MaxData)
	b.SetBytes(store.MaxBlock)
	for b.Loop() {
		_, err := s.seal(buf, block, nil)
		if err != nil {
			b.Fatal(err)
		}
	}
}
