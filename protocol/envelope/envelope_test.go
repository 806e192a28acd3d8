package envelope

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

var update = flag.Bool("update", false, "write the vectors anew, with new keys")

var suites = map[string]wire.Suite{"x25519": wire.X25519, "mlkem768x25519": wire.X25519MLKEM768}

func newRing(t testing.TB, s wire.Suite, expires ...int64) *Keyring {
	t.Helper()
	var keys []*PrivateKey
	for _, e := range expires {
		k, err := GenerateKey(s, time.Unix(e, 0))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	r, err := NewKeyring(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newReport is a report of these parts, and the key it is authenticated with.
func newReport(t testing.TB, part, share []byte) (wire.Report, wire.SessionKey) {
	t.Helper()
	s := wire.Session{Expires: 86400, Key: wire.SessionKey{3}, Passes: []wire.ID{{7}, {8}}}
	r := wire.Report{Announcement: [32]byte{7}, Client: wire.ID{5}, ID: wire.ID{9}, Part: part, Share: share}
	wire.Authenticate(&r, s)
	return r, s.Key
}

func TestSealedInSealed(t *testing.T) {
	for name, suite := range suites {
		t.Run(name, func(t *testing.T) {
			coordinator, shuffler := newRing(t, suite, 100), newRing(t, suite, 100)
			content := []byte("forty-two")
			part, err := SealPart(coordinator.Keys[0], Coordinator, [32]byte{7}, content)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := PartSize(suite, int64(len(content))); err != nil || n != int64(len(part)) {
				t.Errorf("part of %d bytes, said %d, %v", len(part), n, err)
			}
			r, key := newReport(t, part, nil)
			sealed, err := SealReport(shuffler.Keys[0], &r, wire.ID{})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := ReportSize(suite, int64(len(part)), 0); err != nil || n != int64(len(sealed)) {
				t.Errorf("report of %d bytes, said %d, %v", len(sealed), n, err)
			}
			got, err := shuffler.OpenReport(sealed, int64(len(part)), 0)
			if err != nil || wire.Authentic(&got, key) != nil {
				t.Fatal(err)
			}
			opened, err := coordinator.OpenPart(Coordinator, [32]byte{7}, got.Part)
			if err != nil || !bytes.Equal(opened, content) {
				t.Errorf("%q, %v", opened, err)
			}
			// Bound to its reader, its round and its key.
			if _, err := coordinator.OpenPart(Aggregator, [32]byte{7}, part); !errors.Is(err, ErrOpen) {
				t.Errorf("another reader: %v", err)
			}
			if _, err := coordinator.OpenPart(Coordinator, [32]byte{8}, part); !errors.Is(err, ErrOpen) {
				t.Errorf("another round: %v", err)
			}
			if _, err := shuffler.OpenPart(Coordinator, [32]byte{7}, part); !errors.Is(err, ErrKey) {
				t.Errorf("another key: %v", err)
			}
			for i := range part {
				bad := bytes.Clone(part)
				bad[i] ^= 1
				if _, err := coordinator.OpenPart(Coordinator, [32]byte{7}, bad); err == nil {
					t.Fatalf("part opens with byte %d changed", i)
				}
			}
			for _, i := range []int{0, 1, 2, 9, 10, 41, 42, 73, 74, len(sealed) - 1} {
				bad := bytes.Clone(sealed)
				bad[i] ^= 1
				if _, err := shuffler.OpenReport(bad, int64(len(part)), 0); err == nil {
					t.Fatalf("report opens with byte %d changed", i)
				}
			}
			for n := range sealed {
				if _, err := shuffler.OpenReport(sealed[:n], int64(len(part)), 0); err == nil {
					t.Fatalf("report opens with %d of %d bytes", n, len(sealed))
				}
			}
			if _, err := shuffler.OpenReport(sealed, int64(len(part))-1, 0); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("another size: %v", err)
			}
		})
	}
}

// A session opens for whoever asked for it, and for that request.
func TestSealedSession(t *testing.T) {
	for name, suite := range suites {
		t.Run(name, func(t *testing.T) {
			key := func() *PrivateKey {
				k, err := GenerateKey(suite, time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				return k
			}
			mine := key()
			m := wire.SessionRequest{Population: wire.ID{1}, Client: wire.ID{5}, Time: 1790000000, Suite: suite, Public: mine.Public.Public}
			want := wire.Session{Expires: 1790640000, Key: wire.SessionKey{3}, Passes: []wire.ID{{7}, {8}}}
			sealed, err := SealSession(m, want)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := mine.OpenSession(m, sealed); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("opened as %+v, %v", got, err)
			}
			if _, err := key().OpenSession(m, sealed); !errors.Is(err, ErrOpen) {
				t.Errorf("another key: %v", err)
			}
			for _, change := range []func(*wire.SessionRequest){func(m *wire.SessionRequest) { m.Time++ }, func(m *wire.SessionRequest) { m.Client[3]++ },
				func(m *wire.SessionRequest) { m.Population[0]++ }, func(m *wire.SessionRequest) { m.Public = key().Public.Public }} {
				other := m
				change(&other)
				if _, err := mine.OpenSession(other, sealed); !errors.Is(err, ErrOpen) {
					t.Errorf("another request: %v", err)
				}
			}
			for i := range sealed {
				bad := bytes.Clone(sealed)
				bad[i] ^= 1
				if _, err := mine.OpenSession(m, bad); err == nil {
					t.Fatalf("opens with byte %d changed", i)
				}
			}
			for n := range sealed {
				if _, err := mine.OpenSession(m, sealed[:n]); err == nil {
					t.Fatalf("opens with %d of %d bytes", n, len(sealed))
				}
			}
			m.Public = m.Public[1:]
			if _, err := SealSession(m, want); err == nil {
				t.Error("sealed to a key that is too short")
			}
		})
	}
}

// Two seals of the same are different: nothing links them.
func TestSealsDiffer(t *testing.T) {
	ring := newRing(t, wire.X25519, 100)
	a, err := SealPart(ring.Keys[0], Coordinator, [32]byte{}, []byte("same"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := SealPart(ring.Keys[0], Coordinator, [32]byte{}, []byte("same"))
	if err != nil || bytes.Equal(a[PartHeader:], b[PartHeader:]) {
		t.Errorf("equal seals, %v", err)
	}
}

func TestKeysRotate(t *testing.T) {
	ring := newRing(t, wire.X25519, 100, 200)
	k := ring.Keys[0]
	if err := k.Valid(time.Unix(150, 0)); err != nil || k.Expires != 200 {
		t.Errorf("current key expires at %d, %v", k.Expires, err)
	}
	if err := k.Valid(time.Unix(200, 0)); err == nil || !strings.Contains(err.Error(), "1970-01-01T00:03:20Z") {
		t.Errorf("expired: %v", err)
	}
	old, err := SealPart(ring.Keys[1], Coordinator, [32]byte{}, []byte("under way"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring.OpenPart(Coordinator, [32]byte{}, old); err != nil {
		t.Errorf("the old key is still held: %v", err)
	}
	if _, err := NewKeyring(ring.byID[k.ID()], ring.byID[k.ID()]); err == nil {
		t.Error("a key twice")
	}
}

func TestKeysAsText(t *testing.T) {
	for name, suite := range suites {
		k, err := GenerateKey(suite, time.Unix(1800000000, 0))
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseKey(text)
		if err != nil || !reflect.DeepEqual(again.Public, k.Public) {
			t.Errorf("%s: %v", name, err)
		}
		for _, bad := range []string{"", "x", strings.Replace(string(text), "-1 ", "-2 ", 1), strings.Replace(string(text), " 1800000000 ", " soon ", 1),
			strings.TrimSpace(string(text)) + "!", string(text[:len(text)-20])} {
			if _, err := ParseKey([]byte(bad)); err == nil {
				t.Errorf("%s: parsed %q", name, bad)
			} else if secret := strings.Fields(string(text))[3]; strings.Contains(err.Error(), secret[:8]) {
				t.Errorf("%s: the error shows the key: %v", name, err)
			}
		}
	}
	if _, err := GenerateKey(9, time.Unix(1, 0)); err == nil {
		t.Error("a suite that does not exist")
	}
}

// What another program has sealed by the specification opens.
func TestVectors(t *testing.T) {
	for name, suite := range suites {
		path := filepath.Join("testdata", name+".txt")
		if *update {
			k, err := GenerateKey(suite, time.Unix(1800000000, 0))
			if err != nil {
				t.Fatal(err)
			}
			text, err := k.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			part, err := SealPart(k.Public, Aggregator, [32]byte{1, 2, 3}, []byte("riffle vector"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, fmt.Appendf(text, "%x\n", part), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		key, sealed, _ := strings.Cut(string(raw), "\n")
		k, err := ParseKey([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		ring, err := NewKeyring(k)
		if err != nil {
			t.Fatal(err)
		}
		part, err := hex.DecodeString(strings.TrimSpace(sealed))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ring.OpenPart(Aggregator, [32]byte{1, 2, 3}, part)
		if err != nil || string(got) != "riffle vector" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		testSessionVector(t, filepath.Join("testdata", "session-"+name+".txt"), suite)
	}
}

// testSessionVector reads a key, a request and the sealed answer, a line each.
func testSessionVector(t *testing.T, path string, suite wire.Suite) {
	t.Helper()
	want := wire.Session{Expires: 1790640000, Key: wire.SessionKey(bytes.Repeat([]byte{11}, 32))}
	if *update {
		k, err := GenerateKey(suite, time.Unix(1790000000, 0))
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		m := wire.SessionRequest{Population: wire.ID{1}, Client: wire.ID{5}, Time: 1790000000, Suite: suite, Public: k.Public.Public}
		sealed, err := SealSession(m, want)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(text, "%x\n%x\n", wire.Encode(m), sealed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	k, err := ParseKey([]byte(lines[0]))
	if err != nil {
		t.Fatal(err)
	}
	request, err := hex.DecodeString(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := hex.DecodeString(lines[2])
	if err != nil {
		t.Fatal(err)
	}
	m, err := wire.Decode[wire.SessionRequest](request)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.OpenSession(m, sealed); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, %v", path, got, err)
	}
}

// A pass is part of what is sealed: it cannot be changed or taken out.
func TestPassIsSealed(t *testing.T) {
	for _, suite := range []wire.Suite{wire.X25519, wire.X25519MLKEM768} {
		ring := newRing(t, suite, 100)
		part, err := SealPart(ring.Keys[0], Coordinator, [32]byte{}, []byte("content"))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := newReport(t, part, nil)
		b, err := SealReport(ring.Keys[0], &r, wire.ID{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		size, err := ReportSize(suite, int64(len(part)), 0)
		if err != nil || int64(len(b)) != size {
			t.Errorf("%d bytes, want %d: %v", len(b), size, err)
		}
		if got, err := ring.OpenReport(b, int64(len(part)), 0); err != nil || got.ID != r.ID || got.Client != r.Client {
			t.Errorf("%+v: %v", got, err)
		}
		for i := range wire.ReportHeader {
			bad := bytes.Clone(b)
			bad[i] ^= 1
			if _, err := ring.OpenReport(bad, int64(len(part)), 0); err == nil {
				t.Errorf("byte %d of the header is not sealed", i)
			}
		}
		without := append(wire.Encode(wire.Header{Key: ring.Keys[0].ID(), Announcement: r.Announcement}), b[wire.ReportHeader:]...)
		if _, err := ring.OpenReport(without, int64(len(part)), 0); err == nil {
			t.Error("the pass was taken out")
		}
	}
}

func FuzzOpen(f *testing.F) {
	ring := newRing(f, wire.X25519, 100)
	part, err := SealPart(ring.Keys[0], Coordinator, [32]byte{}, []byte("content"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(part)
	r, _ := newReport(f, part, nil)
	sealed, err := SealReport(ring.Keys[0], &r, wire.ID{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := ring.OpenPart(Coordinator, [32]byte{}, b); err == nil && !bytes.Equal(b, part) {
			t.Errorf("opened %q from other bytes", got)
		}
		if _, err := ring.OpenReport(b, int64(len(part)), 0); err == nil && !bytes.Equal(b, sealed) {
			t.Error("opened other bytes")
		}
		if _, err := ParseKey(b); err == nil && !bytes.HasPrefix(bytes.TrimSpace(b), []byte(keyPrefix)) {
			t.Errorf("parsed %q", b)
		}
	})
}

func BenchmarkEnvelope(b *testing.B) {
	for name, suite := range suites {
		ring := newRing(b, suite, 100)
		content := make([]byte, 300)
		part, err := SealPart(ring.Keys[0], Coordinator, [32]byte{}, content)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("seal/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := SealPart(ring.Keys[0], Coordinator, [32]byte{}, content); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("open/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := ring.OpenPart(Coordinator, [32]byte{}, part); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
