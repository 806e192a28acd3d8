//go:build soak

package account

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
)

// Bounds on a client removed in random settings are numbers, move the right way, and lie above what two
// mechanisms lose: go test -tags soak -run RemovalsOfRandom -v -timeout 2h ./account
func TestRemovalsOfRandomSettings(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 28))
	const loose = .005 // grids of neighbouring settings differ
	answered, refused, checked := 0, 0, 0
	closest := math.Inf(1)
	for i := range 120 {
		q := randomRemoval(r)
		begun := time.Now()
		base, ok := removalsOf(t, q)
		if took := time.Since(begun); took > 20*time.Second {
			t.Logf("%d %+v: slow, %v", i, q, took)
		}
		if !ok {
			refused++
			continue
		}
		answered++
		more := map[string]Query{}
		change := func(name string, f func(*Query)) {
			v := q
			f(&v)
			more[name] = v
		}
		change("noise less", func(q *Query) { q.Sigma /= 1.1 })
		change("rounds", func(q *Query) { q.Rounds += 1 + q.Rounds/3 })
		change("1/delta", func(q *Query) { q.Delta /= 3 })
		change("colluders", func(q *Query) { q.Colluders += 1 + (q.Population-q.Colluders)/10 })
		if reports := float64(q.Population-q.Colluders) * q.Gamma * (1 - q.Dropout); q.Gamma <= .45 && 2/(q.Sigma*math.Sqrt(reports)) <= 1 {
			// Up to a half more participation costs more; near 1 k is fixed, so that it shows who is missing. Where a sum of
			// the expected reports moves by more than a deviation, the noise that others bring may weigh more (removal.md).
			change("gamma", func(q *Query) { q.Gamma *= 1.1 })
		}
		for name, v := range more {
			if v.Population-v.Colluders < 2 {
				continue
			}
			if b, ok := removalsOf(t, v); ok && b.Eps < base.Eps*(1-loose) {
				t.Errorf("%d: more %s lowers eps from %v to %v: %+v", i, name, base.Eps, b.Eps, q)
			}
		}
		// δ at that ε: the same curve read the other way.
		v := q
		v.AskDelta, v.Delta, v.Eps = true, 0, base.Eps
		if b, ok := removalsOf(t, v); !ok || b.Delta > 2*q.Delta {
			t.Errorf("%d: delta at eps = %v is %v, asked %v: %+v", i, base.Eps, b.Delta, q.Delta, q)
		}
		if least := countedAlone(q, base.Eps); q.Rounds == 1 && least > q.Delta*(1+1e-9) {
			t.Errorf("%d: at eps = %v the number of reports alone shows delta = %v, asked %v: %+v", i, base.Eps, least, q.Delta, q)
		} else if q.Rounds == 1 {
			checked++
		}
		if exact, ok := oppositeLoss(q, base.Eps); ok {
			checked++
			if exact > q.Delta*(1+1e-6) {
				t.Errorf("%d: at eps = %v a mechanism has delta %v, asked %v: %+v", i, base.Eps, exact, q.Delta, q)
			}
			closest = math.Min(closest, q.Delta/exact)
		}
	}
	t.Logf("%d answered, %d refused; %d compared with a mechanism, delta from %.6f times its own", answered, refused, checked, closest)
	if answered < 60 || checked < 20 || closest > 1.01 {
		t.Error("the settings show too little")
	}
}

// randomRemoval draws a setting: n to 1e6, up to 2,000 expected reports, σ .05 to 100, T to 1e5, δ 1e-20 to .1,
// drop-outs, colluders, hidden numbers. A quarter are of one round.
func randomRemoval(r *rand.Rand) Query {
	spread := func(low, high float64) float64 { return low * math.Exp(r.Float64()*math.Log(high/low)) }
	q := Query{Class: dp.Gaussian, Adjacency: dp.AddRemoveOne, Trust: dp.Distributed, Participation: dp.CheckIn,
		Sigma: spread(.05, 100), Population: int64(spread(2, 1e6)), Rounds: int64(spread(1, 1e5)), Delta: spread(1e-20, .1)}
	q.Gamma = math.Min(spread(1e-6, 1), 2000/float64(q.Population))
	if r.IntN(4) == 0 {
		q.Rounds = 1
	}
	switch r.IntN(5) {
	case 0:
		q.Dropout = r.Float64() * .9
	case 1:
		q.Colluders = int64(r.Float64() * .5 * float64(q.Population))
	case 2:
		q.HiddenReports = true
	}
	return q
}

