package certificate_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// change is a change of a document that makes its claim untrue.
type change struct {
	name string
	make func(d *certificate.Document)
}

// Certificates by a class's own law verify, and changes that make them untrue are rejected.
func TestCertificatesByOwnLaw(t *testing.T) {
	steps := dp.NewSteps(2, []float64{.3, .1}, 1e-3)
	eps0 := math.Log(5) + 2e-3
	fewer := change{"fewer clients", func(d *certificate.Document) { d.Query.N-- }}
	for _, c := range []struct {
		name    string
		q       account.Query
		method  string
		changes []change
		slow    bool // the checker takes seconds
	}{
		{"tv", account.Query{Participation: dp.All, TV: .07, Eps0: 2, Population: longtest.Pick[int64](2, 6), Rounds: 2, Eps: .8, AskDelta: true}, certificate.TVPLD, []change{
			fewer,
			{"tv", func(d *certificate.Document) { d.Query.TV *= 1.01 }},
			{"eps0", func(d *certificate.Document) { d.Query.Eps0 *= 1.01 }},
			{"a colluder", func(d *certificate.Document) { d.Query.Colluders = 1 }},
			{"delta", func(d *certificate.Document) { d.Claim.Delta *= .98 }},
			{"an atom lowered", func(d *certificate.Document) { d.Round.Q[slices.Index(d.Round.Q, slices.Max(d.Round.Q))] *= .9 }},
			{"an atom moved", func(d *certificate.Document) { q := d.Round.Q; q[len(q)/4-3] += q[len(q)/4]; q[len(q)/4] = 0 }},
			{"no tv", func(d *certificate.Document) { d.Query.TV = 0 }}}, false},
		{"laplace", account.Query{Participation: dp.All, Class: dp.LaplaceL1, Eps0: 1, Population: longtest.Pick[int64](2, 5), Rounds: 2, Eps: .5, AskDelta: true}, certificate.LaplacePLD, []change{
			fewer, {"class", func(d *certificate.Document) { d.Query.Randomizer = dp.Generic }},
			{"eps0", func(d *certificate.Document) { d.Query.Eps0 *= 1.01 }}}, false},
		{"krr", account.Query{Participation: dp.All, Class: dp.KRR, Symbols: 6, Eps0: 1, Population: longtest.Pick[int64](2, 5), Rounds: 2, Eps: .5, AskDelta: true}, certificate.KRRPLD, []change{
			{"symbols", func(d *certificate.Document) { d.Query.Symbols = 5 }}}, false},
		{"cap", account.Query{Participation: dp.Sampled, Class: dp.Cap, TV: .06, Eps0: 2, Population: longtest.Pick[int64](4, 9), Reports: longtest.Pick[int64](2, 5), Colluders: longtest.Pick[int64](1, 2), Rounds: 2, Eps: .8, AskDelta: true}, certificate.CapPLD, []change{
			{"colluders", func(d *certificate.Document) { d.Query.Colluders++ }},
			{"tv", func(d *certificate.Document) { d.Query.TV *= 1.03 }},
			{"k", func(d *certificate.Document) { d.Query.K = 9 }},
			{"drop-outs", func(d *certificate.Document) { d.Query.Dropout = .5 }},
			{"blocks", func(d *certificate.Document) { d.Round.Reports = []int64{1} }}}, false},
		{"rising", account.Query{Participation: dp.CheckIn, Class: dp.Rising, Steps: steps, Eps0: eps0, Population: longtest.Pick[int64](3, 8), Gamma: .5, Colluders: 1, HiddenReports: true, Rounds: 2, Eps: .8, AskDelta: true}, certificate.RisingPLD, []change{
			{"height", func(d *certificate.Document) { d.Query.Height *= 1.05 }},
			{"a share", func(d *certificate.Document) { d.Query.Shares[1] *= 1.5 }},
			{"eta", func(d *certificate.Document) { d.Query.Eta = .03 }},
			{"gamma", func(d *certificate.Document) { d.Query.Gamma = .53 }},
			{"eps0", func(d *certificate.Document) { d.Query.Eps0 = math.Log(4.9) }}}, false},
		{"k hidden", account.Query{Participation: dp.CheckIn, Eps0: 2, Population: 20, Gamma: .5, HiddenReports: true, Rounds: 2, Eps: 1, AskDelta: true}, certificate.BlanketPLD, []change{
			fewer, {"colluders", func(d *certificate.Document) { d.Query.Colluders = 1 }}}, false},
		{"colluders", account.Query{Participation: dp.Sampled, Eps0: 2, Population: 60, Reports: 20, Colluders: 10, Rounds: 5, Delta: 1e-3}, certificate.BlanketPLD, []change{
			{"colluders", func(d *certificate.Document) { d.Query.Colluders++ }}}, false},
		{"colluders drawn, drop-outs", account.Query{Participation: dp.Sampled, Eps0: 2, Population: 600, Reports: 300, Colluders: 200, Dropout: .3, Rounds: 5, Delta: 1e-4}, certificate.BlanketPLD, []change{
			{"colluders", func(d *certificate.Document) { d.Query.Colluders += 4 }},
			{"an order of blocks", func(d *certificate.Document) { d.Round.Drawn[1], d.Round.Drawn[2] = d.Round.Drawn[2], d.Round.Drawn[1] }}}, true},
		{"colluders drawn, drop-outs, cap", account.Query{Participation: dp.Sampled, Class: dp.Cap, TV: .06, Eps0: 2, Population: 90, Reports: 50, Colluders: 20, Dropout: .2, Rounds: 2, Eps: .4, AskDelta: true}, certificate.CapPLD, []change{
			{"drop-outs", func(d *certificate.Document) { d.Query.Dropout = .1 }}}, true},
		{"pure, colluders", account.Query{Participation: dp.Sampled, Eps0: 2, Population: 60, Reports: 20, Colluders: 10, Rounds: 5, Delta: 1e-3}, certificate.Basic, []change{
			{"colluders", func(d *certificate.Document) { d.Query.Colluders++ }}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name != "tv" && c.name != "k hidden" {
				t.Skip("long, and the same goroutines")
			}
			if c.slow {
				longtest.Only(t, "the checker takes seconds")
			}
			t.Parallel()
			method := c.method
			if method != certificate.Basic {
				method = "" // the tightest of them
			}
			honest := clone(t, write(t, c.q, method))
			if honest.Claim.Method != c.method {
				t.Fatalf("method %s", honest.Claim.Method)
			}
			v, err := honest.Verify(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if c.method != certificate.Basic && v.Delta < .9*honest.Claim.Delta {
				t.Errorf("proved %v, claimed %v", v.Delta, honest.Claim.Delta)
			}
			answer, err := account.Answer(context.Background(), c.q, c.method)
			if err != nil {
				t.Fatal(err)
			}
			if u := answer.Upper; honest.Claim.Eps > u.Eps*1.01 || honest.Claim.Delta > u.Delta*1.1 {
				t.Errorf("claim %+v, accountant (%v, %v)", honest.Claim, u.Eps, u.Delta)
			}
			for i, bad := range c.changes {
				if i > 0 && !longtest.On {
					continue
				}
				d := clone(t, honest)
				bad.make(&d)
				if d.Round != nil {
					forge(&d) // the account fits whatever the round
					if w := d.Composition; w.Total > d.Claim.Delta {
						t.Fatal("the account alone fails")
					}
				}
				if v, err := d.Verify(context.Background()); !errors.Is(err, certificate.ErrRejected) && !errors.Is(err, certificate.ErrMalformed) {
					t.Errorf("%s changed: verdict %+v, error %v", bad.name, v, err)
				}
			}
		})
	}
}

// Where few reports are expected of many clients, the listed pair is still above the checker's.
func TestCertificateOfFewExpectedReports(t *testing.T) {
	longtest.Only(t, "one check takes two seconds")
	d, err := account.Certify(context.Background(), account.Query{Participation: dp.CheckIn, Class: dp.LaplaceL1, Eps0: 1, Population: 40, Gamma: .05, Rounds: 2, Delta: 1e-4}, "")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := d.Verify(context.Background()); err != nil || d.Claim.Method != certificate.LaplacePLD {
		t.Errorf("%+v: %+v, %v", d.Claim, v, err)
	}
}

func TestCertificatesThatHaveNoProof(t *testing.T) {
	for name, q := range map[string]account.Query{
		"adaptive": {Participation: dp.All, Eps0: 2, Population: 60, AdaptiveWithinRound: true, Rounds: 5, Delta: 1e-3},
	} {
		if d, err := account.Certify(context.Background(), q, certificate.BlanketPLD); !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("%s: %+v, error %v", name, d.Claim, err)
		}
	}
}
