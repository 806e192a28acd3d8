package amplify_test

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
)

// The pure randomizer of approx.md exists: on the line through a vector, where
// its law differs from that of 0, clamped and refilled as the lemma says.
func TestGaussianAsLDPExists(t *testing.T) {
	for _, sigma := range []float64{.7, 1, 3, 10} {
		for _, eps0 := range []float64{.05, .5, 2, 6} {
			eta := amplify.GaussianAsLDP(sigma, eps0)
			alpha := math.Max(0, (eps0-1/(sigma*sigma))/2)
			floor, ceiling := math.Exp(-alpha), math.Exp(eps0-alpha)
			for _, x := range []float64{.2, .9, 1} {
				const points = 20000
				lo, hi := -10*sigma, 10*sigma+1
				h := (hi - lo) / points
				density := func(at float64) float64 {
					return math.Exp(-at*at/(2*sigma*sigma)) / (sigma * math.Sqrt(2*math.Pi)) * h
				}
				var clamped, rho, truth [points + 1]float64
				var mass float64
				for i := range clamped {
					at := lo + float64(i)*h
					truth[i], rho[i] = density(at-x), density(at)
					clamped[i] = math.Max(floor*rho[i], math.Min(ceiling*rho[i], truth[i]))
					mass += clamped[i]
				}
				// Move towards the ceiling or the floor until the mass is 1.
				share, limit := (1-mass)/(ceiling-mass), ceiling
				if mass > 1 {
					share, limit = (mass-1)/(mass-floor), floor
				}
				if !(share >= 0 && share <= 1) {
					t.Fatalf("sigma = %v, eps0 = %v, x = %v: share %v", sigma, eps0, x, share)
				}
				var total, distance float64
				for i, c := range clamped {
					pure := c + share*(limit*rho[i]-c)
					if pure < floor*rho[i]*(1-1e-12) || pure > ceiling*rho[i]*(1+1e-12) {
						t.Fatalf("sigma = %v, eps0 = %v: ratio %v outside [%v, %v]", sigma, eps0, pure/rho[i], floor, ceiling)
					}
					total += pure
					distance += math.Abs(pure-truth[i]) / 2
				}
				if math.Abs(total-1) > 1e-9 || distance > eta*(1+1e-6)+1e-6 {
					t.Errorf("sigma = %v, eps0 = %v, x = %v: mass %v, total variation %v above %v", sigma, eps0, x, total, distance, eta)
				}
				if x == 1 && eta > 1e-3 && distance < eta*.9 {
					t.Errorf("sigma = %v, eps0 = %v: total variation %v, claimed %v: blind", sigma, eps0, distance, eta)
				}
			}
		}
	}
}

// Brute force: two and three Gaussian reports, rounded to cells, shuffled;
// every multiset of outputs. The bound holds whatever ε₀ is taken, and a bound
// without the charge does not.
func TestShuffledGaussiansBruteForce(t *testing.T) {
	const cells = 13
	violated := false
	for _, sigma := range []float64{.5, 1, 2} {
		law := func(x float64) (p [cells]float64) {
			width := (2 + 6*sigma) / cells
			for i := range p {
				a, b := -1-3*sigma+float64(i)*width, -1-3*sigma+float64(i+1)*width
				if i == 0 {
					a = math.Inf(-1)
				}
				if i == cells-1 {
					b = math.Inf(1)
				}
				p[i] = (math.Erfc((a-x)/(sigma*math.Sqrt2)) - math.Erfc((b-x)/(sigma*math.Sqrt2))) / 2
			}
			return p
		}
		for _, others := range [][]float64{{-1}, {0}, {1, -1}, {-1, -1}} {
			k := len(others) + 1
			shuffled := func(x float64) map[[cells]uint8]float64 {
				laws := [][cells]float64{law(x)}
				for _, o := range others {
					laws = append(laws, law(o))
				}
				out := map[[cells]uint8]float64{}
				var add func(i int, counts [cells]uint8, mass float64)
				add = func(i int, counts [cells]uint8, mass float64) {
					if i == k {
						out[counts] += mass
						return
					}
					for c, p := range laws[i] {
						counts[c]++
						add(i+1, counts, mass*p)
						counts[c]--
					}
				}
				add(0, [cells]uint8{}, 1)
				return out
			}
			p, q := shuffled(1), shuffled(-1)
			for _, eps := range []float64{0, .3, 1, 2.5} {
				var exact, swapped float64
				for out, mass := range p {
					exact += math.Max(0, mass-math.Exp(eps)*q[out])
					swapped += math.Max(0, q[out]-math.Exp(eps)*mass)
				}
				exact = math.Max(exact, swapped)
				for _, eps0 := range []float64{.1, .5, 1, 2, 4, 8, 16} {
					curve, err := amplify.NewCurve(amplify.RoundConfig{Eps0: eps0, Population: int64(k), Reports: int64(k), Rate: amplify.Blanket(eps0)})
					if err != nil {
						t.Fatal(err)
					}
					bare := curve.Delta(eps)
					violated = violated || bare < exact*.9
					if bound := bare + (1+math.Exp(eps))*float64(k)*amplify.GaussianAsLDP(sigma, eps0); bound < exact {
						t.Errorf("sigma = %v, others %v, eps = %v, eps0 = %v: bound %v below exact %v", sigma, others, eps, eps0, bound, exact)
					}
				}
			}
		}
	}
	if !violated {
		t.Error("without the charge nothing is violated: the test is blind")
	}
}

func TestGaussianEps0(t *testing.T) {
	for _, sigma := range []float64{.5, 1, 4, 100} {
		last := 0.
		for _, tv := range []float64{.1, 1e-3, 1e-9, 1e-20, 1e-100} {
			eps0 := amplify.GaussianEps0(sigma, tv)
			if math.IsInf(eps0, 1) {
				if amplify.GaussianAsLDP(sigma, 50) <= tv {
					t.Errorf("sigma = %v, tv = %v: none found, 50 does", sigma, tv)
				}
				continue
			}
			if amplify.GaussianAsLDP(sigma, eps0) > tv || eps0 < last {
				t.Errorf("sigma = %v, tv = %v: eps0 = %v after %v gives %v", sigma, tv, eps0, last, amplify.GaussianAsLDP(sigma, eps0))
			}
			last = eps0
		}
	}
	for _, bad := range [][2]float64{{0, 1}, {math.NaN(), 1}, {1, 0}, {1, math.NaN()}, {1, 51}, {-1, 1}} {
		if got := amplify.GaussianAsLDP(bad[0], bad[1]); got != 1 {
			t.Errorf("sigma = %v, eps0 = %v: %v", bad[0], bad[1], got)
		}
	}
}
