package amplify

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

func bf() *big.Float                  { return new(big.Float).SetPrec(320) }
func bfi(i int64) *big.Float          { return bf().SetInt64(i) }
func bff(x float64) *big.Float        { return bf().SetFloat64(x) }
func bmul(x, y *big.Float) *big.Float { return bf().Mul(x, y) }
func badd(x, y *big.Float) *big.Float { return bf().Add(x, y) }
func bsub(x, y *big.Float) *big.Float { return bf().Sub(x, y) }
func bquo(x, y *big.Float) *big.Float { return bf().Quo(x, y) }

func bpow(x *big.Float, n int64) []*big.Float {
	out := []*big.Float{bfi(1)}
	for range n {
		out = append(out, bmul(out[len(out)-1], x))
	}
	return out
}

// pq is an outcome of more probability under P than under Q.
type pq struct{ p, q *big.Float }

// definedPair lists the counts of k reports, the victim's among them.
func definedPair(bigE, a, c *big.Float, k int64) (out []pq) {
	w := bsub(bfi(1), bmul(a, badd(bigE, bfi(1))))
	if w.Sign() < 0 {
		w = bf()
	}
	third := bquo(w, c)
	rest := bsub(bsub(bfi(1), badd(a, a)), third)
	if rest.Sign() < 0 {
		rest = bf()
	}
	m := k - 1
	pa, pt, pr := bpow(a, 2*m), bpow(third, m), bpow(rest, m)
	multi := func(x, y, z int64) *big.Float {
		if x < 0 || y < 0 || z < 0 || x+y+z > m {
			return bf()
		}
		ways := new(big.Int).Binomial(m, x)
		ways.Mul(ways, new(big.Int).Binomial(m-x, y)).Mul(ways, new(big.Int).Binomial(m-x-y, z))
		return bmul(bmul(bf().SetInt(ways), pa[x+y]), bmul(pt[z], pr[m-x-y-z]))
	}
	ea := bmul(bigE, a)
	for x := int64(0); x <= k; x++ {
		for y := int64(0); x+y <= k; y++ {
			for z := int64(0); x+y+z <= k; z++ {
				m0, m1, mb := multi(x-1, y, z), multi(x, y-1, z), bmul(w, multi(x, y, z-1))
				p := badd(badd(bmul(ea, m0), bmul(a, m1)), mb)
				q := badd(badd(bmul(a, m0), bmul(ea, m1)), mb)
				if p.Cmp(q) > 0 {
					out = append(out, pq{p, q})
				}
			}
		}
	}
	return out
}

func definedDelta(pair []pq, g *big.Float) *big.Float {
	sum := bf()
	for _, o := range pair {
		if v := bsub(o.p, bmul(g, o.q)); v.Sign() > 0 {
			sum.Add(sum, v)
		}
	}
	return sum
}

