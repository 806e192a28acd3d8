package amplify_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/longtest"
)

func rateOf(name string, eps0 float64) float64 {
	if name == "clones" {
		return amplify.Clones(eps0)
	}
	return amplify.Blanket(eps0)
}

// goldenPair is the pair of a row's round; the last one is kept: rows of one
// round follow each other.
func goldenPair(t *testing.T, kept map[string]dp.Pair, name string, k, n int64, eps0, tail float64) dp.Pair {
	t.Helper()
	key := strings.Join([]string{name, strconv.FormatInt(k, 10), strconv.FormatInt(n, 10), strconv.FormatFloat(eps0, 'g', -1, 64)}, " ")
	if p, ok := kept[key]; ok {
		return p
	}
	p, err := amplify.Shuffle(amplify.ShuffleConfig{Eps0: eps0, Reports: k, Rate: rateOf(name, eps0), Tail: tail})
	if err == nil {
		p, err = amplify.Subsample(p, float64(k)/float64(n))
	}
	if err != nil {
		t.Fatal(err)
	}
	clear(kept)
	kept[key] = p
	return p
}

// near fails unless got is want within rel above and only rounding below.
// below allows for the golden value's own error and the pair's rounding.
func near(t *testing.T, where string, got, want, rel, below float64) {
	t.Helper()
	if !(got >= want*(1-below)-1e-15) {
		t.Errorf("%s: %.17g lies below the true %.17g (relative %.3g)", where, got, want, (want-got)/want)
	}
	if !(got <= want*(1+rel)+1e-15) {
		t.Errorf("%s: %.17g lies above the true %.17g (relative %.3g)", where, got, want, (got-want)/want)
	}
}

func TestGoldenShuffle(t *testing.T) {
	kept := map[string]dp.Pair{}
	for i, r := range golden.Rows(t, "shuffle.tsv", 300) {
		if i/5%3 == 1 && !longtest.On {
			continue
		}
		v := golden.Numbers(t, r[1:])
		k, eps0, eps, want := int64(v[0]), v[1], v[2], v[3]
		p := goldenPair(t, kept, r[0], k, k, eps0, 1e-60)
		near(t, strings.Join(r, " "), pairCurve(p)(eps), want, 1e-8, 1e-8)
	}
}

func TestGoldenHybrid(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	kept := map[string]dp.Pair{}
	for i, r := range golden.Rows(t, "hybrid.tsv", 800) {
		if !longtest.On && (i%3 != 0 || i/6%5 > 1) { // two of five pairs
			continue
		}
		v := golden.Numbers(t, r[1:])
		k, n, eps0, eps, want := int64(v[0]), int64(v[1]), v[2], v[3], v[4]
		p := goldenPair(t, kept, r[0], k, n, eps0, 1e-60)
		near(t, strings.Join(r, " "), pairCurve(p)(eps), want, 1e-8, 1e-8)
	}
}

// The fast forms: Curve in closed form, Round merged to some hundred outcomes.
// Both lie above the truth; Curve within 1e-6 of ε, Round within 2 % of δ.
func TestGoldenFastForms(t *testing.T) {
	table := golden.Rows(t, "hybrid.tsv", 800)
	for _, r := range golden.Rows(t, "shuffle.tsv", 300) {
		table = append(table, []string{r[0], r[1], r[1], r[2], r[3], r[4]})
	}
	for i, r := range table {
		if i%5 > 1 && !longtest.On {
			continue
		}
		v := golden.Numbers(t, r[1:])
		k, n, eps0, eps, want := int64(v[0]), int64(v[1]), v[2], v[3], v[4]
		c := amplify.RoundConfig{Eps0: eps0, Population: n, Reports: k, Rate: rateOf(r[0], eps0)}
		fast, err := amplify.NewCurve(c)
		if err != nil {
			t.Fatal(err)
		}
		p, err := amplify.Round(c)
		if err != nil {
			t.Fatal(err)
		}
		round := pairCurve(p)
		if got := fast.Delta(eps); !(got >= want*(1-1e-8)-1e-16) {
			t.Errorf("curve %v: %.17g below the true %.17g", r, got, want)
		}
		if got := round(eps); !(got >= want*(1-1e-8)-1e-16) {
			t.Errorf("round %v: %.17g below the true %.17g", r, got, want)
		}
		if eps < 0 || want < 1e-14 {
			continue
		}
		if got := fast.Delta(eps * (1 + 1e-6)); !(got <= want*(1+1e-7)+1e-15) {
			t.Errorf("curve %v: %.17g at a millionth more eps, truth %.17g", r, got, want)
		}
		if got := round(eps); !(got <= want*1.02+1e-15) {
			t.Errorf("round %v: %.17g, truth %.17g", r, got, want)
		}
	}
}

