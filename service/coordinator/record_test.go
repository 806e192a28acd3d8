package coordinator

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"math"
	"reflect"
	"testing"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/protocol/wire"
)

type publicKey = ed25519.PublicKey

func hexOf(d [32]byte) string { return hex.EncodeToString(d[:]) }

func TestRecords(t *testing.T) {
	best := .5
	r := record{Format: recordFormat, Fence: 7, Round: 3, Model: hash{1}, Step: hash{2}, Recent: []hash{{3}, {1}}, Untold: hash{4},
		Counts: wire.Counts{Released: 2, Failed: 1, Rejected: map[wire.Reason]int64{wire.OutOfRange: 5}, FailedBy: map[string]int64{FailedRange: 1}},
		Failed: &failed{2, FailedRange, "why"}, Barren: 1, Paused: "why", Best: &best,
		Open: &openRound{Announcement: []byte("a"), Closed: []byte("c"), Charged: true}}
	b, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeRecord(b); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %v; want %+v", got, err, r)
	}
	// As versions wrote it that neither paused nor compared.
	old := `{"format":1,"fence":7,"round":3,"counts":{"released":2,"void":0,"failed":1,"reports":9,"rejected":{}}}`
	if got, err := decodeRecord([]byte(old)); err != nil || got.Counts.Failed != 1 || got.Barren != 0 || got.Paused != "" || got.Best != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, wrong := range []string{`{"format":1,"barren":-1}`, ``, `{}`, `{"format":2}`, `{"format":1,"what":1}`, `{"format":1}{"format":1}`, `{"format":1,"round":-1}`,
		`{"format":1,"open":{}}`, `{"format":1,"open":{"announcement":"AA==","charged":true}}`, `{"format":1,"model":"12"}`} {
		if r, err := decodeRecord([]byte(wrong)); err == nil {
			t.Errorf("%s is %+v", wrong, r)
		}
	}
	for _, wrong := range []string{`{"format":1,"state":"asleep"}`, `{"format":1}`, `{"format":9,"state":"done"}`} {
		if r, err := decodeTask([]byte(wrong)); err == nil {
			t.Errorf("%s is %+v", wrong, r)
		}
	}
}

func TestStatesKeepEveryBit(t *testing.T) {
	s := optimize.State{Steps: 9, Vectors: map[string][]float64{"theta": {1, math.Copysign(0, -1), 1e-320, math.MaxFloat64}, "a": {}, "b": {.1}}}
	b := encodeState(s)
	got, err := decodeState(b)
	if err != nil || got.Steps != 9 || len(got.Vectors) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, v := range s.Vectors {
		for j := range v {
			if math.Float64bits(got.Vectors[name][j]) != math.Float64bits(v[j]) {
				t.Errorf("%s[%d] = %v, want %v", name, j, got.Vectors[name][j], v[j])
			}
		}
	}
	for i := range b {
		if _, err := decodeState(b[:i]); err == nil {
			t.Errorf("the first %d of %d bytes are a state", i, len(b))
		}
	}
	if _, err := decodeState(append(b, 0)); err == nil {
		t.Error("a state with a byte left over")
	}
}

func FuzzDecodeState(f *testing.F) {
	f.Add(encodeState(optimize.State{Steps: 1, Vectors: map[string][]float64{"theta": {1, 2}, "v": {}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeState(b)
		if err == nil && !bytes.Equal(encodeState(s), b) {
			t.Error("a state with two encodings")
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	b, _ := record{Round: 1, Open: &openRound{Announcement: []byte{1}}}.encode()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeRecord(again); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v becomes %+v, %v", r, got, err)
		}
	})
}
