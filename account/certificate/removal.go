package certificate

import (
	"math"
	"math/big"
)

// A client who is there or not. The two orders of such neighbours are not alike, so a document
// lists a pair for each: Round, of the world with the client from the world without it, and
// Reverse. certificate.md has the derivations.

// maxNumbers bounds the numbers of reports that a removal is checked for.
const maxNumbers = 1 << 14

// normalSteps is the work of two normal tails.
const normalSteps = 40

// verifyRemoval is Verify for RemovePLD.
func (d Document) verifyRemoval(ctx *work) (Verdict, error) {
	other := d
	other.Round, other.Composition = &d.Reverse.Round, &d.Reverse.Composition
	if d.Round.Times != d.Query.Rounds || other.Round.Times != d.Query.Rounds {
		return Verdict{}, reject("%d rounds are composed %d and %d times", d.Query.Rounds, d.Round.Times, other.Round.Times)
	}
	orders := [2]Document{d, other}
	var pairs [2]pair
	for i, o := range orders {
		pairs[i] = newPair(*o.Round)
		if err := o.verifyAccount(pairs[i]); err != nil {
			return Verdict{}, err
		}
	}
	present, absent := pairs[0], pairs[1]
	// The curve of a removal at all losses of the first pair, and of the other with its sign changed.
	low := min(present.low, 1-absent.low-len(absent.ratio))
	high := max(present.low+len(present.ratio)-1, -absent.low)
	ratio := ratios(real(d.Round.Step), low, high-low+1)
	tiny := mul(real(math.Min(d.Round.Infinite, other.Round.Infinite)), two(-40))
	curve, err := d.Query.removal(ctx, ratio, tiny)
	if err != nil {
		return Verdict{}, err
	}
	exact := [2][]*big.Float{make([]*big.Float, len(present.ratio)), make([]*big.Float, len(absent.ratio))}
	for i := range exact[0] {
		exact[0][i] = curve[present.low+i-low]
	}
	// (Q − gP)₊ = g(P − Q/g)₊ + Q − gP.
	for i, g := range absent.ratio {
		exact[1][i] = add(mul(g, curve[-absent.low-i-low]), sub(real(1), g))
	}
	verdict := Verdict{Room: math.Inf(1)}
	for i, o := range orders {
		room, err := o.Round.dominates(pairs[i], exact[i])
		if err != nil {
			return Verdict{}, err
		}
		delta, err := o.verifyComposition(ctx, pairs[i])
		if err != nil {
			return Verdict{}, err
		}
		verdict = Verdict{math.Max(verdict.Delta, delta), math.Min(verdict.Room, room)}
	}
	return verdict, nil
}

// number is a number of reports k with its probability in the world with the client.
type number struct {
	weight *big.Float
	share  *big.Float // k/n
	odds   *big.Float // (n−k)/k
	log    *big.Float // of odds; nil for k = n
	mu     *big.Float // 2/(σ√k), by how many deviations the sum moves; nil for k = 0
	end    float64    // sums beyond so many deviations matter little
}

// numbers lists the numbers of reports; at most 3·tiny is left out, beyond the ends included.
func (q Query) numbers(ctx *work, tiny *big.Float) (out []number, err error) {
	who := q.reporters()
	shares, err := who.number(ctx, tiny, func(k int64) int64 { return k })
	if err != nil {
		return nil, err
	}
	if len(shares) > maxNumbers {
		return nil, reject("%d numbers of reports are more than the checker takes, %d", len(shares), maxNumbers)
	}
	little := mul(tiny, two(-20)) // maxNumbers of them are less than tiny
	for _, s := range shares {
		if s.weight.Cmp(little) <= 0 {
			continue
		}
		exponent := quo(s.weight, little).MantExp(nil)
		k := number{end: math.Sqrt(2 * math.Ln2 * float64(exponent+1)), weight: s.weight, share: quo(whole(s.block), whole(who.n))}
		if s.block > 0 {
			k.mu = quo(real(2), mul(real(q.Sigma), new(big.Float).Sqrt(whole(s.block))))
			k.odds = quo(whole(who.n-s.block), whole(s.block))
		}
		if s.block > 0 && s.block < who.n {
			k.log = log(k.odds)
		}
		out = append(out, k)
	}
	return out, nil
}

// removal bounds D_g = sup (P − gQ)₊ of one round from above, P being the world with the client,
// at each g of a list. Given k of n clients the client is among them with probability k/n, and
// Q has (1−k/n)/(1−γ) of the probability of P. So
//
//	D_g = Σ_k Pr_P[k] E((1−k/n) + (k/n)·v − g(1−k/n)/(1−γ))₊ = Σ_k Pr_P[k]·k/n·E(v − x)₊,
//	x = (n−k)/k·(g−1+γ)/(1−γ), log v ~ N(−μ²/2, μ²), μ = 2/(σ√k),
//
// for g > 1−γ, where k = 0 has no part in it, and 1−g below.
func (q Query) removal(ctx *work, ratio []*big.Float, tiny *big.Float) ([]*big.Float, error) {
	one := real(1)
	numbers, err := q.numbers(ctx, tiny)
	if err != nil {
		return nil, err
	}
	gamma := q.reporters().chance
	n := normal{uint(24 - tiny.MantExp(nil))}
	out := make([]*big.Float, len(ratio))
	defer ctx.begins("one round", int64(len(ratio)))()
	err = together(len(ratio), func(i int) error {
		defer ctx.advance(1)
		// What was left out, and rounding.
		sum := add(mul(tiny, real(10)), two(-200))
		above := quo(sub(ratio[i], sub(one, gamma)), sub(one, gamma)) // (g−1+γ)/(1−γ)
		if above.Sign() <= 0 {
			out[i] = add(sum, sub(one, ratio[i]))
			return nil
		}
		logAbove := log(above)
		for _, k := range numbers {
			if err := ctx.step(normalSteps); err != nil {
				return err
			}
			switch {
			case k.mu == nil: // no report: ratio 1−γ
			case k.log == nil: // all of them: only P has it
				sum = add(sum, k.weight)
			default:
				x := mul(k.odds, above)
				sum = add(sum, mul(mul(k.weight, k.share), n.call(x, add(k.log, logAbove), k.mu, k.end)))
			}
		}
		out[i] = sum
		return nil
	})
	return out, err
}
