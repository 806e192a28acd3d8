package bhttp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Messages of RFC 9292, section 5.1, and RFC 9458, appendix A.
func TestVectors(t *testing.T) {
	one := unhex(t, "0003474554056874747073000a2f68656c6c6f2e747874406c0a757365722d6167656e74346375726c2f372e31362e33206c69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73740f7777772e6578616d706c652e636f6d0f6163636570742d6c616e677561676506656e2c206d690000")
	want := Request{Method: "GET", Scheme: "https", Path: "/hello.txt", Header: []headerField{
		{"user-agent", "curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"}, {"host", "www.example.com"}, {"accept-language", "en, mi"}}, Body: []byte{}}
	m, err := DecodeRequest(one)
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("%+v (%v)", m, err)
	}
	if b := m.Append(nil, 0); !bytes.Equal(b, one) {
		t.Errorf("%x, want %x", b, one)
	}
	short, err := DecodeRequest(unhex(t, "00034745540568747470730b6578616d706c652e636f6d012f"))
	if err != nil || short.Authority != "example.com" || short.Path != "/" {
		t.Errorf("%+v (%v)", short, err)
	}
	answer, err := DecodeResponse(unhex(t, "0140c8"))
	if err != nil || answer.Status != 200 || len(answer.Header)+len(answer.Body) != 0 {
		t.Errorf("%+v (%v)", answer, err)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 16383, 16384, 1 << 17} {
		q := Request{Method: "POST", Scheme: "https", Path: "/v1/report", Header: []headerField{{"a", strings.Repeat("b", 100)}}, Body: bytes.Repeat([]byte{7}, n)}
		b := q.Append([]byte("x"), n+500)
		if len(b) != n+501 {
			t.Errorf("%d bytes, want %d", len(b)-1, n+500)
		}
		if got, err := DecodeRequest(b[1:]); err != nil || !reflect.DeepEqual(got, q) {
			t.Errorf("%d bytes: %v", n, err)
		}
		a := Response{Status: 204, Header: []headerField{{"etag", "1"}}, Body: bytes.Repeat([]byte{7}, n)}
		if got, err := DecodeResponse(a.Append(nil, n+64)); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "an answer": "0140c800", "unknown framing": "02", "ends early": "0003474554", "a length too large": "00ffffffffffffffff00",
		"a trailer": "000347455400000000000461016201" + "62", "padding": "00034745540000000000" + "0001", "half a field": "000347455400000002" + "0161",
	} {
		if m, err := DecodeRequest(unhex(t, text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v (%v)", name, m, err)
		}
	}
	for name, text := range map[string]string{"informational": "01406600", "a request": "00034745540000000000", "status 600": "01425800"} {
		if m, err := DecodeResponse(unhex(t, text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v (%v)", name, m, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add((&Request{Method: "POST", Scheme: "https", Path: "/v1/ask", Header: []headerField{{"a", "b"}}, Body: []byte("body")}).Append(nil, 100))
	f.Add([]byte{1, 0x40, 0xc8, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := DecodeRequest(b); err == nil {
			again, err := DecodeRequest(m.Append(nil, len(b)))
			if err != nil || again.Path != m.Path || !bytes.Equal(again.Body, m.Body) || len(again.Header) != len(m.Header) {
				t.Errorf("%+v became %+v (%v)", m, again, err)
			}
		}
		if m, err := DecodeResponse(b); err == nil {
			if again, err := DecodeResponse(m.Append(nil, len(b))); err != nil || again.Status != m.Status || !bytes.Equal(again.Body, m.Body) {
				t.Errorf("%+v became %+v (%v)", m, again, err)
			}
		}
	})
}
