package figures

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
)

// near is half a percent: what the papers' texts can be read to, and less than
// any change of a formula would make.
// shared remembers the bounds of all tests that draw every point.
var shared = &desk{}

func near(got, want float64) bool { return math.Abs(got-want) <= .005*math.Abs(want) }

func TestClaims(t *testing.T) {
	nan := math.NaN()
	want := map[string]struct {
		computed, riffle float64
		verdict          string
	}{
		"g21-14x": {13.70, 93.6, Matches}, "g21-2.5x": {2.553, 17.44, Matches}, "g21-2b-order": {.2221, 33.33, Matches}, "g21-4-silent": {1, 175.6, Matches},
		"g21-1.4": {1.399, .165, Matches}, "g21-2.91": {2.91, .398, Matches}, "g21-4.82": {3.546, .398, Explains},
		"g21-3": {3, .3151, Matches}, "g21-5.8": {5.795, .6672, Matches}, "g21-18.3": {8.132, .6672, Explains},
		"g21-80": {nan, nan, Missing}, "g21-70.7": {nan, nan, Missing}, "g21-76.46": {nan, nan, Missing}, "eab-98.18": {nan, nan, Missing}, "g21-90": {nan, nan, Missing}, "g21-81.15": {nan, nan, Missing}, "g21-89.7": {nan, nan, Missing},
		"eab-factor": {15.36, 22.46, Lost}, "eab-96.41": {nan, nan, Missing},
		"sci-3x": {2.826, 14.38, Matches}, "sci-10x": {11.62, 10.08, Matches}, "sci-2a-first": {.1863, 13.56, Matches}, "sci-2a-order": {10.16, 24.17, Matches},
		"sci-.67": {nan, .04307, Explains}, "sci-90": {nan, nan, Missing},
	}
	list, err := check(context.Background(), shared)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(want) {
		t.Errorf("%d claims, %d expected", len(list), len(want))
	}
	for _, c := range list {
		w, ok := want[c.ID]
		same := func(got, want float64) bool {
			return math.IsNaN(got) && math.IsNaN(want) || near(got, want)
		}
		if !ok || !same(c.Computed, w.computed) || !same(c.Riffle, w.riffle) || c.verdict() != w.verdict {
			t.Errorf("%s: computed %.4g, riffle %.4g, %s; want %+v", c.ID, c.Computed, c.Riffle, c.verdict(), w)
		}
		if c.Quote == "" || c.Where == "" || c.Paper == "" || c.Why == "" || c.Ours == "" {
			t.Errorf("%s lacks a text", c.ID)
		}
		// Stated numbers are in the quotes.
		if c.verdict() == Explains && !strings.ContainsAny(c.Why, "0123456789") {
			t.Errorf("%s: the difference is not explained", c.ID)
		}
	}
}

