package coordinator

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// onesOf is the law of the number of ones among the randomized responses of the clients in set, who
// hold the bits in data: what a shuffled batch says.
func onesOf(set, data uint, eps0 float64) []float64 {
	keep := math.Exp(eps0) / (1 + math.Exp(eps0))
	law := []float64{1}
	for s := set; s != 0; s &= s - 1 {
		one := 1 - keep
		if data&(s&-s) != 0 {
			one = keep
		}
		next := make([]float64, len(law)+1)
		for ones, p := range law {
			next[ones] += p * (1 - one)
			next[ones+1] += p * one
		}
		law = next
	}
	return law
}

// excess is δ at ε: the larger of both hockey-stick divergences.
func excess(p, q []float64, eps float64) float64 {
	var a, b float64
	for i := range p {
		a += max(0, p[i]-math.Exp(eps)*q[i])
		b += max(0, q[i]-math.Exp(eps)*p[i])
	}
	return max(a, b)
}

// history is a round of a small world: clients 0 … n−1 are in its roster, and those in revoked leave
// it while the round is open. Those of them in late were revoked after their report would have come.
type history struct {
	n             int
	revoked, late uint
}

// histories lists every way in which reports and revocations can follow each other, as far as it
// matters: each client reports before or after it is revoked. Client 0 stays.
func histories(n int) (out []history) {
	for revoked := uint(0); revoked < 1<<n; revoked += 2 {
		for late := uint(0); late <= revoked; late++ {
			if late&^revoked == 0 {
				out = append(out, history{n, revoked, late})
			}
		}
	}
	return out
}

// taken is the chance of each set of reports that the shuffler takes, by the rules of the service.
func (h history) taken(p dp.Participation, asked int, chance float64) map[uint]float64 {
	out := map[uint]float64{}
	all := uint(1)<<h.n - 1
	may := all &^ (h.revoked &^ h.late)
	for set := uint(0); set <= all; set++ {
		size := bits.OnesCount(set)
		var weight float64
		switch p {
		case dp.CheckIn, dp.All: // coins, or reports that are lost
			weight = math.Pow(chance, float64(size)) * math.Pow(1-chance, float64(h.n-size))
		case dp.Sampled:
			if size != asked {
				continue
			}
			weight = 1
		}
		out[set&may] += weight
	}
	return out
}

// views returns the laws of what a round with k reports shows if client 0 holds 0 and 1.
func (h history) views(sets map[uint]float64, k int, others uint, eps0 float64) (zero, one []float64) {
	zero, one = make([]float64, k+1), make([]float64, k+1)
	var total float64
	for set, weight := range sets {
		if bits.OnesCount(set) != k || weight == 0 {
			continue
		}
		total += weight
		for ones, p := range onesOf(set, others&^1, eps0) {
			zero[ones] += weight * p
		}
		for ones, p := range onesOf(set, others|1, eps0) {
			one[ones] += weight * p
		}
	}
	for i := range zero {
		if total > 0 {
			zero[i], one[i] = zero[i]/total, one[i]/total
		}
	}
	return zero, one
}

// charger gives the charge of rounds and its cost, by the coordinator's own code.
type charger struct {
	t     *testing.T
	a     account.Accountant
	known map[string]float64
}

func (c *charger) eps(times int64, e dp.Event, delta float64) float64 {
	c.t.Helper()
	key := fmt.Sprint(times, e, delta)
	if eps, ok := c.known[key]; ok {
		return eps
	}
	b, err := c.a.Eps(dp.Repeat{Event: e, Times: times}, delta)
	if err != nil {
		c.t.Fatal(err)
	}
	c.known[key] = b.Eps
	return b.Eps
}

