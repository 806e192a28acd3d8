package seed

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mathext"

	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// falseAlarm is the probability with which one statistical check fails although the code is
// right. There are fewer than 100 checks in this package; their seeds are fixed.
const falseAlarm = 1e-9

func source(path ...uint64) rng.Source { return rng.Replay(20261122, path...) }

// input returns a fixed vector without symmetry, of the given norm.
func input(dim int, norm float64) []float32 {
	x, square := make([]float64, dim), 0.
	for i := range x {
		x[i] = math.Sin(float64(3*i+1)) + .2
		square += x[i] * x[i]
	}
	out := make([]float32, dim)
	for i, v := range x {
		out[i] = float32(v * norm / math.Sqrt(square))
	}
	return out
}

// normals checks the mean and the variance of n values that should be standard normal.
func normals(t *testing.T, name string, n int, sum, squares float64) {
	t.Helper()
	far := math.Sqrt2 * math.Erfcinv(falseAlarm)
	if mean := sum / float64(n); math.Abs(mean) > far/math.Sqrt(float64(n)) {
		t.Errorf("%s: mean %v of %d values", name, mean, n)
	}
	// A chi-square variable: both tails of mass falseAlarm.
	if p := mathext.GammaIncRegComp(float64(n)/2, squares/2); p < falseAlarm || p > 1-falseAlarm {
		t.Errorf("%s: mean square %v of %d values", name, squares/float64(n), n)
	}
}

// cuts divide the scores of the tests into cells.
var cuts = []float64{-2, -1.5, -1, -.5, 0, .5, .8, .95, 1.1, 1.3, 1.49, 1.7, 1.9, 2.02, 2.2, 2.5, 3}

func place(z float64) (i int) {
	for i < len(cuts) && z > cuts[i] {
		i++
	}
	return i
}

// fit returns the p-value of counts of scores between cuts under the law with density h(z)/E[h].
func fit(t *testing.T, m *Mechanism, counts []int) float64 {
	t.Helper()
	n := 0
	for _, c := range counts {
		n += c
	}
	above := func(z float64) float64 { // P[score > z]
		sum := tail.UpperNormal(z)
		for _, edge := range m.Edges {
			sum += m.Height * tail.UpperNormal(math.Max(z, edge))
		}
		return sum / m.weight()
	}
	var stat float64
	for i, c := range counts {
		p := 1.
		if i > 0 {
			p = above(cuts[i-1])
		}
		if i < len(cuts) {
			p -= above(cuts[i])
		}
		want := p * float64(n)
		if want < 20 {
			t.Fatalf("cell %d expects only %v", i, want)
		}
		stat += (float64(c) - want) * (float64(c) - want) / want
	}
	return mathext.GammaIncRegComp(float64(len(cuts))/2, stat/2)
}

// Accepted seeds have the law that a simulation draws: scores with density h along x, and
// standard normal across, whatever the score.
func TestAcceptedSeedsHaveTheSimulatedLaw(t *testing.T) {
	for i, x := range [][]float32{
		{1}, {0, -1, 0}, {.6, .8, 0, 0, 0}, input(9, 1), input(67, 3),
	} {
		dim := len(x)
		m := mechanism(t, three(dim))
		src := source(1, uint64(i))
		round := [32]byte{1, 16: 2}
		n := 30_000
		unitX := make([]float64, dim)
		for j, v := range x {
			unitX[j] = float64(v) / norm(x)
		}
		across := make([]float64, dim) // a fixed direction orthogonal to x
		if dim > 1 {
			j := 0
			for math.Abs(unitX[j]) > .9 {
				j++
			}
			for k := range across {
				across[k] = -unitX[j] * unitX[k]
			}
			across[j]++
			size := math.Sqrt(1 - unitX[j]*unitX[j])
			for k := range across {
				across[k] /= size
			}
		}
		drawn, direct := make([]int, len(cuts)+1), make([]int, len(cuts)+1)
		var sum, squares, sumHigh, squaresHigh float64
		high := 0
		for range n {
			v := make([]int64, dim)
			m.AddTo(v, &round, m.Draw(src, &round, x))
			var z, y float64
			for j, w := range v {
				z += float64(w) / unit * unitX[j]
				y += float64(w) / unit * across[j]
			}
			drawn[place(z)]++
			direct[place(m.SimulateScore(src))]++
			sum, squares = sum+y, squares+y*y
			if z > m.Edges[0] {
				high++
				sumHigh, squaresHigh = sumHigh+y, squaresHigh+y*y
			}
		}
		name := fmt.Sprintf("dim %d", dim)
		for how, counts := range map[string][]int{"drawn": drawn, "simulated": direct} {
			if p := fit(t, m, counts); p < falseAlarm {
				t.Errorf("%s, %s: p = %.2g of the scores", name, how, p)
			}
		}
		if dim > 1 {
			normals(t, name+", across", n, sum, squares)
			normals(t, name+", across high scores", high, sumHigh, squaresHigh)
		}
	}
}

