package randomizer

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// three is StepUnit with three steps and seeds.
func three(dim int, radius float64) *seeded {
	return as[*seeded](newStepUnit(Config{Dim: dim, Radius: radius, Eps0: 2.834, Encoding: Seed, Edges: []float64{.95, 1.49, 2.02}}))
}

var roundKey = [32]byte{1, 5: 7, 31: 9}

// above returns P[score > z] by formula.
func (m *seeded) above(edges []float64, eps0, z float64) float64 {
	upper := func(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }
	height := math.Expm1(eps0) / float64(len(edges))
	share, weight := upper(z), 1.
	for _, e := range edges {
		share += height * upper(math.Max(z, e))
		weight += height * upper(e)
	}
	return share / weight
}

// face is a way to draw the values of a report.
type face func(src rng.Source, x []float32, values []int64)

// faceOf draws by a mechanism.
func faceOf(m Mechanism) face {
	r := m.NewReport()
	return func(src rng.Source, x []float32, values []int64) {
		m.Randomize(src, x, r)
		clear(values)
		m.Add(values, r)
	}
}

var scoreCuts = []float64{-2, -1.2, -.5, 0, .5, .8, .95, 1.2, 1.49, 1.7, 2.02, 2.3, 2.7}

// misfit draws n reports of x and returns by how much they differ from the law: the least of the
// p-values of the scores' chi-square, of the means and mean squares of two projections across x,
// overall and where the score is high, and of the length.
func misfit(m *seeded, draw face, x []float32, n int, path ...uint64) (least float64) {
	edges := []float64{.95, 1.49, 2.02}
	dim := len(x)
	u := make([]float64, dim)
	size := norm(x, 2)
	for i, v := range x {
		u[i] = float64(v) / size
	}
	// Directions across u: what is left of the first and of the last axis.
	var across [2][]float64
	for k, axis := range []int{0, dim - 1} {
		w := make([]float64, dim)
		for i := range w {
			w[i] = -u[axis] * u[i]
		}
		w[axis]++
		length := math.Sqrt(1 - u[axis]*u[axis])
		for i := range w {
			w[i] /= length
		}
		across[k] = w
	}
	cells := make([]float64, len(scoreCuts)+1)
	values := make([]int64, dim)
	src := source(append([]uint64{90}, path...)...)
	var sums [4]float64 // two projections; the same where the score is high
	var squares [4]float64
	var counts [4]float64
	for range n {
		draw(src, x, values)
		var z float64
		for i, v := range values {
			z += float64(v) / seedUnit * u[i]
		}
		cell, _ := slices.BinarySearch(scoreCuts, z)
		cells[cell]++
		for k, w := range across {
			var y float64
			for i, v := range values {
				y += float64(v) / seedUnit * w[i]
			}
			for _, at := range []int{k, k + 2} {
				if at == k || z > 1.49 {
					sums[at] += y
					squares[at] += y * y
					counts[at]++
				}
			}
		}
	}
	var stat float64
	last := 1.
	for i, got := range cells {
		next := 0.
		if i < len(scoreCuts) {
			next = m.above(edges, 2.834, scoreCuts[i])
		}
		want := (last - next) * float64(n)
		stat += (got - want) * (got - want) / want
		last = next
	}
	least = chiTail(len(cells)-1, stat)
	for k := range sums {
		least = math.Min(least, math.Erfc(math.Abs(sums[k])/math.Sqrt(2*counts[k])))
		// A chi-square variable of many degrees, by its normal limit: too wide a tail only
		// misses less.
		far := math.Abs(squares[k]-counts[k]) / math.Sqrt(2*counts[k])
		least = math.Min(least, math.Erfc(far/math.Sqrt2*.95))
	}
	return least
}

// Both faces of a report have the same law: scores with density h along the input and standard
// normal across it. The test has power: what is wrong in one way is refuted.
func TestFacesHaveOneLaw(t *testing.T) {
	for i, dim := range []int{2, 24} {
		x := direction(dim, 1)
		m := three(dim, 1)
		n := 40_000 / longtest.Pick(2, 1)
		for name, draw := range map[string]face{"simulated": faceOf(m), "seeds": faceOf(m.ForRound(roundKey))} {
			if p := misfit(m, draw, x, n, uint64(i)); p < falseAlarm {
				t.Errorf("d = %d, %s: p = %.2g", dim, name, p)
			}
		}
	}
}

// searcher is the client's search as it is written down, with a fault.
type searcher struct {
	edges []float64
	// decided is the input whose scores decide.
	decided func(x []float32) []float32
	// coin is the probability of acceptance above c of 3 edges.
	coin func(c int) float64
	// tries is the number of tries after which a uniform seed is taken.
	tries func(x []float32) int
	// shift moves the edges, by the input.
	shift func(x []float32) float64
}

