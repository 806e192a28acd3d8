package randomizer

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// Whatever the bits of an input and the parameters, a constructor that accepts
// gives a randomizer that does not panic, leaves its input alone, makes reports
// that pass Check and depend on nothing but input and randomness, and promises
// no less than was asked for.
func FuzzRandomize(f *testing.F) {
	bits := func(values ...float32) []byte {
		var b []byte
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	f.Add(uint64(1), 1., 3., bits(.5, -.25, 0))
	f.Add(uint64(2), 1e-30, 40., bits(nan, inf, -inf, math.MaxFloat32, math.SmallestNonzeroFloat32))
	f.Add(uint64(3), 1e30, 1e-6, bits(0, 0))
	f.Add(uint64(4), .2, 49.9, bits(float32(math.Copysign(0, -1))))
	f.Fuzz(func(t *testing.T, seed uint64, radius, eps0 float64, raw []byte) {
		dim := min(len(raw)/4, 600)
		x := make([]float32, dim)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		var all []Mechanism
		add := func(m Mechanism, err error) {
			if err == nil {
				all = append(all, m)
			}
		}
		// A typed nil must not get into the list, hence one by one.
		rr, err := newRR(Config{Dim: dim, Radius: radius, Eps0: eps0})
		add(rr, err)
		rinf, err := newRInf(Config{Dim: dim, Radius: radius, Eps0: eps0})
		add(rinf, err)
		pu, err := newPrivUnit(Config{Dim: dim, Radius: radius, Eps0: eps0})
		add(pu, err)
		dg, err := NewDiscreteGaussian(DiscreteGaussianConfig{dim, radius, eps0})
		add(dg, err)
		laplace, err := newLaplace(Config{Dim: dim, Radius: radius, Eps0: eps0})
		add(laplace, err)
		signed, err := newSignedKRR(Config{Dim: dim, Radius: radius, Eps0: eps0})
		add(signed, err)
		plain, err := NewPlain(Config{Dim: dim, Radius: radius})
		add(plain, err)
		for _, m := range all {
			r, again := m.NewReport(), m.NewReport()
			m.Randomize(source(60, seed), x, r)
			m.Randomize(source(60, seed), x, again)
			if !slices.Equal(r.Index, again.Index) || !slices.Equal(r.Value, again.Value) {
				t.Fatalf("%s: two reports from the same randomness differ", label(m))
			}
			for i := range x {
				if math.Float32bits(x[i]) != binary.LittleEndian.Uint32(raw[4*i:]) {
					t.Fatalf("%s: the input was changed", label(m))
				}
			}
			if err := m.Check(r); err != nil {
				t.Fatalf("%s: %v", label(m), err)
			}
			sum, mean := make([]int64, dim), make([]float64, dim)
			m.Add(sum, r)
			m.Estimate(mean, sum, 1)
			for _, v := range mean {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%s: estimate %v", label(m), mean)
				}
			}
			if p, ok := m.(Randomizer); ok && !(p.Event().Eps0 >= eps0) {
				t.Fatalf("%s: promises %v of %v", label(m), p.Event().Eps0, eps0)
			}
		}
	})
}