// The numbers in the explanations.
func TestNumbersInExplanations(t *testing.T) {
	d, ctx := shared, context.Background()
	at := func(q account.Query, method string, want float64) {
		t.Helper()
		if got, err := d.eps(ctx, q, method); err != nil || !near(got, want) {
			t.Errorf("%s %+v: %v, %v; want %v", method, q, got, err, want)
		}
	}
	a, b := sampled(2, 1e6, 1e3, 1e5), sampled(1, 1e7, 1e4, 1e5)
	at(a, "clones-numeric-strong", 2.522)
	at(a, "gddsk-wbk", 1.024)
	at(a, "girgis-thm1", 1.024/.984)
	at(b, "gddsk-wbk", .351)
	at(b, "clones-closed-strong", .5654)
	at(e1(1200), "girgis-thm1", 3.086)
	at(e1(1200), "clones-numeric-strong", 3.809)
	at(account.Query{Participation: dp.CheckIn, Eps0: 8, Population: 1e7, Gamma: 1e-4, Rounds: 2000, Delta: 1e-5}, upper, 1.31)
	for _, c := range []struct {
		q            account.Query
		above, below string
		want         float64
	}{
		{checkIn(1, 1e-3, 1e5, 1e5), "checkin-strong", "sci-thm2", 4.9}, {checkIn(1, 1e-3, 1e7, 1e5), "checkin-strong", "sci-thm2", 2.1},
		{checkIn(1, 1e-3, 1e6, 1e5), "checkin-strong", "sci-thm3", 17}, {checkIn(1, 1e-3, 1e8, 1e5), "checkin-strong", "sci-thm3", 10.4},
		{distributed(1e6), "gauss-strong", "sci-thm4-eq10", 6.8}, {distributed(1e5), "gauss-strong", "sci-thm4-eq10", 2.5},
	} {
		if got, _, err := ratio(c.q, c.above, c.below)(ctx, d); err != nil || math.Abs(got/c.want-1) > .02 {
			t.Errorf("%s / %s: %v, %v; want %v", c.above, c.below, got, err, c.want)
		}
	}
	for _, c := range []struct {
		query func(int64) account.Query
		most  int64
		eps   float64
		want  int64
	}{{e1, 1200, 1.4, 213}, {e1, 1200, 2.91, 1067}, {e2, 6000, 3, 1515}, {e2, 6000, 5.8, 6000}} {
		if got, err := d.last(ctx, c.query, c.most, "girgis-thm1", c.eps); err != nil || got < c.want-2 || got > c.want+2 {
			t.Errorf("epsilon %v is reached at round %d, %v; want %d", c.eps, got, err, c.want)
		}
	}
	// The closed form is silent at A: nothing but sampling is composed.
	alone, err := literature.Strong{Eps0: 2, Delta: func(float64) float64 { return 1 }, Gamma: 1e-3, Rounds: 1e5}.Epsilon(1e-8)
	if closed, err2 := d.eps(ctx, a, "clones-closed-strong"); err != nil || err2 != nil || closed != alone {
		t.Errorf("closed form %v, no shuffling %v, %v, %v", closed, alone, err, err2)
	}
	// Equal shares of δ for every round and for the composition.
	for _, c := range []struct {
		q    account.Query
		want float64
	}{{e1(1067), 4.589}, {e2(6000), 11.82}} {
		share := c.q.Delta / float64(c.q.Rounds+1)
		family, err := amplify.ClonesFamily(c.q.Eps0, amplify.Clones(c.q.Eps0))
		if err != nil {
			t.Fatal(err)
		}
		curve, err := family.Curve(amplify.FamilyRound{Population: c.q.Reports, Reports: c.q.Reports})
		if err != nil {
			t.Fatal(err)
		}
		low, high := 0., c.q.Eps0
		for high-low > 1e-9 {
			if mid := (low + high) / 2; curve.Delta(mid) > share {
				low = mid
			} else {
				high = mid
			}
		}
		round := math.Log1p(float64(c.q.Reports) / float64(c.q.Population) * math.Expm1(high))
		if got := (literature.Repeated{Eps: round, Rounds: c.q.Rounds}).Epsilon(share); !near(got, c.want) {
			t.Errorf("equal shares: %v, want %v", got, c.want)
		}
	}
}

// ACCOUNTING's golden points and those of the papers' texts, as the figures have
// them.
func TestGoldenPoints(t *testing.T) {
	d, ctx := shared, context.Background()
	for _, c := range []struct {
		q      account.Query
		method string
		want   float64
	}{
		{sampled(2, 1e6, 1e3, 1e5), "clones-closed-strong", 14.26}, {sampled(2, 1e6, 1e3, 1e5), "girgis-thm1", 1.0402}, {sampled(2, 1e6, 1e3, 1e5), upper, .1522},
		{sampled(2, 1e6, 1e3, 1e5), lower, .1374}, {checkIn(1, 1e-3, 1e7, 1e5), "sci-thm2", .0709}, {checkIn(1, 1e-3, 1e7, 1e5), upper, .01486},
		{distributed(1e5), "sci-thm4-eq10", .842}, {distributed(1e5), "sci-thm4-eq11", 1.413}, {distributed(1e5), upper, .1238},
	} {
		if got, err := d.eps(ctx, c.q, c.method); err != nil || !near(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.method, got, err, c.want)
		}
	}
	// What a method refuses is no number.
	if got, err := d.eps(ctx, sampled(2, 1e6, 1e3, 1e5), "efmrtt"); err != nil || !math.IsNaN(got) {
		t.Errorf("efmrtt at eps0 = 2: %v, %v", got, err)
	}
	if _, err := d.eps(ctx, sampled(2, 1e6, 1e3, 1e5), "nonsense"); err == nil {
		t.Error("an unknown method answers")
	}
}

func TestVerdict(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		c    checked
		want string
	}{
		{checked{claim{Stated: 2, Tolerance: .1}, 2.19, 1}, Matches}, {checked{claim{Stated: 2, Tolerance: .1}, 2.3, 1}, Explains},
		{checked{claim{Stated: 1, Below: true}, .2, 1}, Matches}, {checked{claim{Stated: 1, Below: true}, 1.2, 1}, Explains},
		{checked{claim{Stated: 1}, nan, 1}, Explains}, {checked{claim{Stated: 90, Unit: Accuracy}, nan, nan}, Missing}, {checked{claim{Stated: nan}, 1, 1}, Lost},
		{checked{claim{Stated: 90, Tolerance: .01, Unit: Accuracy}, 78, 78}, Missed}, {checked{claim{Stated: 90, Tolerance: .01, Unit: Accuracy}, 95, 95}, Exceeded},
	} {
		if got := c.c.verdict(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.c, got, c.want)
		}
	}
}
