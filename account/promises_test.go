package account

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// What randomizers promise is counted by their own pairs, below the bound for any report and
// above the lower bound.
func TestPromisesOfRandomizers(t *testing.T) {
	for i, c := range []struct {
		name   string
		config randomizer.Config
		want   string
	}{
		{randomizer.PrivUnit, randomizer.Config{Dim: 2, Eps0: .5}, "cap-pld"},
		{randomizer.PrivUnit, randomizer.Config{Dim: 1930, Eps0: 2.5}, "cap-pld"},
		{randomizer.PrivUnit, randomizer.Config{Dim: 1 << 20, Eps0: 6}, "cap-pld"},
		{randomizer.PrivUnit, randomizer.Config{Dim: 1930, Eps0: 2.5, Encoding: randomizer.Seed}, "rising-pld"},
		{randomizer.StepUnit, randomizer.Config{Dim: 5, Eps0: 1}, "rising-pld"},
		{randomizer.StepUnit, randomizer.Config{Dim: 1930, Eps0: 2.834}, "rising-pld"},
		{randomizer.StepUnit, randomizer.Config{Dim: 1930, Eps0: 2.834, Steps: 16}, "rising-pld"},
		{randomizer.StepUnit, randomizer.Config{Dim: 1930, Eps0: .1, Steps: 1}, "rising-pld"},
		{randomizer.StepUnit, randomizer.Config{Dim: 1 << 20, Eps0: 4, Encoding: randomizer.Seed}, "rising-pld"},
		{randomizer.StepUnit, randomizer.Config{Dim: 100, Eps0: 2, Edges: []float64{0, .3, 4}, Encoding: randomizer.Seed}, "rising-pld"},
		{randomizer.R2, randomizer.Config{Dim: 100, Eps0: 2}, "blanket-pld"},
		{randomizer.RInf, randomizer.Config{Dim: 100, Eps0: 4}, "blanket-pld"},
		{randomizer.RInf, randomizer.Config{Dim: 100, Eps0: 4, Bits: 2}, "tv-pld"},
		{randomizer.R1, randomizer.Config{Dim: 100, Eps0: 9, Bits: 4}, "tv-pld"},
		{randomizer.RR, randomizer.Config{Dim: 50, Eps0: 2}, "tv-pld"},
	} {
		if !longtest.On && i%3 != 1 {
			continue
		}
		c.config.Radius = 1
		m, err := randomizer.New(c.name, c.config)
		if err != nil {
			t.Fatal(err)
		}
		e := m.Event()
		q := Query{Participation: dp.Sampled, Class: e.Class, Eps0: e.Eps0, TV: e.TV, Steps: e.Steps, Population: 20000, Reports: 2000, Rounds: 30, Delta: 1e-6}
		got := askEach(t, q, c.want, "blanket-pld", "lower-rr2", "lower-rr3", "lower-krr")
		own, blanket := got[c.want], got["blanket-pld"]
		name := fmt.Sprintf("%s %+v", c.name, c.config)
		best := best(t, q)
		if !own.Applies || own.Eps != best || own.Eps > blanket.Eps || c.want != "blanket-pld" && own.Eps > .995*blanket.Eps {
			t.Errorf("%s: %s %v (%s), best %v, blanket %v", name, c.want, own.Eps, own.Note, best, blanket.Eps)
		}
		for _, id := range []string{"lower-rr2", "lower-rr3", "lower-krr"} {
			if l := got[id]; l.Applies && l.Eps > best {
				t.Errorf("%s: %s %v above the bound %v", name, id, l.Eps, best)
			}
		}
	}
}

// Randomized response as a cap: the golden values of its own pair, by another way of counting.
func TestCapOfRandomizedResponse(t *testing.T) {
	q := settingA
	q.Class, q.TV = dp.Cap, 0.037895 // above 1/(e^2 + 19) = .0378932
	const want = .08185              // K-RR on 20 symbols, by an independent program
	if eps := ask(t, q, "cap-pld")["cap-pld"].Eps; eps < want || eps > want*1.002 {
		t.Errorf("a cap of a twentieth costs %v, want %v", eps, want)
	}
}
