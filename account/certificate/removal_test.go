package certificate

import (
	"context"
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// Values of an independent program with 400 digits.
func TestNormalLaws(t *testing.T) {
	n := normal{240}
	digits := func(text string) *big.Float { return constant(text) }
	for x, want := range map[string]string{
		"1":    "0.841344746068542948585232545632037922477912966726604390987394",
		"-1":   "0.158655253931457051414767454367962077522087033273395609012606",
		"3.9":  "0.999951903655982397282853292476872470971750429202778848101846",
		"-4.5": "0.0000033976731247300604016874491908715235121047650868486483385539",
		"-12":  "1.77648211207767899769617100184555709239266643417895318503866e-33",
		"-20":  "2.75362411860623369507562278085746533280749773475933056769937e-89",
	} {
		at := digits(x)
		for _, up := range []bool{true, false} {
			got := n.below(at, n.density(at), up)
			if !near(got, digits(want), -190) {
				t.Errorf("below %s: %.60g", x, got)
			}
		}
		if n.below(at, n.density(at), true).Cmp(n.below(at, n.density(at), false)) < 0 {
			t.Errorf("below %s: bounds cross", x)
		}
	}
	for _, c := range []struct{ x, mu, want string }{
		{".7", ".5", "0.357403774530299845758693921488046373083795715906418698019364"},
		{"40", "3", "0.479751302569515287704351520688882707807694479809448950241254"},
		{"1e20", "9", "0.234727828723474694764178919922351739101751178832019441660253"},
		{"1e-3", ".01", "0.999"},
		{"1e40", "30", "0.99999999999999999999999999999999312564957070479367117328239"},
	} {
		x, mu := digits(c.x), digits(c.mu)
		if got := n.call(x, log(x), mu, normalEnd); !near(got, digits(c.want), -190) {
			t.Errorf("call %s, mu = %s: %.60g", c.x, c.mu, got)
		}
	}
	// A tail of which almost all cancels.
	x, want := digits("1.01"), digits("1.24486959516428076579945649851420088687705012996353332256544e-27")
	if got := sub(n.call(x, log(x), digits("1e-3"), normalEnd), want); got.Abs(got).Cmp(two(-200)) > 0 {
		t.Errorf("a far call is off by %.3g", got)
	}
	for x, want := range map[string]string{"3": "1.09861228866810969139524523692252570464749055782274945173469",
		"1e-30": "-69.0775527898213705205397436405309262280330446588631892809998"} {
		if got := log(digits(x)); !near(got, digits(want), -190) {
			t.Errorf("log %s: %.60g", x, got)
		}
	}
}

// The curve of a removal is that of the mechanism whose other clients all hold the opposite vector,
// integrated cell by cell.
func TestRemovalCurveAgainstTheMechanism(t *testing.T) {
	pmf := func(n, k int64, p float64) float64 {
		c := 1.
		for i := range k {
			c *= float64(n-i) / float64(i+1)
		}
		return c * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
	}
	for _, q := range []Query{
		{N: 2, Gamma: .3, Sigma: 1}, {N: 3, Gamma: .6, Sigma: .4}, {N: 6, Gamma: .05, Sigma: 2}, {N: 9, Gamma: .4, Sigma: 1, Colluders: 4, Dropout: .5},
	} {
		q.Trust, q.Participation = dp.Distributed, dp.CheckIn
		n, gamma := q.N-q.Colluders, q.Gamma*(1-q.Dropout)
		var ratio []*big.Float
		var at []float64
		for x := -1.5; x < 4; x += .25 {
			at, ratio = append(at, math.Exp(x)), append(ratio, real(math.Exp(x)))
		}
		got, err := q.removal(begin(context.Background(), nil), ratio, two(-120))
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range at {
			want := math.Pow(gamma, float64(n)) + math.Pow(1-gamma, float64(n-1))*math.Max(0, 1-gamma-g)
			for k := int64(1); k < n; k++ {
				with, without := gamma*pmf(n-1, k-1, gamma), pmf(n-1, k, gamma) // the others are opposite
				s := q.Sigma * math.Sqrt(float64(k))
				const h = 1e-3
				for y := -14 * s; y < 14*s+2; y += h * s {
					away := math.Exp(-(y-2)*(y-2)/(2*s*s)) / math.Sqrt(2*math.Pi) * h
					own := math.Exp(-y*y/(2*s*s)) / math.Sqrt(2*math.Pi) * h
					want += math.Max(0, (1-gamma)*without*own+with*away-g*without*own)
				}
			}
			if x, _ := got[i].Float64(); math.Abs(x-want) > 2e-7 {
				t.Errorf("%+v at g = %v: %v, integrated %v", q, g, x, want)
			}
		}
	}
}

// A file cannot ask for a check without end.
func TestHostileRemovals(t *testing.T) {
	r := Round{Step: .01, Infinite: 0x1p-170, Q: []float64{.1}, Lower: []float64{0}, Balance: 1, Missing: .01, Times: 1, Clones: 1}
	w := Composition{Low: -1 << 40, Points: 1 << 41, Beyond: 1e-200, Inflation: 1, WrapAround: 1e-200, Splitting: 1, Truncation: 1e-6}
	w.Total = w.Window + w.Truncation + w.WrapAround + w.RoundOff
	d := Document{Format: Format, Version: 1, Round: &r, Composition: &w, Reverse: &Order{r, w},
		Query: Query{Trust: dp.Distributed, Participation: dp.CheckIn, Randomizer: dp.Gaussian, Adjacency: dp.AddRemoveOne, Sigma: 1, N: 1 << 52, Gamma: longtest.Pick(0x1p-31, 0x1p-20), Rounds: 1},
		Claim: Claim{Method: RemovePLD, Eps: .5, Delta: .5}}
	if _, err := d.Verify(context.Background()); !errors.Is(err, ErrRejected) {
		t.Errorf("%v expected reports: %v", float64(d.Query.N)*d.Query.Gamma, err)
	}
	d.Query.Sigma = math.NaN()
	if _, err := d.Verify(context.Background()); !errors.Is(err, ErrMalformed) {
		t.Errorf("no sigma: %v", err)
	}
}
