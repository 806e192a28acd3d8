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
	k, limit := b.Reports, c.config.Population
	if b.Void {
		k = c.config.MinReports // what trust local promises does not depend on k
	}
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
	if k < c.config.MinReports || k > limit {
		return entry, false, fmt.Errorf("round %d has %d reports, want between n-min = %d and %d",
			b.Round, k, c.config.MinReports, limit)
	}
	return c.Planned(k)
}

// event returns the cost of a round with k reports. Given k, the participants are a uniform
// k-subset of the population, however they were chosen, if coins and drop-outs are
// independent of the data and alike for all clients. If some clients drop out more often than
// others, the rest have a larger chance than k/n, and the charge is too small for them; hence
// Config.Declinable.
// Whether a round is void depends on k alone and changes nothing.
//
// With dp.Once a client is in one block of an epoch. The epoch's first round pays for all its
// blocks, as for blocks of the smallest size that is released.
func (c *Coordinator) event(k int64) (dp.Round, error) {
	if c.config.Ledger == ledger.Unprotected {
		return dp.Round{}, nil // reports promise nothing, and nothing is recorded
	}
	if c.config.Participation == dp.Once {
		e, err := c.config.Blocks.Epoch(c.config.Report, c.config.MinReports-c.config.Fewer())
		e.Trust = c.config.Trust
		return e, err
	}
	if m, _, ok := c.config.correlation(); ok {
		// Rounds cost together what their numbers say, whoever takes part, and void ones are charged with
		// the next: toeplitz.md.
		var charged int64
		for _, e := range c.config.Ledger.Entries() {
			if e.Round <= c.Round {
				charged = e.Round
			}
		}
		report, err := m.Charged(charged, c.Round+1, c.config.Every)
		return dp.Round{Report: report, Trust: c.config.Trust, Participation: dp.All, Population: k, Reports: k, Realised: true}, err
	}
	e := dp.Round{
		Report: c.config.Report, Trust: c.config.Trust, Participation: c.config.Participation,
		Population: c.config.Population, Reports: k, Realised: true,
	}
	if e.Report.Class == dp.GaussianSum && e.Participation == dp.All {
		// The noise does not depend on who is there, and who kept others away knows that this client
		// is. So drop-outs are no chance.
		e.Population = k
		return e, nil
	}
	if c.config.Tokens && !c.config.Trust.Is(dp.Alone) {
		// Whoever runs the shuffler may have stuffed the batch. Only tokens tell, after it was opened.
		e.Reports = min(k, c.config.MinReports) - c.config.Fewer()
		e.Participation, e.Population = dp.All, e.Reports
		return e, nil
	}
	if c.config.MinClients > 0 {
		e.Population = c.config.MinClients // not n, which may follow from what was released: rosters.md
	}
	if e.Report.Class == dp.GaussianSum {
		// The draw and the coins are a chance that lowers the cost, drop-outs are not: somebody may
		// choose who stays away. So a round is charged for the reports that it would have had.
		e.Reports = max(k, c.config.Sample, int64(math.Ceil(c.config.Gamma*float64(e.Population))))
	}
	if h := c.config.Honest; h > 0 && h < 1 {
		e.Population = int64(h * float64(e.Population))
	}
	if c.config.Messages > 1 || e.Reports > e.Population || c.config.Declinable && k < c.asked() {
		// The random choice of participants lowers no cost. The messages of a client come or
		// stay away together, so charging a subsampled round for each would be too little
		// (messages.md). And dishonest clients may choose to take part in exactly those rounds
		// in which a certain client does. Of clients who decline, k/n says nothing: where a few
		// always answer and all others never do, those few are in the round for certain.
		e.Participation, e.Population, e.Reports = dp.All, k, k
	}
	if c.config.Colluders > 0 {
		// It is not known how many of the k are honest. If more are, a client is hidden better
		// but chosen more often. The charge for the fewest possible, as if all clients were
		// asked, covers both.
		e.Participation, e.Reports = dp.All, k-c.config.Fewer()
		e.Population = e.Reports
	}
	if e.Participation == dp.All && e.Reports != e.Population {
		e.Participation = dp.CheckIn
	}
	return e, nil
}

// asked returns the number of clients that are asked for a report; 0 if their coins decide.
func (c *Coordinator) asked() int64 {
	switch c.config.Participation {
	case dp.All:
		return c.config.Population
	case dp.Sampled:
		return c.config.Sample
	}
	return 0
}

// Planned returns the charge for the coming round if the reports of k clients come. charged is
// false if an earlier round has paid for it.
func (c *Coordinator) Planned(k int64) (entry ledger.Entry, charged bool, err error) {
	if c.config.Participation == dp.Once && c.epochCharged(c.Round+1) {
		return ledger.Entry{}, false, nil
	}
	entry.Round = c.Round + 1
	if c.config.Messages > 1 {
		entry.Times = c.config.Messages
	}
	entry.Event, err = c.event(k)
	return entry, true, err
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
