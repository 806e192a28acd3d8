package client_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// correlatedTask is a task whose clients take part in one of every rounds.
func correlatedTask(t testing.TB, s toeplitz.Strategy, every int64) (wire.Task, *mechanism.AggregatedSum) {
	t.Helper()
	p, err := vecsum.NewCorrelated(9, 2, 1, 3, s)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(50)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, sigma, 9)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Task{Name: "sums", Trust: dp.Distributed, Participation: dp.CheckIn, MinReports: 1, Rounds: 50, Delta: 1e-5,
		Mechanism: m.Describe(), Every: every}, m
}

var agreeable = client.Policy{MaxEps0: 1, MaxEps: 30, Delta: 1e-5, MinReports: 1}

// correlatedByClients is a task of clients in one of 3 rounds, who send the noise apart from their vectors.
func correlatedByClients(t testing.TB, least int64, honest float64) wire.Task {
	t.Helper()
	s := toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 5}}
	p, err := vecsum.NewCorrelatedByClients(99, least, honest, 2, 1, 3, s)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(50)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, sigma, 99)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Task{Name: "sums", Trust: dp.Distributed, Participation: dp.CheckIn, MinReports: least, Rounds: 50, Delta: 1e-5,
		Mechanism: m.Describe(), Every: 3}
}

// A client agrees to noise of clients only if rounds have as many as it is counted for, in spite of colluders.
func TestNoiseOfClientsApartIsAgreedTo(t *testing.T) {
	for name, c := range map[string]struct {
		honest  float64
		policy  func(*client.Policy)
		task    func(*wire.Task)
		refused string // "": it agrees
	}{
		"any policy":             {1, nil, nil, ""},
		"noise of clients alone": {1, func(p *client.Policy) { p.NoiseBy = []vecsum.NoiseBy{vecsum.ByClients} }, nil, ""},
		"with proofs":            {1, func(p *client.Policy) { p.RequireProofs = true }, nil, ""},
		"half are honest":        {.5, func(p *client.Policy) { p.Colluders = 5 }, nil, ""},
		"more colluders": {.5, func(p *client.Policy) { p.Colluders = 6 }, nil,
			"noise of a share 0.5 of 10 clients leaves no room for 6 colluders"},
		"one colluder, of whom none is allowed for": {1, func(p *client.Policy) { p.Colluders = 1 }, nil,
			"noise of a share 1 of 10 clients leaves no room for 1 colluders"},
		"noise of aggregators alone": {1, func(p *client.Policy) { p.NoiseBy = []vecsum.NoiseBy{vecsum.ByAggregators} }, nil,
			"noise by clients is not allowed"},
		"fewer reports than are counted on": {1, nil, func(w *wire.Task) { w.MinReports = 9 },
			"noise is counted on for 10 clients, rounds are opened with 9"},
		"less variance":          {1, nil, func(w *wire.Task) { w.Mechanism.Sum.Variance -= w.Mechanism.Sum.Variance / 100 }, "worth sigma = "},
		"more sigma":             {1, nil, func(w *wire.Task) { w.Mechanism.Sum.Sigma *= 1.001 }, "worth sigma = "},
		"more of them honest":    {.5, nil, func(w *wire.Task) { w.Mechanism.Sum.Honest = .4 }, "worth sigma = "},
		"fewer that it needs":    {1, nil, func(w *wire.Task) { w.Mechanism.Sum.MinUsers = 9 }, "worth sigma = "},
		"none of them honest":    {1, nil, func(w *wire.Task) { w.Mechanism.Sum.Honest = 0 }, "honest fraction = 0"},
		"no proofs":              {1, nil, func(w *wire.Task) { w.Mechanism.Sum.Proofs = "" }, "needs proofs"},
		"who adds it contradict": {1, nil, func(w *wire.Task) { w.Mechanism.Sum.NoiseBy = wire.NoiseByAggregators }, "with noise by"},
		"noise of nobody":        {1, nil, func(w *wire.Task) { w.Mechanism.Sum.MinUsers = 0 }, "noise of 0 clients"},
		"every is missing":       {1, nil, func(w *wire.Task) { w.Every = 0 }, "a client in one of 0"},
		"every is too small":     {1, nil, func(w *wire.Task) { w.Every = 1 }, "a client in one of 1"},
		"all take part":          {1, nil, func(w *wire.Task) { w.Participation = dp.All }, "participation all"},
		"independent noise":      {1, nil, func(w *wire.Task) { w.Mechanism.Weights, w.Mechanism.WeightBits, w.Every = nil, 0, 0 }, "without the weights"},
	} {
		p, task := agreeable, correlatedByClients(t, 10, c.honest)
		if c.policy != nil {
			c.policy(&p)
		}
		if c.task != nil {
			c.task(&task)
		}
		terms, err := p.Agree(t.Context(), task)
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: error %v, want %q", name, err, c.refused)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			// Each report is in three releases: with 1, 9/16 and 5/16. What it keeps of δ is what the mechanism says.
			m := terms.Mechanism.(*mechanism.AggregatedSum)
			tail, err := m.Tail(task.LastRound())
			sigma, want := terms.Charge.Report.Sigma, task.Mechanism.Sum.Sigma/math.Sqrt(1+(81.+25)/256)
			if err != nil || terms.Tail != tail || !(tail > 0) || terms.Charge.Report.Class != dp.GaussianSum || terms.Charge.Reports != 1 || !(sigma <= want && sigma >= want*(1-1e-12)) {
				t.Errorf("%s: %+v and tail %v, want sigma = %v and %v: %v", name, terms.Charge, terms.Tail, want, tail, err)
			}
			if sent, err := wire.Decode[wire.Task](wire.Encode(task)); err != nil || !reflect.DeepEqual(sent, task) {
				t.Errorf("%s: %+v came as %+v: %v", name, task, sent, err)
			}
		}
	}
}

