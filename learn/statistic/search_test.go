package statistic

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

func heavyQuestion(longest int, share float64) Question {
	return Question{Measure: HeavyHitters, Column: "word", Longest: longest, Share: share}
}

// variance of the noise of one count at ε = 1, δ = 1e-5: σ = 3.73·√2.
const usualVariance = 28

func usualLaw(reports int64) (Law, error) { return OfCurator(1, usualVariance, reports, true) }

// searched asks all clients, in random blocks, and counts as a round would.
func searched(t testing.TB, q Question, items []string, seed uint64) *Search {
	t.Helper()
	n := int64(len(items))
	rounds := q.Rounds()
	s, err := NewSearch(q, n, n/rounds, usualLaw)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEncoder(q)
	if err != nil {
		t.Fatal(err)
	}
	src := rng.Replay(seed)
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	sample.Shuffle(src, order)
	noise, err := sample.NewDiscreteGaussian(sample.Ratio{Num: usualVariance, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	sums, errors := make([]float64, q.Dim()), make([]int64, q.Dim())
	for r := range rounds {
		clear(sums)
		at := e.At(s.Point())
		block := order[n*r/rounds : n*(r+1)/rounds]
		for _, id := range block {
			for _, j := range at.Places(func(string) string { return items[id] }, nil, nil) {
				sums[j]++
			}
		}
		noise.Fill(src, errors)
		for j, e := range errors {
			sums[j] += float64(e)
		}
		if err := s.Take(sums, int64(len(block))); err != nil {
			t.Fatal(err)
		}
		if r != int64(seed)%rounds {
			continue
		}
		// A crash between two rounds changes nothing.
		again, err := NewSearch(q, n, n/rounds, usualLaw)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Restore(s.Vectors()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again.Vectors(), s.Vectors()) || !slices.Equal(again.Point(), s.Point()) {
			t.Fatal("a restored search differs")
		}
		s = again
	}
	return s
}

// populations are texts of n clients.
var populations = map[string]func(n int, src rng.Source) []string{
	"zipf": func(n int, src rng.Source) []string {
		var texts []string
		for i := range 10000 {
			texts = append(texts, fmt.Sprintf("w%x", uint32(i)*2654435761>>8))
		}
		return weighted(n, src, texts, func(i int) float64 { return 1 / float64(i+1) })
	},
	"unique": func(n int, src rng.Source) []string {
		// Twenty items of 1.05 %, twenty of .28 %, and the rest each of its own.
		var out []string
		for i := range 20 {
			out = append(out, slices.Repeat([]string{fmt.Sprintf("often%d", i)}, n*105/10000)...)
			out = append(out, slices.Repeat([]string{fmt.Sprintf("rare%d", i)}, n*28/10000)...)
		}
		for len(out) < n {
			out = append(out, fmt.Sprintf("%x", src.Uint64()))
		}
		return out
	},
	"prefixes": func(n int, src rng.Source) []string {
		// All texts begin alike. Items are beginnings of one another, and one pair differs in its last byte.
		var out []string
		long := strings.Repeat("a", 15)
		for i := 1; i <= 15; i++ {
			out = append(out, slices.Repeat([]string{long[:i]}, n*11/1000)...)
		}
		out = append(out, slices.Repeat([]string{long + "x"}, n/50)...)
		out = append(out, slices.Repeat([]string{long + "y"}, n*29/10000)...)
		for i := 0; len(out) < n; i++ {
			out = append(out, fmt.Sprintf("aaaaaaaa%08d", i))
		}
		return out
	},
	"bytes": func(n int, src rng.Source) []string {
		// Missing, too long, not UTF-8.
		var out []string
		out = append(out, slices.Repeat([]string{""}, n/10)...)
		out = append(out, slices.Repeat([]string{"0123456789abcdefg"}, n/5)...)
		out = append(out, slices.Repeat([]string{"0123456789abcdef"}, n/20)...)
		out = append(out, slices.Repeat([]string{"\xff\xfe\x00"}, n/50)...)
		out = append(out, slices.Repeat([]string{"\xff\xfe"}, n/50)...)
		out = append(out, slices.Repeat([]string{"日本"}, n/50)...)
		for len(out) < n {
			v := src.Uint64()
			out = append(out, "\xff"+string([]byte{byte(v >> 1), byte(v >> 9), byte(v >> 17)}))
		}
		return out
	},
}

// weighted returns n draws of texts.
func weighted(n int, src rng.Source, texts []string, weight func(i int) float64) []string {
	sums := make([]float64, len(texts))
	var sum float64
	for i := range texts {
		sum += weight(i)
		sums[i] = sum
	}
	out := make([]string, n)
	for i := range out {
		j, _ := slices.BinarySearch(sums, float64(src.Uint64()>>11)/(1<<53)*sum)
		out[i] = texts[j]
	}
	return out
}

// judge compares an answer with the truth: what is missed, reported in error, and how many intervals hold.
func judge(t testing.TB, name string, items []string, a Answer, longest int) (single, joint, of int) {
	t.Helper()
	n := float64(len(items))
	truth := map[string]float64{}
	for _, text := range items {
		text = strings.TrimSpace(text)
		truth[text]++
	}
	got := map[string]bool{}
	for _, item := range a.Items {
		text := string(item.Bytes)
		if item.Text != nil {
			text = *item.Text
		}
		got[text] = true
		have := truth[text]
		if have < .003*n {
			t.Errorf("%s: %q is reported with %v, but %v of the clients have it", name, text, item.Count, have/n)
		}
		of++
		if item.Low95 <= have && have <= item.High95 {
			single++
		}
		if item.JointLow95 <= have && have <= item.JointHigh95 {
			joint++
		}
	}
	for text, have := range truth {
		if have > .01*n && text != "" && len(text) <= longest && !got[text] {
			t.Errorf("%s: %q is missing, %v of the clients have it", name, text, have/n)
		}
	}
	return single, joint, of
}

// With n = 1e6 and the noise of ε = 1 all items above 1 % are found and none below .3 %: in one
// crowd of each kind, three with the tag soak; in a default test of 450,000 clients.
func TestHeavyHittersAreFound(t *testing.T) {
	n, seeds := longtest.Pick(450000, 1000000), longtest.Pick3([]uint64{1}, []uint64{1}, []uint64{1, 2, 3})
	for name, make := range populations {
		if !longtest.On && name != "prefixes" {
			continue
		}
		single, joint, of := 0, 0, 0
		for _, seed := range seeds {
			items := make(n, rng.Replay(seed, 99))
			a, err := searched(t, heavyQuestion(16, .01), items, seed).Answer()
			if err != nil {
				t.Fatal(err)
			}
			s, j, o := judge(t, name, items, a, 16)
			single, joint, of = single+s, joint+j, of+o
			if seed == seeds[0] {
				t.Logf("%s: %d items, counted %d of %d rounds, sure %v, never %.4f, others %.0f (%.0f … %.0f)", name, len(a.Items), a.Search.Counted, a.Search.Rounds, a.Search.Sure, a.Search.Never,
					a.Search.Others.Value, a.Search.Others.Low95, a.Search.Others.High95)
			}
		}
		t.Logf("%s: %d and %d of %d intervals hold", name, single, joint, of)
	}
}

// Intervals hold as often as they say, over many searches.
func TestHeavyHittersIntervals(t *testing.T) {
	repetitions := longtest.Pick3(40, 500, 2000)
	n := longtest.Pick(25000, 40000)
	var single, of, together int
	for seed := range repetitions {
		items := weighted(n, rng.Replay(uint64(seed), 5), []string{"a", "ab", "b", "ccc", "d", "e", "fffff"}, func(i int) float64 { return 1 / float64(i+2) })
		a, err := searched(t, heavyQuestion(4, .05), items, uint64(seed)).Answer()
		if err != nil {
			t.Fatal(err)
		}
		s, j, o := judge(t, "", items, a, 4)
		single, of = single+s, of+o
		if j == o {
			together++
		}
	}
	share, all := float64(single)/float64(of), float64(together)/float64(repetitions)
	t.Logf("%.4f of %d intervals hold, all of a search in %.4f of %d", share, of, all, repetitions)
	if slack := 6 * math.Sqrt(.05*.95/float64(of)); math.Abs(share-.95) > .02+slack {
		t.Errorf("%.4f of %d intervals hold", share, of)
	}
	if slack := 6 * math.Sqrt(.05*.95/float64(repetitions)); all < .94-slack {
		t.Errorf("all intervals of a search hold in %.4f", all)
	}
}
