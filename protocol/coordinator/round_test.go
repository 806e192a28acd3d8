package coordinator

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// book records what was charged and may refuse.
type book struct {
	refuse  error
	charged []ledger.Entry
}

func (b *book) Charge(_ context.Context, c ledger.Charge) error {
	if b.refuse != nil {
		return b.refuse
	}
	b.charged = append(b.charged, ledger.Entry{Round: c.Round, Event: c.Event})
	return nil
}
func (b *book) Spent() (dp.Bound, error)       { return dp.Bound{}, nil }
func (b *book) Entries() []ledger.Entry        { return b.charged }
func (b *book) Restore(e []ledger.Entry) error { b.charged = e; return nil }

// promised has reports that a test can read and a promise that a ledger takes.
type promised struct{ randomizer.Mechanism }

func (promised) Event() dp.Report { return dp.Report{Class: dp.Generic, Eps0: 1} }

// summed has reports without noise of their own.
type summed struct{ randomizer.Mechanism }

func (summed) Event() dp.Report { return dp.Report{Class: dp.GaussianSum, Sigma: 8} }

func config(t *testing.T, l Ledger) Config {
	t.Helper()
	m, err := randomizer.NewPlain(randomizer.Config{Dim: 2, Radius: 1})
	if err != nil {
		t.Fatal(err)
	}
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: 2, Schedule: func(int64) float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	return Config{Optimizer: o, Mechanism: promised{m}, Report: dp.Report{Class: dp.Generic, Eps0: 1}, Ledger: l,
		Trust: dp.Shuffle, Participation: dp.All, Population: 4, MinReports: 2, Clip: 1}
}

