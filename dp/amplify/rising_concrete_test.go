package amplify

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// The law of a sum by its transform agrees with the one by convolution up to the error that it
// states, under every tilt, and the error is small beside the masses that the tilt serves.
func TestSumsOfScores(t *testing.T) {
	for _, s := range []Steps{normalSteps(2.5, 0, 1.36), normalSteps(2.834, 0, .95, 1.49, 2.02), normalSteps(.3, 0, 0), {Height: 40, Tails: []float64{1e-3, 1e-5}}, {Height: 2, Tails: []float64{.8, .5}}} {
		for _, apart := range []bool{false, true} {
			shares := []float64{1}
			for j, q := range s.Tails {
				shares[j] -= q
				shares = append(shares, q)
			}
			pair, err := pairOf(s.Height, shares)
			if err != nil {
				t.Fatal(err)
			}
			met := pair.meet(shares, apart)
			for b, want := range shares { // the others' levels have the shares of every input
				var got float64
				for i, row := range pair.joint {
					for j, m := range row {
						got += m * met[max(i-j, j-i)][b]
					}
				}
				if math.Abs(got-want) > 1e-12 {
					t.Errorf("%+v apart %v: level %d has share %v, want %v", s, apart, b, got, want)
				}
			}
			law, err := s.scored(apart, false, 1000)
			if err != nil {
				t.Fatal(err)
			}
			const n = 150
			exact := law.direct(n)
			_, variance := law.moments(0)
			for _, z := range []float64{0, 2, 4, 8} {
				tilt, ok := law.tiltTo(z * math.Sqrt(variance/n))
				if !ok {
					continue
				}
				part, err := law.inverted(n, tilt)
				if err != nil {
					t.Fatal(err)
				}
				mean, spread := law.moments(tilt)
				deviation := math.Sqrt(n * spread)
				worst, near := 0., 0.
				for i, m := range exact.mass {
					if m < 1e-280 {
						continue // much of it may have underflowed
					}
					x := float64(exact.low + int64(i))
					want := m * math.Exp(tilt*x-part.scale)
					got := 0.
					if j := exact.low + int64(i) - part.low; j >= 0 && j < int64(len(part.mass)) {
						got = part.mass[j]
					}
					slack := part.err + (part.factor+exact.factor)*want
					worst = math.Max(worst, math.Abs(got-want)/slack)
					if math.Abs(x-n*mean) < 2*deviation && want > 1e-9 {
						near = math.Max(near, slack/want)
					}
				}
				if !(worst <= 1) || !(near < 1e-5) {
					t.Errorf("%+v apart %v, %v deviations: error of %v times the one stated, which is %v of a mass", s, apart, z, worst, near)
				}
			}
		}
	}
}

// Both ways to sum give nearly the same outcomes, of mass 1 but for the slack, and symmetric.
func TestStepOutcomes(t *testing.T) {
	s := normalSteps(2.834, 0, .95, 1.49, 2.02)
	f := must(Rising(s))
	for _, c := range []ConcreteConfig{
		{Population: 1, Asked: 1, Gamma: 1}, {Population: 30, Asked: 30, Gamma: 1}, {Population: 700, Asked: 500, Gamma: 1}, {Population: longtest.Pick[int64](90, 700), Asked: longtest.Pick[int64](90, 700), Gamma: .3},
		{Population: 60000, Asked: 60000, Gamma: 1}, {Population: 1e7, Asked: 1e6, Gamma: 1}, {Population: 60000, Asked: 50000, Gamma: .9},
	} {
		if (c.Population > 1e4 && c.Gamma < 1 || c.Population > 1e6) && !longtest.On {
			continue
		}
		var bound dp.Pair
		var err error
		if c.Gamma < 1 {
			bound, err = f.Arrival(FamilyArrival{Population: c.Population, Asked: c.Asked, Gamma: c.Gamma})
		} else {
			bound, err = f.Round(FamilyRound{Population: c.Population, Reports: c.Asked})
		}
		if err != nil {
			t.Fatal(err)
		}
		most := deltaOf(bound, 0)
		for _, apart := range []bool{false, true} {
			a, err := StepOutcomes(c, s, apart)
			if err != nil {
				t.Fatal(err)
			}
			var p, q, up, down float64
			for i, o := range a {
				if i > 0 && o.Loss < a[i-1].Loss {
					t.Fatalf("%+v: losses do not rise", c)
				}
				p, q = p+o.Q*math.Exp(o.Loss), q+o.Q
				if o.Loss > 0 {
					up += o.Q * math.Expm1(o.Loss)
				} else {
					down -= o.Q * math.Expm1(o.Loss)
				}
			}
			if p > 1 || p < 1-1e-9 || q < 1-1e-9 || q > 1+1e-9 || math.Abs(up/down-1) > 1e-6 {
				t.Errorf("%+v apart %v: masses %v and %v, total variation %v and %v", c, apart, p-1, q-1, up, down)
			}
			// It is below the bound, by little if the others are apart.
			if !(up <= most) || up < most*.85 || apart && c.Asked > 1000 && up < most*.995 {
				t.Errorf("%+v apart %v: total variation %v, bound %v", c, apart, up, most)
			}
		}
	}
	if _, err := StepOutcomes(ConcreteConfig{Population: 1e12, Asked: 1e12, Gamma: 1}, s, true); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("1e12 reports: %v", err)
	}
	for _, c := range []ConcreteConfig{{}, {Population: 5, Asked: 6, Gamma: 1}, {Population: 5, Asked: 5, Gamma: math.NaN()}} {
		if _, err := StepOutcomes(c, s, true); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if _, err := StepOutcomes(ConcreteConfig{Population: 5, Asked: 5, Gamma: 1}, Steps{Height: 1}, true); err == nil {
		t.Error("no steps were accepted")
	}
}
