package amplify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// attended returns the law of what is seen of a round of the clients who are there. Outcomes of different
// numbers of reports stand one after the other; the first is the void round.
func attended(rows [][]float64, arrivals func(r int) float64, least int) []float64 {
	out := []float64{0}
	for r := 0; r <= len(rows); r++ {
		w := arrivals(r)
		if r < least {
			out[0] += w
			continue
		}
		for _, x := range sampledLaw(rows, r) {
			out = append(out, w*x)
		}
	}
	return out
}

// hyper is the chance that r of the a who are there are among k drawn of n.
func hyper(n, a, k, r int) float64 {
	if r > a || k-r > n-a || r > k {
		return 0
	}
	return choose(a, r) * choose(n-a, k-r) / choose(n, k)
}

// The pair dominates one round, and two of them where who is there in the second follows from what the first
// showed, for random mechanisms.
func TestAttendanceAgainstExact(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 33))
	verts := vertices(3, math.Exp(1.3))
	const eps0 = 1.3
	closest, checked := 0., 0
	for range longtest.Pick(6, 60) {
		n := 2 + r.IntN(3)
		k := 1 + r.IntN(n)
		m := 1 + r.IntN(k)
		gamma := []float64{.2, .5, .9}[r.IntN(3)]
		if r.IntN(2) == 0 {
			gamma = 0
		}
		a := amplify.Attendance{Population: int64(n), Sample: int64(k), Least: int64(m)}
		if gamma > 0 {
			a = amplify.Attendance{Gamma: gamma, Least: int64(m)}
		}
		p, err := must(amplify.ClonesFamily(eps0, amplify.Blanket(eps0))).Attendance(a)
		if err != nil {
			t.Fatal(err)
		}
		claim := pairCurve(p)
		var twice pair
		mech := randomMechanism(r, verts, 3)
		// rounds lists every way to be there: the victim and others of any data.
		var rounds []pair
		for there := 1; there <= n; there++ {
			others := make([]int, there-1)
			for i := range others {
				others[i] = r.IntN(3)
			}
			first, second := mech.neighbours(0, 1, others)
			law := func(r int) float64 {
				if gamma > 0 {
					return choose(there, r) * math.Pow(gamma, float64(r)) * math.Pow(1-gamma, float64(there-r))
				}
				return hyper(n, there, k, r)
			}
			one := pair{attended(first, law, m), attended(second, law, m)}
			rounds = append(rounds, one)
			name := fmt.Sprintf("n=%d k=%d gamma=%v m=%d, %d there", n, k, gamma, m, there)
			if gap, at := excess(one, eps0, claim); gap > tolerance {
				t.Errorf("%s: exceeded by %v at eps = %v", name, gap, at)
			}
			closest, checked = math.Max(closest, one.hockey(.1)/claim(.1)), checked+1
		}
		// Each outcome of the first chooses the second.
		first := rounds[r.IntN(len(rounds))]
		for i := range first.p {
			second := rounds[r.IntN(len(rounds))]
			for j := range second.p {
				twice.p, twice.q = append(twice.p, first.p[i]*second.p[j]), append(twice.q, first.q[i]*second.q[j])
			}
		}
		if gap, at := excess(twice, 2*eps0, pairCurve(squared(p))); gap > tolerance {
			t.Errorf("n=%d k=%d gamma=%v m=%d: two rounds: exceeded by %v at eps = %v", n, k, gamma, m, gap, at)
		}
	}
	if closest < .6 {
		t.Errorf("%d rounds reach %.3f of what is claimed", checked, closest)
	}
	t.Logf("%d rounds, up to %.4f of the claim", checked, closest)
}

// squared is the pair of two rounds.
func squared(p dp.Pair) dp.Pair {
	type outcome struct{ q, loss float64 }
	rest := 1.
	var all []outcome
	for _, a := range p.Atoms {
		all = append(all, outcome{a.Q, a.Loss}, outcome{a.Q * math.Exp(a.Loss), -a.Loss})
		rest -= a.Q * (1 + math.Exp(a.Loss))
	}
	all = append(all, outcome{max(0, rest), 0})
	var out dp.Pair
	for _, x := range all {
		for _, y := range all {
			if l := x.loss + y.loss; l > 0 {
				out.Atoms = append(out.Atoms, dp.Atom{Q: x.q * y.q, Loss: l})
			}
		}
	}
	return out
}