// removalsOf returns the bound gauss-remove-pld, and false if it is refused.
func removalsOf(t *testing.T, q Query) (dp.Bound, bool) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%+v: panic: %v", q, p)
		}
	}()
	all := listed(t, q, "all")
	for _, b := range []Listed{all[removalPLDMethod], all[removalMethod]} {
		if b.Applies && (!(b.Eps >= 0) || math.IsInf(b.Eps, 1) || !(b.Delta >= 0 && b.Delta <= 1)) {
			t.Errorf("%+v: %s: eps %v delta %v", q, b.Method, b.Eps, b.Delta)
		}
	}
	b := all[removalPLDMethod]
	if rough := all[removalMethod]; b.Applies && rough.Applies && (b.Eps > rough.Eps*(1+1e-9) || b.Delta > rough.Delta*(1+1e-9)) {
		t.Errorf("%+v: %v, %v, by Rényi divergences %v, %v", q, b.Eps, b.Delta, rough.Eps, rough.Delta)
	}
	return b.Bound, b.Applies
}

// countedAlone returns δ at ε for an observer of one round who sees the number of reports only.
func countedAlone(q Query, eps float64) float64 {
	n, gamma := q.Population-q.Colluders, q.Gamma*(1-q.Dropout)
	var with, without float64
	for k := range min(n, 200000) + 1 {
		p := binomialMass(n, k, gamma)
		b := p * float64(n-k) / (float64(n) * (1 - gamma))
		with += math.Max(0, p-math.Exp(eps)*b)
		without += math.Max(0, b-math.Exp(eps)*p)
	}
	return math.Max(with, without)
}

// oppositeLoss returns δ at ε of one round whose other clients all hold the opposite vector, in the order with the
// client first; false if there are several rounds.
func oppositeLoss(q Query, eps float64) (delta float64, ok bool) {
	if q.Rounds > 1 {
		return 0, false
	}
	n, gamma := q.Population-q.Colluders, q.Gamma*(1-q.Dropout)
	above := (math.Expm1(eps) + gamma) / (1 - gamma)
	tail := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	for k := int64(1); k <= min(n, 200000); k++ {
		p := binomialMass(n, k, gamma)
		if k == n {
			delta += p
			continue
		}
		x, mu := float64(n-k)/float64(k)*above, 2/(q.Sigma*math.Sqrt(float64(k)))
		d := mu/2 - math.Log(x)/mu
		// Where it cancels, nothing is claimed.
		if c := tail(d) - x*tail(d-mu); c > 1e-9*tail(d) {
			delta += p * float64(k) / float64(n) * c * (1 - 1e-7)
		}
	}
	return delta, true
}

func binomialMass(n, k int64, p float64) float64 {
	choose := func(n, k int64) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return a - b - c
	}
	return math.Exp(choose(n, k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

// Certificates of them verify: go test -tags soak -run CertificatesOfRandomRemovals -v -timeout 2h ./account
func TestCertificatesOfRandomRemovals(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 28))
	verified, refused, slow := 0, 0, 0
	for range 40 {
		q := randomRemoval(r)
		d, err := Certify(t.Context(), q, certificate.RemovePLD)
		if errors.Is(err, dp.ErrNoBound) {
			refused++
			continue
		}
		if err == nil {
			_, err = d.Encode()
		}
		if err != nil {
			t.Errorf("%+v: %v", q, err)
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		v, err := d.Verify(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			slow++
		case err != nil:
			t.Errorf("%+v claims %+v: %v", q, d.Claim, err)
		default:
			verified++
			t.Logf("delta %.5f of the claim, room %.2g: %+v", v.Delta/d.Claim.Delta, v.Room, d.Query)
		}
	}
	t.Logf("%d verified, %d refused, %d not within 40 s", verified, refused, slow)
}
