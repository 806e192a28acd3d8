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
	b.charged = append(b.charged, ledger.Entry{Round: c.Round, Event: c.Event, Times: c.Times})
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

// added has reports with Gaussian noise of their own, of which the sum is seen.
type added struct{ randomizer.Mechanism }

func (added) Event() dp.Report { return dp.Report{Class: dp.Gaussian, Sigma: 3} }

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
	if len(b.charged) != 1 || b.charged[0].Event.Population != 2 || b.charged[0].Event.Participation != dp.All {
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
		want := dp.Round{Report: settings.Report, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 4, Reports: 3, Least: 2}
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
		entry, _, err := pure.Planned()
		if err != nil {
			t.Fatal(err)
		}
		e := entry.Event
		left, counted := int64(share*float64(c.MinReports))-c.Colluders, int64(share*float64(e.Population))
		if counted > left || counted < left-1 || e.Participation != dp.All {
			t.Fatalf("honest = %v: charged as %+v, noise of %d, but %d add theirs", honest, e, counted, left)
		}
	}
	c := config(t, &book{})
	c.Population, c.MinReports, c.Colluders, c.Honest = 100, 40, 20, .5
	if _, err := New(c); err == nil {
		t.Error("colluders as many as those whose noise is relied on are taken")
	}
}

// Of a sum the noise is that of n-min clients, or the aggregators', whoever comes; the draw and the coins count among those who
// are surely honest.
func TestSumsAreChargedForTheLeast(t *testing.T) {
	for _, x := range []struct {
		name   string
		sum    bool // the aggregators add the noise
		change func(*Config)
		want   dp.Round
	}{
		{"all, by aggregators", true, func(c *Config) { c.Honest = .5 }, dp.Round{Report: summed{}.Event(), Participation: dp.All, Population: 20}},
		{"sampled, by aggregators", true, func(c *Config) { c.Participation, c.Sample = dp.Sampled, 100 },
			dp.Round{Report: summed{}.Event(), Participation: dp.Sampled, Population: 1000, Reports: 100, Least: 20}},
		{"check-in, by aggregators, some honest", true, func(c *Config) { c.Participation, c.Gamma, c.Honest = dp.CheckIn, .1, .5 },
			dp.Round{Report: summed{}.Event(), Participation: dp.CheckIn, Population: 500, Gamma: .1, Least: 10}},
		{"all", false, func(c *Config) { c.Honest = .5 }, dp.Round{Report: added{}.Event(), Participation: dp.All, Population: 20}},
		{"sampled", false, func(c *Config) { c.Participation, c.Sample = dp.Sampled, 100 },
			dp.Round{Report: added{}.Event(), Participation: dp.Sampled, Population: 1000, Reports: 100, Least: 20}},
		{"check-in, half honest", false, func(c *Config) { c.Participation, c.Gamma, c.Honest = dp.CheckIn, .1, .5 },
			dp.Round{Report: dp.Report{Class: dp.Gaussian, Sigma: 3 * math.Sqrt(2-1./10) * (1 - 0x1p-50)}, Participation: dp.CheckIn, Population: 500, Gamma: .1, Least: 10}},
		{"sampled, few honest", false, func(c *Config) { c.Participation, c.Sample, c.Honest = dp.Sampled, 100, .05 },
			dp.Round{Report: added{}.Event(), Participation: dp.All, Population: 20}},
	} {
		c := config(t, &book{})
		c.Trust, c.Population, c.MinReports = dp.Distributed, 1000, 20
		if c.Mechanism, c.Report = (randomizer.Mechanism)(added{c.Mechanism}), (added{}).Event(); x.sum {
			c.Mechanism, c.Report = summed{c.Mechanism}, summed{}.Event()
		}
		x.change(&c)
		pure, err := New(c)
		if err != nil {
			t.Fatal(x.name, err)
		}
		x.want.Trust = dp.Distributed
		if entry, _, err := pure.Planned(); err != nil || entry.Event != x.want {
			t.Errorf("%s: charged as %+v, %v; want %+v", x.name, entry.Event, err, x.want)
		}
	}
}
