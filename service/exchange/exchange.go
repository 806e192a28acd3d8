// Package exchange takes one of the two aggregators through a closed batch whose reports carry
// proofs: it fetches and opens the parts ahead, checks their tokens, and decides about the places,
// in their order, together with the other aggregator. It stores nothing: after a crash another
// exchange with the same key gives the same messages and the same sum. It is for the program.
package exchange

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
)

// Config is an exchange. All but Tokens are required.
type Config struct {
	Round *proved.Round
	Role  proved.Role
	Key   proved.VerifyKey
	Batch batch.Reader
	// Open opens a part that is sealed to this aggregator. Several goroutines call it.
	Open func(sealed []byte) (content []byte, with wire.Attached, err error)
	// Tokens are those of the round, none of them taken; nil: reports have none.
	Tokens *token.Round
}

// Exchange is the state of an exchange. One goroutine may use it.
type Exchange struct {
	config Config
	sum    *proved.Sum
	feed   *batch.Feed[place]
	tokens map[wire.Reason]int64 // places left out because of their token
	busy   atomic.Int64          // nanoseconds of work on parts
}

// place is a part that was opened.
type place struct {
	prepared *proved.Prepared
	opened   bool
	token    [wire.TokenBytes]byte
	valid    bool // whether the token is one of the round
}

// New begins with place 0. It fetches ahead until the batch ends, ctx ends, or Stop is called.
func New(ctx context.Context, c Config) (*Exchange, error) {
	sum, err := c.Round.NewSum(proved.SumConfig{Role: c.Role, Key: c.Key, Reports: c.Batch.Reports})
	if err != nil {
		return nil, err
	}
	x := &Exchange{config: c, sum: sum, tokens: map[wire.Reason]int64{}}
	x.feed = batch.NewFeed(ctx, c.Batch, c.Round.Places(), func(_ int, chunk wire.Chunk) ([]place, error) {
		began := time.Now()
		defer func() { x.busy.Add(int64(time.Since(began))) }()
		out := make([]place, chunk.Len())
		for i := range out {
			content, with, err := c.Open(chunk.Item(i))
			if err != nil {
				content = nil
			}
			p := place{opened: err == nil, token: with.Token}
			if p.opened && c.Tokens != nil {
				if p.valid = c.Tokens.Valid(0, &p.token); !p.valid {
					content = nil
				}
			}
			p.prepared = sum.Prepare(content)
			out[i] = p
		}
		return out, nil
	})
	return x, nil
}

// Next returns the place that the next message begins with.
func (x *Exchange) Next() int64 { return x.sum.Next() }

// Complete says whether all places are decided.
func (x *Exchange) Complete() bool { return x.sum.Next() == x.config.Batch.Reports }

// Left is how many places the next message may be on.
func (x *Exchange) Left() int {
	return int(min(int64(x.config.Round.Places()), x.config.Batch.Reports-x.sum.Next()))
}

// Covers returns which places a message of the other aggregator is on.
func (x *Exchange) Covers(message []byte) (first int64, count int, err error) {
	return x.sum.Covers(message)
}

// Begin takes the next places, and returns the message on them for the other aggregator. After an
// error the exchange has no further use.
func (x *Exchange) Begin(ctx context.Context, count int) ([]byte, error) {
	last := x.sum.Next()+int64(count) == x.config.Batch.Reports
	places, err := x.feed.Take(ctx, count)
	if err == nil && last {
		err = x.feed.End(ctx) // the batch has no more parts than were signed
	}
	if err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	prepared := make([]*proved.Prepared, len(places))
	for i := range places {
		p := &places[i]
		prepared[i] = p.prepared
		if x.config.Tokens == nil || !p.opened {
			continue
		}
		switch {
		case !p.valid:
			x.tokens[wire.NoToken]++
		case !x.config.Tokens.Take(0, &p.token):
			x.tokens[wire.SpentToken]++
			prepared[i] = x.sum.Prepare(nil)
		}
	}
	return x.sum.Begin(prepared)
}

// Finish takes the other aggregator's message on the places of the last Begin, and decides about
// them. An error says that the message is not one of an honest aggregator.
func (x *Exchange) Finish(message []byte) error {
	_, err := x.sum.Finish(message)
	return err
}

// Out returns the places left out so far, ascending.
func (x *Exchange) Out() []int64 { return x.sum.Out() }

// Refused returns the numbers of places left out so far, by reason. A place that this aggregator
// leaves out because of its token counts as that; to the other it is one that cannot be opened.
func (x *Exchange) Refused() map[wire.Reason]int64 {
	out := map[wire.Reason]int64{}
	for reason, n := range x.sum.Refused() {
		out[wire.Reason(reason)] += n
	}
	for reason, n := range x.tokens {
		out[reason] += n
		if out[wire.WrongKey] -= n; out[wire.WrongKey] <= 0 {
			delete(out, wire.WrongKey)
		}
	}
	return out
}

// Tokens returns how many different tokens the batch had.
func (x *Exchange) Tokens() int64 {
	if x.config.Tokens == nil {
		return 0
	}
	return x.config.Tokens.Fewest()
}

// Mix makes the share of what is released, but for the noise, of several rounds' sums: see proved.Sum.
func (x *Exchange) Mix(weight int64, earlier []proved.Earlier) (own []int64, err error) {
	return x.sum.Mix(weight, earlier)
}

// Close adds noise to the share of the sum, and returns it, once.
func (x *Exchange) Close(noise []int64) (vecsum.Partial, error) { return x.sum.Close(noise) }

// Stop ends the fetching, and returns the seconds that were spent on parts.
func (x *Exchange) Stop() float64 {
	x.feed.Close()
	return time.Duration(x.busy.Swap(0)).Seconds()
}
