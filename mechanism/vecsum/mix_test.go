package vecsum

import (
	"errors"
	"math"
	"math/big"
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

// The exact distance of the views of two inputs with equal sums is at most twice
// the bound, and falls with k. Oracle 8.
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
	for _, c := range []struct{ n, log2q, most int }{{19, 1, 8}, {40, 1, 6}, {60, 1, 5}, {19, 2, 3}} {
		before := 2.
		for k := 2; k <= c.most; k++ {
			tv := worstAt(c.n, 1<<c.log2q, k)
			if tv > before*.6 && tv > 1e-14 {
				t.Errorf("n = %d, q = 2^%d, k = %d: distance %v after %v", c.n, c.log2q, k, tv, before)
			}
			before = tv
			if k < 3 {
				continue
			}
			bound, err := mixDistance(int64(c.n), k, c.log2q)
			if err != nil {
				t.Fatal(err)
			}
			if tv > 2*bound {
				t.Errorf("n = %d, q = 2^%d, k = %d: distance %v above twice the bound %v", c.n, c.log2q, k, tv, bound)
			}
			t.Logf("n = %d, q = 2^%d, k = %d: distance 2^%.2f, bound 2^%.2f", c.n, c.log2q, k, math.Log2(tv), math.Log2(2*bound))
		}
	}
}

// The theorem itself where all of it can be enumerated: the view of every input
// is within the bound of the mean view of the inputs with its sum.
func TestMixIdeal(t *testing.T) {
	tight := 0.
	for _, c := range []struct{ n, log2q, k int }{{1, 2, 3}, {2, 1, 3}, {2, 1, 5}, {2, 1, 8}, {2, 2, 4}, {2, 2, 6}, {3, 1, 3}, {3, 1, 6}, {3, 2, 4}, {4, 1, 5}, {4, 2, 4}, {6, 1, 4}} {
		q := 1 << c.log2q
		bound, err := mixDistance(int64(c.n), c.k, c.log2q)
		if err != nil {
			t.Fatal(err)
		}
		total := 1 << (c.log2q * c.n)
		bySum := make([][]views, q)
		for code := range total {
			inputs, sum := make([]int, c.n), 0
			for i := range inputs {
				inputs[i] = code >> (c.log2q * i) % q
				sum += inputs[i]
			}
			bySum[sum%q] = append(bySum[sum%q], mixed(q, c.k, inputs))
		}
		for _, all := range bySum {
			mean := views{}
			for _, v := range all {
				for key, p := range v {
					mean[key] += p / float64(len(all))
				}
			}
			for _, v := range all {
				tv := distance(v, mean)
				if tv > bound+1e-12 {
					t.Errorf("n = %d, q = %d, k = %d: distance %v above the bound %v", c.n, q, c.k, tv, bound)
				}
				if bound > 0 && bound < 1 {
					tight = math.Max(tight, tv/bound)
				}
			}
		}
	}
	if tight < .05 { // else the cases are too easy to refute anything
		t.Errorf("distances reach %v of the bound only", tight)
	}
}

// permutations calls f with every permutation of 0 … n−1.
func permutations(n int, f func([]int)) {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	var visit func(int)
	visit = func(i int) {
		if i == n {
			f(p)
			return
		}
		for j := i; j < n; j++ {
			p[i], p[j] = p[j], p[i]
			visit(i + 1)
			p[i], p[j] = p[j], p[i]
		}
	}
	visit(0)
}

// components of the graph on n clients with an edge e/c → p[e]/c for each entry.
func components(n, c int, p []int) int {
	root := make([]int, n)
	for i := range root {
		root[i] = i
	}
	var find func(int) int
	find = func(i int) int {
		if root[i] != i {
			return find(root[i])
		}
		return i
	}
	left := n
	for e, to := range p {
		if a, b := find(e/c), find(to/c); a != b {
			root[a] = b
			left--
		}
	}
	return left
}

// Lemma 2, by counting solutions and by the colours' closed form, and lemma 3.
func TestMixComponents(t *testing.T) {
	for _, s := range []struct{ n, c int }{{2, 1}, {2, 2}, {2, 3}, {2, 4}, {3, 2}, {4, 2}, {3, 3}} {
		if s.n*s.c > 8 && testing.Short() {
			continue
		}
		for _, q := range []int{2, 3, 5} {
			var exact, count float64
			permutations(s.n*s.c, func(p []int) {
				exact += math.Pow(float64(q), float64(components(s.n, s.c, p)-1))
				count++
			})
			exact /= count
			// Colour each client: n = n_1 + … + n_q.
			var colours func(left, q int, logSum float64) float64
			colours = func(left, q int, log float64) float64 {
				term := func(m int) float64 {
					a, _ := math.Lgamma(float64(s.c*m) + 1)
					b, _ := math.Lgamma(float64(m) + 1)
					return log + a - b
				}
				if q == 1 {
					return math.Exp(term(left))
				}
				var sum float64
				for m := range left + 1 {
					sum += colours(left-m, q-1, term(m))
				}
				return sum
			}
			a, _ := math.Lgamma(float64(s.n) + 1)
			b, _ := math.Lgamma(float64(s.n*s.c) + 1)
			if closed := colours(s.n, q, a-b) / float64(q); math.Abs(closed/exact-1) > 1e-9 {
				t.Errorf("n = %d, c = %d, q = %d: colours give %v, permutations %v", s.n, s.c, q, closed, exact)
			}
			bound := 1 + math.Exp(smallRounds(s.n, s.c, math.Log(float64(q)))[s.n])
			if bound < exact || bound > 1+3*(exact-1) {
				t.Errorf("n = %d, c = %d, q = %d: bound %v of %v", s.n, s.c, q, bound, exact)
			}
		}
	}
}

