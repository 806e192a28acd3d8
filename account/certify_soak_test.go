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

// Certificates of random protocols all verify: go test -tags soak -run
// CertificatesOfRandom -timeout 30m ./account
func TestCertificatesOfRandomProtocols(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	spread := func(low, high float64) float64 { return low * math.Exp(r.Float64()*math.Log(high/low)) }
	var verified, refused, slow int
	least, most := 1., 0.
	for range 260 {
		q := Query{Eps0: spread(.05, 8), Population: int64(spread(2, 1e7)), Rounds: int64(spread(1, 1e6)), Delta: spread(1e-30, .1)}
		part := func() int64 { return int64(spread(1, float64(q.Population))) }
		switch r.IntN(5) {
		case 0:
			q.Participation = dp.All
		case 1:
			q.Participation, q.Reports = dp.Sampled, part()
		case 2:
			q.Participation, q.Gamma = dp.CheckIn, spread(1e-6, 1)
		case 3:
			q.Participation, q.Reports = dp.Once, part()
			q.Rounds = min(q.Rounds, q.Population/q.Reports)
		case 4:
			q.Participation, q.Reports, q.Dropout = dp.Sampled, part(), r.Float64()
		}
		if r.IntN(4) == 0 {
			q.AskDelta, q.Delta, q.Eps = true, 0, spread(.01, 5)
		}
		d, err := Certify(context.Background(), q, certificate.BlanketPLD)
		if errors.Is(err, dp.ErrNoBound) {
			refused++
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", q, err)
			continue
		}
		if _, err := d.Encode(); err != nil {
			t.Errorf("%+v: %v", q, err)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		v, err := d.Verify(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			slow++
		case err != nil:
			t.Errorf("%+v claims %+v: %v", q, d.Claim, err)
		default:
			verified++
			least, most = min(least, v.Delta/d.Claim.Delta), max(most, v.Delta/d.Claim.Delta)
		}
	}
	t.Logf("%d verified, %d refused, %d not within 20 s; delta found from %.3g to %.6g of the claim", verified, refused, slow, least, most)
}

// So do those of reports that are counted by their own law, with colluders and hidden numbers:
// go test -tags soak -run CertificatesByOwnLaw -timeout 30m ./account
func TestCertificatesByOwnLawOfRandomProtocols(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 3))
	spread := func(low, high float64) float64 { return low * math.Exp(r.Float64()*math.Log(high/low)) }
	verified, refused, slow := map[string]int{}, 0, 0
	for range 60 {
		q := Query{Eps0: spread(.1, 6), Population: int64(spread(2, 1e6)), Rounds: int64(spread(1, 1e4)), Delta: spread(1e-10, .01)}
		most := 1 / (math.Exp(q.Eps0) + 1)
		switch r.IntN(5) {
		case 0:
			q.TV = most * spread(.1, 1)
		case 1:
			q.Class, q.TV = dp.Cap, most*spread(.1, 1)
		case 2:
			q.Class = dp.LaplaceL1
		case 3:
			q.Class, q.Symbols = dp.KRR, 3+r.IntN(20)
		case 4:
			var shares []float64
			for x := spread(.05, .6); len(shares) < 1+r.IntN(4); x *= spread(.2, .8) {
				shares = append(shares, x)
			}
			q.Class, q.Steps = dp.Rising, dp.NewSteps(math.Expm1(q.Eps0)/float64(len(shares)), shares, spread(1e-9, 1e-3))
			q.Eps0 += .01
		}
		switch r.IntN(5) {
		case 0, 1:
			q.Participation = dp.All
		case 2:
			q.Participation, q.Reports = dp.Sampled, int64(spread(1, float64(q.Population)))
		case 3:
			q.Participation, q.Gamma, q.HiddenReports = dp.CheckIn, spread(1e-4, 1), true
		case 4:
			q.Participation, q.Reports = dp.Once, int64(spread(1, float64(q.Population)))
			q.Rounds = min(q.Rounds, q.Population/q.Reports)
		}
		if r.IntN(3) == 0 {
			q.Colluders = int64(r.Float64() * float64(q.Population))
			if r.IntN(2) == 0 {
				q.Dropout = r.Float64() * .5
			}
		}
		d, err := Certify(context.Background(), q, "")
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
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
		start := time.Now()
		v, err := d.Verify(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			slow++
			t.Logf("slow: %+v claims %+v, %d losses, %d blocks", q, d.Claim, len(d.Round.Q), len(d.Round.Reports))
		case err != nil:
			t.Errorf("%+v claims %+v: %v", q, d.Claim, err)
		default:
			verified[d.Claim.Method]++
			t.Logf("%.1f s, delta %.5f of the claim, room %.2g: %s %s n = %d", time.Since(start).Seconds(), v.Delta/d.Claim.Delta, v.Room, d.Claim.Method, q.Participation, q.Population)
		}
	}
	t.Logf("%v verified, %d refused, %d not within 40 s", verified, refused, slow)
}
