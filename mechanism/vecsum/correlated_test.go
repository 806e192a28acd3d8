package vecsum

import (
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/toeplitz"
)

// The noise of a correlated sum is worth what was asked, in units of the weight of a round's own vectors, and
// rounds together cost the strategy's sensitivity, by increments or at once.
func TestCorrelatedSigma(t *testing.T) {
	for _, s := range []toeplitz.Strategy{toeplitz.Identity(0), toeplitz.Identity(8), {Bits: 0, Weights: []int64{1, 1, 1}}, {Bits: 3, Weights: []int64{8, 5, 0}}, {Bits: 16, Weights: []int64{1 << 16, 3}}} {
		for _, sigma := range []float64{.3, 7, 1500} {
			p, err := NewCorrelated(1000, 50, 3, sigma, s)
			if err != nil && s.Bits == 16 && sigma == 1500 {
				continue // more than can be drawn
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := p.Sigma(10)
			if err != nil || !(got >= sigma && got <= sigma*1.0001+1e-3) {
				t.Errorf("%v: sigma = %v of %v, %v", s, got, sigma, err)
			}
			// Two vectors of the whole bound against each other move a release by this much.
			mu := 2 * float64(p.Bound) * float64(s.Weights[0]) / math.Sqrt(float64(p.Variance-spread))
			if !(2/got >= mu && 2/got <= mu*(1+1e-12)) {
				t.Errorf("%v: mu = %v, want %v", s, 2/got, mu)
			}
			var square float64
			for round := range int64(9) {
				if s.Between(round, round+1, 2) == 0 {
					continue
				}
				one := s.Together(got, round, round+1, 2)
				square += 4 / (one * one)
			}
			all := s.Together(got, 0, 9, 2)
			want := mu * mu * s.Squared(9, 2)
			if !(4/(all*all) >= want) || !(4/(all*all) <= want*(1+1e-12)) || !(square >= want) || !(square <= want*(1+1e-12)) {
				t.Errorf("%v: rounds cost %v together, %v one by one, want %v", s, 4/(all*all), square, want)
			}
		}
	}
}

func TestCorrelatedSumsRefuse(t *testing.T) {
	s := toeplitz.Strategy{Bits: 2, Weights: []int64{4, 2}}
	for want, refused := range map[string]func() error{
		"weight 1 is 9": func() error {
			_, err := NewCorrelated(10, 3, 1, 2, toeplitz.Strategy{Bits: 2, Weights: []int64{4, 9}})
			return err
		},
		"sigma = NaN": func() error { _, err := NewCorrelated(10, 3, 1, math.NaN(), s); return err },
		"dim = 0":     func() error { _, err := NewCorrelated(10, 0, 1, 2, s); return err },
		"more noise than aggregators can draw": func() error {
			_, err := NewCorrelated(10, 3, 1, 1e6, toeplitz.Identity(16))
			return err
		},
		"counts of 1099511627776 users, with weights of 1048576, exceed 2^61": func() error {
			w := make([]int64, 16)
			for i := range w {
				w[i] = 1 << 16
			}
			_, err := NewCorrelated(1<<40, 3, 1, .01, toeplitz.Strategy{Bits: 16, Weights: w})
			return err
		},
		"counts have no weights": func() error {
			p, err := NewAggregatedOnes(10, 8, 2, 3)
			if err != nil {
				return err
			}
			p.Bits, p.Weight = 2, 6
			_, _, err = p.Sigma(1)
			return err
		},
		"weights of 3 in all": func() error {
			p, err := NewCorrelated(10, 3, 1, 2, s)
			if err != nil {
				return err
			}
			p.Weight = 3
			_, _, err = p.Sigma(1)
			return err
		},
	} {
		if err := refused(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
