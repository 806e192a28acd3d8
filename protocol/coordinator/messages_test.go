package coordinator_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// law is a probability for each view.
type law map[string]float64

// mix returns the law of a view drawn from one of several laws, with these chances, when which
// one it is does not show.
func mix(laws []law, chances []float64) law {
	out := law{}
	for i, l := range laws {
		for v, p := range l {
			out[v] += chances[i] * p
		}
	}
	return out
}

// power returns the law of m independent views.
func (l law) power(m int) law {
	out := law{"": 1}
	for range m {
		next := law{}
		for a, p := range out {
			for b, q := range l {
				next[a+b+"|"] += p * q
			}
		}
		out = next
	}
	return out
}

// shuffled is the law of the number of ones among the reports of these bits by randomized
// response with ε₀. It names the number of reports.
func shuffled(eps0 float64, bits ...int) law {
	p := []float64{1}
	for _, b := range bits {
		one := 1 / (math.Exp(eps0) + 1)
		if b == 1 {
			one = 1 - one
		}
		next := make([]float64, len(p)+1)
		for i, q := range p {
			next[i] += q * (1 - one)
			next[i+1] += q * one
		}
		p = next
	}
	out := law{}
	for i, q := range p {
		out[fmt.Sprintf("%d of %d", i, len(bits))] += q
	}
	return out
}

// delta is the hockey-stick divergence between two laws, both ways.
func delta(a, b law, eps float64) float64 {
	one := func(a, b law) (sum float64) {
		for v, p := range a {
			sum += max(0, p-math.Exp(eps)*b[v])
		}
		return sum
	}
	return max(one(a, b), one(b, a))
}

// worst is the largest divergence over the bits of two other clients, when the first client's
// bit is replaced.
func worst(eps float64, view func(bits ...int) law) (most float64) {
	for _, o := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
		most = max(most, delta(view(0, o[0], o[1]), view(1, o[0], o[1]), eps))
	}
	return most
}

// pairs are all samples of two of three clients.
func pairs(eps0 float64, bits []int) []law {
	return []law{shuffled(eps0, bits[0], bits[1]), shuffled(eps0, bits[0], bits[2]), shuffled(eps0, bits[1], bits[2])}
}

var third = []float64{1. / 3, 1. / 3, 1. / 3}

// messagesOf is a task of three clients who send two messages of a bit each.
func messagesOf(t *testing.T, eps0 float64, change func(*coordinator.Config)) *coordinator.Coordinator {
	t.Helper()
	m, err := randomizer.New(randomizer.RR, randomizer.Config{Dim: 1, Radius: 1, Eps0: eps0})
	if err != nil {
		t.Fatal(err)
	}
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: 1, Schedule: func(int64) float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	budget, err := ledger.New(ledger.Config{Accountant: new(account.Accountant), Delta: 1e-6, MaxEps: math.Inf(1)})
	if err != nil {
		t.Fatal(err)
	}
	c := coordinator.Config{Optimizer: o, Mechanism: m, Report: m.Event(), Ledger: budget, Trust: dp.Shuffle, Participation: dp.All,
		Population: 3, MinReports: 1, Messages: 2, Clip: 1}
	if change != nil {
		change(&c)
	}
	co, err := coordinator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return co
}

// priced is the accountant's ε of a charge at δ.
func priced(t *testing.T, e dp.Event, delta float64) float64 {
	t.Helper()
	b, err := new(account.Accountant).Eps(e, delta)
	if err != nil {
		t.Fatal(err)
	}
	return b.Eps
}