// patterns calls f with every set of rounds 0 ≤ t < rounds of which any two are at least every apart.
func patterns(rounds, every int64, f func(pattern []int64)) {
	var extend func(from int64, pattern []int64)
	extend = func(from int64, pattern []int64) {
		f(pattern)
		for t := from; t < rounds; t++ {
			extend(t+every, append(pattern[:len(pattern):len(pattern)], t))
		}
	}
	extend(0, nil)
}

// A report is charged its whole band: however many reports a client has made, and when, its charges are at least
// what is released of them, and no more once all their rounds were released.
func TestReportsAreChargedTheirBand(t *testing.T) {
	for _, c := range []struct {
		weights []int64
		every   int64
	}{{[]int64{16, 9, 5}, 3}, {[]int64{16, 9, 5}, 4}, {[]int64{16, 16, 16, 16}, 4}, {[]int64{16, 1}, 2}, {[]int64{16}, 2}, {[]int64{16, 0, 0}, 3}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := toeplitz.Strategy{Bits: 4, Weights: c.weights}
			task, m := correlatedTask(t, s, c.every)
			terms, err := agreeable.Agree(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			square := func(sigma float64) float64 { return m.Event().Sigma * m.Event().Sigma / (sigma * sigma) }
			each := square(terms.Charge.Report.Sigma)
			tail, err := m.Tail(task.LastRound())
			if err != nil || terms.Tail != tail || terms.Charge.Report.Class != dp.GaussianSum || terms.Charge.Reports != 1 {
				t.Errorf("%+v with tail %v, want %v: %v", terms.Charge, terms.Tail, tail, err)
			}
			const rounds = 13
			var worst float64
			n := 0
			patterns(rounds, c.every, func(pattern []int64) {
				var cost float64
				whole := true
				for r := range int64(rounds) {
					var row int64
					for _, at := range pattern {
						if d := r - at; d >= 0 && d < int64(len(c.weights)) {
							row += c.weights[d]
						}
					}
					cost += float64(row*row) / 256
				}
				for _, at := range pattern {
					whole = whole && at+int64(len(c.weights)) <= rounds
				}
				charged := float64(len(pattern)) * each
				if !(charged >= cost) || whole && !(charged <= cost*(1+1e-12)) {
					t.Fatalf("rounds %v are charged %v, and cost %v", pattern, charged, cost)
				}
				worst = max(worst, cost)
				n++
			})
			if got := s.Squared(rounds, c.every); got != worst || n < 20 {
				t.Errorf("Squared says %v, the worst of %d patterns costs %v", got, n, worst)
			}
		})
	}
}

