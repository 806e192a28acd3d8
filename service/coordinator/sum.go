package coordinator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/opener"
)

func (r *runner) reader(a *wire.Announcement, c *wire.RoundClosed) batch.Reader {
	return batch.Reader{Source: r.s.config.Shuffler, Announcement: c.Announcement, Reports: c.Reports, Messages: a.PerClient(), Chunks: c.Chunks,
		Digest: c.Digest, Size: a.ReportBytes, Workers: r.openers()}
}

// maxSums is the most that the sums of the goroutines that open reports have together in bytes,
// but for one sum that is larger.
const maxSums = 1 << 30

// openers is the number of goroutines that open reports. Each has a sum as large as two models.
func (r *runner) openers() int {
	return max(1, int(min(int64(r.s.config.Workers), maxSums/(8*r.task.Mechanism.Dim))))
}

// sumUp opens and sums a charged batch. The same batch gives the same sum.
func (r *runner) sumUp(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed) ([]*coordinator.Tally, map[wire.Reason]int64, error) {
	r.detached, r.list = nil, nil
	if r.task.Receipts {
		r.detached = new(batch.Receipts)
	}
	if c.Void {
		return nil, nil, noStep(FailedTooFew, "fewer than n-min = %d reports came; with trust local they count, for whoever carries them has seen them", a.MinReports)
	}
	if r.proved != nil {
		return r.sumProved(ctx, a, c)
	}
	if r.sum != nil {
		return r.sumShares(ctx, a, c)
	}
	if r.tokens != nil {
		return r.sumTokens(ctx, a, c)
	}
	// What workers have told stays in the queue, so after a total that cannot be the batch's the coordinator
	// goes on alone.
	if r.s.config.Opening != nil && r.t.Record == nil && r.attempts == 0 {
		return r.sumByWorkers(ctx, a, c)
	}
	tallies, err := r.newTallies(r.openers())
	if err != nil {
		return nil, nil, err
	}
	round := r.opening(a, c)
	openers := make([]opener.Opener, len(tallies))
	for i := range openers {
		openers[i] = opener.Opener{Round: round, Tally: tallies[i], Keep: r.t.Record != nil}
		if r.detached != nil {
			openers[i].Receipt = r.detached.Add
		}
	}
	open := func(w int, chunk wire.Chunk) ([]*randomizer.Report, error) { return openers[w].Chunk(chunk), nil }
	var then func(int64, wire.Chunk, []*randomizer.Report) error
	if r.t.Record != nil {
		then = func(place int64, _ wire.Chunk, opened []*randomizer.Report) error {
			for i, report := range opened {
				if report == nil {
					continue
				}
				if err := r.t.Record(c.Announcement, c.Round, place+int64(i), report); err != nil {
					return fmt.Errorf("coordinator: record: %w", err)
				}
			}
			return nil
		}
	}
	if err := batch.Read(ctx, r.reader(a, c), open, then); err != nil {
		return nil, nil, err
	}
	r.listReceipts(a, c, nil, false)
	by := map[wire.Reason]int64{}
	for _, o := range openers {
		add(by, wire.WrongKey, o.WrongKey)
		add(by, wire.OutOfRange, o.Tally.Rejected-o.WrongKey)
	}
	return tallies, by, nil
}

// opening returns what it takes to open the round's messages, with the one key that the announcement
// names.
func (r *runner) opening(a *wire.Announcement, c *wire.RoundClosed) *opener.Round {
	ring := r.s.config.Keyring
	if key, err := ring.Key(a.Coordinator.ID()); err == nil {
		if one, err := envelope.NewKeyring(key); err == nil {
			ring = one
		}
	}
	return &opener.Round{Keyring: ring, Announcement: c.Announcement, Mechanism: randomizer.ForRound(r.mechanism, c.Announcement), Attached: r.task.Attachments()}
}

// openPart opens a sealed part, and separates the mechanism's content from what is attached to it.
func (r *runner) openPart(c *wire.RoundClosed, sealed []byte) ([]byte, wire.Attached, error) {
	round := opener.Round{Keyring: r.s.config.Keyring, Announcement: c.Announcement, Attached: r.task.Attachments()}
	content, with, err := round.Part(sealed)
	if err == nil && r.detached != nil {
		r.detached.Add(with.Receipt)
	}
	return content, with, err
}

func add(by map[wire.Reason]int64, reason wire.Reason, n int64) {
	if n > 0 {
		by[reason] += n
	}
}

