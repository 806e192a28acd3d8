package pine

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// imaginary is a root of −1 in the field of 64 bits.
const imaginary = 1 << 48

// cheater is a client that knows how reports are made.
type cheater struct {
	p   *Pine
	s   *vdaf[f64]
	src rng.Source
}

func newCheater(t *testing.T, c Config) cheater {
	p := mustNew(t, c)
	return cheater{p, p.scheme.(*vdaf[f64]), rng.Replay(12)}
}

// accepted reports whether both aggregators accept a report of what is shared; nil for finish is
// the honest way.
func (c cheater) accepted(t *testing.T, shared []f64, finish func(shared, projections []f64) bool) bool {
	t.Helper()
	if finish == nil {
		finish = c.s.encodeProjections
	}
	var nonce Nonce
	draw(c.src, nonce[:])
	rand := make([]byte, seedCount*turboShake.seed)
	draw(c.src, rand)
	public, input, _ := c.s.share(shared, finish, nonce[:], rand)
	_, errs := reported(public, input, nonce).verify(c.p, nil)
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	}
	return errs == [2]error{}
}

// claim writes digits of a norm and of the difference to the bound.
func (c cheater) claim(shared []f64, norm, difference uint64) {
	writeDigits(shared[c.s.dim:c.s.dim+c.s.normBits], f64(norm))
	writeDigits(shared[c.s.dim+c.s.normBits:c.s.early()], f64(difference))
}

func TestCheatsAreRefused(t *testing.T) {
	const d, bound = 100, 1000 // the square has 20 digits, which reach to 1048575
	c := newCheater(t, Config{Dim: d, Bound: bound})
	good := func() []int64 { return vectorWithin(c.src, d, bound) }
	if !c.accepted(t, c.s.encode(good()), nil) {
		t.Fatal("an honest report is refused")
	}
	long := func(norm float64) []int64 {
		x := vectorWithin(c.src, d, int64(norm))
		for i := range x {
			if x[i] > 0 {
				x[i]++ // what was rounded away
			}
		}
		return x
	}
	squared := func(x []int64) (n uint64) {
		for _, v := range x {
			n += uint64(v * v)
		}
		return n
	}

	x := long(1.01 * bound)
	n := squared(x)
	if n <= bound*bound || n >= 1<<20 {
		t.Fatalf("squared norm %d is not between the bound's and 2^20", n)
	}
	if c.accepted(t, c.s.encode(x), nil) {
		t.Error("norm 1.01 times the bound")
	}
	shared := c.s.encode(x)
	c.claim(shared, n, 0)
	if c.accepted(t, shared, nil) {
		t.Error("a norm above the bound, said to be the bound")
	}
	c.claim(shared, bound*bound, 0)
	if c.accepted(t, shared, nil) {
		t.Error("a norm above the bound, of which another is claimed")
	}
	short := c.s.encode(x)
	c.claim(short, n, 0)
	short[d+c.s.normBits] = f64(0).of(bound*bound - int64(n))
	if c.accepted(t, short, nil) {
		t.Error("a negative digit of the difference")
	}
	short = c.s.encode(good())
	for i := range c.s.normBits { // another way to write the norm
		if short[d+i] == 1 && i > 0 && short[d+i-1] == 0 {
			short[d+i], short[d+i-1] = 0, 2
			if c.accepted(t, short, nil) {
				t.Error("a digit 2 of the norm")
			}
			break
		}
	}

	// A vector of any norm whose squares cancel mod q.
	wrapped := c.s.encode(make([]int64, d))
	for i := range d / 2 {
		wrapped[2*i], wrapped[2*i+1] = 12345, f64(12345).times(imaginary)
	}
	if n := inner(wrapped[:d], wrapped[:d]); n != 0 {
		t.Fatalf("squared norm %d", n)
	}
	if c.accepted(t, wrapped, nil) {
		t.Error("a norm that wraps around, with honest projections")
	}
	success := func(shared []f64, i int, v f64) { shared[c.s.early()+(i+1)*(c.s.checkBits+1)-1] = v }
	if c.accepted(t, wrapped, func(shared, projections []f64) bool {
		c.s.encodeProjections(shared, projections)
		for i := range projections {
			success(shared, i, 1)
		}
		return true
	}) {
		t.Error("a norm that wraps around, with successes that are none")
	}
	if c.accepted(t, wrapped, func(shared, projections []f64) bool {
		c.s.encodeProjections(shared, projections)
		var rest f64 = 100
		for i := range projections {
			_, g := c.s.digits(shared, i)
			rest = rest.minus(g)
		}
		for i := range projections {
			if _, g := c.s.digits(shared, i); g == 1 {
				success(shared, i, g.plus(rest)) // this one counts for those that failed
				break
			}
		}
		return true
	}) {
		t.Error("a norm that wraps around, with a success that counts for others")
	}
	if c.accepted(t, wrapped, func(shared, projections []f64) bool {
		for i, y := range projections { // the lowest digit is the whole projection
			digits, _ := c.s.digits(shared, i)
			clear(digits)
			digits[0] = y.plus(c.s.whole.offset)
			success(shared, i, 1)
		}
		return true
	}) {
		t.Error("a norm that wraps around, with digits that are none")
	}
}

