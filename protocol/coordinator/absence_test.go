package coordinator

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/schedule"
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

// laws are those of what a round shows if client 0 holds 0 and 1.
type laws struct{ zero, one []float64 }

// round is one round of a small world: clients 0 … n−1 are on its roster, and those in there can report.
type round struct {
	who          dp.Participation
	n            int
	there        uint
	sample, coin int // k, and a coin of coin tenths
	least        int
}

// shows returns the laws of the round: the void one first, then the number of ones of each number of reports.
func (r round) shows(others uint, eps0 float64) (l laws) {
	sets := map[uint]float64{}
	switch all := uint(1)<<r.n - 1; r.who {
	case dp.All, dp.Once:
		sets[r.there]++
	case dp.CheckIn:
		for set := uint(0); set <= all; set++ {
			k := float64(bits.OnesCount(set))
			sets[set&r.there] += math.Pow(float64(r.coin)/10, k) * math.Pow(1-float64(r.coin)/10, float64(r.n)-k)
		}
	case dp.Sampled:
		var drawn []uint
		for set := uint(0); set <= all; set++ {
			if bits.OnesCount(set) == r.sample {
				drawn = append(drawn, set)
			}
		}
		for _, set := range drawn {
			sets[set&r.there] += 1 / float64(len(drawn))
		}
	}
	of := func(data uint) []float64 {
		out := make([]float64, 1+(r.n+1)*(r.n+2)/2)
		for set, weight := range sets {
			k := bits.OnesCount(set)
			if k < r.least {
				out[0] += weight
				continue
			}
			for ones, p := range onesOf(set, data, eps0) {
				out[1+k*(k+1)/2+ones] += weight * p
			}
		}
		return out
	}
	return laws{of(others &^ 1), of(others | 1)}
}

// worst is the largest δ at ε of two rounds, each of any of these, the second chosen upon what the first showed.
func worst(rounds []laws, eps float64) (most float64) {
	e := math.Exp(eps)
	for _, swap := range []bool{false, true} {
		sides := func(l laws) (p, q []float64) {
			if swap {
				return l.one, l.zero
			}
			return l.zero, l.one
		}
		for _, first := range rounds {
			p, q := sides(first)
			var sum float64
			for i := range p {
				var best float64
				for _, second := range rounds {
					p2, q2 := sides(second)
					var one float64
					for j := range p2 {
						one += max(0, p[i]*p2[j]-e*q[i]*q2[j])
					}
					best = max(best, one)
				}
				sum += best
			}
			most = max(most, sum)
		}
	}
	return most
}