// Two messages of each of two clients, drawn from three: the draw is one for both messages. Two
// sampled rounds would be charged too little, and so would one; the charge is enough.
func TestSharedDrawIsNotChargedAsSeveralSampledRounds(t *testing.T) {
	truth := func(eps0, eps float64) float64 {
		return worst(eps, func(bits ...int) law {
			var twice []law
			for _, l := range pairs(eps0, bits) {
				twice = append(twice, l.power(2))
			}
			return mix(twice, third)
		})
	}
	naive := worst(.5, func(bits ...int) law { return mix(pairs(1, bits), third).power(2) })
	if shared := truth(1, .5); math.Abs(shared-.1452) > 5e-5 || math.Abs(naive-.1280) > 5e-5 {
		t.Errorf("truth %.4f, two sampled rounds %.4f; want .1452 and .1280", shared, naive)
	}
	for _, eps0 := range []float64{1, 2, 3} {
		c := messagesOf(t, eps0, func(c *coordinator.Config) { c.Participation, c.Sample, c.MinReports = dp.Sampled, 2, 2 })
		e, charged, err := c.Planned()
		if err != nil || !charged {
			t.Fatal(err)
		}
		event := dp.Round{Report: e.Event.Report, Trust: dp.Shuffle, Participation: dp.All, Population: 2}
		if e != (ledger.Entry{Round: 1, Event: event, Times: 2}) {
			t.Errorf("charged %+v", e)
		}
		for eps := .25; eps < 2*eps0; eps += .25 {
			if d := truth(eps0, eps); d > 1e-9 && !(priced(t, e.Charged(), d) >= eps) {
				t.Errorf("eps0 = %v: the charge is worth epsilon %.4f at delta %.4f, the truth is %v", eps0, priced(t, e.Charged(), d), d, eps)
			}
		}
		if eps0 != 2 {
			continue
		}
		// The accountant's bounds on the mutants are below the truth.
		const eps = 1.5
		d := truth(eps0, eps)
		sampled := event
		sampled.Participation, sampled.Population, sampled.Reports = dp.Sampled, 3, 2
		for name, mutant := range map[string]dp.Event{"two sampled rounds": dp.Repeat{Event: sampled, Times: 2}, "one round of all": event} {
			if got := priced(t, mutant, d); got >= eps {
				t.Errorf("%s: epsilon %.4f at delta %.4f is not refuted by %v", name, got, d, eps)
			}
		}
	}
}

// Where the number of reports is random, so is that of both messages together.
func TestSharedNumberOfReportsIsNotCharged(t *testing.T) {
	const eps0, eps = 2, 3
	few := func(bits []int) []law { return []law{shuffled(eps0, bits[0]), shuffled(eps0, bits[0], bits[1])} }
	half := []float64{.5, .5}
	truth := worst(eps, func(bits ...int) law {
		l := few(bits)
		return mix([]law{l[0].power(2), l[1].power(2)}, half)
	})
	naive := worst(eps, func(bits ...int) law { return mix(few(bits), half).power(2) })
	if !(truth > naive+1e-3) {
		t.Errorf("truth %.4f, product of mixtures %.4f", truth, naive)
	}
	for _, p := range []dp.Participation{dp.All, dp.CheckIn} {
		for k := int64(1); k <= 3; k++ {
			c := messagesOf(t, eps0, func(c *coordinator.Config) {
				if c.Participation, c.MinReports = p, k; p == dp.CheckIn {
					c.Gamma = .5
				}
			})
			e, _, err := c.Planned()
			if err != nil || e.Times != 2 || e.Event.Participation != dp.All || e.Event.Population != k {
				t.Fatalf("%s, %d reports: %+v, %v", p, k, e, err)
			}
			// The truth for this k, which is seen: the victim is among them.
			bits := []int{0, 0, 1}
			for _, eps := range []float64{.1, .5, 1, 2, 3.5} {
				now := worst(eps, func(b ...int) law { return shuffled(eps0, slices.Concat(b[:1], bits[:k-1])...).power(2) })
				if now > 1e-9 && !(priced(t, e.Charged(), now) >= eps) {
					t.Errorf("%s, %d reports: the charge is below %v at delta %v", p, k, eps, now)
				}
			}
		}
	}
}

