package coordinator

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// blocked is a task of 10 clients in blocks of 3, 3 and 4.
func blocked(t *testing.T, l Ledger, trust dp.Trust) Config {
	t.Helper()
	c := config(t, l)
	var err error
	if c.Blocks, err = schedule.NewBlocks(10, 3); err != nil {
		t.Fatal(err)
	}
	c.Participation, c.Population, c.MinReports, c.Trust = dp.Once, 10, 2, trust
	return c
}

func TestEpochIsChargedOnceWhateverIsVoid(t *testing.T) {
	for _, trust := range []dp.Trust{dp.Shuffle, dp.Local} {
		b := &book{}
		c, err := New(blocked(t, b, trust))
		if err != nil {
			t.Fatal(err)
		}
		if a := c.Announce(); a.PerEpoch != 3 {
			t.Errorf("announced %d blocks, want 3", a.PerEpoch)
		}
		// Round 1 is void, 2 pays for the first epoch, 4 for the second.
		if err := c.Void(); err != nil {
			t.Fatal(err)
		}
		for round := int64(2); round <= 6; round++ {
			if err := c.Receive(t.Context(), batch(round, 3).Closed()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.End(); err != nil {
				t.Fatal(err)
			}
		}
		want := dp.Round{Report: c.config.Report, Trust: trust, Participation: dp.All, Population: 2}
		if len(b.charged) != 2 || b.charged[0].Round != 2 || b.charged[1].Round != 4 ||
			b.charged[0].Event != want || b.charged[1].Event != want {
			t.Errorf("%s: charged %+v, want rounds 2 and 4 with %+v", trust, b.charged, want)
		}
	}
}

func TestBlockBoundsItsBatch(t *testing.T) {
	c, err := New(blocked(t, &book{}, dp.Shuffle))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []int{1, 5} { // the first block has 4
		if err := c.Receive(t.Context(), batch(1, k).Closed()); err == nil {
			t.Errorf("took %d reports from a block of 4", k)
		}
	}
	bad := blocked(t, &book{}, dp.Shuffle)
	bad.MinReports = 4
	if _, err := New(bad); err == nil {
		t.Error("took a minimum above the smallest block")
	}
	bad = blocked(t, &book{}, dp.Shuffle)
	bad.Population = 11
	if _, err := New(bad); err == nil {
		t.Error("took blocks of another population")
	}
}

// A block later in an epoch adds no charge; its batch must be remembered all
// the same, or a restart would release a second one for nothing.
func TestRestoredOpenBlockTakesNoOtherBatch(t *testing.T) {
	first := wire.Batch{Round: 2, Payloads: []int64{3, 4, 5}}
	b := &book{}
	c, err := New(blocked(t, b, dp.Shuffle))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(t.Context(), batch(1, 4).Closed()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.End(); err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(t.Context(), first.Closed()); err != nil {
		t.Fatal(err)
	}
	again, err := New(blocked(t, &book{}, dp.Shuffle))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Restore(c.State()); err != nil {
		t.Fatal(err)
	}
	if err := again.Receive(t.Context(), wire.Batch{Round: 2, Payloads: []int64{7, 8, 9}}.Closed()); err == nil {
		t.Error("a restored round took another batch")
	}
	if err := again.Receive(t.Context(), first.Closed()); err != nil {
		t.Errorf("a restored round refused its own batch: %v", err)
	}
	lost := c.State()
	lost.Opened = 0
	lost.Charged = append(lost.Charged, b.charged[0])
	lost.Charged[1].Round = 2
	third, err := New(blocked(t, &book{}, dp.Shuffle))
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Restore(lost); err == nil {
		t.Error("restored a charged round without its batch")
	}
}

// Without privacy there is nothing to promise, in blocks either.
func TestBlocksWithoutLedger(t *testing.T) {
	c := blocked(t, ledger.Unprotected, "none")
	c.Report = dp.Report{}
	co, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for round := int64(1); round <= 4; round++ {
		if err := co.Receive(t.Context(), batch(round, 3).Closed()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := co.End(); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := co.Spent(); err != nil || !math.IsInf(b.Eps, 1) {
		t.Errorf("spent %+v, %v", b, err)
	}
}