// sumShares sums the seeds of a vector sum, and combines the sum with the second
// aggregator's over the same reports.
func (r *runner) sumShares(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed) ([]*coordinator.Tally, map[wire.Reason]int64, error) {
	shares, err := r.sum.Shares(c.Announcement)
	if err != nil {
		return nil, nil, err
	}
	tallies, err := r.newTallies(1)
	if err != nil {
		return nil, nil, err
	}
	seeds, err := r.seeds(ctx, a, c, shares, nil)
	if err != nil {
		return nil, nil, err
	}
	mine, rejected := seeds.Failed, seeds.Refused
	r.phase("aggregating")
	var theirs wire.Exclusion
	var other []int64
	var receipts []byte
	if err := r.patiently(ctx, func() error {
		if theirs, err = r.prepare(ctx, a, c, nil); err != nil {
			return err
		}
		if receipts, err = r.theirReceipts(ctx, c); err != nil {
			return err
		}
		other, err = r.differing(ctx, c, seeds.IDs)
		return err
	}); err != nil {
		return nil, nil, err
	}
	r.listReceipts(a, c, receipts, true)
	out := union(mine, theirs.Places, other)
	add(rejected, wire.Excluded, int64(len(out)-len(mine)))
	left := c.Reports - int64(len(out))
	if left < a.MinReports {
		return nil, rejected, noStep(FailedTooFew, "%d of %d reports are left, n-min is %d", left, c.Reports, a.MinReports)
	}
	// Reports that are left out add no noise. The charge allows for a limited number of them; with
	// tokens it counts on n-min reports only.
	if bad := r.allowed(c.Reports); int64(len(out)) > bad && r.tokens == nil {
		return nil, rejected, noStep(FailedExcluded, "%d of %d reports cannot be summed, %d are allowed for", len(out), c.Reports, bad)
	}
	if len(out) != len(mine) {
		if seeds, err = r.seeds(ctx, a, c, shares, out); err != nil {
			return nil, nil, err
		}
		if len(seeds.Failed) != 0 {
			return nil, rejected, noStep(FailedBatch, "the batch opens otherwise the second time")
		}
	}
	e := wire.Exclusion{Announcement: c.Announcement, Reports: c.Reports, Places: out}
	var partial vecsum.Partial
	err = r.patiently(ctx, func() error {
		if partial, err = r.partial(ctx, &e); err == nil || batch.IsRefused(err) != nil {
			return err
		}
		// The aggregator may have restarted, and needs the messages again.
		if again, err := r.prepare(ctx, a, c, nil); err != nil {
			return err
		} else if !slices.Equal(again.Places, theirs.Places) {
			return noStep(FailedUnequal, "the aggregator excludes other reports the second time")
		}
		return err
	})
	if err != nil {
		return nil, rejected, err
	}
	own, err := seeds.Close()
	if err != nil {
		return nil, rejected, &failure{FailedUnequal, "the aggregators' sums do not belong together", err}
	}
	counts, clients, err := shares.Combine(own, partial)
	if err != nil {
		return nil, rejected, &failure{FailedUnequal, "the aggregators' sums do not belong together", err}
	}
	if r.t.RecordSum != nil {
		if err := r.t.RecordSum(c.Round, counts, clients); err != nil {
			return nil, rejected, fmt.Errorf("coordinator: record: %w", err)
		}
	}
	return tallies, rejected, tallies[0].AddSum(counts, clients)
}

// patience is how often the aggregator is asked before the batch is opened anew.
const patience = 10

// patiently asks the aggregator again while it cannot answer yet: to open a large batch
// may take longer than a request may.
func (r *runner) patiently(ctx context.Context, ask func() error) error {
	pause := r.s.config.Backoff
	for try := 1; ; try++ {
		err := ask()
		if err == nil || try == patience || batch.IsRefused(err) != nil || asFailure(err) != nil {
			return err
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, 100*r.s.config.Backoff)
	}
}

// honest is the fraction of clients whose noise the charge of a vector sum relies on; 1 if the
// task sets none. The other clients may choose when they take part, so the charge counts on
// random participation of these only.
func (r *runner) honest() float64 {
	if r.sum == nil || r.sum.Params.Honest == 0 {
		return 1
	}
	return r.sum.Params.Honest
}

// allowed is how many of k reports may be left out of a vector sum: the charge does not rely on
// their noise.
func (r *runner) allowed(k int64) int64 {
	return r.t.Colluders + int64(math.Floor(float64(k)*(1-r.honest())))
}

