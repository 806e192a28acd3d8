package proved

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

func mustNew(t testing.TB, c Config) *Round {
	t.Helper()
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// report is what both aggregators hold of one place; nil cannot be opened.
type report [aggregators][]byte

func mustReport(t testing.TB, r *Round, src rng.Source, x []int64) (m report) {
	t.Helper()
	var err error
	if m[Aggregator], m[Coordinator], err = r.Report(src, x); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m report) clone() report { return report{bytes.Clone(m[0]), bytes.Clone(m[1])} }

// vector returns a random vector of a norm just below the bound times scale.
func vector(src rng.Source, d int, bound, scale float64) []int64 {
	x, norm := make([]float64, d), 0.0
	for i := range x {
		x[i] = float64(int64(src.Uint64()))
		norm += x[i] * x[i]
	}
	out := make([]int64, d)
	for i := range x {
		out[i] = int64(x[i] / math.Sqrt(norm) * bound * scale) // towards 0
	}
	return out
}

func newSums(t testing.TB, r *Round, key VerifyKey, reports int) (sums [aggregators]*Sum) {
	t.Helper()
	for k := range sums {
		var err error
		if sums[k], err = r.NewSum(SumConfig{Role: Role(k), Key: key, Reports: int64(reports)}); err != nil {
			t.Fatal(err)
		}
	}
	return sums
}

// decide takes both sums through all reports, chunk by chunk, and returns the reasons, which must be
// the same for both.
func decide(t testing.TB, sums [aggregators]*Sum, reports []report, chunk int) (reasons []Reason) {
	t.Helper()
	for len(reports) > 0 {
		n := min(chunk, len(reports))
		var messages [aggregators][]byte
		for k, s := range sums {
			var places []*Prepared
			for _, m := range reports[:n] {
				places = append(places, s.Prepare(m[k]))
			}
			var err error
			if messages[k], err = s.Begin(places); err != nil {
				t.Fatal(err)
			}
			if most := s.round.MessageSize(n); len(messages[k]) > most {
				t.Errorf("a message of %d bytes, above %d", len(messages[k]), most)
			}
		}
		var both [aggregators][]Reason
		for k, s := range sums {
			first, count, err := s.Covers(messages[1-k])
			if err != nil || first != s.Next() || count != n {
				t.Fatalf("%d places from %d: %v", count, first, err)
			}
			if both[k], err = s.Finish(messages[1-k]); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(both[0], both[1]) {
			t.Fatalf("the aggregators decide otherwise: %q and %q", both[0], both[1])
		}
		reasons, reports = append(reasons, both[0]...), reports[n:]
	}
	if !slices.Equal(sums[0].Out(), sums[1].Out()) {
		t.Errorf("%v and %v are left out", sums[0].Out(), sums[1].Out())
	}
	return reasons
}

// opened closes both sums with noise and returns the sum.
func opened(t testing.TB, sums [aggregators]*Sum, noise [aggregators][]int64) ([]int64, int64) {
	t.Helper()
	var partials [aggregators]vecsum.Partial
	for k, s := range sums {
		var err error
		if partials[k], err = s.Close(noise[k]); err != nil {
			t.Fatal(err)
		}
	}
	sum, n, err := sums[0].round.Combine(partials[0], partials[1])
	if err != nil {
		t.Fatal(err)
	}
	return sum, n
}

var key = VerifyKey{7}

func TestHonestSumsAreExact(t *testing.T) {
	for _, c := range []struct {
		config  Config
		reports int
		chunk   int
	}{
		{Config{Dim: 1, Bound: 1, Users: 1}, 1, 1},
		{Config{Dim: 20, Bound: 1 << 15, Users: 9, Announcement: [32]byte{1}}, 7, 3},
		{Config{Dim: 300, Bound: 1 << 24, Users: 1 << 20}, 10, 256},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			r, src := mustNew(t, c.config), rng.Replay(1)
			want := make([]int64, c.config.Dim)
			var reports []report
			for range c.reports {
				x := vector(src, c.config.Dim, float64(c.config.Bound), 1)
				for j := range want {
					want[j] += x[j]
				}
				m := mustReport(t, r, src, x)
				if a, b := r.Sizes(); len(m[Aggregator]) != a || len(m[Coordinator]) != b {
					t.Errorf("halves of %d and %d bytes, not %d and %d", len(m[0]), len(m[1]), a, b)
				}
				reports = append(reports, m)
			}
			sums := newSums(t, r, key, c.reports)
			for i, reason := range decide(t, sums, reports, c.chunk) {
				if reason != Accepted {
					t.Errorf("report %d: %s", i, reason)
				}
			}
			noise := [aggregators][]int64{vector(src, c.config.Dim, 1e9, 1), vector(src, c.config.Dim, 1e9, 1)}
			for j := range want {
				want[j] += noise[0][j] + noise[1][j]
			}
			sum, n := opened(t, sums, noise)
			if n != int64(c.reports) || !slices.Equal(sum, want) {
				t.Errorf("%v of %d, want %v", sum, n, want)
			}
		})
	}
}

// TestSizes holds the sizes that documents state.
func TestSizes(t *testing.T) {
	for _, c := range []struct{ d, aggregator, coordinator, places int }{{1930, 37104, 176, 256}, {13706, 133064, 176, 146}, {1 << 20, 8433848, 176, 1}} {
		r := mustNew(t, Config{Dim: c.d, Bound: 1<<15 + 22, Users: 60_000})
		if a, b := r.Sizes(); a != c.aggregator || b != c.coordinator || r.Places() != c.places {
			t.Errorf("d = %d: halves of %d and %d bytes, %d places in a message", c.d, a, b, r.Places())
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{Dim: 3, Bound: 10, Users: 5}
	for want, change := range map[string]func(*Config){
		"0 users":      func(c *Config) { c.Users = 0 },
		"users":        func(c *Config) { c.Users = 1<<40 + 1 },
		"dimension 0":  func(c *Config) { c.Dim = 0 },
		"norm bound 0": func(c *Config) { c.Bound = 0 },
		"exceed 2^61":  func(c *Config) { c.Users, c.Bound = 1<<40, 1<<24 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	r := mustNew(t, good)
	for want, c := range map[string]SumConfig{
		"aggregator 2":     {Role: 2, Key: key, Reports: 1},
		"aggregator -1":    {Role: -1, Key: key, Reports: 1},
		"key is not set":   {Reports: 1},
		"0 reports must":   {Key: key},
		"6 reports must":   {Key: key, Reports: 6},
		"-1 reports must ": {Key: key, Reports: -1},
	} {
		if _, err := r.NewSum(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, x := range [][]int64{nil, {1, 2}, {11, 0, 0}} {
		if _, _, err := r.Report(rng.Replay(1), x); err == nil {
			t.Errorf("%v is taken", x)
		}
	}
}
