package sample

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// Which value belongs to which words is part of every recorded run.
func TestSequences(t *testing.T) {
	g, err := NewDiscreteGaussian(Ratio{25, 2})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLaplace(Ratio{7, 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		name string
		draw func(n uint64) string
		want string
	}{
		{"uniform", func(n uint64) string { return fmt.Sprint(Uniform(source(1, n), 1000)) }, "946 800 95 358 978 714 14 18 80 533 464 837 "},
		{"bernoulli", func(n uint64) string { return bit(Bernoulli(source(2, n), .3)) }, "1 0 0 0 0 0 0 0 0 0 1 0 "},
		{"exp", func(n uint64) string { return bit(bernoulliExp(source(3, n), .7)) }, "1 0 0 1 0 0 1 0 0 1 1 0 "},
		{"flip", func(n uint64) string { return bit(Flip(source(4, n), .5)) }, "0 1 0 1 0 0 1 0 0 0 0 0 "},
		{"geometric", func(n uint64) string { return fmt.Sprint(geometric(source(5, n), Ratio{7, 2})) }, "0 0 3 2 3 0 0 3 0 5 0 1 "},
		{"laplace", func(n uint64) string { return fmt.Sprint(Laplace(source(6, n), Ratio{7, 2})) }, "-5 3 -2 2 4 1 6 -2 1 -7 0 1 "},
		{"gaussian", func(n uint64) string { return fmt.Sprint(g.Draw(source(7, n))) }, "0 -4 0 -1 -5 1 1 -1 1 -4 1 5 "},
		{"laplace table", func(n uint64) string { return fmt.Sprint(l.Draw(source(10, n))) }, "4 -6 -3 1 1 -1 0 2 3 -3 -4 -1 "},
		{"subset", func(n uint64) string { return fmt.Sprint(Subset(source(9, n), nil, 100, 3)) }, "[23 67 74] [7 10 49] [24 40 81] [16 83 97] [44 46 96] [4 22 76] [23 69 75] [46 52 92] [6 34 73] [11 20 49] [11 21 71] [1 45 86] "},
	} {
		var got string
		for n := range uint64(12) {
			got += c.draw(n) + " "
		}
		if got != c.want {
			t.Errorf("%d %s:\n got %q\nwant %q", i, c.name, got, c.want)
		}
	}
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Every p is met to its last bit: the answer is U < p for a U whose binary
// digits are the words, also where the first words tie.
func TestBernoulliIsExact(t *testing.T) {
	var top uint64 = 1<<64 - 1
	for _, c := range []struct {
		p     float64
		words []uint64
		want  bool
	}{
		{0, nil, false},
		{1, nil, true},
		{.5, []uint64{1<<63 - 1}, true},
		{.5, []uint64{1 << 63}, false},
		{1 - 0x1p-53, []uint64{top}, false},
		{1 - 0x1p-53, []uint64{top << 11}, false},
		{1 - 0x1p-53, []uint64{top<<11 - 1}, true},
		{0x1p-64, []uint64{0}, true},
		{0x1p-64, []uint64{1}, false},
		{0x1p-65, []uint64{1}, false},
		{0x1p-65, []uint64{0, 1<<63 - 1}, true},
		{0x1p-65, []uint64{0, 1 << 63}, false},
		{0x1.8p-64, []uint64{0}, true},
		{0x1.8p-64, []uint64{1, 1<<63 - 1}, true},
		{0x1.8p-64, []uint64{1, 1 << 63}, false},
		{0x1p-1074, []uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1<<14 - 1}, true},
		{0x1p-1074, []uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 << 14}, false},
	} {
		s := &script{t, c.words}
		if got := Bernoulli(s, c.p); got != c.want || len(s.words) != 0 {
			t.Errorf("Bernoulli(%v) on %#x = %v with %d words left, want %v", c.p, c.words, got, len(s.words), c.want)
		}
	}
}

// Over all words that can occur, each value below n has equally many: shown
// for the whole range of first words by its boundaries.
func TestUniformIsExact(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 5, 7, 1000, 1<<32 + 1, 1<<63 + 1, 1<<64 - 1} {
		// Value k takes the words with ⌊n·w/2^64⌋ = k, without those refused;
		// count them exactly.
		full := new(big.Int).Lsh(big.NewInt(1), 64)
		bn := new(big.Int).SetUint64(n)
		want := new(big.Int).Div(full, bn)
		for _, k := range []uint64{0, n / 3, n / 2, n - 1} {
			lo := ceilDiv(new(big.Int).Mul(new(big.Int).SetUint64(k), full), bn)
			hi := ceilDiv(new(big.Int).Mul(new(big.Int).Add(new(big.Int).SetUint64(k), big.NewInt(1)), full), bn)
			count := new(big.Int).Sub(hi, lo)
			// Where a value has one word too many, the first of them is refused:
			// then more words are read.
			s := &script{t, []uint64{lo.Uint64(), 1, 1 << 40, 1<<63 | 12345, 1 << 63}}
			if got := Uniform(s, n); len(s.words) < 4 {
				count.Sub(count, big.NewInt(1))
			} else if got != k {
				t.Errorf("n = %d: word %v gives %d, want %d", n, lo, got, k)
			}
			if last := new(big.Int).Sub(hi, big.NewInt(1)); last.Cmp(lo) > 0 {
				if got := Uniform(&script{t, []uint64{last.Uint64()}}, n); got != k {
					t.Errorf("n = %d: word %v gives %d, want %d", n, last, got, k)
				}
			}
			if count.Cmp(want) != 0 {
				t.Errorf("n = %d: value %d has %v words, want %v", n, k, count, want)
			}
		}
	}
}

