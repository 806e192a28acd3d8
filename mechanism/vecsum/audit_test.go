package vecsum

import (
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
)

// A sampling attack on the whole client: replace one input, look at one count
// (or the projection on the difference). The claim must not be refuted, nearly
// all of it must be found, and broken clients must be refuted. Oracle 6.
func TestAudit(t *testing.T) {
	longtest.Only(t, "audits of whole rounds")
	const clients = 20
	const reps = 300_000
	target := Target{Eps: 1, Delta: 1e-2, Users: clients, Dim: 4, Radius: 1}
	p, err := Tight(target)
	if err != nil {
		t.Fatal(err)
	}
	spread := []float32{.5, -.5, .5, .5}
	for name, c := range map[string]struct {
		change  func(*Params)
		noises  int64 // clients whose noise is drawn; 0 means all
		scale   float32
		copies  bool // all clients draw the same noise: counts agree with the input modulo their number
		x       []float32
		refuted bool
	}{
		"axis":              {x: []float32{1, 0, 0, 0}},
		"spread":            {x: spread},
		"too long inputs":   {x: []float32{1e6, 0, 0, 0}},
		"half the noise":    {x: spread, change: func(p *Params) { p.Noise.Bits /= 2 }, refuted: true},
		"a quarter of it":   {x: spread, change: func(p *Params) { p.Noise.Bits /= 4 }, refuted: true},
		"a third honest":    {x: spread, noises: clients / 3, refuted: true},
		"no clipping":       {x: spread, change: func(p *Params) { p.Radius *= 2; p.Grid *= 2; p.Norm *= 4 }, scale: 2, refuted: true},
		"p = 1/10":          {x: spread, change: func(p *Params) { p.Noise.P = .1 }, refuted: true},
		"one noise for all": {x: spread, copies: true, refuted: true},
	} {
		q := p
		if c.change != nil {
			c.change(&q)
		}
		e := mustEncoder(t, q)
		noises := int64(clients)
		if c.noises > 0 {
			noises = c.noises
		}
		rest, err := q.Noise.newSampler(noises - 1)
		if err != nil {
			t.Fatal(err)
		}
		src := source(8, uint64(len(name)))
		counts, work := make([]int64, 4), make([]int64, 4)
		// project returns the counts' component along the difference.
		project := func(sign float32) float64 {
			x := make([]float32, 4)
			for j, v := range c.x {
				x[j] = sign * v
				if c.scale > 0 {
					x[j] *= c.scale
				}
			}
			if c.copies {
				rounded := make([]int32, 4)
				if err := e.Round(src, x, rounded); err != nil {
					t.Fatal(err)
				}
				once := make([]int64, 4)
				e.noise.add(src, once, work)
				return float64((int64(rounded[0]) + clients*once[0]) % clients)
			}
			if err := e.Encode(src, x, counts); err != nil {
				t.Fatal(err)
			}
			rest.add(src, counts, work)
			var s float64
			for j, k := range counts {
				s += float64(c.x[j]) * (float64(k) - float64(q.Grid)/2 - float64(noises)*q.Noise.mean())
			}
			return s / norm2(c.x)
		}
		hist := [2][]float64{make([]float64, reps), make([]float64, reps)}
		for i := range reps {
			hist[0][i], hist[1][i] = project(1), project(-1)
		}
		found := lowerBound(hist[0], hist[1], target.Delta)
		if found > 1 && !c.refuted {
			t.Errorf("%s: measured eps of at least %.3f against the claim of 1", name, found)
		}
		if !c.refuted && found < .7 {
			t.Errorf("%s: measured only %.3f of the claimed 1", name, found)
		}
		if c.refuted && found <= 1 {
			t.Errorf("%s: not refuted, measured %.3f", name, found)
		}
		t.Logf("%s: eps at least %.3f", name, found)
	}
}

// lowerBound measures ε at delta from samples under both neighbours: thresholds
// are chosen on the first half and tested on the second, with Clopper-Pearson
// bounds; both orders, both sides.
func lowerBound(a, b []float64, delta float64) float64 {
	half := len(a) / 2
	best, found := math.Inf(-1), 0.
	var cut float64
	var upper, swap bool
	rate := func(s []float64, cut float64, upper bool) int64 {
		var n int64
		for _, v := range s {
			if v > cut == upper {
				n++
			}
		}
		return n
	}
	sorted := slices.Clone(a[:half])
	slices.Sort(sorted)
	for q := .01; q < 1; q += .02 {
		c := sorted[int(q*float64(half))]
		for _, up := range []bool{true, false} {
			for _, sw := range []bool{true, false} {
				x, y := a[:half], b[:half]
				if sw {
					x, y = y, x
				}
				n := float64(half)
				p, r := float64(rate(x, c, up))/n, float64(rate(y, c, up)+1)/n
				p, r = p-6*math.Sqrt(p/n), r+6*math.Sqrt(r/n) // what the test will be left with
				if s := math.Log((p - delta) / r); s > best {
					best, cut, upper, swap = s, c, up, sw
				}
			}
		}
	}
	x, y := a[half:], b[half:]
	if swap {
		x, y = y, x
	}
	n := int64(len(x))
	p, r := clopperPearson(rate(x, cut, upper), n, false), clopperPearson(rate(y, cut, upper), n, true)
	if p > delta {
		found = math.Log((p - delta) / r)
	}
	return found
}

// clopperPearson returns a bound on a probability that fails with falseAlarm.
func clopperPearson(hits, n int64, above bool) float64 {
	lo, hi := 0., 1.
	for range 60 {
		mid := (lo + hi) / 2
		small := tail.Survival(n, hits, mid, 1-mid) < falseAlarm // Pr[X ≥ hits]
		if above {
			small = tail.Survival(n, n-hits, 1-mid, mid) >= falseAlarm // Pr[X ≤ hits]
		}
		if small {
			lo = mid
		} else {
			hi = mid
		}
	}
	if above {
		return hi
	}
	return lo
}
