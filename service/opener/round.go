// Package opener opens a charged batch whose messages stand alone: it unseals the coordinator's parts,
// separates what is attached to them, and adds them to a tally. The coordinator does that itself, or deals
// ranges of the batch to workers, processes of its own operator that have no ledger and sign nothing. It is
// for the program.
package opener

import (
	"context"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
)

// Round is what it takes to open the messages of a round.
type Round struct {
	Keyring      *envelope.Keyring
	Announcement [32]byte
	Mechanism    randomizer.Mechanism // that of the round: randomizer.ForRound
	Attached     wire.Attachments
}

// Part opens a sealed part, and separates the mechanism's content from what is attached to it.
func (r *Round) Part(sealed []byte) ([]byte, wire.Attached, error) {
	content, err := r.Keyring.OpenPart(envelope.Coordinator, r.Announcement, sealed)
	if err != nil {
		return nil, wire.Attached{}, err
	}
	return r.Attached.Split(content)
}

// Opener opens chunks into a tally. It is for one goroutine.
type Opener struct {
	Round *Round
	Tally *coordinator.Tally
	// Receipt, if not nil, is called with the receipt of each message that could be opened.
	Receipt func(wire.ID)
	// Keep makes Chunk return the messages.
	Keep bool
	// WrongKey is the number of messages that could not be opened; the tally counts them as rejected, too.
	WrongKey int64

	report *randomizer.Report
}

// Chunk opens a chunk's messages and adds them to the tally. With Keep it returns them in their order;
// those that were rejected are nil.
func (o *Opener) Chunk(c wire.Chunk) (kept []*randomizer.Report) {
	if o.Keep {
		kept = make([]*randomizer.Report, c.Len())
	}
	for i := range c.Len() {
		content, with, err := o.Round.Part(c.Item(i))
		if err != nil {
			o.WrongKey++
			o.Tally.Rejected++
			continue
		}
		if o.Receipt != nil {
			o.Receipt(with.Receipt)
		}
		if o.report == nil || o.Keep {
			o.report = o.Round.Mechanism.NewReport()
		}
		if randomizer.DecodeReport(content, o.Round.Mechanism, o.report) != nil {
			o.Tally.Rejected++
			continue
		}
		o.Tally.Open(o.report)
		if kept != nil {
			kept[i] = o.report
		}
	}
	return kept
}

// Range fetches a range of chunks and opens it: of has announcement, range and ticket.
func (r *Round) Range(ctx context.Context, from batch.Source, size int64, digests [][32]byte, of wire.Opened) (wire.Opened, error) {
	o := Opener{Round: r, Tally: coordinator.NewPartial(r.Mechanism)}
	var receipts []wire.ID
	if r.Attached.Receipt {
		o.Receipt = func(id wire.ID) { receipts = append(receipts, id) }
	}
	reader := batch.Reader{Source: from, Announcement: r.Announcement, Size: size}
	if err := batch.ReadRange(ctx, reader, of.From, digests, func(c wire.Chunk) { o.Chunk(c) }); err != nil {
		return wire.Opened{}, err
	}
	return o.Tally.Partial(of, o.WrongKey, receipts), nil
}