// The charge covers whoever is there, on whatever roster of enough clients, chosen for the second round upon what the first one
// showed; a charge as if all came who are drawn does not.
func TestChargeCoversAbsence(t *testing.T) {
	const eps0 = 1.
	var accountant account.Accountant
	known := map[string]float64{}
	cost := func(e dp.Event, delta float64) float64 {
		key := fmt.Sprint(e, delta)
		eps, ok := known[key]
		if !ok {
			b, err := accountant.Eps(e, delta)
			if err != nil {
				t.Fatal(err)
			}
			eps = b.Eps
			known[key] = eps
		}
		return eps
	}
	checked, broken := 0, 0
	const most = 4
	for _, who := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
		for counted := 2; counted <= 3; counted++ {
			for sample := 1; sample <= counted; sample++ {
				if who != dp.Sampled && sample > 1 {
					break
				}
				top := counted
				if who == dp.Sampled {
					top = sample
				}
				for least := 1; least <= top; least++ {
					for _, coin := range longtest.Pick([]int{4}, []int{1, 4, 8}) {
						c := Config{Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Shuffle, Participation: who, Population: most,
							MinClients: int64(counted), Sample: int64(sample), Gamma: float64(coin) / 10, MinReports: int64(least)}
						e, err := c.Event()
						if err != nil {
							t.Fatal(err)
						}
						for _, others := range longtest.Pick([]uint{0b0010}, []uint{0, 0b0010, 0b1110}) {
							var rounds []laws
							for n := counted; n <= most; n++ {
								for there := uint(1); there < 1<<n; there += 2 { // a round without client 0 shows nothing of it
									rounds = append(rounds, round{who, n, there, sample, coin, least}.shows(others, eps0))
								}
							}
							for _, delta := range []float64{.3, .1, .01, 1e-4} {
								eps := cost(dp.Repeat{Event: e, Times: 2}, delta)
								if got := worst(rounds, eps); got > delta*(1+1e-9) {
									t.Errorf("%s, n from %d, k %d, coin .%d, n-min %d: delta %v at epsilon %v, charged %v", who, counted, sample, coin, least, got, eps, delta)
								}
								checked++
								all := e
								if all.Least = 0; who == dp.All {
									all.Population = int64(counted)
								}
								if worst(rounds, cost(dp.Repeat{Event: all, Times: 2}, delta)) > delta*(1+1e-9) {
									broken++
								}
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d charges checked; as if all came, %d would be too small", checked, broken)
	if broken < checked/20 {
		t.Errorf("as if all came, %d of %d charges are too small: this test can hardly fail", broken, checked)
	}
}

// Rounds chosen upon each other are not covered by what their own numbers cost together, but by the least number: three
// answers, ε₀ = 1, two reports, then two or five upon the result.
func TestNumbersThatFollowReleasesAreNotCharged(t *testing.T) {
	c := Config{Report: dp.Report{Class: dp.Generic, Eps0: 1}, Trust: dp.Shuffle, Participation: dp.All, Population: 5, MinReports: 2}
	few, err := c.Event()
	if err != nil {
		t.Fatal(err)
	}
	if few.Population != 2 {
		t.Fatalf("charged as %+v", few)
	}
	// What follows is of answers 0, 1 and 2, client 0 holds 0 or 1, all others 2.
	e := math.E
	row := func(x int) []float64 {
		out := []float64{1 / (e + 2), 1 / (e + 2), 1 / (e + 2)}
		out[x] *= e
		return out
	}
	law := func(first, k int) map[[2]int]float64 {
		out := map[[2]int]float64{{}: 1}
		for i := range k {
			x := 2
			if i == 0 {
				x = first
			}
			next := map[[2]int]float64{}
			for h, w := range out {
				for y, p := range row(x) {
					g := h
					if y < 2 {
						g[y]++
					}
					next[g] += w * p
				}
			}
			out = next
		}
		return out
	}
	two, five := [2]map[[2]int]float64{law(0, 2), law(1, 2)}, [2]map[[2]int]float64{law(0, 5), law(1, 5)}
	delta := func(eps float64) (sum float64) {
		for o, p := range two[0] {
			q, best := two[1][o], 0.
			for _, more := range [][][2]map[[2]int]float64{{}, {five, five}} { // [2] then [5, 5], or nothing more
				pairs := [][2]float64{{p, q}}
				for _, m := range more {
					var next [][2]float64
					for _, x := range pairs {
						for o, p := range m[0] {
							next = append(next, [2]float64{x[0] * p, x[1] * m[1][o]})
						}
					}
					pairs = next
				}
				if len(more) == 0 {
					pairs = nil
					for o, p2 := range two[0] {
						pairs = append(pairs, [2]float64{p * p2, q * two[1][o]})
					}
				}
				one := 0.
				for _, x := range pairs {
					one += max(0, x[0]-math.Exp(eps)*x[1])
				}
				best = max(best, one)
			}
			sum += best
		}
		return sum
	}
	var a account.Accountant
	report := dp.Report{Class: dp.KRR, Eps0: 1, Symbols: 3}
	drawn := func(k int64) dp.Round {
		return dp.Round{Report: report, Trust: dp.Shuffle, Participation: dp.All, Population: k}
	}
	few.Report = report
	for _, d := range []float64{.2, .12204, .05} {
		own, err := a.Eps(dp.Sequence{drawn(2), drawn(5), drawn(5)}, d)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := a.Eps(dp.Sequence{drawn(2), drawn(2)}, d)
		if err != nil {
			t.Fatal(err)
		}
		charged, err := a.Eps(dp.Repeat{Event: few, Times: 3}, d)
		if err != nil {
			t.Fatal(err)
		}
		if got := delta(charged.Eps); got > d*(1+1e-9) {
			t.Errorf("delta %v at epsilon %v, charged %v", got, charged.Eps, d)
		}
		if own := max(own.Eps, twice.Eps); d == .12204 && !(delta(own) > d*1.01) {
			t.Errorf("delta %v at epsilon %v, which the numbers as they came cost at %v: this test cannot fail", delta(own), own, d)
		}
		t.Logf("delta = %v: [2, 2] %.4f, [2, 5, 5] %.4f, three times n-min %.4f; exact delta at the larger of the first %.5f", d, twice.Eps, own.Eps, charged.Eps, delta(max(own.Eps, twice.Eps)))
	}
}

// A round costs what the task's terms say, whoever came, and the void rounds before it cost as much where chance is credited.
func TestChargesDoNotFollowWhoCame(t *testing.T) {
	for _, x := range []struct {
		name    string
		change  func(*Config)
		want    dp.Round
		skipped int64 // void rounds that are charged with the next
	}{
		{"all", func(c *Config) {}, dp.Round{Participation: dp.All, Population: 20}, 0},
		{"colluders", func(c *Config) { c.Colluders = 3 }, dp.Round{Participation: dp.All, Population: 17}, 0},
		{"sampled", func(c *Config) { c.Participation, c.Sample = dp.Sampled, 30 }, dp.Round{Participation: dp.Sampled, Population: 100, Reports: 30, Least: 20}, 2},
		{"sampled, a roster that changes", func(c *Config) { c.Participation, c.Sample, c.MinClients = dp.Sampled, 30, 60 }, dp.Round{Participation: dp.Sampled, Population: 60, Reports: 30, Least: 20}, 2},
		{"check-in", func(c *Config) { c.Participation, c.Gamma = dp.CheckIn, .3 }, dp.Round{Participation: dp.CheckIn, Population: 100, Gamma: .3, Least: 20}, 2},
		{"sampled, colluders", func(c *Config) { c.Participation, c.Sample, c.Colluders = dp.Sampled, 30, 3 }, dp.Round{Participation: dp.All, Population: 17}, 0},
		{"sampled, tokens", func(c *Config) { c.Participation, c.Sample, c.Tokens = dp.Sampled, 30, true }, dp.Round{Participation: dp.All, Population: 20}, 0},
		{"sampled, messages", func(c *Config) { c.Participation, c.Sample, c.Messages = dp.Sampled, 30, 2 }, dp.Round{Participation: dp.All, Population: 20}, 0},
		{"sampled, a question", func(c *Config) { c.Participation, c.Sample, c.Declinable = dp.Sampled, 30, true }, dp.Round{Participation: dp.All, Population: 20}, 0},
		{"local", func(c *Config) { c.Participation, c.Sample, c.Trust = dp.Sampled, 30, dp.Local }, dp.Round{Participation: dp.All, Population: 20}, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			b := &book{}
			c := config(t, b)
			c.Population, c.MinReports = 100, 20
			x.change(&c)
			pure, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			want := x.want
			want.Report, want.Trust = c.Report, c.Trust
			closed := func(round, k int64) {
				t.Helper()
				done := batch(round, 0).Closed()
				done.Reports = k
				if err := pure.Receive(t.Context(), done); err != nil {
					t.Fatal(err)
				}
				if got := b.charged[len(b.charged)-1]; got.Event != want {
					t.Errorf("%d reports are charged as %+v, want %+v", k, got.Event, want)
				}
				if _, _, err := pure.End(); err != nil {
					t.Fatal(err)
				}
			}
			closed(1, 20)
			closed(2, 30)
			pure.Round = 4 // rounds 3 and 4 were void
			closed(5, 25)
			if got, want := b.charged[2].Times, x.skipped; want == 0 && got > max(1, c.Messages) || want > 0 && got != want+1 {
				t.Errorf("the round after %d void ones is charged %d times", 2, got)
			}
		})
	}
}

// A client counts its own reports as all of n-min, whatever the roster does: given that its report
// is in a round.
func TestClientsChargeCoversAbsence(t *testing.T) {
	const eps0 = 1.
	var a account.Accountant
	for n := 2; n <= 5; n++ {
		for set := uint(1); set < 1<<n; set += 2 { // any set of reports with client 0 in it, in any order
			k := bits.OnesCount(set)
			for least := 1; least <= k; least++ {
				e := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Shuffle, Participation: dp.All, Population: int64(least)}
				for _, delta := range []float64{.3, .1, .01} {
					b, err := a.Eps(e, delta)
					if err != nil {
						t.Fatal(err)
					}
					for others := uint(0); others < 1<<n; others += 2 {
						zero, one := onesOf(set, others, eps0), onesOf(set, others|1, eps0)
						var p, q float64
						for i := range zero {
							p += max(0, zero[i]-math.Exp(b.Eps)*one[i])
							q += max(0, one[i]-math.Exp(b.Eps)*zero[i])
						}
						if got := max(p, q); got > delta*(1+1e-9) {
							t.Fatalf("set %b, n-min %d: delta %v, charged %v", set, least, got, delta)
						}
					}
				}
			}
		}
	}
}

// The blocks of an epoch are charged once, as the smallest that may be released.
func TestAnEpochIsChargedForItsLeastBlock(t *testing.T) {
	blocks, err := schedule.NewBlocks(100, 30)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Config{Report: dp.Report{Class: dp.Generic, Eps0: 1}, Trust: dp.Shuffle, Participation: dp.Once, Population: 100, Blocks: blocks, MinReports: 20, Colluders: 4}.Event()
	if err != nil || e.Participation != dp.All || e.Population != 16 || e.Least != 0 {
		t.Errorf("%+v, %v", e, err)
	}
}