func soundSearch() searcher {
	return searcher{edges: []float64{.95, 1.49, 2.02},
		decided: func(x []float32) []float32 { return x },
		coin: func(c int) float64 {
			e := math.Exp(2.834)
			return (1 + (e-1)*float64(c)/3) / e
		},
		tries: func([]float32) int { return 1000 },
		shift: func([]float32) float64 { return 0 },
	}
}

func (s searcher) face(m Randomizer) face {
	r := m.NewReport()
	return func(src rng.Source, x []float32, values []int64) {
		by := s.decided(x)
		size, shift := norm(by, 2), s.shift(x)
		for try := 1; ; try++ {
			for i := range r.Value {
				r.Value[i] = int32(uint32(src.Uint64()))
			}
			clear(values)
			m.Add(values, r)
			var z float64
			for i, v := range values {
				z += float64(v) / seedUnit * float64(by[i]) / size
			}
			above, _ := slices.BinarySearch(s.edges, z-shift)
			if try > s.tries(x) || sample.Bernoulli(src, s.coin(above)) {
				return
			}
		}
	}
}

// The law's test notices each of these faults, and does not notice a sound search.
func TestWrongSearchesAreRefuted(t *testing.T) {
	const dim = 12
	m := three(dim, 1)
	x := direction(dim, 1)
	for name, spoil := range map[string]func(s *searcher){
		"": func(*searcher) {},
		"edge decided on another x": func(s *searcher) {
			s.decided = func(x []float32) []float32 {
				y := slices.Clone(x)
				y[0] += .4
				return y
			}
		},
		"tries that depend on x": func(s *searcher) {
			s.tries = func(x []float32) int { return 1 + int(20*math.Abs(float64(x[0]))) }
		},
		"acceptance by a rounded-down coin": func(s *searcher) {
			sound := s.coin
			s.coin = func(c int) float64 { return math.Floor(16*sound(c)) / 16 } // 4 bits
		},
		"level shares that differ between inputs": func(s *searcher) {
			s.shift = func(x []float32) float64 { return .3 * float64(x[1]) }
		},
	} {
		n := 60_000
		if !longtest.On {
			if n = 45_000; name != "level shares that differ between inputs" { // hardest to see
				n = 12_000
			}
		}
		s := soundSearch()
		spoil(&s)
		p := misfit(m, s.face(m.ForRound(roundKey)), x, n, 7)
		t.Logf("fault %q: p = %.2g", name, p)
		if sound := name == ""; sound != (p >= falseAlarm) {
			t.Errorf("fault %q: p = %.2g", name, p)
		}
	}
}

