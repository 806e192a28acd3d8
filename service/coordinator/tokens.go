package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
)

// tokenKeys checks the keys of a task whose messages carry tokens. Other tasks have none.
func (s *Service) tokenKeys(t *Job, w *wire.Task) (*token.Keys, error) {
	if w.Tokens == (wire.Tokens{}) {
		return nil, nil
	}
	if s.config.Shuffler.Registrar == nil {
		return nil, errors.New("tokens need a registrar, whose key this coordinator does not have")
	}
	message, err := wire.Verify(s.config.Shuffler.Registrar, wire.LabelTokenKeys, t.TokenKeys)
	if err != nil {
		return nil, fmt.Errorf("token keys: %w", err)
	}
	m, err := wire.Decode[wire.TokenKeys](message)
	if err != nil {
		return nil, err
	}
	return token.ForTask(m, *w)
}

// tokenRound returns the open round's tokens, none of which is taken; nil if the task has none.
func (r *runner) tokenRound(a *wire.Announcement) *token.Round {
	if r.tokens == nil {
		return nil
	}
	return r.tokens.Round(r.id, a.Round)
}

// shown is a message with its token.
type shown struct {
	content []byte // nil: it cannot be opened
	with    wire.Attached
	index   int64 // the message's index that its token was checked for
	valid   bool
}

// sumTokens opens and sums a charged batch whose messages carry tokens: those without a valid
// token are left out, and of those with one token the first counts. It is sumUp otherwise.
// Messages are decoded and added one after the other: which one is first depends on the order.
func (r *runner) sumTokens(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed) ([]*coordinator.Tally, map[wire.Reason]int64, error) {
	tallies, err := r.newTallies(1)
	if err != nil {
		return nil, nil, err
	}
	round, reader := r.tokenRound(a), r.reader(a, c)
	made := randomizer.ForRound(r.mechanism, c.Announcement)
	report := made.NewReport()
	rejected := map[wire.Reason]int64{}
	each := max(1, chunkBytes/a.ReportBytes)
	open := func(_ int, chunk wire.Chunk) ([]shown, error) {
		out := make([]shown, chunk.Len())
		for i := range out {
			o := &out[i]
			content, with, err := r.openPart(c, chunk.Item(i))
			if err != nil {
				continue
			}
			// The place is not known yet, only where it is if all chunks before are full.
			o.content, o.with, o.index = content, with, min(a.PerClient()-1, (chunk.Index*each+int64(i))/c.Reports)
			o.valid = round.Valid(o.index, &o.with.Token)
		}
		return out, nil
	}
	then := func(place int64, _ wire.Chunk, opened []shown) error {
		for i := range opened {
			o := &opened[i]
			at := place + int64(i)
			index := at / c.Reports
			if index >= a.PerClient() {
				continue // the batch has more than was signed: batch.Read returns an error
			}
			if o.content != nil && o.index != index {
				o.valid = round.Valid(index, &o.with.Token)
			}
			switch {
			case o.content == nil:
				rejected[wire.WrongKey]++
			case !o.valid:
				rejected[wire.NoToken]++
			case !round.Take(index, &o.with.Token):
				rejected[wire.SpentToken]++
			case randomizer.DecodeReport(o.content, made, report) != nil:
				rejected[wire.OutOfRange]++
			default:
				tallies[0].Open(report)
				if r.t.Record == nil {
					continue
				}
				if err := r.t.Record(c.Announcement, c.Round, at, report); err != nil {
					return fmt.Errorf("coordinator: record: %w", err)
				}
				continue
			}
			tallies[0].Rejected++
		}
		return nil
	}
	if err := batch.Read(ctx, reader, open, then); err != nil {
		return nil, nil, err
	}
	r.listReceipts(a, c, nil, false)
	if got := round.Fewest(); got < a.MinReports {
		return nil, rejected, tooFewTokens(got, c.Reports, a.MinReports)
	}
	return tallies, rejected, nil
}

// chunkBytes is how many bytes of parts the shuffler puts into a chunk.
const chunkBytes = 64 << 10

func tooFewTokens(got, reports, least int64) *failure {
	return noStep(FailedTokens, "%d of %d reports have tokens, n-min is %d: the others are not known to be from the registrar's clients", got, reports, least)
}

// tellTokenKeys gives the aggregator the keys of the task's tokens, which it keeps in memory.
func (r *runner) tellTokenKeys(ctx context.Context) error {
	if r.tokens == nil || r.toldKeys {
		return nil
	}
	if _, err := r.aggregator(ctx, http.MethodPost, "/v1/tokens", r.t.TokenKeys, 1<<10); err != nil {
		return err
	}
	r.toldKeys = true
	return nil
}