func ceilDiv(a, b *big.Int) *big.Int {
	q, r := new(big.Int).DivMod(a, b, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func TestUniformLaw(t *testing.T) {
	n := draws(t, 400_000)
	for i, m := range []uint64{1, 3, 10, 100} {
		counts, probs := make([]int64, m+1), make([]float64, m+1)
		src := source(10, uint64(i))
		for range n {
			counts[Uniform(src, m)]++
		}
		for k := range m {
			probs[k] = 1 / float64(m)
		}
		if m > 1 {
			chiSquare(t, fmt.Sprintf("uniform below %d", m), counts, probs, n)
		}
	}
	// Half of all words are refused here.
	src := source(11)
	counts := make([]int64, 17)
	const m = 1<<63 + 1
	for range n {
		counts[Uniform(src, m)/(m/16+1)]++
	}
	probs := make([]float64, 17)
	for i := range 16 {
		probs[i] = 1. / 16
	}
	chiSquare(t, "uniform below 2^63+1", counts, probs, n)
}

func TestBernoulliLaws(t *testing.T) {
	n := draws(t, 1_000_000)
	count := func(draw func() bool) (hits int64) {
		for range n {
			if draw() {
				hits++
			}
		}
		return hits
	}
	src := source(12)
	for _, p := range []float64{0, 1e-5, .1, 1. / 3, .5, .999, 1} {
		proportion(t, fmt.Sprintf("Bernoulli(%v)", p), count(func() bool { return Bernoulli(src, p) }), n, p)
	}
	for _, r := range []Ratio{{0, 1}, {1, 1}, {1, 3}, {2, 7}, {1 << 62, 3 << 62}, {1<<64 - 2, 1<<64 - 1}} {
		p := float64(r.Num) / float64(r.Den)
		proportion(t, fmt.Sprintf("BernoulliRatio(%v)", r), count(func() bool { return bernoulliRatio(src, r) }), n, p)
	}
	for _, x := range []float64{0, 1e-300, 1e-3, .3, 1, 1.5, 2, 4.25, 10, 1e300} {
		proportion(t, fmt.Sprintf("BernoulliExp(%v)", x), count(func() bool { return bernoulliExp(src, x) }), n, math.Exp(-x))
	}
	for _, r := range []Ratio{{0, 5}, {1, 1000}, {1, 3}, {1, 1}, {7, 3}, {1<<64 - 1, 1 << 62}} {
		x := float64(r.Num) / float64(r.Den)
		proportion(t, fmt.Sprintf("BernoulliExpRatio(%v)", r), count(func() bool { return bernoulliExpRatio(src, r) }), n, math.Exp(-x))
	}
	for _, e := range []float64{0, 1e-9, .1, .5, 1, 2, 3.7, 8, 50} {
		proportion(t, fmt.Sprintf("Flip(%v)", e), count(func() bool { return Flip(src, e) }), n, 1/(1+math.Exp(e)))
	}
}

func TestGeometricLaw(t *testing.T) {
	n := draws(t, 400_000)
	for i, scale := range []Ratio{{1, 3}, {1, 1}, {5, 2}, {40, 1}} {
		src := source(13, uint64(i))
		x := float64(scale.Den) / float64(scale.Num)
		counts, probs := make([]int64, 600), make([]float64, 600)
		for range n {
			counts[min(geometric(src, scale), 599)]++
		}
		for k := range 599 {
			probs[k] = -math.Expm1(-x) * math.Exp(-float64(k)*x)
		}
		chiSquare(t, fmt.Sprintf("geometric %v", scale), counts, probs, n)
	}
}

func TestLaplaceLaw(t *testing.T) {
	n := draws(t, 400_000)
	for i, scale := range []Ratio{{1, 2}, {1, 1}, {7, 2}, {30, 1}} {
		src := source(14, uint64(i))
		x := float64(scale.Den) / float64(scale.Num)
		const half = 500
		counts, probs := make([]int64, 2*half+1), make([]float64, 2*half+1)
		var tail, next int64
		far := int64(2/x) + 1
		for range n {
			k := Laplace(src, scale)
			if k >= -half && k <= half {
				counts[k+half]++
			}
			if k >= far {
				tail++
			}
			if k >= far+1 {
				next++
			}
		}
		for k := range probs {
			probs[k] = math.Tanh(x/2) * math.Exp(-math.Abs(float64(k-half))*x)
		}
		name := fmt.Sprintf("Laplace %v", scale)
		chiSquare(t, name, counts, probs, n)
		// Given k ≥ far, k ≥ far+1 has probability e^−x exactly: the ratio that
		// privacy rests on.
		proportion(t, name+" tail ratio", next, tail, math.Exp(-x))
	}
}

func TestParametersOutOfRangePanic(t *testing.T) {
	src := source(15)
	for name, f := range map[string]func(){
		"uniform 0":           func() { Uniform(src, 0) },
		"probability 2":       func() { Bernoulli(src, 2) },
		"probability -1":      func() { Bernoulli(src, -1) },
		"probability NaN":     func() { Bernoulli(src, math.NaN()) },
		"probability 1+ulp":   func() { Bernoulli(src, math.Nextafter(1, 2)) },
		"ratio 3/2":           func() { bernoulliRatio(src, Ratio{3, 2}) },
		"exponent -1":         func() { bernoulliExp(src, -1) },
		"exponent NaN":        func() { bernoulliExp(src, math.NaN()) },
		"exponent Inf":        func() { bernoulliExp(src, math.Inf(1)) },
		"scale 0":             func() { geometric(src, Ratio{0, 1}) },
		"scale 1/0":           func() { Laplace(src, Ratio{1, 0}) },
		"subset 4 of 3":       func() { Subset(src, nil, 3, 4) },
		"subset -1":           func() { Subset(src, nil, 3, -1) },
		"ratio without a den": func() { bernoulliRatio(src, Ratio{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
