package randomizer

import (
	"bytes"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func codecMechanisms(t testing.TB) map[string]Mechanism {
	t.Helper()
	out := map[string]Mechanism{}
	for _, name := range names() {
		for _, bits := range []int{0, 3} {
			m, err := New(name, Config{Dim: 37, Radius: 1.5, Eps0: 2, Bits: bits})
			if err != nil {
				if bits == 0 {
					t.Fatal(name, err)
				}
				continue // a mechanism without that choice
			}
			if bits != 0 {
				name += "/3"
			}
			out[name] = m
		}
	}
	plain, err := NewPlain(Config{Dim: 37, Radius: 1})
	if err != nil {
		t.Fatal(err)
	}
	gauss, err := NewDiscreteGaussian(DiscreteGaussianConfig{Dim: 37, Radius: 1, Sigma: 2})
	if err != nil {
		t.Fatal(err)
	}
	out["plain"], out["gaussian"] = plain, gauss
	return out
}

// Every report comes back, all of one size, whatever its input.
func TestReportsEncode(t *testing.T) {
	for name, m := range codecMechanisms(t) {
		src := rng.Replay(4)
		r, got := m.NewReport(), m.NewReport()
		x := make([]float32, m.Facts().Dim)
		for i := range 200 {
			for j := range x {
				x[j] = float32(src.Uint64()%2001)/1000 - 1
				if i == 0 {
					x[j] = 0
				}
			}
			m.Randomize(src, x, r)
			b, err := AppendReport([]byte("before"), m, r)
			if err != nil {
				t.Fatal(name, err)
			}
			b, found := bytes.CutPrefix(b, []byte("before"))
			if !found || len(b) != m.Facts().Bytes {
				t.Fatalf("%s: %d bytes, want %d", name, len(b), m.Facts().Bytes)
			}
			if err := DecodeReport(b, m, got); err != nil || !slices.Equal(got.Index, r.Index) || !slices.Equal(got.Value, r.Value) {
				t.Fatalf("%s: %+v came back as %+v, %v", name, r, got, err)
			}
			if DecodeReport(b[:len(b)-1], m, got) == nil || DecodeReport(append(b, 0), m, got) == nil {
				t.Fatalf("%s: another size decodes", name)
			}
		}
		r.Value[0] = 1 << 30
		if _, err := AppendReport(nil, m, r); err == nil {
			t.Errorf("%s: encoded what its check refuses", name)
		}
	}
}

func FuzzDecodeReport(f *testing.F) {
	all := codecMechanisms(f)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := range names {
		f.Add(byte(i), make([]byte, all[names[i]].Facts().Bytes))
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		m := all[names[int(which)%len(names)]]
		r := m.NewReport()
		if DecodeReport(b, m, r) != nil {
			return
		}
		again, err := AppendReport(nil, m, r)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x encodes to %x, %v", b, again, err)
		}
	})
}