// The pair is above the mixture of each number of clients who are there, computed by itself, and hardly above the largest.
func TestAttendanceIsTheLargest(t *testing.T) {
	for _, c := range []struct {
		n, k, m int64
		gamma   float64
		eps0    float64
	}{
		{60, 12, 9, 0, 2}, {60, 12, 2, 0, 1}, {60, 60, 50, 0, 3}, {0, 0, 8, .2, 2}, {0, 0, 1, .05, 1},
	} {
		a := amplify.Attendance{Population: c.n, Sample: c.k, Gamma: c.gamma, Least: c.m}
		f := must(amplify.ClonesFamily(c.eps0, amplify.Blanket(c.eps0)))
		p, err := f.Attendance(a)
		if err != nil {
			t.Fatal(err)
		}
		rough, err := f.Rough().Attendance(a)
		if err != nil {
			t.Fatal(err)
		}
		claim, coarse := pairCurve(p), pairCurve(rough)
		rounds := map[int64]dp.Pair{}
		largest := func(y float64) (worst float64) {
			most := c.n
			if c.gamma > 0 {
				most = int64(3 * float64(c.m+8) / c.gamma)
			}
			for there := c.m; there <= most; there++ {
				sum := 0.
				for r := c.m; r <= there; r++ {
					w := 0.
					if c.gamma > 0 {
						w = math.Exp(logChoose(there, r) + float64(r)*math.Log(c.gamma) + float64(there-r)*math.Log1p(-c.gamma))
					} else {
						w = hyper(int(c.n), int(there), int(c.k), int(r))
					}
					if w < 1e-30 {
						continue
					}
					one, ok := rounds[r]
					if !ok {
						var err error
						if one, err = f.Round(amplify.FamilyRound{Population: r, Reports: r}); err != nil {
							t.Fatal(err)
						}
						rounds[r] = one
					}
					q := float64(r) / float64(there)
					for _, o := range one.Atoms {
						sum += w * q * o.Q * max(0, math.Expm1(o.Loss)-y/q)
					}
				}
				worst = max(worst, sum)
			}
			return worst
		}
		for _, eps := range []float64{0, .05, .2, .5, .9} {
			eps *= c.eps0
			// The pairs that are mixed have an error of their own.
			truth, below := largest(math.Expm1(eps)), largest(math.Expm1(eps*1.006))
			if got := claim(eps); !(got >= truth*(1-1e-4)-1e-15) {
				t.Errorf("%+v at eps = %v: %v, a number of clients reaches %v", c, eps, got, truth)
			}
			if got := claim(eps*1.012 + 2e-3*c.eps0); below > 1e-12 && !(got <= truth*(1+1e-3)) {
				t.Errorf("%+v at eps = %v: %v, the largest is %v", c, eps, got, truth)
			}
			if got := coarse(eps); !(got >= truth*(1-1e-4)-1e-15) {
				t.Errorf("%+v at eps = %v: roughly %v, a number of clients reaches %v", c, eps, got, truth)
			}
		}
	}
}