func charge(t *testing.T, p dp.Participation, n, least, sample int64, k int64, eps0 float64) dp.Round {
	t.Helper()
	c := Coordinator{config: Config{Ledger: &book{}, Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Shuffle,
		Participation: p, Population: n, MinClients: least, Sample: sample, Gamma: .5, MinReports: 1}}
	e, err := c.event(k)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The charge by min-clients covers every order of reports and revocations, and a charge by the n of
// the roster does not.
func TestChargeCoversRostersThatChange(t *testing.T) {
	const eps0 = 1.
	costs := charger{t: t, known: map[string]float64{}}
	checked, broken := 0, 0
	for _, p := range []dp.Participation{dp.CheckIn, dp.Sampled, dp.All} {
		for n := 2; n <= 5; n++ {
			for _, h := range histories(n) {
				stay := n - bits.OnesCount(h.revoked)
				for asked := 1; asked <= n; asked++ {
					if p != dp.Sampled && asked > 1 {
						break
					}
					sets := h.taken(p, asked, .6)
					for k := 1; k <= n; k++ {
						for _, others := range []uint{0, 1<<n - 2, 0b0110 & (1<<n - 2)} {
							zero, one := h.views(sets, k, others, eps0)
							if excess(zero, one, -50) == 0 {
								continue // there is no such round
							}
							for _, delta := range []float64{.3, .1, .01} {
								// The round is not void if it counts on as many as stay, or fewer.
								for least := 1; least <= stay; least++ {
									ann := wire.Announcement{Participation: p, Population: int64(n), MinClients: int64(least)}
									if int64(stay) < shuffler.CountsOn(ann) {
										t.Fatal("void")
									}
									checked++
									e := charge(t, p, int64(n), int64(least), int64(asked), int64(k), eps0)
									if eps := costs.eps(1, e, delta); excess(zero, one, eps) > delta*(1+1e-9) {
										t.Fatalf("%s, %+v, asked %d, k %d, counts on %d: delta %v at epsilon %v, charged %v", p, h, asked, k, least, excess(zero, one, eps), eps, delta)
									}
								}
								e := charge(t, p, int64(n), 0, int64(asked), int64(k), eps0)
								if excess(zero, one, costs.eps(1, e, delta)) > delta*(1+1e-9) {
									broken++ // charged by n, though some were revoked: the round must be void
									if int64(stay) >= shuffler.CountsOn(wire.Announcement{Participation: p, Population: int64(n)}) {
										t.Errorf("%s, %+v, asked %d, k %d: the charge by n is too small and the round not void", p, h, asked, k)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d charges checked; by n, %d would be too small", checked, broken)
	if broken == 0 {
		t.Error("the charge by n is never too small: this test cannot fail")
	}
}

// A client counts its own reports as all of n-min, whatever the roster does: given that its report
// is in a round.
func TestClientsChargeCoversRostersThatChange(t *testing.T) {
	const eps0 = 1.
	costs := charger{t: t, known: map[string]float64{}}
	for n := 2; n <= 5; n++ {
		for set := uint(1); set < 1<<n; set += 2 { // any set of reports with client 0 in it, in any order
			k := bits.OnesCount(set)
			for least := 1; least <= k; least++ {
				e := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Shuffle, Participation: dp.All, Population: int64(least), Reports: int64(least)}
				for others := uint(0); others < 1<<n; others += 2 {
					for _, delta := range []float64{.3, .1, .01} {
						if got := excess(onesOf(set, others, eps0), onesOf(set, others|1, eps0), costs.eps(1, e, delta)); got > delta*(1+1e-9) {
							t.Fatalf("set %b, n-min %d: delta %v, charged %v", set, least, got, delta)
						}
					}
				}
			}
		}
	}
}

// Who is enrolled in the second round may follow from what the first one released: the charge counts
// on the same number in both.
func TestRostersMayFollowReleases(t *testing.T) {
	const eps0, least, k = 1., 2, 2
	costs := charger{t: t, known: map[string]float64{}}
	h := func(n int) history { return history{n: n} }
	law := func(n int, others uint) (zero, one []float64) {
		return h(n).views(h(n).taken(dp.Sampled, k, 0), k, others, eps0)
	}
	e := charge(t, dp.Sampled, 4, least, k, k, eps0)
	for first := least; first <= 4; first++ {
		for _, others := range []uint{0, 0b1110, 0b0010} {
			zero, one := law(first, others)
			// The registrar's rule: a number of clients for each result of the first round.
			for rule := range 27 {
				var p, q []float64
				for ones, r := 0, rule; ones <= k; ones, r = ones+1, r/3 {
					z, o := law(least+r%3, others)
					for i := range z {
						p, q = append(p, zero[ones]*z[i]), append(q, one[ones]*o[i])
					}
				}
				for _, delta := range []float64{.3, .1, .01} {
					if got := excess(p, q, costs.eps(2, e, delta)); got > delta*(1+1e-9) {
						t.Fatalf("n = %d, rule %d: delta %v, charged %v", first, rule, got, delta)
					}
				}
			}
		}
	}
}
