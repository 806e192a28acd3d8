package sealed

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func TestNoiseIsSealed(t *testing.T) {
	k, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	newer, err := envelope.GenerateKey(wire.X25519, time.Now().Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	old, _ := envelope.NewKeyring(k)
	ring, _ := envelope.NewKeyring(k, newer)
	alone, _ := envelope.NewKeyring(newer)
	round, other := [32]byte{1}, [32]byte{2}
	noise := []int64{0, -5, 1 << 60, -1 << 62}
	b, err := Noise.SealVector(old, envelope.Aggregator, round, noise)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Noise.OpenVector(ring, envelope.Aggregator, round, b, 4); err != nil || !slices.Equal(got, noise) {
		t.Errorf("after a new key: %v, %v", got, err)
	}
	if _, err := Noise.OpenVector(alone, envelope.Aggregator, round, b, 4); !errors.Is(err, envelope.ErrKey) {
		t.Errorf("without the old key: %v", err)
	}
	if _, err := Noise.OpenVector(ring, envelope.Aggregator, other, b, 4); !errors.Is(err, envelope.ErrOpen) {
		t.Errorf("in another round: %v", err)
	}
	if _, err := Noise.OpenVector(ring, envelope.Coordinator, round, b, 4); !errors.Is(err, envelope.ErrOpen) {
		t.Errorf("in another role: %v", err)
	}
	if _, err := VerifyKey.Open(ring, envelope.Aggregator, round, b); !errors.Is(err, envelope.ErrOpen) {
		t.Errorf("as another secret: %v", err)
	}
	if _, err := Noise.OpenVector(ring, envelope.Aggregator, round, b, 5); err == nil {
		t.Error("noise of another dimension")
	}
	// A client's part is no noise, and noise is no part.
	part, err := envelope.SealPart(k.Public, envelope.Aggregator, round, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Noise.OpenVector(ring, envelope.Aggregator, round, part, 4); !errors.Is(err, envelope.ErrOpen) {
		t.Errorf("a client's part: %v", err)
	}
	if _, err := ring.OpenPart(envelope.Aggregator, round, b); !errors.Is(err, envelope.ErrOpen) {
		t.Errorf("noise as a part: %v", err)
	}
}