// The test of the law sees a wrong one: an edge that is off by .05, a height by a tenth.
func TestWrongLawsAreCaught(t *testing.T) {
	for i, change := range []func(c *Config){
		func(c *Config) { c.Edges = []float64{.95, 1.54, 2.02} },
		func(c *Config) { c.Height *= 1.1 },
	} {
		config := three(1)
		change(&config)
		wrong, right := mechanism(t, config), mechanism(t, three(1))
		counts, src := make([]int, len(cuts)+1), source(5, uint64(i))
		for range 100_000 {
			counts[place(wrong.SimulateScore(src))]++
		}
		if p := fit(t, right, counts); p > falseAlarm {
			t.Errorf("wrong law %d has p = %.2g", i, p)
		}
	}
}

// Scores of uniform seeds are normal in any direction: here with many coordinates.
func TestScoresAreNormal(t *testing.T) {
	for i, x := range [][]float32{{0, 1}, {1, 1}, {1, -2, .1}, input(40, 1)} {
		m := mechanism(t, three(len(x)))
		src, w := source(2, uint64(i)), m.scratch.Get().(*scratch)
		length := w.direction(x)
		const n, cells = 100_000, 64
		var counts [cells]int
		for range n {
			z := m.product(w, &[32]byte{}, uniform(src)) / length
			counts[min(int(tail.UpperNormal(z)*cells), cells-1)]++
		}
		var stat float64
		for _, c := range counts {
			stat += (float64(c) - n/cells) * (float64(c) - n/cells) / (n / cells)
		}
		if p := mathext.GammaIncRegComp((cells-1)/2., stat/2); p < falseAlarm {
			t.Errorf("%d coordinates: chi-square %.1f with %d degrees of freedom", len(x), stat, cells-1)
		}
	}
}

