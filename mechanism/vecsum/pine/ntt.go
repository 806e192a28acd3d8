package pine

import "math/bits"

// transform goes from the values of polynomials of degree below n = 2^log at the n-th roots of
// unity to their values on the odd 2n-th roots, and from both kinds of values of polynomials
// of degree below 2n back to coefficients. Coefficients in between lie in bit-reversed order,
// so that nothing needs to be permuted.
type transform[E element[E]] struct {
	log      int
	forward  []E // powers 0 … n/2 − 1 of the n-th root
	backward []E // and of its inverse
	shift    []E // at the place of coefficient i: β^i/n, where β is the 2n-th root
	unshift  []E // at i: β^−i/2n
	half     E   // 1/2n
}

func newTransform[E element[E]](log int) *transform[E] {
	n := 1 << log
	t := &transform[E]{log: log, forward: make([]E, n/2), backward: make([]E, n/2), shift: make([]E, n), unshift: make([]E, n)}
	beta := root[E](log + 1)
	back := inverse(beta)
	one := of[E](1)
	scale := inverse(of[E](int64(n)))
	t.half = inverse(of[E](int64(2 * n)))
	up, down := one, one
	for i := range n {
		t.shift[reversed(i, log)] = up.times(scale)
		t.unshift[i] = down.times(t.half)
		if i%2 == 0 {
			t.forward[i/2], t.backward[i/2] = up, down
		}
		up, down = up.times(beta), down.times(back)
	}
	return t
}

// reversed returns the log lowest bits of i from the other end.
func reversed(i, log int) int { return int(bits.Reverse64(uint64(i)) >> (64 - log)) }

// toCoefficients replaces values at the n-th roots by n times the coefficients, whose places
// are in bit-reversed order.
func (t *transform[E]) toCoefficients(v []E) {
	n := len(v)
	for size := n; size > 1; size /= 2 {
		step := n / size
		for from := 0; from < n; from += size {
			a, b := v[from:from+size/2], v[from+size/2:from+size]
			for i, x := range a {
				y := b[i]
				a[i] = x.plus(y)
				b[i] = x.minus(y).times(t.backward[i*step])
			}
		}
	}
}

// toValues replaces coefficients in bit-reversed order by values at the n-th roots.
func (t *transform[E]) toValues(v []E) {
	n := len(v)
	for size := 2; size <= n; size *= 2 {
		step := n / size
		for from := 0; from < n; from += size {
			a, b := v[from:from+size/2], v[from+size/2:from+size]
			for i, x := range a {
				y := b[i].times(t.forward[i*step])
				a[i] = x.plus(y)
				b[i] = x.minus(y)
			}
		}
	}
}

// extend replaces values at the n-th roots by those on the odd 2n-th roots: at the n-th roots
// times β.
func (t *transform[E]) extend(v []E) {
	t.toCoefficients(v)
	for i := range v {
		v[i] = v[i].times(t.shift[i])
	}
	t.toValues(v)
}

// coefficients returns the 2n coefficients of the polynomial with these values at the n-th
// roots and on the odd 2n-th ones. It overwrites its arguments.
//
// The values at the n-th roots determine it mod x^n − 1, which is the sum of its lower and its
// upper half; the others mod x^n + 1, because β^n = −1, which is the difference.
func (t *transform[E]) coefficients(even, odd []E) []E {
	t.toCoefficients(even)
	t.toCoefficients(odd)
	n := len(even)
	c := make([]E, 2*n)
	for i := range n {
		at := reversed(i, t.log)
		sum, difference := even[at].times(t.half), odd[at].times(t.unshift[i])
		c[i], c[n+i] = sum.plus(difference), sum.minus(difference)
	}
	return c
}

// lagrange returns the weights w with f(at) = Σ w[k]·f(α^k), for polynomials f of degree below
// n and α the n-th root. It returns nil if at is an n-th root of unity.
func (t *transform[E]) lagrange(at E) []E {
	// f(at) = Σ f(α^k)·α^k·(at^n − 1)/(n·(at − α^k))
	n := 1 << t.log
	one := of[E](1)
	top := at
	for range t.log {
		top = top.times(top)
	}
	top = top.minus(one)
	if top == of[E](0) {
		return nil
	}
	w := make([]E, n)
	for k := range w {
		w[k] = at.minus(t.power(k))
	}
	invertAll(w)
	top = top.times(t.half).plus(top.times(t.half))
	for k := range w {
		w[k] = w[k].times(t.power(k)).times(top)
	}
	return w
}

// power returns α^k, 0 ≤ k < n.
func (t *transform[E]) power(k int) E {
	if half := len(t.forward); k >= half {
		var zero E
		return zero.minus(t.forward[k-half])
	}
	return t.forward[k]
}