// Mixtures over k, fine and rough, with few coarse blocks of k or many, against the definition in 320 bits: who is asked and
// who colludes is random, ε₀ up to 40, K to 1e9, known total variations near both ends. Never below, but for the rounding of ε.
func TestMixturesByDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(81, 17))
	log := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	worst, count := math.Inf(1), 0
	for range longtest.Pick(40, 1500) {
		eps0 := log(.01, 40)
		bigE := exactExp(eps0)
		n := int64(2 + r.IntN(11))
		if r.IntN(4) == 0 {
			n = 2 + int64(r.IntN(2))
		}
		asked := 1 + r.Int64N(n)
		if r.IntN(2) == 0 {
			asked = n
		}
		colluders := int64(0)
		if r.IntN(2) == 0 {
			colluders = r.Int64N(n)
		}
		gamma := []float64{log(1e-9, 1), 1 - log(1e-12, 1), r.Float64(), log(.05, 1), 1}[r.IntN(5)]
		if !(gamma > 0) {
			continue
		}
		var f Family
		var a, c *big.Float
		var err error
		name := ""
		if r.IntN(2) == 0 {
			symbols := int64(log(2, 1e9))
			if r.IntN(3) == 0 {
				symbols = 2 + int64(r.IntN(5))
			}
			name = "krr " + strconv.Itoa(int(symbols))
			f, err = KRR(eps0, int(symbols))
			a, c = bquo(bfi(1), badd(bigE, bfi(symbols-1))), bfi(1)
		} else {
			share := []float64{log(1e-15, 1), 1 - log(1e-13, 1), r.Float64()}[r.IntN(3)]
			x := share / (math.Exp(eps0) + 1)
			name = "tv " + strconv.FormatFloat(share, 'g', -1, 64)
			f, err = KnownTV(eps0, x)
			a, c = bff(x), bigE
			if most := bquo(bfi(1), badd(bigE, bfi(1))); a.Cmp(most) > 0 {
				a = most
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		// law of the number of honest reports
		honest := n - colluders
		weights := make([]*big.Float, honest+1)
		for i := range weights {
			weights[i] = bf()
		}
		gp, gq := bpow(bff(gamma), asked), bpow(bsub(bfi(1), bff(gamma)), asked)
		all := new(big.Int).Binomial(n, asked)
		for h := max(0, asked-colluders); h <= min(asked, honest); h++ {
			ways := new(big.Int).Mul(new(big.Int).Binomial(honest, h), new(big.Int).Binomial(colluders, asked-h))
			p := bquo(bf().SetInt(ways), bf().SetInt(all))
			for k := int64(0); k <= h; k++ {
				v := bmul(bf().SetInt(new(big.Int).Binomial(h, k)), bmul(gp[k], gq[h-k]))
				weights[k].Add(weights[k], bmul(p, v))
			}
		}
		pairs := make([][]pq, honest+1)
		for k := int64(1); k <= honest; k++ {
			if weights[k].Sign() > 0 {
				pairs[k] = definedPair(bigE, a, c, k)
			}
		}
		arr := FamilyArrival{Population: n, Asked: asked, Gamma: gamma, Colluders: colluders}
		for kind, fam := range []Family{f, f.Rough()} {
			for style := range 2 {
				var p dp.Pair
				if style == 0 {
					p, err = fam.Arrival(arr)
				} else {
					p, _, err = fam.CoarseArrival(arr)
				}
				if err != nil {
					t.Fatal(err)
				}
				mass := 0.
				for _, at := range p.Atoms {
					mass += at.Q * (1 + math.Exp(at.Loss))
					if !(at.Q > 0) || math.IsInf(at.Q, 0) || math.IsNaN(at.Loss) || math.IsInf(at.Loss, 0) {
						t.Fatalf("atom %+v", at)
					}
				}
				if mass > 1+1e-8 {
					t.Errorf("mass %v %s eps0=%v n=%d asked=%d coll=%d gamma=%v", mass, name, eps0, n, asked, colluders, gamma)
				}
				kmost := int64(0)
				for k := range pairs {
					if pairs[k] != nil {
						kmost = int64(k)
					}
				}
				if kmost == 0 {
					continue
				}
				for range 4 {
					k0 := 1 + r.Int64N(kmost) // near the largest loss at some k
					top := SampledLoss(eps0, float64(k0)/float64(honest))
					x := []float64{0, log(1e-6, 1), r.Float64(), 1 - log(1e-6, 1)}[r.IntN(4)]
					eps := x * top
					g := exactExp(eps)
					truth := bf()
					for k := int64(1); k <= honest; k++ {
						if pairs[k] == nil {
							continue
						}
						share := bquo(bfi(k), bfi(honest))
						gk := badd(bfi(1), bquo(bsub(g, bfi(1)), share))
						truth.Add(truth, bmul(bmul(weights[k], share), definedDelta(pairs[k], gk)))
					}
					want, _ := truth.Float64()
					if !(want > 1e-280) {
						continue
					}
					got := deltaOf(p, eps*(1-0x1p-49))
					over := got/want - 1
					count++
					worst = math.Min(worst, over)
					if !(over >= 0) {
						t.Errorf("%s kind %d style %d eps0=%v n=%d asked=%d coll=%d gamma=%v eps=%v (x=%v): got %.12g true %.12g over %.3g", name, kind, style, eps0, n, asked, colluders, gamma, eps, x, got, want, over)
					}
				}
			}
		}
	}
	t.Logf("%d comparisons, the least bound is %.3g above the truth", count, worst)
}