// Lemma 3 and its logarithms against exact integers: E[q^C] is n!/(cn)! times the
// coefficient of z^n in the q-th power of Σ (cm)!/m!·z^m, all colours together.
func TestMixExact(t *testing.T) {
	for _, s := range []struct{ c, log2q int }{{2, 8}, {5, 24}, {9, 32}, {14, 56}} {
		const most = 60
		q := new(big.Int).Lsh(big.NewInt(1), uint(s.log2q))
		f, g := make([]*big.Int, most+1), make([]*big.Int, most+1)
		for m := range f {
			f[m] = new(big.Int).MulRange(int64(m)+1, int64(s.c*m)) // (cm)!/m!
		}
		g[0] = big.NewInt(1)
		bounds := smallRounds(most, s.c, float64(s.log2q)*math.Ln2)
		for n := 1; n <= most; n++ {
			g[n] = new(big.Int)
			for m := 1; m <= n; m++ { // G = F^q: n·g_n = Σ (mq − n + m)·f_m·g_{n−m}
				w := new(big.Int).Mul(q, big.NewInt(int64(m)))
				w.Add(w, big.NewInt(int64(m-n)))
				g[n].Add(g[n], w.Mul(w, f[m]).Mul(w, g[n-m]))
			}
			var rest big.Int
			g[n].QuoRem(g[n], big.NewInt(int64(n)), &rest)
			if rest.Sign() != 0 {
				t.Fatalf("%+v: coefficient %d is not an integer", s, n)
			}
			if n == 1 {
				continue
			}
			mean := new(big.Rat).SetFrac(g[n], new(big.Int).Mul(q, f[n]))
			mean.Sub(mean, big.NewRat(1, 1))
			var x big.Float
			x.SetRat(mean)
			mantissa := new(big.Float)
			exponent := x.MantExp(mantissa)
			m, _ := mantissa.Float64()
			exact := math.Log(m) + float64(exponent)*math.Ln2
			slack := .02
			if s.c < 5 {
				slack = .7 // of a bound nobody uses
			}
			if bounds[n] < exact || bounds[n] > exact+slack {
				t.Errorf("%+v, n = %d: log bound %v of %v", s, n, bounds[n], exact)
			}
		}
	}
}

// Lemma 1 and the count of solutions in lemma 2, entry by entry.
func TestMixCollisions(t *testing.T) {
	for _, s := range []struct{ n, c, q int }{{2, 2, 2}, {2, 2, 3}, {3, 2, 2}, {2, 3, 2}} {
		entries, all := s.n*s.c, int(math.Pow(float64(s.q), float64(s.n*s.c)))
		inputs := int(math.Pow(float64(s.q), float64(s.n)))
		type sums map[int]float64 // by code of the vector of clients' sums
		laws := make([]sums, all)
		for v := range laws {
			laws[v] = sums{}
		}
		var perms, second float64
		entry := func(v, e int) int {
			for range e {
				v /= s.q
			}
			return v % s.q
		}
		permutations(entries, func(p []int) {
			perms++
			solutions := 0
			for v := range all {
				rows, flow := make([]int, s.n), make([]int, s.n)
				for e, to := range p {
					x := entry(v, e)
					rows[to/s.c] += x
					flow[to/s.c] += x
					flow[e/s.c] += (s.q - 1) * x
				}
				code, balanced := 0, true
				for i := range rows {
					code = code*s.q + rows[i]%s.q
					balanced = balanced && flow[i]%s.q == 0
				}
				laws[v][code]++
				if balanced {
					solutions++
				}
			}
			comp := components(s.n, s.c, p)
			if want := int(math.Pow(float64(s.q), float64(entries-s.n+comp))); solutions != want {
				t.Fatalf("%+v: %d solutions for %v, want %d", s, solutions, p, want)
			}
			second += math.Pow(float64(s.q), float64(comp-1))
		})
		var tv float64
		for _, law := range laws {
			hit := 0.
			for _, k := range law {
				tv += math.Abs(k/perms-float64(s.q)/float64(inputs)) / 2
				hit++
			}
			tv += (float64(inputs/s.q) - hit) * float64(s.q) / float64(inputs) / 2
		}
		tv /= float64(all)
		if bound := math.Sqrt(second/perms-1) / 2; tv > bound || tv < bound/20 {
			t.Errorf("%+v: average distance %v, bound %v", s, tv, bound)
		}
	}
}

