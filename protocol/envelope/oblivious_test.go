package envelope

import (
	"bytes"
	"crypto/hpke"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The complete example of RFC 9458, appendix A.
func TestObliviousVector(t *testing.T) {
	k, err := kem(wire.X25519)
	if err != nil {
		t.Fatal(err)
	}
	private, err := k.NewPrivateKey(unhex(t, "3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a"))
	if err != nil {
		t.Fatal(err)
	}
	sealed := unhex(t, "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b4726374e469135906992e1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525")
	enc := sealed[obliviousHeader:][:32]
	request, _, err := newKey(wire.X25519, private, 0).openRequest(sealed[:obliviousHeader], enc, sealed[obliviousHeader+32:])
	if want := unhex(t, "00034745540568747470730b6578616d706c652e636f6d012f"); err != nil || !bytes.Equal(request, want) {
		t.Fatalf("%x, want %x (%v)", request, want, err)
	}
	s, err := hpke.NewRecipient(enc, private, hpke.HKDFSHA256(), hpke.AES128GCM(), obliviousInfo(sealed[:obliviousHeader]))
	if err != nil {
		t.Fatal(err)
	}
	secret, err := s.Export(obliviousResponse, obliviousSecret)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := sealAnswer(enc, secret, unhex(t, "c789e7151fcba46158ca84b04464910d"), unhex(t, "0140c8"))
	if want := unhex(t, "c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857fbd"); err != nil || !bytes.Equal(answer, want) {
		t.Errorf("%x, want %x (%v)", answer, want, err)
	}
}

// Requests and answers come back as they were, and whatever is changed on the way is refused.
func TestObliviousRequests(t *testing.T) {
	for _, suite := range []wire.Suite{wire.X25519, wire.X25519MLKEM768} {
		key, err := GenerateKey(suite, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		other, err := GenerateKey(suite, time.Now().Add(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		ring, err := NewKeyring(key, other)
		if err != nil {
			t.Fatal(err)
		}
		sealed, open, err := SealRequest(key.Public, []byte("a request"))
		if err != nil {
			t.Fatal(err)
		}
		got, answer, err := ring.OpenRequest(sealed)
		if err != nil || string(got) != "a request" {
			t.Fatalf("%q (%v)", got, err)
		}
		back, err := answer([]byte("an answer"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := open(back); err != nil || string(got) != "an answer" {
			t.Errorf("%q (%v)", got, err)
		}
		for i := range sealed {
			bad := bytes.Clone(sealed)
			bad[i] ^= 1
			if _, _, err := ring.OpenRequest(bad); err == nil {
				t.Fatalf("suite %d: byte %d does not matter", suite, i)
			}
		}
		for i := range back {
			bad := bytes.Clone(back)
			bad[i] ^= 1
			if _, err := open(bad); !errors.Is(err, ErrOpen) {
				t.Fatalf("suite %d: byte %d of an answer does not matter (%v)", suite, i, err)
			}
		}
		for n := range len(sealed) {
			if _, _, err := ring.OpenRequest(sealed[:n]); err == nil {
				t.Fatalf("%d bytes were opened", n)
			}
		}
		// The answer to another request, and one to a key that is not held.
		_, second, err := SealRequest(key.Public, []byte("a request"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second(back); !errors.Is(err, ErrOpen) {
			t.Errorf("an answer to another request: %v", err)
		}
		if _, err := open(nil); !errors.Is(err, ErrOpen) {
			t.Errorf("no answer: %v", err)
		}
		stranger, err := GenerateKey(suite, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		foreign, _, err := SealRequest(stranger.Public, []byte("a request"))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ring.OpenRequest(foreign); err == nil {
			t.Error("a request to another key was opened")
		}
	}
}
