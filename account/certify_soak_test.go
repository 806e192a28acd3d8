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