// TestWrappedNormsPassHalfOfTheProjections counts how often a projection of vectors whose squares
// sum to a small number mod q, but not over the integers, is in its range: at most with
// probability 1/2, which is lemma 3.3 of [ROCT23]. False alarms: 4 times below 1e-7 (5.3 standard
// deviations).
func TestWrappedNormsPassHalfOfTheProjections(t *testing.T) {
	const d, bound, draws = 256, 1 << 16, 4000
	c := newCheater(t, Config{Dim: d, Bound: bound, Checks: draws})
	for name, x := range map[string]func(i int) f64{
		"one large coordinate":  func(i int) f64 { return []f64{imaginary, 1, 0}[min(i, 2)] },
		"dense and large":       func(i int) f64 { return []f64{1, imaginary}[i%2] },
		"wraps once":            func(int) f64 { return 1 << 28 },
		"two large coordinates": func(i int) f64 { return []f64{f64(7).times(imaginary), 7, f64(11).times(imaginary), 11, 0}[min(i, 4)] },
	} {
		v := make([]f64, d)
		for i := range v {
			v[i] = x(i)
		}
		if n := inner(v, v); n > bound*bound {
			t.Fatalf("%s: squared norm %d mod q", name, n)
		}
		in := 0
		for _, y := range c.s.project(v, sequence(16)) {
			if y.plus(f64(c.s.reach-1)) < f64(2*c.s.reach) {
				in++
			}
		}
		t.Logf("%s: %d of %d in range", name, in, draws)
		if float64(in) > draws/2+5.3*math.Sqrt(draws)/2 {
			t.Errorf("%s: %d of %d projections are in range", name, in, draws)
		}
	}
}

// TestFewProjectionsAreFooled holds that the tests above are not blind: with three projections a
// client gets a norm that wraps around accepted about one time of eight. False alarms: below
// 1e-6 (exact binomial: below 2 or above 51 of 160).
func TestFewProjectionsAreFooled(t *testing.T) {
	c := newCheater(t, Config{Dim: 2, Bound: 10, Checks: 3})
	x := c.s.encode([]int64{0, 0})
	x[0], x[1] = imaginary, 1
	count := 0
	for range 160 {
		if c.accepted(t, append([]f64(nil), x...), nil) {
			count++
		}
	}
	t.Logf("%d of 160 accepted", count)
	if count < 2 || count > 51 {
		t.Errorf("%d of 160 accepted", count)
	}
}

// TestProjectionsNeverFailHonestClients holds the range against the worst of 2^16 projections of
// vectors at the bound: with a range of the norm only, some would fail.
func TestProjectionsNeverFailHonestClients(t *testing.T) {
	const d, bound = 64, 1000
	c := newCheater(t, Config{Dim: d, Bound: bound, Checks: 4096})
	worst := int64(0)
	for i := range 16 {
		x := vectorWithin(c.src, d, bound)
		if i == 0 {
			for j := range x {
				x[j] = bound / 8
			}
		}
		shared := c.s.encode(x)
		seed := make([]byte, 16)
		draw(c.src, seed)
		projections := c.s.project(shared[:d], seed)
		for _, y := range projections {
			v, _ := centered(y)
			worst = max(worst, v, -v)
		}
		if !c.s.encodeProjections(shared, projections) {
			t.Error("a projection fails")
		}
	}
	if worst < 2*bound || worst > 5*bound { // σ is the norm/√2
		t.Errorf("the largest projection of 2^16 is %d", worst)
	}
}
