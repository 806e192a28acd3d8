package operate

import "testing"

func FuzzDecodeCreated(f *testing.F) {
	f.Add(created{Signed: []byte("x"), Round: 5}.encode())
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeCreated(b); err == nil {
			if _, err := decodeCreated(c.encode()); err != nil {
				t.Errorf("%q: %v", b, err)
			}
		}
	})
}
