package account

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// The bound on removing a client is at most 2 % above what the mechanism loses whose other clients all hold the
// opposite vector, and never below it. The values are testdata/removal.py's, which composes that mechanism's
// losses on a fine grid without bounding anything, within 1e-4.
func TestRemovalIsNearlyExact(t *testing.T) {
	for _, c := range []struct {
		n            int64
		gamma, sigma float64
		rounds       int64
		delta, exact float64
	}{
		{1000, .01, 1, 1, 1e-4, .026590363},
		{1000, .01, 1, 2, 1e-4, .036239612},
		{1000, .01, 1, 10, 1e-4, .074460608},
		{1000, .01, 1, 100, 1e-4, .229533179},
		{1000, .1, 2, 100, 1e-5, .519905382},
		{100, .2, 1, 10, 1e-5, 1.544191924},
		{100, .05, 3, 50, 1e-6, .874757979},
		{10, .3, 4, 20, 1e-3, 3.836605710},
		{400, .5, .7, 3, 1e-7, 1.024850925},
	} {
		q := Query{Class: dp.Gaussian, Sigma: c.sigma, Adjacency: dp.AddRemoveOne, Trust: dp.Distributed, Participation: dp.CheckIn,
			Population: c.n, Gamma: c.gamma, Rounds: c.rounds, Delta: c.delta}
		if !longtest.On && c.n != 10 && c.rounds > 2 {
			continue
		}
		got := listed(t, q, removalPLDMethod)[removalPLDMethod]
		if !got.Applies || got.Eps < c.exact*(1-1e-4) || got.Eps > c.exact*1.02 {
			t.Errorf("%+v: %v (%s)", c, got.Eps, got.Note)
		}
		q.AskDelta, q.Eps, q.Delta = true, got.Eps, 0
		if back := listed(t, q, removalPLDMethod)[removalPLDMethod]; !back.Applies || back.Delta > c.delta*1.05 || back.Delta < c.delta/2 {
			t.Errorf("%+v: delta back %v (%s)", c, back.Delta, back.Note)
		}
	}
}

// The bound rises with gamma and the rounds, and falls with n, sigma and delta.
func TestRemovalIsMonotone(t *testing.T) {
	at := func(change func(*Query)) float64 {
		q := Query{Class: dp.Gaussian, Sigma: 1, Adjacency: dp.AddRemoveOne, Trust: dp.Distributed, Participation: dp.CheckIn,
			Population: 500, Gamma: .05, Rounds: 20, Delta: 1e-5}
		change(&q)
		got := listed(t, q, removalPLDMethod)[removalPLDMethod]
		if !got.Applies || !(got.Eps > 0) || math.IsInf(got.Eps, 1) {
			t.Fatalf("%+v: %v (%s)", q, got.Eps, got.Note)
		}
		return got.Eps
	}
	base := at(func(*Query) {})
	for name, change := range map[string]func(*Query){
		"more rounds":     func(q *Query) { q.Rounds = 21 },
		"fewer clients":   func(q *Query) { q.Population = 480 },
		"less noise":      func(q *Query) { q.Sigma = .97 },
		"a smaller delta": func(q *Query) { q.Delta = 8e-6 },
	} {
		if !longtest.On && name != "fewer clients" && name != "less noise" {
			continue
		}
		if more := at(change); more < base {
			t.Errorf("%s: %v, before %v", name, more, base)
		}
	}
}

// Where some rounds have losses far below 0, the order in which these come still has an ε that is shown, so that the other
// order's counts: few rounds cost no more than some more.
func TestRemovalWithLossesFarBelowZero(t *testing.T) {
	last := 0.
	for _, rounds := range longtest.Pick([]int64{13}, []int64{11, 12, 13, 14}) {
		q := Query{Class: dp.Gaussian, Sigma: .0561, Adjacency: dp.AddRemoveOne, Trust: dp.Distributed, Participation: dp.CheckIn,
			Population: 30513, Gamma: .0251, Rounds: rounds, Delta: 1.2e-14}
		got := listed(t, q, "all")
		b, rough := got[removalPLDMethod], got[removalMethod]
		if !b.Applies || b.Eps < last || b.Eps > .92*rough.Eps {
			t.Errorf("%d rounds: %v (%s), before %v, by Rényi divergences %v", rounds, b.Eps, b.Note, last, rough.Eps)
		}
		last = b.Eps
	}
}

