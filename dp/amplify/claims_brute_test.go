package amplify_test

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// pairCurve reads δ at any real ε off a dominating pair, as its documentation
// says it must be read: atoms, mirror images, the rest at loss 0, remainders.
func pairCurve(p dp.Pair) curve {
	type mass struct{ q, up, gain float64 } // under Q and P, and by how much P has more
	atoms := make([]mass, len(p.Atoms))
	used := 0.
	for i, a := range p.Atoms {
		atoms[i] = mass{a.Q, a.Q * math.Exp(a.Loss), a.Q * math.Expm1(a.Loss)}
		used += atoms[i].up + a.Q
	}
	return func(eps float64) float64 {
		e, over := math.Exp(eps), math.Expm1(eps)
		var d, comp float64
		for _, a := range atoms {
			v := max(a.gain-a.q*over, 0) + max(a.q-e*a.up, 0)
			y := v - comp
			t := d + y
			comp = t - d - y
			d = t
		}
		return d + max(0, -over)*max(0, 1-used) + p.Dropped()
	}
}

// claims are all upper bounds the package makes for a scenario.
func claims(s scenario) map[string]curve {
	out := map[string]curve{"reference": refClaim(s)}
	families := map[string]amplify.Family{}
	if s.tv > 0 {
		families["tv"] = must(amplify.KnownTV(s.eps0, s.tv))
	}
	if s.rr > 0 {
		families["krr"] = must(amplify.KRR(s.eps0, s.rr))
	}
	if s.rr == 2 {
		families["rr2"] = must(amplify.RR2(s.eps0))
	}
	for name, f := range families {
		p, err := f.Round(amplify.FamilyRound{Population: int64(s.n), Reports: int64(max(1, s.k))})
		if s.k == 0 {
			p, err = f.Arrival(amplify.FamilyArrival{Population: int64(s.n), Asked: int64(s.n), Gamma: s.gamma})
		}
		if err != nil {
			panic(err)
		}
		out[name] = pairCurve(p)
	}
	rates := map[string]float64{"blanket": amplify.Blanket(s.eps0), "clones": amplify.Clones(s.eps0)}
	for name, rate := range rates {
		var p dp.Pair
		var err error
		if s.k == 0 {
			p, err = amplify.CheckIn(amplify.CheckInConfig{Eps0: s.eps0, Population: int64(s.n), Gamma: s.gamma, Rate: rate, Tail: 1e-14})
		} else {
			p, err = amplify.Shuffle(amplify.ShuffleConfig{Eps0: s.eps0, Reports: int64(s.k), Rate: rate, Tail: 1e-14})
			if err == nil {
				p, err = amplify.Subsample(p, float64(s.k)/float64(s.n))
			}
		}
		if err != nil {
			panic(err)
		}
		out[name] = pairCurve(p)
		if s.k == 0 {
			p, err = amplify.Arrival(amplify.ArrivalConfig{Eps0: s.eps0, Population: int64(s.n), Asked: int64(s.n), Gamma: s.gamma, Rate: rate})
			if err != nil {
				panic(err)
			}
			out[name+" arrival"] = pairCurve(p)
		} else {
			config := amplify.RoundConfig{Eps0: s.eps0, Population: int64(s.n), Reports: int64(s.k), Rate: rate}
			p, err = amplify.Round(config)
			if err != nil {
				panic(err)
			}
			out[name+" round"] = pairCurve(p)
			c, err := amplify.NewCurve(config)
			if err != nil {
				panic(err)
			}
			out[name+" curve"] = c.Delta
		}
		if name == "blanket" {
			l, err := pld.Discretize(p, s.eps0/37)
			if err != nil {
				panic(err)
			}
			finite := dp.Pair{Remainders: p.Remainders}
			for j, m := range l.Upper {
				if x := float64(j) * l.Step; m > 0 && j > 0 {
					finite.Atoms = append(finite.Atoms, dp.Atom{Q: m * math.Exp(-x), Loss: x})
				}
			}
			out["discretised"] = pairCurve(finite)
			if s.k != 0 && s.k != s.n { // coarse blocks, one of few values
				b, err := amplify.CheckIn(amplify.CheckInConfig{Eps0: s.eps0, Population: int64(s.n), Asked: int64(s.k), Gamma: 1, Rate: rate, Tail: 1e-14, Blocks: 2})
				if err != nil {
					panic(err)
				}
				out["asked"] = pairCurve(b)
			}
		}
	}
	return out
}

// Every bound against every scenario, ε of both signs, both orders.
func TestBoundsAgainstRandomMechanisms(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	perSize := longtest.Pick(2, 25)
	worst := map[string]float64{}
	// What is claimed depends on this of a scenario.
	type known struct {
		eps0, gamma, tv float64
		n, k, rr        int
	}
	made := map[known]map[string]curve{}
	scenarios(29, perSize, func(s scenario) {
		of := known{s.eps0, s.gamma, s.tv, s.n, s.k, s.rr}
		if made[of] == nil {
			made[of] = claims(s)
		}
		for name, c := range made[of] {
			gap, at := excess(s.exact, s.eps0, c)
			if old, ok := worst[name]; !ok || gap > old {
				worst[name] = gap
			}
			if gap > tolerance {
				t.Errorf("%s: %s eps0=%v eps=%v: truth exceeds the bound by %v", name, s.name, s.eps0, at, gap)
			}
		}
	})
	t.Logf("largest truth - bound: %v", worst)
}

// Dropped tails must be charged: with a large permitted tail the pair loses
// atoms, and stays a bound only because of its remainders.
func TestRemaindersCarryTheTail(t *testing.T) {
	needed := false
	for _, k := range []int64{3, 20, 300} {
		const eps0 = 2.0
		exact := refShuffle(int(k), eps0, blanketRate(eps0))
		p, err := amplify.Shuffle(amplify.ShuffleConfig{Eps0: eps0, Reports: k, Rate: amplify.Blanket(eps0), Tail: 1e-3})
		if err != nil {
			t.Fatal(err)
		}
		if gap, at := excess(exact, eps0, pairCurve(p)); gap > tolerance {
			t.Errorf("k = %d: exact exceeds by %v at eps=%v", k, gap, at)
		}
		p.Remainders = nil
		if gap, _ := excess(exact, eps0, pairCurve(p)); gap > 1e-6 {
			needed = true
		}
	}
	if !needed {
		t.Error("no tail was dropped: this test sees nothing")
	}
}

// Blocks of clones lose, never gain.
func TestBlocksOnlyLose(t *testing.T) {
	for _, k := range []int64{5, 60, longtest.Pick[int64](150, 400)} {
		const eps0 = 1.5
		exact := refShuffle(int(k), eps0, blanketRate(eps0))
		for _, blocks := range []int{1, 2, 7, 64} {
			p, err := amplify.Shuffle(amplify.ShuffleConfig{Eps0: eps0, Reports: k, Rate: amplify.Blanket(eps0), Tail: 1e-13, Blocks: blocks})
			if err != nil {
				t.Fatal(err)
			}
			if gap, at := excess(exact, eps0, pairCurve(p)); gap > tolerance {
				t.Errorf("k = %d, %d blocks: exact exceeds by %v at eps=%v", k, blocks, gap, at)
			}
		}
	}
}