func norm(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

// The scaled sum estimates the inputs, also of short and long ones.
func TestEstimateIsUnbiased(t *testing.T) {
	for i, c := range []struct {
		x    []float32
		want float64 // the norm that is left
	}{
		{input(5, 2), 2}, {input(5, 6), 2}, {input(5, .7), .7}, {make([]float32, 5), 0},
		{[]float32{float32(math.Inf(1)), 0, 0, 0, 0}, 2}, {[]float32{float32(math.NaN()), 2, 0, 0, 0}, 2},
	} {
		config := three(5)
		config.Radius = 2
		m := mechanism(t, config)
		const n = 15_000
		sum := make([]int64, 5)
		src := source(3, uint64(i))
		for range n {
			m.AddTo(sum, &[32]byte{9}, m.Draw(src, &[32]byte{9}, c.x))
		}
		length := norm(c.x)
		// A report's coordinate has a variance of at most E[z²] under h, below 4.
		far := math.Sqrt2 * math.Erfcinv(falseAlarm) * 2 * m.Scale() * unit / math.Sqrt(n)
		for j, s := range sum {
			want := 0.
			switch {
			case c.x[j] != c.x[j]:
			case math.IsInf(length, 1):
				if j == 0 {
					want = c.want
				}
			case c.x[1] == 2 && c.x[0] != c.x[0]:
				if j == 1 {
					want = c.want
				}
			case length > 0:
				want = float64(c.x[j]) * c.want / length
			}
			if got := float64(s) * m.Scale() / n; math.Abs(got-want) > far {
				t.Errorf("input %d: coordinate %d is estimated as %v, want %v ± %v", i, j, got, want, far)
			}
		}
	}
}

// A score's arithmetic is as exact as sumError says.
func TestScoreArithmetic(t *testing.T) {
	for _, dim := range []int{1, 9, 1930, 20_000} {
		m := mechanism(t, three(dim))
		x := input(dim, 1)
		w := m.scratch.Get().(*scratch)
		length := w.direction(x)
		for i := range 5 {
			s := uniform(source(4, uint64(dim), uint64(i)))
			got := m.product(w, &[32]byte{}, s) / length
			v := make([]int64, dim)
			m.AddTo(v, &[32]byte{}, s)
			exact, square := wide(0), wide(0)
			for j := range v {
				xj := wide(float64(x[j]))
				square.Add(square, wide(0).Mul(xj, xj))
				exact.Add(exact, xj.Mul(xj, wide(float64(v[j])/unit)))
			}
			exact.Quo(exact, square.Sqrt(square))
			diff, _ := exact.Sub(exact, wide(got)).Float64()
			if math.Abs(diff) > sumError(dim) {
				t.Errorf("dim %d: the score is off by %v, sumError = %v", dim, diff, sumError(dim))
			}
		}
	}
}

func wide(v float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(v) }

// never is a source whose seeds are all the same and whose coins accept only what is certain.
type never struct{ words int }

func (s *never) Uint64() uint64 { s.words++; return math.MaxUint64 }

func (s *never) Fill(dst []uint64) {
	s.words += len(dst)
	for i := range dst {
		dst[i] = 7
	}
}

func TestTriesEnd(t *testing.T) {
	m := mechanism(t, three(1))
	for _, x := range []float32{1, -1} { // the seed's score is above no edge for one of them
		src := &never{}
		m.Draw(src, &[32]byte{}, []float32{x})
		if most := 3*m.tries + 2; src.words == most {
			return
		}
	}
	t.Errorf("no input made Draw end after %d tries", m.tries)
}

// The coins are h(z)/E to the last bits.
func TestAcceptance(t *testing.T) {
	m := mechanism(t, three(3))
	top := 1 + 3*m.Height
	for c, got := range m.accept {
		want := (1 + float64(c)*m.Height) / top
		if p := (float64(got) + 1) * 0x1p-64; math.Abs(p/want-1) > 0x1p-49 {
			t.Errorf("above %d edges: %v, want %v", c, p, want)
		}
	}
	config := three(3)
	config.Height = leastHeight
	for c, got := range mechanism(t, config).accept {
		want := math.Ldexp(leastHeight*float64(3-c), 64) // 2^64·(1 − h/E)
		if got := -float64(int64(got + 1)); math.Abs(got-want) > 0x1p13 {
			t.Errorf("least height, above %d edges: 2^64 less %v, want %v", c, got, want)
		}
	}
	if e := math.Log(top); math.Abs(e-2.834) > .001 {
		t.Errorf("eps0 = %v", e)
	}
	if tries := top / m.weight(); tries < 6 || tries > 8 {
		t.Errorf("%v tries on average", tries)
	}
}

func TestConfigIsChecked(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Dim = 0 }, "dim"},
		{func(c *Config) { c.Dim = 1<<24 + 1 }, "dim"},
		{func(c *Config) { c.Radius = 0 }, "radius"},
		{func(c *Config) { c.Radius = nan }, "radius"},
		{func(c *Config) { c.Radius = math.Inf(1) }, "radius"},
		{func(c *Config) { c.Edges = nil }, "edges"},
		{func(c *Config) { c.Edges = []float64{1, 1} }, "rise"},
		{func(c *Config) { c.Edges = []float64{-.1} }, "rise"},
		{func(c *Config) { c.Edges = []float64{nan} }, "rise"},
		{func(c *Config) { c.Edges = []float64{6.01} }, "rise"},
		{func(c *Config) { c.Height = 0 }, "height"},
		{func(c *Config) { c.Height = nan }, "height"},
		// Rounded, 1/(1+Height) is 1, and times 2^64 no 64-bit number.
		{func(c *Config) { c.Height = 1e-17 }, "height"},
		{func(c *Config) { c.Height = math.Inf(1) }, "ratio"},
		{func(c *Config) { c.Edges = []float64{0}; c.Height = 1e20 }, "ratio"},
		{func(c *Config) { c.Edges = []float64{6}; c.Height = 1e6 }, "tries"},
	} {
		config := three(4)
		c.change(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one about %s", config, err, c.want)
		}
	}
}
