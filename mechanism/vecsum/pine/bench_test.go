package pine

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/prio3"
)

// BenchmarkReport is one report of integers with a norm of 2^15 steps: the client, and each
// aggregator from the report to the sum. Encrypting and sending are not in it.
func BenchmarkReport(b *testing.B) {
	for _, field := range []int{64, 128} {
		for _, d := range []int{1930, 13706} {
			p := mustNew(b, Config{Dim: d, Bound: 1 << 15, Field: field})
			src := rng.Replay(1)
			x := vectorWithin(src, d, 1<<15)
			name := func(role string) string { return fmt.Sprintf("pine%d/%d/%s", field, d, role) }
			b.Run(name("client"), func(b *testing.B) {
				loop(b, func() error { _, _, err := p.Shard(src, Nonce{}, x); return err })
				b.ReportMetric(float64(p.sizes.Input[0]+p.sizes.Public), "leader-bytes")
				b.ReportMetric(float64(p.sizes.Prep), "prep-bytes")
			})
			m := honest(b, p, src, x)
			if _, errs := m.verify(p, nil); errs != [2]error{} {
				b.Fatal(errs)
			}
			for i, role := range []string{"leader", "helper"} {
				sum := make([]byte, p.sizes.Out)
				b.Run(name(role), func(b *testing.B) {
					loop(b, func() error {
						state, prep, err := p.PrepInit(m.key[i], i, m.nonce[i], m.public[i], m.input[i])
						if err != nil {
							return err
						}
						both := m.prep
						both[i] = prep
						message, err := p.PrepMessage(both[0], both[1])
						if err != nil {
							return err
						}
						out, err := p.PrepNext(state, message)
						if err != nil {
							return err
						}
						return p.Add(sum, out)
					})
				})
			}
		}
	}
}

// BenchmarkPrio3 is the same for counts up to 511 with range proofs, for comparison.
func BenchmarkPrio3(b *testing.B) {
	const d = 1930
	s, err := prio3.New(vecsum.Config{Params: vecsum.Params{Users: 1 << 40, MinUsers: 1, Dim: d, Radius: 1, Grid: 355, Norm: vecsum.Norm(d, 355, vecsum.NormBeta),
		Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 156}}})
	if err != nil {
		b.Fatal(err)
	}
	src := rng.Replay(1)
	counts := make([]int64, d)
	for j := range counts {
		counts[j] = int64(src.Uint64() % 512)
	}
	b.Run("client", func(b *testing.B) {
		loop(b, func() error { _, err := s.Messages(src, counts); return err })
		b.ReportMetric(float64(s.Cost().Bytes), "bytes")
	})
	m, err := s.Messages(src, counts)
	if err != nil {
		b.Fatal(err)
	}
	// begin makes a new aggregator, because none takes a report twice.
	begin := func(i int) (*prio3.Aggregator, []byte, error) {
		a, err := s.NewAggregator(i, prio3.VerifyKey{1})
		if err != nil {
			return nil, nil, err
		}
		prep, err := a.Begin(m[i])
		return a, prep, err
	}
	for i, role := range []string{"leader", "helper"} {
		_, other, err := begin(1 - i)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(role, func(b *testing.B) {
			loop(b, func() error {
				a, _, err := begin(i)
				if err != nil {
					return err
				}
				return a.Finish(other)
			})
		})
	}
}

// BenchmarkExtend takes one wire of 64 points to the odd roots: by transforms, and by a matrix, which
// would do without them.
func BenchmarkExtend(b *testing.B) {
	tr := newTransform[f64](6)
	v, w := make([]f64, 64), make([]f64, 64)
	for i := range v {
		v[i] = f64(1) << i
	}
	matrix := make([][]f64, 64)
	beta := root[f64](7)
	for k := range matrix {
		matrix[k] = tr.lagrange(beta.times(tr.power(k)))
	}
	b.Run("transform", func(b *testing.B) {
		loop(b, func() error { tr.extend(v); return nil })
	})
	b.Run("matrix", func(b *testing.B) {
		loop(b, func() error {
			for k, row := range matrix {
				w[k] = inner(v, row)
			}
			return nil
		})
	})
}
