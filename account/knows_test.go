package account

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Who knows who takes part is promised what all of the fewest reports cost, never less than everybody else is.
func TestKnowsWho(t *testing.T) {
	for _, c := range []struct {
		name string
		q    Query
		want Query
	}{
		{"sampled", Query{Participation: dp.Sampled, Eps0: 2, Population: 6000, Reports: 600, Rounds: 200, Delta: 1e-6}, Query{Participation: dp.All, Eps0: 2, Population: 600, Rounds: 200, Delta: 1e-6}},
		{"sampled, n-min", Query{Participation: dp.Sampled, Eps0: 2, Population: 6000, Reports: 600, Least: 500, Rounds: 20, Delta: 1e-6}, Query{Participation: dp.All, Eps0: 2, Population: 500, Rounds: 20, Delta: 1e-6}},
		{"check-in", Query{Participation: dp.CheckIn, Eps0: 2, Population: 6000, Gamma: .1, Rounds: 20, Delta: 1e-6}, Query{Participation: dp.All, Eps0: 2, Population: 460, Rounds: 20, Delta: 1e-6}},
		{"aggregators", Query{Class: VectorSumClass, NoiseBy: vecsum.ByAggregators, Sigma: 20, Sum: vecsum.Params{Dim: 2}, Participation: dp.Sampled, Population: 6000, Reports: 600, Rounds: 20, Delta: 1e-6},
			Query{Class: VectorSumClass, NoiseBy: vecsum.ByAggregators, Sigma: 20, Sum: vecsum.Params{Dim: 2}, Participation: dp.All, Population: 600, Rounds: 20, Delta: 1e-6}},
	} {
		if !longtest.On && c.name == "check-in" {
			continue
		}
		known, err := AnswerKnowsWho(t.Context(), c.q)
		if err != nil || known == nil {
			t.Fatalf("%s: %v, %v", c.name, known, err)
		}
		want, err := Answer(t.Context(), c.want, "best")
		if err != nil {
			t.Fatal(err)
		}
		world, err := Answer(t.Context(), c.q, "best")
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(known.Eps-want.Upper.Eps) > 1e-9*known.Eps || !(known.Eps > 2*world.Upper.Eps) {
			t.Errorf("%s: %v to who knows, want %v; %v to everybody", c.name, known.Eps, want.Upper.Eps, world.Upper.Eps)
		}
	}
	for _, q := range []Query{
		{Participation: dp.All, Eps0: 2, Population: 600, Rounds: 20, Delta: 1e-6},
		{Participation: dp.Once, Eps0: 2, Population: 600, Reports: 30, Rounds: 20, Delta: 1e-6},
		{Participation: dp.Sampled, Trust: dp.Local, Eps0: .1, Population: 600, Reports: 30, Rounds: 2, Delta: 1e-6},
	} {
		if b, err := AnswerKnowsWho(t.Context(), q); b != nil || err != nil {
			t.Errorf("%+v: %+v, %v", q, b, err)
		}
	}
}
