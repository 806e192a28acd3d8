package pine

import (
	"math"
	"math/big"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func integer[E element[E]](x E) *big.Int {
	hi, lo := x.words()
	return join(hi, lo)
}

func join(hi, lo uint64) *big.Int {
	v := new(big.Int).SetUint64(hi)
	return v.Add(v.Lsh(v, 64), new(big.Int).SetUint64(lo))
}

func orderOf[E element[E]]() *big.Int { var f E; return join(f.order()) }

// sample returns an element near an edge, or a random one.
func sample[E element[E]](src rng.Source) E {
	edges := []int64{0, 1, 2, -1, -2, math.MaxInt64, 1 << 32, 1<<32 - 1, -1 << 32, 1 << 62, -1 << 62}
	x := of[E](edges[src.Uint64()%uint64(len(edges))])
	switch src.Uint64() % 3 {
	case 0:
		return x
	case 1:
		return x.times(of[E](edges[src.Uint64()%uint64(len(edges))])).plus(of[E](int64(src.Uint64() % 3)))
	}
	return of[E](int64(src.Uint64())).times(of[E](int64(src.Uint64()))).plus(x)
}

func TestFields(t *testing.T) {
	t.Run("64", testField[f64])
	t.Run("128", testField[f128])
}

func testField[E element[E]](t *testing.T) {
	q, src := orderOf[E](), rng.Replay(2)
	if !q.ProbablyPrime(20) {
		t.Errorf("order %v is not prime", q)
	}
	check := func(what string, got E, want *big.Int) {
		t.Helper()
		if integer(got).Cmp(want.Mod(want, q)) != 0 {
			t.Fatalf("%s: %v, want %v", what, integer(got), want)
		}
	}
	for _, v := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		check("of", of[E](v), big.NewInt(v))
	}
	for range 4000 {
		x, y := sample[E](src), sample[E](src)
		a, b := integer(x), integer(y)
		check("plus", x.plus(y), new(big.Int).Add(a, b))
		check("minus", x.minus(y), new(big.Int).Sub(a, b))
		check("times", x.times(y), new(big.Int).Mul(a, b))
		encoded := x.append(nil)
		if back, ok := x.read(encoded); !ok || back != x || len(encoded) != x.size() {
			t.Fatalf("%v reads back as %v", a, integer(back))
		}
		if x.choose(1) != x || x.choose(0) != of[E](0) {
			t.Fatal("choose")
		}
	}
	for range 20 {
		if x := sample[E](src); x != of[E](0) && x.times(inverse(x)) != of[E](1) {
			t.Errorf("inverse of %v", integer(x))
		}
	}
	if inverse(of[E](0)) != of[E](0) {
		t.Error("inverse of 0")
	}
}

func TestElementsAreReadStrictly(t *testing.T) {
	t.Run("64", testReadStrictly[f64])
	t.Run("128", testReadStrictly[f128])
}

func testReadStrictly[E element[E]](t *testing.T) {
	q := orderOf[E]()
	for i := int64(-2); i < 3; i++ {
		v := new(big.Int).Add(q, big.NewInt(i))
		b := v.FillBytes(make([]byte, sizeOf[E]()))
		for j := range len(b) / 2 {
			b[j], b[len(b)-1-j] = b[len(b)-1-j], b[j]
		}
		var f E
		if _, ok := f.read(b); ok != (i < 0) {
			t.Errorf("q%+d: read %v", i, ok)
		}
	}
	all := make([]byte, sizeOf[E]())
	for i := range all {
		all[i] = 255
	}
	if readAll(make([]E, 1), all) == nil {
		t.Error("all ones are read")
	}
}

func TestCentered(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 1<<62 - 1, -(1<<62 - 1)} {
		if got, ok := centered(of[f64](v)); !ok || got != v {
			t.Errorf("64: %d: %d, %v", v, got, ok)
		}
		if got, ok := centered(of[f128](v)); !ok || got != v {
			t.Errorf("128: %d: %d, %v", v, got, ok)
		}
	}
	for _, v := range []int64{1 << 62, -1 << 62} {
		if _, ok := centered(of[f64](v)); ok {
			t.Errorf("64: %d is taken", v)
		}
		if _, ok := centered(of[f128](v).times(of[f128](v))); ok {
			t.Errorf("128: %d squared is taken", v)
		}
	}
}

func TestTransform(t *testing.T) {
	t.Run("64", testTransform[f64])
	t.Run("128", testTransform[f128])
}

// testTransform compares with evaluation of polynomials, point by point.
func testTransform[E element[E]](t *testing.T) {
	src := rng.Replay(3)
	for log := 1; log < 7; log++ {
		n := 1 << log
		tr := newTransform[E](log)
		beta := root[E](log + 1)
		if power(beta, 0, uint64(n)) != of[E](-1) {
			t.Fatalf("the %d-th power of the root is not −1", n)
		}
		c := make([]E, 2*n)
		for i := range c {
			c[i] = sample[E](src)
		}
		even, odd, low := make([]E, n), make([]E, n), make([]E, n)
		at := of[E](1)
		for k := range n {
			if tr.power(k) != at {
				t.Fatalf("power %d", k)
			}
			even[k], odd[k], low[k] = evaluate(c, at), evaluate(c, at.times(beta)), evaluate(c[:n], at)
			at = at.times(beta).times(beta)
		}
		for range 3 {
			x := sample[E](src)
			w := tr.lagrange(x)
			if isRoot := power(x, 0, uint64(n)) == of[E](1); isRoot != (w == nil) {
				t.Fatalf("lagrange at a root: %v", w)
			} else if !isRoot && inner(low, w) != evaluate(c[:n], x) {
				t.Errorf("n = %d: lagrange", n)
			}
		}
		if tr.lagrange(tr.power(n-1)) != nil {
			t.Error("weights for a root of unity")
		}
		tr.extend(low)
		for k := range low {
			if low[k] != evaluate(c[:n], beta.times(tr.power(k))) {
				t.Fatalf("n = %d: extend", n)
			}
		}
		for i, got := range tr.coefficients(even, odd) {
			if got != c[i] {
				t.Fatalf("n = %d: coefficient %d", n, i)
			}
		}
	}
}

func TestProject(t *testing.T) {
	t.Run("64", testProject[f64])
	t.Run("128", testProject[f128])
}

func testProject[E element[E]](t *testing.T) {
	src := rng.Replay(4)
	for n := range 40 {
		x, bits := make([]E, n), make([]byte, (n+3)/4)
		draw(src, bits)
		var want E
		for k := range x {
			x[k] = sample[E](src)
			for range bits[k/4]>>(2*(k%4))&1 + bits[k/4]>>(2*(k%4)+1)&1 {
				want = want.plus(x[k])
			}
		}
		if got := want.project(x, bits); got != want {
			t.Fatalf("%d elements: %v, want %v", n, integer(got), integer(want))
		}
	}
	// The largest sums do not overflow.
	x, bits := make([]E, 5000), make([]byte, 1250)
	for k := range x {
		x[k] = of[E](-1)
	}
	for i := range bits {
		bits[i] = 255
	}
	var f E
	if got := f.project(x, bits); got != of[E](-10000) {
		t.Errorf("the sum of 10000 times −1 is %v", integer(got))
	}
}