// If the parts of a report come in one order, they show which belong together.
func TestLinkedPartsAreNotWhatIsCharged(t *testing.T) {
	const eps0, eps = 1, .5
	one := func(bit int) law { return shuffled(eps0, bit).power(2) }
	linked := worst(eps, func(bits ...int) law { // the multiset of the clients' pairs
		out := law{}
		for a, p := range one(bits[0]) {
			for b, q := range one(bits[1]) {
				for c, r := range one(bits[2]) {
					all := []string{a, b, c}
					slices.Sort(all)
					out[fmt.Sprint(all)] += p * q * r
				}
			}
		}
		return out
	})
	unlinked := worst(eps, func(bits ...int) law { return shuffled(eps0, bits...).power(2) })
	if math.Abs(linked-.2669) > 5e-5 || math.Abs(unlinked-.2202) > 5e-5 {
		t.Errorf("linked %.4f, in orders of their own %.4f; want .2669 and .2202", linked, unlinked)
	}
	e, _, err := messagesOf(t, eps0, func(c *coordinator.Config) { c.MinReports = 3 }).Planned()
	if err != nil || e.Times != 2 || e.Event.Participation != dp.All {
		t.Fatalf("%+v, %v", e, err)
	}
	if got := priced(t, e.Charged(), unlinked); !(got >= eps) {
		t.Errorf("the charge is worth %.4f", got)
	}
	if got := priced(t, e.Charged(), linked); got >= eps {
		t.Errorf("linked parts are not refuted: epsilon %.4f at delta %.4f", got, linked)
	}
}

// Messages count as reports of a mean, and clients against n-min.
func TestRoundsOfSeveralMessages(t *testing.T) {
	c := messagesOf(t, 1, func(c *coordinator.Config) { c.MinReports = 2 })
	if a := c.Announce(); a.Messages != 2 {
		t.Errorf("announced %d messages", a.Messages)
	}
	for _, k := range []int64{1, 4, 6} { // clients, not messages
		if err := c.Receive(context.Background(), wire.RoundClosed{Round: 1, Reports: k}); err == nil {
			t.Errorf("took a batch of %d of 3 clients, n-min 2", k)
		}
	}
	if err := c.Receive(context.Background(), wire.RoundClosed{Round: 1, Reports: 2}); err != nil {
		t.Fatal(err)
	}
	tally, err := c.NewTally()
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		tally.Open(&randomizer.Report{Value: []int32{1}})
	}
	once := messagesOf(t, 1, func(c *coordinator.Config) { c.Messages = 1 })
	if err := once.Receive(context.Background(), wire.RoundClosed{Round: 1, Reports: 2}); err != nil {
		t.Fatal(err)
	}
	two, err := once.NewTally()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		two.Open(&randomizer.Report{Value: []int32{1}})
	}
	if n, rejected, err := c.End(tally); n != 4 || rejected != 0 || err != nil {
		t.Errorf("%d messages, %d rejected, %v", n, rejected, err)
	}
	if _, _, err := once.End(two); err != nil {
		t.Fatal(err)
	}
	if c.Parameters[0] != once.Parameters[0] || c.Parameters[0] == 0 {
		t.Errorf("a step of %v, with one message of each client %v", c.Parameters[0], once.Parameters[0])
	}
	s := c.State()
	if len(s.Charged) != 1 || s.Charged[0].Times != 2 {
		t.Errorf("charged %+v", s.Charged)
	}
	// An epoch of blocks is charged for the messages of one block.
	blocks, err := schedule.NewBlocks(3, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := messagesOf(t, 1, func(c *coordinator.Config) { c.Participation, c.Blocks = dp.Once, blocks })
	if e, charged, err := b.Planned(); err != nil || !charged || e.Times != 2 || e.Event.Participation != dp.All || e.Event.Population != 1 {
		t.Errorf("an epoch is charged as %+v, %v", e, err)
	}
}

func TestMessagesAreChecked(t *testing.T) {
	m, err := randomizer.New(randomizer.RR, randomizer.Config{Dim: 1, Radius: 1, Eps0: 1})
	if err != nil {
		t.Fatal(err)
	}
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: 1, Schedule: func(int64) float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	for messages, trust := range map[int64]dp.Trust{-1: dp.Shuffle, 4097: dp.Shuffle, 1e9: dp.Shuffle, 2: dp.Distributed} {
		_, err := coordinator.New(coordinator.Config{Optimizer: o, Mechanism: m, Report: m.Event(), Ledger: ledger.Unprotected, Trust: trust,
			Participation: dp.All, Population: 3, MinReports: 1, Messages: messages, Clip: 1})
		if err == nil {
			t.Errorf("%d messages with trust %s are taken", messages, trust)
		}
	}
}
