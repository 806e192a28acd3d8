package pine

import "math/bits"

// gadget is the one nonlinear part of a circuit: the sum of squares, or of products of
// neighbours, of some inputs. A circuit sends its inputs through it in calls of the same width
// and uses only sums of the outputs of consecutive calls.
//
// The fully linear proof of its outputs [Boneh et al., CRYPTO 2019, theorem 4.3]: wire j of the
// gadget gets a polynomial W_j of degree below n, the power of 2 above the calls, which is random
// at α^0, the j-th input of call k at α^k, 0 at the powers that are left. α is the n-th root of
// unity. The proof is each W_j(1) and the coefficients of p = gadget(W_0, W_1, …). Verifiers, who
// hold shares of inputs and proof, take p(α^k) for the output of call k. At a random point t
// they open p(t) and each W_j(t), and check that p(t) = gadget(W_0(t), W_1(t), …).
type gadget[E element[E]] struct {
	square bool
	width  int // wires
	calls  int
	*transform[E]
	sums [][]E // for each sum of outputs: its weights for the coefficients of p mod x^n − 1
}

// newGadget takes the number of calls of each sum.
func newGadget[E element[E]](square bool, width int, calls ...int) *gadget[E] {
	g := &gadget[E]{square: square, width: width}
	for _, c := range calls {
		g.calls += c
	}
	g.transform = newTransform[E](bits.Len(uint(g.calls)))
	n := 1 << g.log
	k := 1
	for _, c := range calls {
		sum := make([]E, n)
		for ; c > 0; c-- {
			for i := range sum {
				sum[i] = sum[i].plus(g.power(i * k % n))
			}
			k++
		}
		g.sums = append(g.sums, sum)
	}
	return g
}

// points is n, the number of interpolation points.
func (g *gadget[E]) points() int { return 1 << g.log }

// proof is the number of elements of a proof, verifier that of a verifier's message.
func (g *gadget[E]) proof() int    { return g.width + 2*g.points() - 1 }
func (g *gadget[E]) verifier() int { return 1 + g.width + 1 }

// prove returns the proof for calls·width inputs; seeds are the wires' values at 1.
func (g *gadget[E]) prove(inputs, seeds []E) []E {
	n := g.points()
	even, odd := make([]E, n), make([]E, n)
	wires := [2][]E{make([]E, n), make([]E, n)}
	step := 2
	if g.square {
		step = 1
	}
	for j := 0; j < g.width; j += step {
		for s := range step {
			w := wires[s]
			clear(w)
			w[0] = seeds[j+s]
			for k := range g.calls {
				w[1+k] = inputs[k*g.width+j+s]
			}
		}
		a, b := wires[0], wires[step-1]
		for k := range even {
			even[k] = even[k].plus(a[k].times(b[k]))
		}
		g.extend(a)
		if !g.square {
			g.extend(b)
		}
		for k := range odd {
			odd[k] = odd[k].plus(a[k].times(b[k]))
		}
	}
	p := g.coefficients(even, odd)
	return append(append(make([]E, 0, g.proof()), seeds...), p[:2*n-1]...)
}

// query returns a share of each sum of outputs, and with w, the weights of a point t, appends
// shares of the wires' values at t and of p(t) to dst. The inputs and the proof are shares.
func (g *gadget[E]) query(dst, inputs, proof, w []E, t E) (verifier, sums []E) {
	n := g.points()
	seeds, p := proof[:g.width], proof[g.width:]
	folded := make([]E, n)
	copy(folded, p)
	for i, c := range p[n:] {
		folded[i] = folded[i].plus(c)
	}
	for _, s := range g.sums {
		sums = append(sums, inner(folded, s))
	}
	at := len(dst)
	for _, s := range seeds {
		dst = append(dst, s.times(w[0]))
	}
	wires := dst[at:]
	for k := range g.calls {
		for j, x := range inputs[k*g.width : (k+1)*g.width] {
			wires[j] = wires[j].plus(x.times(w[1+k]))
		}
	}
	return append(dst, evaluate(p, t)), sums
}

// decide reports whether a verifier's message, the sum of all shares, is that of a proof that
// holds: the circuit's output is 0, and p is what it should be at t.
func (g *gadget[E]) decide(verifier []E) bool {
	var zero, sum E
	wires, y := verifier[1:1+g.width], verifier[1+g.width]
	if g.square {
		sum = inner(wires, wires)
	} else {
		for j := 0; j < len(wires); j += 2 {
			sum = sum.plus(wires[j].times(wires[j+1]))
		}
	}
	return verifier[0] == zero && sum == y
}