// seeds opens and sums the coordinator's parts, except those at the places in out, which ascend.
func (r *runner) seeds(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed, shares *vecsum.Shares, out []int64) (*exchange.Sum, error) {
	return exchange.Shares{Reader: r.reader(a, c), Of: shares, Tokens: r.tokenRound(a),
		Open: func(sealed []byte) ([]byte, wire.Attached, error) { return r.openPart(c, sealed) }}.Sum(ctx, out)
}

// differing asks the second aggregator for its report ids, and returns the places where they
// differ from the coordinator's: a client there has sent two shares that do not belong
// together, and their sum would be worthless. Ids that agree tell the coordinator nothing. If
// the aggregator gives a wrong id, that report is left out, as one that it cannot open.
func (r *runner) differing(ctx context.Context, c *wire.RoundClosed, ids [][16]byte) ([]int64, error) {
	b, err := r.aggregator(ctx, http.MethodGet, fmt.Sprintf("/v1/rounds/%x/ids", c.Announcement), nil, 1<<10+16*c.Reports)
	if err != nil {
		return nil, err
	}
	m, err := wire.Decode[wire.ShareIDs](b)
	if err == nil && (m.Announcement != c.Announcement || len(m.IDs) != len(ids)) {
		err = errors.New("report ids of another batch")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: aggregator: %w", batch.ErrLie, err)
	}
	var out []int64
	for place, id := range m.IDs {
		if id != ids[place] {
			out = append(out, int64(place))
		}
	}
	return out, nil
}

// prepare sends the round to the second aggregator, and returns the reports that it cannot open. key
// is the signed key of the proofs, if reports carry some: the aggregator opens nothing then.
func (r *runner) prepare(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed, key []byte) (wire.Exclusion, error) {
	parts := [][]byte{r.t.Signed, r.record.Open.Announcement, r.record.Open.Closed}
	last := parts[2]
	if key != nil {
		last = key
	} else {
		parts = parts[:2]
	}
	var body []byte
	for _, signed := range parts {
		body = binary.LittleEndian.AppendUint32(body, uint32(len(signed)))
		body = append(body, signed...)
	}
	body = append(body, last...)
	if err := r.tellTokenKeys(ctx); err != nil {
		return wire.Exclusion{}, err
	}
	b, err := r.aggregator(ctx, http.MethodPost, "/v1/rounds", body, 1<<10+8*c.Reports)
	if err != nil {
		r.toldKeys = false // it may have been started again
		return wire.Exclusion{}, err
	}
	e, err := wire.Decode[wire.Exclusion](b)
	if err == nil && (e.Announcement != c.Announcement || e.Reports != c.Reports) {
		err = errors.New("exclusion of another batch")
	}
	if err != nil {
		return wire.Exclusion{}, fmt.Errorf("%w: aggregator: %w", batch.ErrLie, err)
	}
	return e, nil
}

// partial asks the second aggregator for its sum of all reports but those left out.
func (r *runner) partial(ctx context.Context, e *wire.Exclusion) (vecsum.Partial, error) {
	signed := wire.Sign(r.s.config.Key, wire.LabelExclusion, wire.Encode(*e))
	path := fmt.Sprintf("/v1/rounds/%x/sum", e.Announcement)
	b, err := r.aggregator(ctx, http.MethodPost, path, signed, 1<<10+8*int64(r.sum.Params.Streams()))
	if err != nil {
		return vecsum.Partial{}, err
	}
	p, err := wire.Decode[wire.Partial](b)
	if err == nil && (p.Announcement != e.Announcement || p.Exclusion != wire.Digest(*e)) {
		err = errors.New("partial sum of other reports")
	}
	if err != nil {
		return vecsum.Partial{}, fmt.Errorf("%w: aggregator: %w", batch.ErrLie, err)
	}
	return vecsum.Partial{Tag: p.Tag, Index: int(p.Index), Clients: p.Clients, Reports: p.Reports, Sums: p.Sums}, nil
}

func (r *runner) aggregator(ctx context.Context, method, path string, body []byte, limit int64) ([]byte, error) {
	g := r.s.config.Aggregator
	b, _, err := endpoint.Do(ctx, g.Client, method, strings.TrimSuffix(g.URL, "/")+path, body, limit)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	return b, nil
}

// union merges lists into an ascending one.
func union(lists ...[]int64) []int64 {
	out := slices.Concat(lists...)
	slices.Sort(out)
	return slices.Compact(out)
}