// Lemma 4 continues lemma 3 and falls with n.
func TestMixLargeRounds(t *testing.T) {
	for _, c := range []struct {
		c, log2q int
	}{{6, 24}, {9, 32}, {14, 56}, {40, 24}} {
		logQ := float64(c.log2q) * math.Ln2
		const h, most = 128, 700
		all := smallRounds(most, c.c, logQ)
		before := math.Inf(1)
		for n := 2*h + 2; n <= most; n += 7 {
			large := largeRound(int64(n), c.c, logQ, h, all[:2*h+2])
			if all[n] > large+1e-6 || large > all[n]+.02 {
				t.Errorf("%+v: at n = %d log bounds are %v and %v", c, n, all[n], large)
			}
			if large > before {
				t.Errorf("%+v: the bound rises at n = %d", c, n)
			}
			before = large
		}
	}
	for _, n := range []int64{1, 2, 3, 19, 33, 34, 35, 66, 1000, 1 << 40} {
		before := 1.
		for k := 3; k < 40; k++ {
			d, err := mixDistance(n, k, 32)
			if err != nil {
				if !errors.Is(err, dp.ErrNoBound) {
					t.Fatal(err)
				}
				continue
			}
			if !(d >= 0 && d <= before) {
				t.Errorf("n = %d, k = %d: distance %v after %v", n, k, d, before)
			}
			before = d
		}
	}
	for _, c := range []struct {
		n        int64
		k, log2q int
	}{{0, 5, 24}, {10, 2, 24}, {10, 5, 0}, {10, 5, 65}, {1 << 50, 5, 24}, {1 << 40, 3, 56}, {10, maxShares + 1, 24}, {1, math.MaxInt, 24}} {
		if d, err := mixDistance(c.n, c.k, c.log2q); !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("%+v: %v (%v)", c, d, err)
		}
	}
}

// What is proved here needs no more shares than the recalled formula
// ⌈2 + (2σ + log₂ q)/(log₂ n − log₂ e)⌉, and one share less does not do.
func TestMixShares(t *testing.T) {
	for _, c := range []struct {
		n    int64
		bits int
		want int
	}{{1000, 24, 12}, {1000, 32, 12}, {10_000, 24, 10}, {10_000, 32, 10}, {100_000, 24, 8}, {100_000, 32, 9}, {1_000_000, 24, 7}, {1_000_000, 32, 8}} {
		k, err := mixShares(c.n, c.bits, 40)
		if err != nil || k != c.want {
			t.Errorf("n = %d, q = 2^%d: %d shares, want %d (%v)", c.n, c.bits, k, c.want, err)
		}
		if recalled := 2 + (80+float64(c.bits))/(math.Log2(float64(c.n))-math.Log2E); float64(k) > math.Ceil(recalled) {
			t.Errorf("n = %d, q = 2^%d: %d shares, recalled %v", c.n, c.bits, k, recalled)
		}
		d, err := mixDistance(c.n, k, c.bits)
		less, errLess := mixDistance(c.n, k-1, c.bits)
		if err != nil || d > 0x1p-40 || errLess == nil && less <= 0x1p-40 {
			t.Errorf("n = %d, q = 2^%d: distances %v and %v of %d shares and one less", c.n, c.bits, d, less, k)
		}
	}
	// Few and many clients, at the ends of σ + log₂(streams) and of q.
	for _, n := range []int64{2, 3, 4, 19, 34, 1000, 1_000_000, 1 << 30} {
		for _, bits := range []int{1, 24, maxModulus} {
			for _, sigma := range []float64{20, 40, 145} {
				k, err := mixShares(n, bits, sigma)
				if err != nil {
					t.Errorf("n = %d, q = 2^%d, σ = %v: %v", n, bits, sigma, err)
					continue
				}
				if d, err := mixDistance(n, k, bits); err != nil || d > math.Exp2(-sigma) {
					t.Errorf("n = %d, q = 2^%d, σ = %v: distance %v (%v)", n, bits, sigma, d, err)
				}
				slack := 0.
				if n > 1_000_000 {
					slack = 2
				}
				if recalled := 2 + (2*sigma+float64(bits))/(math.Log2(float64(n))-math.Log2E); n > 2 && float64(k) > math.Ceil(recalled)+slack {
					t.Errorf("n = %d, q = 2^%d, σ = %v: %d shares, recalled %v", n, bits, sigma, k, recalled)
				}
			}
		}
	}
	p := small()
	for _, c := range []Config{{Params: p, Security: 10}, {Params: p, Security: 200}} {
		if _, err := NewShuffled(Mix, c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	p.Honest = .01 // none of 40
	if _, err := NewShuffled(Mix, Config{Params: p}); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("no honest client: %v", err)
	}
}
