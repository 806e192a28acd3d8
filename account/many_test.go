package account

import (
	"math"
	"sync"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/internal/longtest"
)

func drawn(eps0 float64, n, k int64) dp.Round {
	return dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Shuffle, Participation: dp.Sampled,
		Population: n, Reports: k}
}

// TestManyShapesCompose: the kept spectra give what composing the pairs on one
// fine grid gives; both are upper bounds on the same composition.
func TestManyShapesCompose(t *testing.T) {
	for _, c := range []struct {
		n      int64
		sizes  []int64
		times  int64
		eps0   float64
		deltas []float64
	}{
		{60000, []int64{900, 950, 1000, 1050, 1100, 1150}, 20, 2, []float64{1e-2, 1e-5, 1e-10, 1e-14}},
		{20, []int64{1, 2, 3, 4, 5, 7, 9}, 1, 1.5, []float64{.1, 1e-3, 1e-6}},
		{500, []int64{500, 499, 480, 470, 400}, 300, .3, []float64{1e-3, 1e-6, 1e-9}},
	} {
		if !longtest.On && c.n == 500 {
			continue
		}
		var seq dp.Sequence
		var parts []pld.Part
		for _, k := range c.sizes {
			seq = append(seq, dp.Repeat{Event: drawn(c.eps0, c.n, k), Times: c.times})
		}
		// .03 of a round's deviation, about 2·tanh(ε₀/2)·γ/√(rk).
		first := float64(c.sizes[0])
		step := .03 * 2 * math.Tanh(c.eps0/2) * first / float64(c.n) / math.Sqrt(amplify.Blanket(c.eps0)*first+1)
		for _, k := range c.sizes {
			f, err := amplify.ClonesFamily(c.eps0, amplify.Blanket(c.eps0))
			if err != nil {
				t.Fatal(err)
			}
			pair, err := f.Round(amplify.FamilyRound{Population: c.n, Reports: k})
			if err != nil {
				t.Fatal(err)
			}
			l, err := pld.Discretize(pld.Truncate(pair, 1e-22), step)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, pld.Part{Loss: l, Times: c.times})
		}
		var composed []*pld.Composed
		for tilt := .1; tilt < 2000; tilt *= 2.5 {
			if one, err := pld.Compose(parts, tilt); err == nil {
				composed = append(composed, one)
			}
		}
		warm := new(Accountant)
		for _, delta := range c.deltas {
			b, err := warm.Eps(seq, delta)
			if err != nil {
				t.Fatal(err)
			}
			want := math.Inf(1)
			for _, one := range composed {
				want = math.Min(want, one.Epsilon(delta))
			}
			if !(math.Abs(b.Eps-want) <= 1e-3*want) {
				t.Errorf("n=%d delta=%v: %v (%s), on one fine grid %v", c.n, delta, b.Eps, b.Method, want)
			}
			// What is remembered must not show.
			cold, err := new(Accountant).Eps(seq, delta)
			if err != nil || cold.Eps != b.Eps {
				t.Errorf("n=%d delta=%v: %v warm, %v cold (%v)", c.n, delta, b.Eps, cold.Eps, err)
			}
		}
	}
}

// TestManyShapesAgainstEnumeration: rounds without a shuffler are binary
// randomized responses of their own ε₀; all outcomes of seven are listed.
func TestManyShapesAgainstEnumeration(t *testing.T) {
	all := []dp.Atom{{Q: 1}}
	var seq dp.Sequence
	for _, eps0 := range []float64{.1, .23, .37, .5, .61, .8, 1.1} {
		seq = append(seq, dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Local, Participation: dp.All, Population: 9})
		q := 1 / (1 + math.Exp(eps0))
		var next []dp.Atom
		for _, a := range all {
			next = append(next, dp.Atom{Q: a.Q * q, Loss: a.Loss + eps0}, dp.Atom{Q: a.Q * (1 - q), Loss: a.Loss - eps0})
		}
		all = next
	}
	exact := func(eps float64) float64 {
		var d float64
		for _, a := range all {
			d += math.Max(0, a.Q*(math.Exp(a.Loss)-math.Exp(eps)))
		}
		return d
	}
	for _, delta := range []float64{.5, .1, 1e-2, 1e-3, 1e-5, 1e-9} {
		b, err := new(Accountant).Eps(seq, delta)
		if err != nil {
			t.Fatal(err)
		}
		if d := exact(b.Eps); !(d <= delta) {
			t.Errorf("delta %v: eps = %v really has %v", delta, b.Eps, d)
		}
		if b.Eps > 0 && !(exact(b.Eps*.99-1e-3) > delta*.9) {
			t.Errorf("delta %v: eps = %v (%s) is loose: a hundredth less has %v", delta, b.Eps, b.Method, exact(b.Eps*.99-1e-3))
		}
	}
}

// TestAccountantConcurrent: safe for concurrent use, same answers.
func TestAccountantConcurrent(t *testing.T) {
	a := new(Accountant)
	var seq dp.Sequence
	for k := int64(300); k < 340; k++ {
		seq = append(seq, drawn(1, 5000, k))
	}
	step := longtest.Pick(13, 7)
	want := make([]float64, len(seq)+1)
	for i := 1; i <= len(seq); i += step {
		b, err := new(Accountant).Eps(seq[:i], 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = b.Eps
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 1; i <= len(seq); i += step {
				if b, err := a.Eps(seq[:i], 1e-6); err != nil || b.Eps != want[i] {
					t.Errorf("%d rounds: %v, want %v (%v)", i, b.Eps, want[i], err)
				}
			}
		})
	}
	wg.Wait()
}
