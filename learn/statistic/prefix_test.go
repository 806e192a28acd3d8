package statistic

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func mustTree(t testing.TB, longest int, alphabet string, share float64) prefixTree {
	t.Helper()
	tr, err := newPrefixTree(longest, alphabet, share)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTreeRefuses(t *testing.T) {
	for _, c := range []struct {
		longest  int
		alphabet string
		share    float64
		want     string
	}{
		{0, "", .01, "longest"},
		{257, "", .01, "longest"},
		{8, "", 0, "share"},
		{8, "", .51, "share"},
		{8, "", math.NaN(), "share"},
		{8, "aba", .01, "twice"},
		{8, "a\xff", .01, "UTF-8"},
		{8, "", leastShare, "larger share"},
	} {
		if _, err := newPrefixTree(c.longest, c.alphabet, c.share); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestItemsRoundTrip(t *testing.T) {
	bytes, letters := mustTree(t, 4, "", .1), mustTree(t, 4, "äéz日a", .1)
	for _, c := range []struct {
		tree prefixTree
		item string
		ok   bool
	}{
		{bytes, "", true}, {bytes, "abcd", true}, {bytes, "abcde", false}, {bytes, "\xff\x00\x80", true}, {bytes, "日a", true}, {bytes, "日日", false},
		{letters, "", true}, {letters, "日日日日", true}, {letters, "日日日日a", false}, {letters, "ab", false}, {letters, "a\xff", false}, {letters, strings.Repeat("a", 1000), false},
	} {
		w, ok := c.tree.parse(c.item)
		if ok != c.ok || ok && c.tree.text(w) != c.item {
			t.Errorf("%q: %v, %q", c.item, ok, c.tree.text(w))
		}
		if !ok && c.tree.bucket(c.tree.begin(), c.item) != c.tree.dim()-1 {
			t.Errorf("%q is not counted as other", c.item)
		}
	}
}

// exact searches without noise and sampling, by counting all clients in each round.
func exact(tr prefixTree, items map[string]int, cut float64) search {
	s := tr.begin()
	for range tr.rounds() {
		counts := make([]float64, tr.dim())
		for item, n := range items {
			if b := tr.bucket(s, item); b >= 0 {
				counts[b] += float64(n)
			}
		}
		if s.counting() {
			break
		}
		s = tr.step(s, counts, cut)
	}
	return s
}

func TestSearchFindsWhatIsThere(t *testing.T) {
	items := map[string]int{"": 30, "a": 20, "ab": 20, "abc": 20, "abcd": 20, "abcde": 500, "b": 9, "ba": 9, "\xff\xfe": 20, "\xff\xfd": 9, "zzz\x00": 20}
	for _, longest := range []int{4, 5, 9} {
		tr := mustTree(t, longest, "", .02)
		s := exact(tr, items, 10)
		var got, want []string
		for _, w := range s.found {
			got = append(got, tr.text(w))
		}
		for item, n := range items {
			if n >= 10 && len(item) <= longest {
				want = append(want, item)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || !s.counting() {
			t.Errorf("longest %d: found %q, want %q; %+v", longest, got, want, s)
		}
	}
}

// Beyond what a round can ask about, the largest counts stay.
func TestStepKeepsTheLargest(t *testing.T) {
	tr := mustTree(t, 2, "abcdefghijklmnop", .5) // 4 prefixes, 8 items
	counts := make([]float64, tr.dim())
	for i := range 16 {
		counts[i] = float64(10 + i%8)
	}
	s := tr.step(tr.begin(), counts, 1)
	var got []string
	for _, w := range s.prefixes {
		got = append(got, tr.text(w))
	}
	if want := []string{"g", "h", "o", "p"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	all := make([]float64, tr.dim())
	for i := range all {
		all[i] = 100 - float64(i)
	}
	if s = tr.step(s, all, 1); len(s.found) != tr.items() || !s.counting() {
		t.Errorf("%d items found, want %d", len(s.found), tr.items())
	}
	if tr.text(s.found[0]) != "ga" {
		t.Errorf("first found is %q", tr.text(s.found[0]))
	}
}

func TestStateAsParameters(t *testing.T) {
	tr := mustTree(t, 3, "xyz", .25)
	src := rng.Replay(7)
	for range 300 {
		s := tr.begin()
		counts := make([]float64, tr.dim())
		for {
			theta := tr.encode(s)
			back, err := tr.decode(theta)
			if err != nil || fmt.Sprint(back) != fmt.Sprint(s) {
				t.Fatalf("%v became %v: %v", s, back, err)
			}
			// Any other whole state differs, and no broken one is taken as this one.
			i := int(src.Uint64() % uint64(len(theta)))
			old := theta[i]
			for _, v := range []float32{old + .5, -1, float32(math.NaN()), float32(math.Inf(1)), 1 << 20, old + 1} {
				theta[i] = v
				if other, err := tr.decode(theta); err == nil && fmt.Sprint(other) == fmt.Sprint(s) {
					t.Fatalf("place %d = %v is read as %v", i, v, old)
				}
			}
			if s.counting() {
				break
			}
			for j := range counts {
				counts[j] = float64(src.Uint64() % 8)
			}
			s = tr.step(s, counts, 5)
		}
	}
	if _, err := tr.decode(tr.encode(tr.begin())[1:]); err == nil {
		t.Error("a state that is too short was read")
	}
}

// The chances of the limits are computed, not drawn.
func TestLimits(t *testing.T) {
	tr := mustTree(t, 16, "", .01)
	for _, noise := range []errorLaw{bell(28), bell(400)} {
		d := drawn{1e6, 58823, noise}
		if err := tr.check(d); err != nil {
			t.Fatal(err)
		}
		l := tr.limits(d)
		t.Logf("cut %.1f of %d, sure %.4f, never %.5f", l.cut, d.reports, l.sure, l.never)
		if less, _ := d.below(1e4, l.cut); less > rare/1600 {
			t.Errorf("an item of 1 %% is missed with chance %v", less)
		}
		if less, _ := d.below(int64(l.never*1e6), l.cut); 1-less > rare/5e4 {
			t.Errorf("an item of %v is found with chance %v", l.never, 1-less)
		}
		if l.never < .003 {
			t.Errorf("items above %v may be found", l.never)
		}
	}
	for _, n := range []int64{100, 1000, 1e4} {
		d := drawn{n, n / 17, bell(28)}
		err := tr.check(d)
		t.Log(err)
		if err == nil {
			t.Errorf("n = %d is enough", n)
		}
	}
}

// Where a cut that misses nothing would let through more beginnings than a round can ask about, it is
// raised, and what is surely found begins higher: the question is refused.
func TestLimitsKeepRoom(t *testing.T) {
	tr := mustTree(t, 8, "", .05)
	d := drawn{20000, 2222, bell(28)}
	l := tr.limits(d)
	if reach := d.above(1e-6); !(float64(tr.prefixes())*(l.cut-reach) >= float64(d.reports)) {
		t.Errorf("%d reports may give more than %d counts of %v", d.reports, tr.prefixes(), l.cut)
	}
	if !(l.sure > .05) {
		t.Errorf("items are surely found from %v on", l.sure)
	}
	if less, _ := d.below(int64(l.sure*20000), l.cut); less > rare/(8*20)*(1+1e-9) {
		t.Errorf("an item of the share %v is missed with chance %v", l.sure, less)
	}
	if err := tr.check(d); err == nil || !strings.Contains(err.Error(), "try share") {
		t.Errorf("%v", err)
	}
}