func logChoose(n, k int64) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// More clients, and a larger least number of reports, cost no more; all who take part are the round of the least number.
func TestAttendanceOfMore(t *testing.T) {
	for name, f := range map[string]amplify.Family{
		"clones": must(amplify.ClonesFamily(2, amplify.Blanket(2))), "krr": must(amplify.KRR(2, 10)), "rr2": must(amplify.RR2(2)), "laplace": must(amplify.Laplace(2)),
	} {
		if !longtest.On && name != "clones" && name != "rr2" {
			continue
		}
		curveOf := func(a amplify.Attendance) curve {
			p, err := f.Attendance(a)
			if err != nil {
				t.Fatal(name, err)
			}
			return pairCurve(p)
		}
		few, more, many := curveOf(amplify.Attendance{Population: 200, Sample: 40, Least: 30}), curveOf(amplify.Attendance{Population: 300, Sample: 40, Least: 30}), curveOf(amplify.Attendance{Population: 200, Sample: 40, Least: 36})
		coins := curveOf(amplify.Attendance{Gamma: .2, Least: 30})
		one, err := f.Round(amplify.FamilyRound{Population: 30, Reports: 30})
		if err != nil {
			t.Fatal(err)
		}
		all, sure := pairCurve(one), curveOf(amplify.Attendance{Gamma: 1, Least: 30})
		for _, eps := range []float64{0, .1, .3, .8} {
			for what, other := range map[string]float64{"300 clients": more(eps), "at least 36": many(eps)} {
				if other > few(eps)*1.002+1e-13 {
					t.Errorf("%s, %s at eps = %v: %v, for 200 clients and at least 30 %v", name, what, eps, other, few(eps))
				}
			}
			if a, b := all(eps), sure(eps*1.005+2e-3); !(b <= a*(1+1e-6)+1e-13) || !(sure(eps) >= a*(1-1e-3)-1e-13) {
				t.Errorf("%s at eps = %v: all of 30 cost %v, coins that always say yes %v", name, eps, a, sure(eps))
			}
			if coins(eps) > all(eps)*(1+1e-3) {
				t.Errorf("%s at eps = %v: coins cost %v, more than all of 30: %v", name, eps, coins(eps), all(eps))
			}
		}
	}
}

func TestGaussianAttendance(t *testing.T) {
	for _, apart := range []bool{false, true} {
		p, err := amplify.GaussianAttendance(1, amplify.Attendance{Population: 1000, Sample: 100, Least: 90}, apart)
		if err != nil {
			t.Fatal(err)
		}
		// Nobody is away: one of the numbers of clients.
		q, err := amplify.Gaussian(amplify.GaussianConfig{Sigma: 1, Population: 1000, Reports: 100, Apart: apart})
		if err != nil {
			t.Fatal(err)
		}
		for _, eps := range []float64{0, .05, .1, .5} {
			got, there := hockeyStick(p, eps), hockeyStick(q, eps)
			if !(got >= there*(1-1e-4)) || got > 1.4*there+1e-3 {
				t.Errorf("apart %v, eps = %v: %v, where all are there %v", apart, eps, got, there)
			}
		}
	}
}

func TestAttendanceRefused(t *testing.T) {
	f := must(amplify.ClonesFamily(1, amplify.Blanket(1)))
	for _, a := range []amplify.Attendance{
		{}, {Population: 10, Sample: 5}, {Population: 10, Sample: 5, Least: 6}, {Population: 10, Sample: 11, Least: 1}, {Population: 0, Sample: 1, Least: 1},
		{Gamma: 1.1, Least: 1}, {Gamma: math.NaN(), Least: 1}, {Gamma: -.1, Least: 1}, {Gamma: .5, Sample: 3, Population: 9, Least: 1}, {Gamma: .5, Least: 1 << 53}, {Population: 1 << 53, Sample: 5, Least: 1},
	} {
		if _, err := f.Attendance(a); err == nil {
			t.Errorf("%+v is accepted", a)
		}
		if _, err := amplify.GaussianAttendance(1, a, true); err == nil {
			t.Errorf("%+v is accepted for sums", a)
		}
	}
}

func BenchmarkAttendance(b *testing.B) {
	for _, c := range []struct {
		name string
		a    amplify.Attendance
	}{
		{"sampled 900..1000 of 1e6", amplify.Attendance{Population: 1e6, Sample: 1000, Least: 900}},
		{"coins 1e-3, at least 900", amplify.Attendance{Gamma: 1e-3, Least: 900}},
		{"coins 1e-3, at least 5", amplify.Attendance{Gamma: 1e-3, Least: 5}},
	} {
		for name, f := range map[string]amplify.Family{"clones": must(amplify.ClonesFamily(2, amplify.Blanket(2))), "krr": must(amplify.KRR(2, 20))} {
			for range 2 {
				b.Run(c.name+"/"+name, func(b *testing.B) {
					for b.Loop() {
						if _, err := f.Attendance(c.a); err != nil {
							b.Fatal(err)
						}
					}
				})
				f, name = f.Rough(), name+" rough"
			}
		}
	}
}