func newCoordinator(t *testing.T, l Ledger) *Coordinator {
	t.Helper()
	c, err := New(config(t, l))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func batch(round int64, k int) wire.Batch {
	return wire.Batch{Round: round, Payloads: make([]int64, k)}
}

func TestNothingOpensBeforeTheCharge(t *testing.T) {
	refusal := errors.New("no")
	b := &book{refuse: refusal}
	c := newCoordinator(t, b)
	if _, err := c.NewTally(); err == nil {
		t.Error("a tally without a charge")
	}
	if _, _, err := c.End(); err == nil {
		t.Error("ended a round that was not charged")
	}
	if err := c.Receive(t.Context(), batch(1, 4).Closed()); !errors.Is(err, refusal) {
		t.Errorf("refused charge gave %v", err)
	}
	if _, err := c.NewTally(); err == nil {
		t.Error("a tally after a refused charge")
	}
	b.refuse = nil
	if err := c.Receive(t.Context(), batch(1, 4).Closed()); err != nil {
		t.Fatal(err)
	}
	if len(b.charged) != 1 || b.charged[0].Event.Reports != 4 || b.charged[0].Event.Participation != dp.All {
		t.Errorf("charged %+v", b.charged)
	}
	if err := c.Void(); err == nil {
		t.Error("a charged round was declared void")
	}
}

func TestWrongBatchesAreRefusedUncharged(t *testing.T) {
	b := &book{}
	c := newCoordinator(t, b)
	for _, wrong := range []wire.Batch{batch(0, 4), batch(2, 4), batch(1, 1), batch(1, 5)} {
		if err := c.Receive(t.Context(), wrong.Closed()); err == nil {
			t.Errorf("received %d reports for round %d", len(wrong.Payloads), wrong.Round)
		}
	}
	if len(b.charged) != 0 {
		t.Errorf("charged %v", b.charged)
	}
}

// More reports than clients were drawn did not come from those drawn.
func TestSampledRoundTakesNoMoreThanItsSample(t *testing.T) {
	b := &book{}
	settings := config(t, b)
	settings.Participation, settings.Sample = dp.Sampled, 3
	c, err := New(settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(t.Context(), batch(1, 4).Closed()); err == nil || len(b.charged) != 0 {
		t.Errorf("4 reports of a sample of 3: %v, charged %v", err, b.charged)
	}
	for round, k := range []int{3, 2} { // one may have dropped out
		if err := c.Receive(t.Context(), batch(int64(round)+1, k).Closed()); err != nil {
			t.Fatal(err)
		}
		want := dp.Round{Report: settings.Report, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 4, Reports: int64(k), Realised: true}
		if got := b.charged[round].Event; got != want {
			t.Errorf("charged %+v, want %+v", got, want)
		}
		if _, _, err := c.End(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneChargePaysForOneBatch(t *testing.T) {
	b := &book{}
	c := newCoordinator(t, b)
	first := wire.Batch{Round: 1, Payloads: []int64{3, 1, 2}}
	for range 2 { // a round that was cut off is run again
		if err := c.Receive(t.Context(), first.Closed()); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Receive(t.Context(), wire.Batch{Round: 1, Payloads: []int64{3, 1, 0}}.Closed()); err == nil {
		t.Error("a second batch of the same size was received for one charge")
	}
	if len(b.charged) != 1 {
		t.Errorf("charged %v", b.charged)
	}
	if _, _, err := c.End(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NewTally(); err == nil {
		t.Error("a batch can be opened after the end of its round")
	}
	if err := c.Receive(t.Context(), first.Closed()); err == nil {
		t.Error("an old batch was received again")
	}
}

func TestRestoreBringsBackTheCharges(t *testing.T) {
	b := &book{}
	c := newCoordinator(t, b)
	if err := c.Receive(t.Context(), batch(1, 3).Closed()); err != nil {
		t.Fatal(err)
	}
	s := c.State()
	again := &book{}
	if err := newCoordinator(t, again).Restore(s); err != nil {
		t.Fatal(err)
	}
	if len(again.charged) != 1 || again.charged[0] != b.charged[0] {
		t.Errorf("restored the charges %+v, want %+v", again.charged, b.charged)
	}
}

func TestRoundSumsExactlyAndRejectsBadReports(t *testing.T) {
	b := &book{}
	c := newCoordinator(t, b)
	if err := c.Receive(t.Context(), batch(1, 4).Closed()); err != nil {
		t.Fatal(err)
	}
	const half = 1 << 23
	first, _ := c.NewTally()
	second, _ := c.NewTally()
	first.Open(&randomizer.Report{Value: []int32{half, 0}})
	second.Open(&randomizer.Report{Value: []int32{half, half}})
	second.Open(&randomizer.Report{Value: []int32{math.MaxInt32, 0}})      // out of range
	second.Open(&randomizer.Report{Value: []int32{1}})                     // wrong length
	second.Open(&randomizer.Report{Index: []uint32{0}, Value: []int32{1}}) // wrong kind
	accepted, rejected, err := c.End(first, second)
	if err != nil || accepted != 2 || rejected != 3 {
		t.Fatalf("%d accepted, %d rejected, %v", accepted, rejected, err)
	}
	if p := c.Parameters; p[0] != -.5 || p[1] != -.25 {
		t.Errorf("parameters %v, want (−.5, −.25)", p)
	}
	if c.Round != 1 || c.Announce().Round != 2 {
		t.Errorf("round %d after the first", c.Round)
	}
	if err := c.Receive(t.Context(), batch(2, 3).Closed()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.End(first); err == nil {
		t.Error("a tally of round 1 entered round 2")
	}
}

func TestRoundWithoutAcceptableReportsTakesNoStep(t *testing.T) {
	c := newCoordinator(t, &book{})
	if err := c.Receive(t.Context(), batch(1, 4).Closed()); err != nil {
		t.Fatal(err)
	}
	tally, _ := c.NewTally()
	tally.Open(&randomizer.Report{Value: []int32{1}})
	if accepted, rejected, err := c.End(tally); err != nil || accepted != 0 || rejected != 1 {
		t.Fatalf("%d, %d, %v", accepted, rejected, err)
	}
	if c.Round != 1 || c.Parameters[0] != 0 {
		t.Errorf("round %d at %v", c.Round, c.Parameters)
	}
}

func TestAnnouncementNamesTheModel(t *testing.T) {
	c := newCoordinator(t, &book{})
	before := c.Announce()
	if wire.Digest(before) != wire.Digest(c.Announce()) {
		t.Error("announcing twice differs")
	}
	if err := c.Receive(t.Context(), batch(1, 4).Closed()); err != nil {
		t.Fatal(err)
	}
	tally, _ := c.NewTally()
	tally.Open(&randomizer.Report{Value: []int32{5, 5}})
	if _, _, err := c.End(tally); err != nil {
		t.Fatal(err)
	}
	if c.Announce().ModelDigest == before.ModelDigest {
		t.Error("another model has the same digest")
	}
}

func TestRestoreRefusesWhatDoesNotFit(t *testing.T) {
	c := newCoordinator(t, &book{})
	s := c.State()
	s.Round = -1
	if newCoordinator(t, &book{}).Restore(s) == nil {
		t.Error("restored a negative round")
	}
	s = c.State()
	s.Charged = []ledger.Entry{{Round: 2}}
	if newCoordinator(t, &book{}).Restore(s) == nil {
		t.Error("restored a charge beyond the coming round")
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, broken := range map[string]func(*Config){
		"optimizer": func(c *Config) { c.Optimizer = nil }, "mechanism": func(c *Config) { c.Mechanism = nil },
		"ledger": func(c *Config) { c.Ledger = nil }, "population": func(c *Config) { c.Population = 0 },
		"n-min 0": func(c *Config) { c.MinReports = 0 }, "n-min": func(c *Config) { c.MinReports = 5 },
		"k":         func(c *Config) { c.Participation = dp.Sampled; c.Sample = 5 },
		"eps0":      func(c *Config) { c.Report.Eps0 = .5 }, // less than what is promised
		"class":     func(c *Config) { c.Report.Class = dp.BinaryRR },
		"guarantee": func(c *Config) { c.Mechanism = c.Mechanism.(promised).Mechanism },
		"gamma":     func(c *Config) { c.Participation = dp.CheckIn; c.Gamma = math.NaN() },
		"once":      func(c *Config) { c.Participation = dp.Once },
		"dim": func(c *Config) {
			m, _ := randomizer.NewPlain(randomizer.Config{Dim: 3, Radius: 1})
			c.Mechanism = promised{m}
		},
	} {
		c := config(t, &book{})
		broken(&c)
		if _, err := New(c); err == nil {
			t.Errorf("accepted a config with broken %s", name)
		}
	}
	c := config(t, ledger.Unprotected)
	c.Mechanism, c.Report = c.Mechanism.(promised).Mechanism, dp.Report{}
	if _, err := New(c); err != nil {
		t.Errorf("refused a run that says it is unprotected: %v", err)
	}
}

// A sum of which nobody saw the parts counts like the reports in it.
func TestAddSum(t *testing.T) {
	c := newCoordinator(t, &book{})
	if err := c.Receive(t.Context(), batch(1, 4).Closed()); err != nil {
		t.Fatal(err)
	}
	tally, err := c.NewTally()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		sum []int64
		n   int64
	}{{[]int64{1}, 4}, {[]int64{1, 2, 3}, 4}, {[]int64{1, 2}, -1}} {
		if tally.AddSum(bad.sum, bad.n) == nil {
			t.Errorf("took %+v", bad)
		}
	}
	if err := tally.AddSum([]int64{8, -4}, 4); err != nil {
		t.Fatal(err)
	}
	if n, rejected, err := c.End(tally); n != 4 || rejected != 0 || err != nil {
		t.Errorf("%d reports, %d rejected, %v", n, rejected, err)
	}
}

// Colluders of a vector sum take their noise away besides those whose noise is not
// relied on: a round is charged for no more noise than is left.
func TestColludersOfASumTakeNoiseAway(t *testing.T) {
	for _, honest := range []float64{0, 1, .9, .7, .5, .3} {
		c := config(t, &book{})
		c.Trust, c.Population, c.MinReports, c.Colluders, c.Honest = dp.Distributed, 1000, 500, 20, honest
		pure, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		share := honest
		if honest == 0 {
			share = 1
		}
		for k := c.MinReports; k <= c.Population; k++ {
			entry, _, err := pure.Planned(k)
			if err != nil {
				t.Fatal(err)
			}
			e := entry.Event
			left, counted := int64(share*float64(k))-c.Colluders, int64(share*float64(e.Reports))
			if counted > left || counted < left-1 || e.Population != e.Reports {
				t.Fatalf("honest = %v: %d reports are charged as %+v, noise of %d, but %d add theirs", honest, k, e, counted, left)
			}
		}
	}
	c := config(t, &book{})
	c.Population, c.MinReports, c.Colluders, c.Honest = 100, 40, 20, .5
	if _, err := New(c); err == nil {
		t.Error("colluders as many as those whose noise is relied on are taken")
	}
}

// Of a sum to which others add the noise, a round in which all are asked costs the same whoever
// comes: who kept the others away knows that a certain client is there.
func TestDropOutsOfASumAreNotCharged(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		for _, honest := range []float64{0, .5} {
			c := config(t, &book{})
			c.Mechanism = summed{c.Mechanism}
			c.Trust, c.Report, c.Population, c.MinReports, c.Honest, c.Tokens = dp.Distributed, summed{}.Event(), 1000, 2, honest, tokens
			pure, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range []int64{2, 3, 500, 999, 1000} {
				entry, _, err := pure.Planned(k)
				e := entry.Event
				if err != nil || e.Participation != dp.All || e.Population != e.Reports || e.Report != c.Report {
					t.Errorf("honest = %v: %d reports are charged as %+v, %v", honest, k, e, err)
				}
			}
		}
	}
}

// Where noise is the aggregators', a round that is drawn or of coins costs no less where fewer came.
func TestDropOutsOfADrawnSumAreNotCredited(t *testing.T) {
	for _, x := range []struct {
		who                      dp.Participation
		sample                   int64
		gamma                    float64
		minClients, colluders, k int64
		reports, of              int64 // charged
	}{
		{dp.Sampled, 100, 0, 0, 0, 100, 100, 1000},
		{dp.Sampled, 100, 0, 0, 0, 7, 100, 1000},
		{dp.Sampled, 100, 0, 50, 0, 7, 7, 7}, // of fewer than were drawn: no chance
		{dp.Sampled, 100, 0, 0, 1, 7, 6, 6},
		{dp.CheckIn, 0, .1, 0, 0, 130, 130, 1000}, // more coins than expected
		{dp.CheckIn, 0, .1, 0, 0, 7, 100, 1000},
		{dp.CheckIn, 0, .0999, 0, 0, 7, 100, 1000}, // rounded up
	} {
		c := config(t, &book{})
		c.Mechanism = summed{c.Mechanism}
		c.Trust, c.Report, c.Population, c.MinReports = dp.Distributed, summed{}.Event(), 1000, 2
		c.Participation, c.Sample, c.Gamma = x.who, x.sample, x.gamma
		c.MinClients, c.Colluders = x.minClients, x.colluders
		pure, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		entry, _, err := pure.Planned(x.k)
		e := entry.Event
		all := x.reports == x.of
		if err != nil || e.Reports != x.reports || e.Population != x.of || all != (e.Participation == dp.All) {
			t.Errorf("%+v is charged as %+v, %v", x, e, err)
		}
	}
}