func TestGoldenCheckIn(t *testing.T) {
	for _, r := range golden.Rows(t, "checkin.tsv", 80) {
		v := golden.Numbers(t, r[1:])
		n, gamma, eps0, eps, want := int64(v[0]), v[1], v[2], v[3], v[4]
		p, err := amplify.CheckIn(amplify.CheckInConfig{Eps0: eps0, Population: n, Gamma: gamma, Rate: amplify.Blanket(eps0), Tail: 1e-40, Blocks: 1000})
		if err != nil {
			t.Fatal(err)
		}
		near(t, strings.Join(r, " "), pairCurve(p)(eps), want, 1e-8, 1e-8)
		merged, err := amplify.Arrival(amplify.ArrivalConfig{Eps0: eps0, Population: n, Asked: n, Gamma: gamma, Rate: amplify.Blanket(eps0)})
		if err != nil {
			t.Fatal(err)
		}
		if got := pairCurve(merged)(eps); !(got >= want*(1-1e-8)-1e-16) {
			t.Errorf("arrival %v: %.17g below the true %.17g", r, got, want)
		}
		// The default blocks may lose a little, never gain.
		p, err = amplify.CheckIn(amplify.CheckInConfig{Eps0: eps0, Population: n, Gamma: gamma, Rate: amplify.Blanket(eps0), Tail: 1e-13, Blocks: 5})
		if err != nil {
			t.Fatal(err)
		}
		if got := pairCurve(p)(eps); got < want-tolerance {
			t.Errorf("%v in 5 blocks: %v below %v", r, got, want)
		}
	}
}

func TestGoldenRenyi(t *testing.T) {
	kept := map[string]dp.Pair{}
	for _, r := range golden.Rows(t, "renyi.tsv", 900) {
		v := golden.Numbers(t, r[1:])
		k, n, eps0, order, want := int64(v[0]), int64(v[1]), v[2], v[3], v[4]
		if k >= 1000 && eps0 > 4 || k > 1000 && eps0 > 2 || k >= 1000 && !longtest.On {
			continue // millions of atoms; the smaller k has the same losses
		}
		// A remainder is charged at e^(order·ε₀), up to 200·ε₀.
		tail := math.Pow(10, -math.Min(280, 40+200*eps0/2.3))
		p := goldenPair(t, kept, r[0], k, n, eps0, tail)
		near(t, strings.Join(r, " "), rdp.Divergence(p, order), want, 1e-7, 1e-9)
	}
}

// The merged pair at every row, high orders at large k and ε₀ included.
func TestGoldenRenyiMerged(t *testing.T) {
	worst := 0.0
	for i, r := range golden.Rows(t, "renyi.tsv", 900) {
		if i%5 > 1 && !longtest.On {
			continue
		}
		v := golden.Numbers(t, r[1:])
		k, n, eps0, order, want := int64(v[0]), int64(v[1]), v[2], v[3], v[4]
		p, err := amplify.Round(amplify.RoundConfig{Eps0: eps0, Population: n, Reports: k, Rate: rateOf(r[0], eps0)})
		if err != nil {
			t.Fatal(err)
		}
		got := rdp.Divergence(p, order)
		if !(got >= want*(1-1e-9)) {
			t.Errorf("%v: %.17g below the true %.17g", r, got, want)
		}
		worst = math.Max(worst, got/want-1)
		// The order moves the law 2·order/m outwards: within a few deviations the
		// grid is fine, far beyond it is coarse on purpose.
		limit := 2.
		if m := 1 + rateOf(r[0], eps0)*float64(k); order < math.Sqrt(m) || m < 80 {
			limit = 1.005
		}
		if !(got <= want*limit) {
			t.Errorf("%v: %.17g more than %v times the true %.17g", r, got, limit, want)
		}
	}
	t.Logf("largest relative excess %.3g", worst)
}
