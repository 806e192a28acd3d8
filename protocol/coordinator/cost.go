package coordinator

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// cost returns the charge for a closed batch. charged is false if the batch was paid for
// before. An error says that the batch cannot belong to the coming round.
func (c *Coordinator) cost(b wire.RoundClosed) (entry ledger.Entry, charged bool, err error) {
	if b.Round != c.Round+1 {
		return entry, false, fmt.Errorf("it is of round %d, want round %d", b.Round, c.Round+1)
	}
	if b.Void && !c.config.Trust.Is(dp.Alone) {
		return entry, false, fmt.Errorf("round %d is void", b.Round)
	}
	if c.opened != 0 {
		if b.Digest != c.batch {
			return entry, false, fmt.Errorf("round %d is charged for another", c.opened)
		}
		return entry, false, nil
	}
	// There cannot be more reports than clients that were asked.
	limit := c.config.Population
	switch c.config.Participation {
	case dp.Sampled:
		limit = c.config.Sample
	case dp.Once:
		if c.config.MinClients > 0 {
			break // blocks are those of the roster at the epoch's begin, which was another one
		}
		_, block := c.config.Blocks.Of(b.Round)
		from, to := c.config.Blocks.Range(block)
		limit = to - from
	}
	if !b.Void && (b.Reports < c.config.MinReports || b.Reports > limit) {
		return entry, false, fmt.Errorf("round %d has %d reports, want between n-min = %d and %d",
			b.Round, b.Reports, c.config.MinReports, limit)
	}
	return c.Planned()
}

// Event returns what a round of the task is charged as, but for noise that is correlated over rounds. It depends on the
// task's terms alone, never on who came: somebody may choose upon releases who stays away, and so how many come. The
// reports that hide each other are n-min less those of colluders; more hide better.
//
// With participation once a client is in one block of an epoch. The epoch's first round pays for all its blocks. With participation
// sampled the roster must stay, or MinClients be set: Population would follow from releases.
func (c Config) Event() (dp.Round, error) {
	sure := c.MinReports - c.Fewer()
	if c.Participation == dp.Once {
		e, err := c.Blocks.Epoch(c.Report, sure)
		e.Trust = c.Trust
		return e, err
	}
	all := dp.Round{Report: c.Report, Trust: c.Trust, Participation: dp.All, Population: sure}
	if !c.credits() {
		return all, nil
	}
	e := all
	e.Participation, e.Population, e.Reports, e.Gamma, e.Least = c.Participation, c.Population, c.Sample, c.Gamma, sure
	if c.MinClients > 0 {
		e.Population = c.MinClients // not n, which may follow from what was released: absence.md
	}
	if h := c.Honest; h > 0 && h < 1 {
		// The others choose when they come, so chance is credited among the honest only, of whom an opened round has a share
		// h at least. The noise of r of them is that of r/h clients, rounded down: at least r(1/h − 1/least).
		e.Population, e.Least = int64(h*float64(e.Population)), int64(h*float64(sure))
		if e.Least < 1 {
			return all, nil
		}
		if e.Report.Class == dp.Gaussian {
			e.Report.Sigma *= math.Sqrt(max(0, 1/h-1/float64(e.Least))) * (1 - 0x1p-50)
		}
	}
	if e.Participation == dp.Sampled && e.Reports >= e.Population || e.Gamma == 1 {
		return all, nil // all honest clients may be drawn
	}
	return e, nil
}

// credits says whether the random choice of participants lowers the charge.
func (c Config) credits() bool {
	switch {
	case c.Participation != dp.Sampled && c.Participation != dp.CheckIn, c.Trust.Is(dp.Alone):
		return false
	case c.Tokens: // fewer than n-min may have tokens, which shows only when the batch is opened: tokens.md
		return false
	case c.Messages > 1: // a client's messages come or stay away together: messages.md
		return false
	case c.Colluders > 0: // it is not known how many of a round are honest
		return false
	case c.Declinable: // who answers may depend on having been drawn
		return false
	}
	return true
}

// event returns what the coming round is charged as.
func (c *Coordinator) event() (e dp.Round, err error) {
	if c.config.Ledger == ledger.Unprotected {
		return e, nil // reports promise nothing, and nothing is recorded
	}
	if m, _, ok := c.config.correlation(); ok {
		// Rounds cost together what their numbers say, whoever takes part, and void ones are charged with
		// the next: toeplitz.md.
		report, err := m.Charged(c.lastCharged(), c.Round+1, c.config.Every)
		return dp.Round{Report: report, Trust: c.config.Trust, Participation: dp.All, Population: c.config.MinReports}, err
	}
	return c.config.Event()
}

// lastCharged returns the last round in the ledger before the coming one; 0 if there is none.
func (c *Coordinator) lastCharged() (round int64) {
	for _, e := range c.config.Ledger.Entries() {
		if e.Round <= c.Round {
			round = e.Round
		}
	}
	return round
}

// Planned returns the charge for the coming round. charged is false if an earlier round has paid for it.
func (c *Coordinator) Planned() (entry ledger.Entry, charged bool, err error) {
	if c.config.Participation == dp.Once && c.epochCharged(c.Round+1) {
		return ledger.Entry{}, false, nil
	}
	entry.Round = c.Round + 1
	if entry.Event, err = c.event(); err != nil {
		return entry, true, err
	}
	times := max(1, c.config.Messages)
	if entry.Event.Least > 0 {
		// A void round is a free attempt to have a certain client among few: it costs as much as another one, and is
		// charged with the next that is not void. Until then nothing was released.
		times = entry.Round - c.lastCharged()
	}
	if times > 1 {
		entry.Times = times
	}
	return entry, true, nil
}

// epochCharged says whether a round of this round's epoch was charged.
func (c *Coordinator) epochCharged(round int64) bool {
	entries := c.config.Ledger.Entries()
	if len(entries) == 0 {
		return false
	}
	charged, _ := c.config.Blocks.Of(entries[len(entries)-1].Round)
	epoch, _ := c.config.Blocks.Of(round)
	return charged == epoch
}
