package vecsum

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// views is the exact law of a round's multiset of shares modulo q: by the number
// of shares of each value but 0.
type views map[[3]uint8]float64

// client returns the law of one client's multiset: k−1 uniform shares and the
// one that completes them to x.
func client(q, k, x int) views {
	v := views{}
	total := int(math.Pow(float64(q), float64(k-1)))
	for code := range total {
		var c [3]uint8
		rest, n := x, code
		for range k - 1 {
			s := n % q
			n /= q
			rest = (rest + q - s) % q
			if s > 0 {
				c[s-1]++
			}
		}
		if rest > 0 {
			c[rest-1]++
		}
		v[c] += 1 / float64(total)
	}
	return v
}

func mixed(q, k int, inputs []int) views {
	out := views{{}: 1}
	for _, x := range inputs {
		next := make(views, len(out)*2)
		one := client(q, k, x)
		for a, p := range out {
			for b, r := range one {
				next[[3]uint8{a[0] + b[0], a[1] + b[1], a[2] + b[2]}] += p * r
			}
		}
		out = next
	}
	return out
}

func distance(a, b views) float64 {
	var sum float64
	for v, p := range a {
		sum += math.Max(0, p-b[v])
	}
	return sum
}

// The exact distance of the views of two inputs with equal sums, where it can be
// enumerated, is below 2^−σ of the recalled formula and falls with k. Oracle 8;
// evidence, not a proof.
func TestMixDistance(t *testing.T) {
	worstAt := func(n, q, k int) (worst float64) {
		zero := make([]int, n)
		for _, change := range [][]int{{1, q - 1}, {q / 2, q - q/2}, {1, 1, q - 1, q - 1}} {
			other := make([]int, n)
			copy(other, change)
			worst = math.Max(worst, distance(mixed(q, k, zero), mixed(q, k, other)))
		}
		return worst
	}
	for _, c := range []struct{ n, q, most int }{{19, 2, 8}, {40, 2, 6}, {60, 2, 5}, {19, 4, 3}} {
		before := 2.
		for k := 2; k <= c.most; k++ {
			tv := worstAt(c.n, c.q, k)
			sigma := ((float64(k)-2)*(math.Log2(float64(c.n))-math.Log2E) - math.Log2(float64(c.q))) / 2
			if tv > math.Exp2(-sigma) {
				t.Errorf("n = %d, q = %d, k = %d: distance 2^%.2f above the formula's 2^%.2f", c.n, c.q, k, math.Log2(tv), -sigma)
			}
			if tv > before*.6 && tv > 1e-14 {
				t.Errorf("n = %d, q = %d, k = %d: distance %v after %v", c.n, c.q, k, tv, before)
			}
			before = tv
		}
	}
}

// The document's table: σ = 40, q = 2^24 and 2^32, one coordinate.
func TestMixShares(t *testing.T) {
	for _, c := range []struct {
		n    int64
		bits int
		want int
	}{{1000, 24, 15}, {1000, 32, 16}, {10_000, 24, 11}, {10_000, 32, 12}, {100_000, 24, 9}, {100_000, 32, 10}, {1_000_000, 24, 8}, {1_000_000, 32, 9}} {
		if k, err := mixShares(c.n, c.bits, 40); err != nil || k != c.want {
			t.Errorf("n = %d, q = 2^%d: %d shares, want %d (%v)", c.n, c.bits, k, c.want, err)
		}
	}
	if _, err := mixShares(18, 24, 40); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("18 clients: %v", err)
	}
	p := small()
	for _, c := range []MixConfig{{Params: p}, {Params: p, Security: 10, Experimental: true}, {Params: p, Security: 200, Experimental: true}} {
		if _, err := NewMix(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	p.Honest = .4 // 16 of 40
	if _, err := NewMix(MixConfig{Params: p, Experimental: true}); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("too few honest clients: %v", err)
	}
}
