package proved

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// field is the modulus of the shares.
var field = new(big.Int).SetUint64(1<<64 - 1<<32 + 1)

// combined adds both aggregators' shares, as an integer nearest 0.
func combined(a, b int64) int64 {
	v := new(big.Int).Add(new(big.Int).SetUint64(uint64(a)), new(big.Int).SetUint64(uint64(b)))
	v.Mod(v, field)
	if v.Cmp(new(big.Int).Rsh(field, 1)) > 0 {
		v.Sub(v, field)
	}
	return v.Int64()
}

// summed takes both aggregators through n reports, and returns their sums and the vectors' sum.
func summed(t *testing.T, announcement byte, src rng.Source, n int) (r *Round, sums [aggregators]*Sum, want []int64) {
	t.Helper()
	r = mustNew(t, Config{Dim: 6, Bound: 1000, Users: 100, Announcement: [32]byte{announcement}})
	want = make([]int64, 6)
	var reports []report
	for range n {
		x := vector(src, 6, 1000, 1)
		want = plus(want, x)
		reports = append(reports, mustReport(t, r, src, x))
	}
	sums = newSums(t, r, key, n)
	decide(t, sums, reports, 3)
	return r, sums, want
}

// Mix is Σ w·X over the rounds, modulo the field, at each aggregator, whatever the weights; the shares that it
// returns are of the round's own sum.
func TestMix(t *testing.T) {
	src := rng.Replay(3)
	type held struct {
		shares [aggregators][]int64
		sum    []int64
	}
	var before []held
	weights := [][]int64{{16}, {1}, {0, 9}, {1 << 16, 1 << 16}, {1 << 16, 0, 1}, {1<<16 - 1, 12345, 3, 1 << 15}, {3, 2, 1, 0, 0}}
	for i := range longtest.Pick(len(weights), 40) {
		var w []int64
		if i < len(weights) {
			w = weights[i]
		} else {
			for range 1 + int(src.Uint64()%5) {
				w = append(w, int64(src.Uint64()%(1<<16+1)))
			}
		}
		r, sums, own := summed(t, byte(i+1), src, 3)
		want := make([]int64, 6)
		var earlier [aggregators][]Earlier
		for j := range want {
			want[j] = w[0] * own[j]
		}
		for s := 1; s < len(w); s++ {
			h := before[len(before)-s]
			for j := range want {
				want[j] += w[s] * h.sum[j]
			}
			for k := range earlier {
				earlier[k] = append(earlier[k], Earlier{w[s], h.shares[k]})
			}
		}
		var kept held
		noise := [aggregators][]int64{vector(src, 6, 1e9, 1), vector(src, 6, 1e9, 1)}
		var partials [aggregators]vecsum.Partial
		for k, s := range sums {
			old := [][]int64{}
			for _, e := range earlier[k] {
				old = append(old, slices.Clone(e.Share))
			}
			var err error
			if kept.shares[k], err = s.Mix(w[0], earlier[k]); err != nil {
				t.Fatal(err)
			}
			for i, e := range earlier[k] {
				if !slices.Equal(e.Share, old[i]) {
					t.Error("Mix changes a share that it was given")
				}
			}
			if partials[k], err = s.Close(noise[k]); err != nil {
				t.Fatal(err)
			}
			want = plus(want, noise[k])
			// Each aggregator's share by itself, in plain numbers.
			for j := range 6 {
				v := new(big.Int).Mul(big.NewInt(w[0]), new(big.Int).SetUint64(uint64(kept.shares[k][j])))
				for i, e := range earlier[k] {
					v.Add(v, new(big.Int).Mul(big.NewInt(w[i+1]), new(big.Int).SetUint64(uint64(e.Share[j]))))
				}
				v.Add(v, big.NewInt(noise[k][j])).Mod(v, field)
				if got := partials[k].Sums[j]; got != v.Uint64() {
					t.Fatalf("weights %v: share %d of aggregator %d is %d, want %v", w, j, k, got, v)
				}
			}
		}
		for j := range own {
			if got := combined(kept.shares[0][j], kept.shares[1][j]); got != own[j] {
				t.Fatalf("the shares are of %d, the sum is %d", got, own[j])
			}
		}
		got, n, err := r.Combine(partials[0], partials[1])
		if err != nil || n != 3 || !slices.Equal(got, want) {
			t.Errorf("weights %v: %v of %d, want %v: %v", w, got, n, want, err)
		}
		kept.sum = own
		before = append(before, kept)
		if len(before) > 5 {
			before = before[1:]
		}
	}
}

// Wrong calls of Mix are refused, and one that is refused leaves the sum as it was.
func TestMixRefuses(t *testing.T) {
	src := rng.Replay(4)
	r := mustNew(t, Config{Dim: 6, Bound: 1000, Users: 100})
	reports := []report{mustReport(t, r, src, make([]int64, 6)), mustReport(t, r, src, vector(src, 6, 1000, 1))}
	early := newSums(t, r, key, 2)
	if _, err := early[0].Mix(16, nil); err == nil || !strings.Contains(err.Error(), "0 of 2 places") {
		t.Error(err)
	}
	sums := newSums(t, r, key, 2)
	decide(t, sums, reports, 2)
	none := int64(-1) // all bits: no element of the field
	for want, c := range map[string]struct {
		weight  int64
		earlier []Earlier
	}{
		"weight -1 of":      {-1, nil},
		"weight -5 of":      {16, []Earlier{{-5, make([]int64, 6)}}},
		"of 5 values":       {16, []Earlier{{9, make([]int64, 6)}, {9, make([]int64, 5)}}},
		"of 0 values":       {16, []Earlier{{9, nil}}},
		"of 7 values":       {16, []Earlier{{0, make([]int64, 7)}}},
		"proved: pine: a f": {16, []Earlier{{9, []int64{0, 0, none, 0, 0, 0}}}},
	} {
		before := slices.Clone(sums[0].sums[0])
		if _, err := sums[0].Mix(c.weight, c.earlier); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if !slices.Equal(before, sums[0].sums[0]) || sums[0].mixed {
			t.Errorf("%s: the sum has changed", want)
		}
	}
	for _, s := range sums {
		if _, err := s.Mix(math.MaxInt64>>20, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Mix(1, nil); err == nil {
			t.Error("mixed twice")
		}
		if _, err := s.Close(make([]int64, 6)); err != nil {
			t.Error(err)
		}
		if _, err := s.Mix(1, nil); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("mixed after it was closed: %v", err)
		}
	}
}