// With hardly any noise the laws of few clients leave float64's range. What is lost of them counts: the exact
// values are of the mechanism whose other clients all hold the opposite vector, in 40 digits.
func TestRemovalWithHardlyAnyNoise(t *testing.T) {
	for eps, exact := range longtest.Pick(map[float64]float64{100: .165580853062}, map[float64]float64{50: .299549071012, 100: .165580853062, 150: .00931607457977}) {
		q := Query{Class: dp.Gaussian, Sigma: .025, Adjacency: dp.AddRemoveOne, Trust: dp.Distributed, Participation: dp.CheckIn,
			Population: 100, Gamma: .3, Rounds: 1, AskDelta: true, Eps: eps}
		got := listed(t, q, "all")
		if b := got[removalPLDMethod]; !b.Applies || b.Delta < exact || b.Delta > exact*1.001 {
			t.Errorf("eps = %v: %v, exact %v (%s)", eps, b.Delta, exact, b.Note)
		}
		if b := got[removalMethod]; b.Applies && b.Delta < exact {
			t.Errorf("eps = %v: %v by Rényi divergences, exact %v", eps, b.Delta, exact)
		}
	}
}

// With much noise what is left is k alone, and more noise costs no more.
func TestRemovalWithMuchNoise(t *testing.T) {
	last := math.Inf(1)
	for _, sigma := range longtest.Pick([]float64{5, 8, 12, 100, 1e6}, []float64{1, 3, 5, 7, 8, 10, 12, 25, 100, 1e4, 1e6}) {
		q := Query{Class: dp.Gaussian, Sigma: sigma, Adjacency: dp.AddRemoveOne, Trust: dp.Distributed, Participation: dp.CheckIn,
			Population: 1000, Gamma: .1, Rounds: 10, Delta: 1e-5}
		b := listed(t, q, removalPLDMethod)[removalPLDMethod]
		if !b.Applies || !(b.Eps > .1) || b.Eps > last*(1+1e-4) {
			t.Errorf("sigma = %v: %v (%s)", sigma, b.Eps, b.Note)
		}
		last = b.Eps
	}
}

// Certificates are written so that they verify, also of few clients: where nearly all mass is of losses of one sign, where
// losses above a certificate's largest are likely, and where hardly anybody reports.
func TestCertificatesOfRemovalsAmongFewClients(t *testing.T) {
	base := Query{Class: dp.Gaussian, Adjacency: dp.AddRemoveOne, Trust: dp.Distributed, Participation: dp.CheckIn}
	one, large, hardly := base, base, base
	one.Population, one.Colluders, one.Gamma, one.Sigma, one.Rounds, one.Delta = 12, 1, .0223, 83.4, 2, 3.2e-18
	large.Population, large.Gamma, large.Sigma, large.Rounds, large.Delta = 4, .00165, .0744, 2, .0165
	hardly.Population, hardly.Gamma, hardly.Sigma, hardly.Rounds, hardly.Dropout, hardly.Delta = 13, .0556, .656, 7, .678, 2.2e-12
	for name, q := range longtest.Pick(map[string]Query{"one sign": one}, map[string]Query{"one sign": one, "large losses": large, "few reports": hardly}) {
		d, err := Certify(t.Context(), q, certificate.RemovePLD)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := d.Verify(t.Context()); err != nil {
			t.Errorf("%s: %+v: %v", name, d.Claim, err)
		}
		if !longtest.On {
			continue // the accountant takes a second; package certificate compares claims with it by default
		}
		if b := listed(t, q, removalPLDMethod)[removalPLDMethod]; !b.Applies || math.Abs(d.Claim.Eps-b.Eps) > .01*b.Eps {
			t.Errorf("%s: the certificate claims epsilon = %v, the accountant's is %v", name, d.Claim.Eps, b.Eps)
		}
	}
	// Nearly every round has a loss that no certificate can list.
	large.Gamma, large.Delta = .5, 1e-6
	if _, err := Certify(t.Context(), large, certificate.RemovePLD); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("losses of hundreds: %v", err)
	}
}