// A client does not agree to a task whose rounds would cost more than it is charged, or whose participation
// is another than that of its own count.
func TestCorrelatedSumsAreNotAgreedTo(t *testing.T) {
	s := toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 5}}
	good, _ := correlatedTask(t, s, 3)
	plain, _ := provedTask(t, 9)
	for want, change := range map[string]func(*wire.Task){
		"3 weights of correlated noise, a client in one of 2 rounds":  func(w *wire.Task) { w.Every = 2 },
		"3 weights of correlated noise, a client in one of 0 rounds":  func(w *wire.Task) { w.Every = 0 },
		"3 weights of correlated noise, a client in one of -3 rounds": func(w *wire.Task) { w.Every = -3 },
		"participation all":     func(w *wire.Task) { w.Participation = dp.All },
		"participation sampled": func(w *wire.Task) { w.Participation = dp.Sampled },
		"participation once":    func(w *wire.Task) { w.Participation = dp.Once },
		"0 weights of correlated noise, a client in one of 3": func(w *wire.Task) { w.Mechanism = plain.Mechanism },
		"weight 1 is 17":        func(w *wire.Task) { w.Mechanism.Weights = []int64{16, 17, 5} },
		"worth sigma = ":        func(w *wire.Task) { w.Mechanism.Sum.Variance /= 256 },
		"not for trust shuffle": func(w *wire.Task) { w.Trust = dp.Shuffle },
	} {
		task := good
		change(&task)
		if _, err := agreeable.Agree(t.Context(), task); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	terms, err := agreeable.Agree(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	ann := wire.Announcement{Task: terms.ID, Round: 1, Trust: good.Trust, Participation: dp.CheckIn, MinReports: 1, Gamma: 1. / 3}
	for gamma, want := range map[float64]string{1. / 3: "the task's is", .5: "gamma = 0.5", 1: "gamma = 1", 0: "gamma = 0", math.Nextafter(1./3, 1): "gamma = 0.3333333"} {
		ann.Gamma = gamma
		err := terms.Admit(ann, wire.Enrolment{Population: wire.ID{7}}, time.Now())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("gamma %v: %v, want %q", gamma, err, want)
		}
	}
}

// Of any rounds with reports two are at least every apart, in whatever order a coordinator announces them,
// and none comes before the first. It is the rule's whole domain for few rounds.
func TestTurn(t *testing.T) {
	for every := int64(2); every <= 5; every++ {
		for first := int64(1); first <= every; first++ {
			for last := int64(0); last <= 12; last++ {
				for round := int64(1); round <= 12; round++ {
					want := last == 0 && round >= first || last > 0 && round >= last+every
					if got := client.Turn(every, first, last, round); got != want {
						t.Errorf("every %d, first %d, last %d: round %d: %v", every, first, last, round, got)
					}
				}
			}
		}
	}
	for _, c := range [][4]int64{{math.MaxInt64, 1, 1, math.MaxInt64}, {3, 1, math.MaxInt64, 1}, {3, 1, math.MaxInt64, math.MaxInt64}} {
		if client.Turn(c[0], c[1], c[2], c[3]) {
			t.Errorf("%v", c)
		}
	}
}

// A client's first round is the same each time, uniform over clients, and says nothing of it in another task.
func TestOwnFirstRound(t *testing.T) {
	const clients = 20_000
	for _, every := range []int64{2, 3, 7, 10} {
		count := make([]float64, every+1)
		pairs := map[[2]int64]float64{}
		for i := range clients {
			secret := []byte(fmt.Sprintf("secret %d", i))
			a, b := client.OwnFirstRound(secret, [32]byte{1}, every), client.OwnFirstRound(secret, [32]byte{2}, every)
			if a < 1 || a > every || a != client.OwnFirstRound(secret, [32]byte{1}, every) {
				t.Fatalf("first round %d of %d", a, every)
			}
			count[a]++
			pairs[[2]int64{a, b}]++
		}
		var single, both float64
		for r := int64(1); r <= every; r++ {
			want := clients / float64(every)
			single += (count[r] - want) * (count[r] - want) / want
			for q := int64(1); q <= every; q++ {
				want := clients / float64(every*every)
				d := pairs[[2]int64{r, q}] - want
				both += d * d / want
			}
		}
		// χ² is beyond its mean and six of its standard deviations with less than 1e-4.
		for degrees, x := range map[float64]float64{float64(every - 1): single, float64(every*every - 1): both} {
			if x > degrees+6*math.Sqrt(2*degrees) {
				t.Errorf("every %d: χ² = %v of %v degrees", every, x, degrees)
			}
		}
	}
	// It does not change from one version to the next: a client that has not reported yet would come twice.
	var got []int64
	for i := range byte(6) {
		got = append(got, client.OwnFirstRound([]byte{i, 1, 2, 3}, [32]byte{9, i}, 1000))
	}
	if want := "[114 726 908 964 760 818]"; fmt.Sprint(got) != want { // HMAC-SHA-256, computed by another program
		t.Errorf("first rounds %v, want %v", got, want)
	}
}
