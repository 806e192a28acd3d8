package account_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/longtest"
)

type goldenRow struct {
	name   string
	query  account.Query
	method string
	eps    float64
}

// goldenRows reads composed.tsv: testdata/golden.py wrote it.
func goldenRows(t *testing.T) (out []goldenRow) {
	t.Helper()
	for _, c := range golden.Rows(t, "composed.tsv", 100) {
		v := golden.Numbers(t, c[2:7])
		q := account.Query{Participation: dp.Participation(c[1]), Population: int64(v[0]), Eps0: v[2], Rounds: int64(v[3]), Delta: v[4]}
		switch q.Participation {
		case dp.Sampled:
			q.Reports = int64(v[1])
		case dp.CheckIn:
			q.Gamma = v[1]
		}
		out = append(out, goldenRow{c[0], q, c[7], golden.Numbers(t, c[8:])[0]})
	}
	return out
}

// The rows reproduce the published settings and a dozen others: never below
// the true composition (the table's own error is 1e-6), at most .5 % above.
// Concrete mechanisms must lie below every proved upper bound.
func TestGoldenComposed(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	replies := map[string]account.Reply{}
	worst := map[string]float64{}
	for _, r := range goldenRows(t) {
		if !longtest.On && (strings.HasPrefix(r.name, "c") || len(r.name)%2 == 0) {
			continue
		}
		reply, ok := replies[r.name]
		if !ok {
			var err error
			reply, err = account.Answer(context.Background(), r.query, "all")
			if err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			replies[r.name] = reply
		}
		pure := float64(r.query.Rounds) * r.query.Eps0
		for _, b := range reply.Bounds {
			if strings.HasPrefix(r.method, "exact-") {
				if b.Applies && b.Kind == dp.Upper && !(b.Eps >= r.eps*(1-1e-6)) {
					t.Errorf("%s: %s says eps <= %v; %s really has %v", r.name, b.Method, b.Eps, r.method, r.eps)
				}
				if b.Applies && b.Kind == dp.Lower && strings.Contains(b.Method, strings.TrimPrefix(r.method, "exact-")) && b.Eps > r.eps*(1+1e-6) {
					t.Errorf("%s: lower bound %s = %v above the mechanism's %v", r.name, b.Method, b.Eps, r.eps)
				}
				if b.Method == "lower-"+strings.TrimPrefix(r.method, "exact-") && b.Applies && !(b.Eps >= r.eps*0.99) {
					t.Errorf("%s: lower bound %s = %v is more than 1 %% below the mechanism's %v", r.name, b.Method, b.Eps, r.eps)
				}
				continue
			}
			if b.Method != r.method {
				continue
			}
			if !b.Applies {
				t.Errorf("%s %s: no bound (%s), true value %v", r.name, r.method, b.Note, r.eps)
				continue
			}
			// Integer orders above 400 were only sampled for Theorem 1.
			if !(b.Eps >= r.eps*(1-2e-6)) && !(strings.HasPrefix(r.method, "girgis") && b.Eps >= r.eps*(1-1e-4)) {
				t.Errorf("%s %s: %v below the true %v", r.name, r.method, b.Eps, r.eps)
			}
			if !(b.Eps <= r.eps*1.005) && b.Eps < pure {
				t.Errorf("%s %s: %v is more than .5 %% above the true %v", r.name, r.method, b.Eps, r.eps)
			}
			worst[r.method] = math.Max(worst[r.method], b.Eps/r.eps-1)
		}
		if reply.Upper == nil || strings.HasSuffix(r.method, "blanket-pld") && reply.Upper.Eps > r.eps*1.005 {
			t.Errorf("%s: tightest upper bound %+v, true blanket %v", r.name, reply.Upper, r.eps)
		}
	}
	t.Logf("largest relative excess over the truth: %v", worst)
}