// A report of a round is 16 bytes, every seed is legal, and the estimate of the mean from real
// seeds is the inputs' mean, short, long and hostile ones included.
func TestKeyedReports(t *testing.T) {
	const dim = 6
	n := longtest.Pick[int64](10_000, 30_000)
	for _, name := range []string{PrivUnit, StepUnit} {
		m := must(New(name, Config{Dim: dim, Radius: 2, Eps0: 3, Encoding: Seed})).(Keyed)
		k := m.ForRound(roundKey)
		if f := k.Facts(); f.Bits != 128 || f.Bytes != 16 || f.Name != name || f.MSE != m.Facts().MSE || k.Event() != m.Event() {
			t.Errorf("%+v, %+v", f, k.Event())
		}
		inputs := [][]float32{legal(m, 2), legal(m, .7), {float32(math.NaN()), float32(math.Inf(1)), 0, 0, 0, 0}, make([]float32, dim)}
		want := make([]float64, dim)
		for _, x := range inputs[:2] {
			for j, v := range x {
				want[j] += float64(v) / 4
			}
		}
		want[1] += 2. / 4
		src := source(91)
		r, back := k.NewReport(), k.NewReport()
		sum, mean := make([]int64, dim), make([]float64, dim)
		for i := range n {
			k.Randomize(src, inputs[i%4], r)
			b, err := AppendReport(nil, k, r)
			if err != nil || len(b) != 16 {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			if err := DecodeReport(b, k, back); err != nil || !slices.Equal(back.Value, r.Value) {
				t.Fatalf("%v came back as %v, %v", r, back, err)
			}
			k.Add(sum, back)
		}
		k.Estimate(mean, sum, n)
		for j, v := range mean {
			if math.Abs(v-want[j]) > 7*math.Sqrt(k.Facts().MSE/float64(n)) {
				t.Errorf("%s: coordinate %d: %v, want %v", name, j, v, want[j])
			}
		}
		if got, bound := pNorm(mean, 2), k.MeanBound(n); !(got <= bound) {
			t.Errorf("%s: a mean of length %v, at most %v", name, got, bound)
		}
		other := m.ForRound([32]byte{2})
		a, b := make([]int64, dim), make([]int64, dim)
		k.Add(a, r)
		other.Add(b, r)
		if slices.Equal(a, b) {
			t.Error("a seed means the same in two rounds")
		}
		for _, bad := range []*Report{{}, {Value: make([]int32, 3)}, {Value: make([]int32, dim)}, {Index: []uint32{}, Value: make([]int32, 4)}} {
			if k.Check(bad) == nil {
				t.Errorf("took %+v", bad)
			}
		}
	}
	if m := must(New(PrivUnit, Config{Dim: dim, Radius: 1, Eps0: 1})); ForRound(m, roundKey) != Mechanism(m) {
		t.Error("a mechanism without seeds has other rounds")
	}
}

// A liar cannot choose his report. With 2^20 seeds to choose from he moves the mean of n reports by
// 4.8 clip norms over n in a direction of his choice, at d = 1,930 and ε₀ = 2.834; with values he
// moves it by the length of a report, 50.7. The largest of as many normal values lies between 4.1
// and 6.9, but for a chance of 5e-6.
func TestLiarsSearch(t *testing.T) {
	longtest.Only(t, "it expands 2^20 seeds")
	const dim = 1930
	m := three(dim, 1)
	k := m.ForRound(roundKey)
	want := direction(dim, 1) // where he wants the mean to go
	values, r := make([]int64, dim), k.NewReport()
	var best float64
	for i := range 1 << 20 {
		r.Value[0] = int32(i)
		clear(values)
		k.Add(values, r)
		var z float64
		for j, v := range values {
			z += float64(v) * float64(want[j])
		}
		best = math.Max(best, z/seedUnit)
	}
	moved := best * m.scale * seedUnit
	if l := m.Facts().Largest; math.Abs(l-7.446*m.scale*seedUnit) > 1e-9 || math.Abs(l-7.65) > .05 {
		t.Errorf("the best of 2^40 is said to move it by %v", l)
	}
	t.Logf("the best of 2^20 seeds has score %.3f and moves the mean by %.2f clip norms over n", best, moved)
	if best < 4.1 || best > 6.9 || !(moved < 6) {
		t.Errorf("score %v, %v clip norms", best, moved)
	}
	if l := must(newStepUnit(Config{Dim: dim, Radius: 1, Eps0: 2.834})).Facts().Largest; math.Abs(l-50.7) > .1 {
		t.Errorf("with values he moves it by %v", l)
	}
}

// The promise is ε₀ and what unequal shares add, and it is the same on computers whose functions
// differ in the last bits.
func TestSeedsPromise(t *testing.T) {
	m := three(1930, 1)
	over := m.Event().Eps0 - 2.834
	// ln(M⁺/M⁻) ≈ 2η(E[h]−1)/E[h], η = 1.83e-7, E[h] = 2.42.
	if !(over > 2*1.83e-7*.55 && over < 2*1.83e-7*.65) {
		t.Errorf("seeds add %v to eps0", over)
	}
	for _, weight := range []float64{1.5, 3, 100} {
		for _, eta := range []float64{1e-9, 1.83e-7, 1e-3} {
			most, least := 1+(weight-1)*(1+eta), 1+(weight-1)*(1-eta)
			got, want := unequal(weight, eta), math.Log(most/least)
			if !(got >= want-1e-15 && got <= want+1e-12) || got != unequal(math.Nextafter(weight, 9), math.Nextafter(eta, 1)) {
				t.Errorf("weight %v, eta %v: %v, want %v", weight, eta, got, want)
			}
		}
	}
}

// Whatever the edges, a report promises something that can be charged.
func TestOddEdgesPromise(t *testing.T) {
	for _, c := range []Config{
		{Eps0: 12, Encoding: Seed, Edges: []float64{.5, 6}}, // shares above 6 may differ by a factor of ten
		{Eps0: .1, Encoding: Seed, Edges: []float64{6}},
		{Eps0: 1, Encoding: Seed, Edges: []float64{1, math.Nextafter(1, 2)}}, // equal shares
		{Eps0: 1, Encoding: Values, Edges: []float64{1, math.Nextafter(1, 2)}},
		{Eps0: 1, Encoding: Values, Edges: []float64{6}}, // in 37 dimensions a share of 1e-31
	} {
		for _, c.Dim = range []int{37, 1 << 10, 1 << 24} {
			if c.Radius = 1; c.Dim > 1<<20 && c.Encoding == Values {
				continue
			}
			m, err := New(StepUnit, c)
			if err != nil {
				t.Errorf("%+v: %v", c, err)
				continue
			}
			e := m.Event()
			if err := (dp.Round{Report: e, Trust: dp.Shuffle, Participation: dp.All, Population: 9}).Validate(); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			if e.Class == dp.Rising {
				if _, err := amplify.Rising(amplify.Steps{Height: e.Steps.Height, Tails: e.Steps.Each(), Eta: e.Steps.Eta}); err != nil {
					t.Errorf("%+v: %v", c, err)
				}
			}
			if !(e.Eps0 >= c.Eps0) {
				t.Errorf("%+v promises eps0 = %v", c, e.Eps0)
			}
		}
	}
}

// No memory per simulated report.
func TestSeedsDoNotAllocate(t *testing.T) {
	m := three(100, 1)
	x, r, sum := direction(100, 1), m.NewReport(), make([]int64, 100)
	src := rng.Replay(1)
	m.Randomize(src, x, r)
	if n := testing.AllocsPerRun(200, func() {
		m.Randomize(src, x, r)
		m.Add(sum, r)
	}); n >= 1 { // the pool may be emptied by a collection
		t.Errorf("%v allocations per report", n)
	}
}

// Edges that are not given are the best ones; PrivUnit's has the least error of all edges.
func TestBestEdges(t *testing.T) {
	if got := fmt.Sprint(bestEdges(StepUnit, 3, 2.834)); got != "[0.955 1.489 2.023]" {
		t.Errorf("three steps: %s", got)
	}
	for _, eps0 := range []float64{.1, 1, 2.5, 6} {
		error := func(edges []float64) float64 {
			return must(New(PrivUnit, Config{Dim: 1 << 20, Radius: 1, Eps0: eps0, Encoding: Seed, Edges: edges})).Facts().MSE
		}
		z := bestEdges(PrivUnit, 1, eps0)[0]
		least := error(nil)
		if near := error([]float64{z - .01}); near < least {
			t.Errorf("eps0 = %v: error %v at %v, %v before it", eps0, least, z, near)
		}
		if near := error([]float64{z + .01}); near < least {
			t.Errorf("eps0 = %v: error %v at %v, %v after it", eps0, least, z, near)
		}
		// The cap on the sphere is the same one.
		if values := must(New(PrivUnit, Config{Dim: 1 << 20, Radius: 1, Eps0: eps0})).Facts().MSE; math.Abs(values/least-1) > 3e-5 { // the grid adds 2e-5
			t.Errorf("eps0 = %v: error %v with seeds, %v with values", eps0, least, values)
		}
	}
}

func TestShapesAreRefused(t *testing.T) {
	for i, c := range []Config{
		{Encoding: "bytes"}, {Steps: -1}, {Steps: 17}, {Steps: 2, Edges: []float64{1}}, {Edges: []float64{1, 1}},
		{Edges: []float64{2, 1}}, {Edges: []float64{-.1}}, {Edges: []float64{math.NaN()}}, {Edges: []float64{6.1}}, {Bits: 1},
		{Edges: []float64{3}}, // beyond √9, with values
	} {
		c.Dim, c.Radius, c.Eps0 = 9, 1, 2
		if m, err := New(StepUnit, c); err == nil || m != nil {
			t.Errorf("case %d: %+v", i, m)
		}
	}
	for i, c := range []Config{{Steps: 2}, {Edges: []float64{1}}, {Encoding: Seed, Edges: []float64{1, 2}}, {Encoding: Seed, Steps: 2}} {
		c.Dim, c.Radius, c.Eps0 = 9, 1, 2
		if m, err := New(PrivUnit, c); err == nil || m != nil {
			t.Errorf("privunit, case %d: %+v", i, m)
		}
	}
	for _, name := range names() {
		k, _ := KindOf(name)
		for _, c := range []Config{{Encoding: Seed}, {Encoding: Values}, {Steps: 1}} {
			c.Dim, c.Radius, c.Eps0 = 9, 1, 2
			if _, err := New(name, c); (err == nil) != k.Seeds {
				t.Errorf("%s with %+v: %v", name, c, err)
			}
		}
	}
	for _, name := range []string{PrivUnit, StepUnit} {
		for steps := range 2 {
			c := Config{Dim: 9, Radius: 1, Eps0: MaxSeedEps0, Encoding: Seed, Steps: steps}
			if _, err := New(name, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			c.Eps0 += .1
			if _, err := New(name, c); err == nil {
				t.Errorf("%s: took an eps0 that needs more tries than there is time", name)
			}
		}
	}
}
