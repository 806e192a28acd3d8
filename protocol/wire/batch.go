package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Ticket stands for a sealed report at the shuffler: its sender, its id and where its payload
// is. The payload itself streams past and is never part of a ticket.
type Ticket struct {
	// Sender is the enrolled client, of whom one report is kept. It is zero if nobody is
	// enrolled, as in a simulation; then the id alone tells reports apart.
	Sender  ID
	ID      ID // drawn at random by the client; reports with equal ids are the same report
	Payload int64
}

// Batch is the shuffler's offer after a round has closed.
type Batch struct {
	Round    int64
	Messages int64 // of each client; 0 means one
	// Payloads lists the accepted reports in their permuted order. If each client sends several
	// messages, it lists the first messages of all clients, then the second ones in an order of
	// their own, and so on.
	Payloads []int64
}

// Clients returns the number of clients whose reports are in the batch.
func (b Batch) Clients() int { return len(b.Payloads) / int(max(1, b.Messages)) }

// digest identifies the batch: SHA-256 of its round and its payloads in order.
func (b Batch) digest() (d [32]byte) {
	h := sha256.New()
	word := binary.LittleEndian.AppendUint64(nil, uint64(b.Round))
	h.Write(word)
	for _, p := range b.Payloads {
		h.Write(binary.LittleEndian.AppendUint64(word[:0], uint64(p)))
	}
	h.Sum(d[:0])
	return d
}

// Closed describes a batch before any of it is seen.
func (b Batch) Closed() RoundClosed {
	return RoundClosed{Round: b.Round, Reports: int64(b.Clients()), Digest: b.digest()}
}

// Rejection is the number of reports refused for one reason.
type Rejection struct {
	Reason Reason
	Count  int64
}

// RoundClosed is the shuffler's signed statement about a closed round. The ledger is charged
// for it before the batch is fetched. The shuffler's operator signs it under LabelClosed.
type RoundClosed struct {
	Announcement [32]byte // digest of the announcement
	Round        int64
	Void         bool  // too few reports: everything was destroyed
	Reports      int64 // number of distinct clients with a report in the batch; 0 if void
	// Digest identifies the parts for the coordinator and their order; of several messages all
	// first parts come first, then all second parts in an order of their own, and so on. Shares identifies
	// those for the aggregator, in the same order. See BatchDigest. Shares is zero if reports
	// have one part.
	Digest   [32]byte
	Shares   [32]byte
	Chunks   int64
	Rejected []Rejection // in the order of Reasons; reasons with a count of zero are left out
}

func (*RoundClosed) kind() byte { return KindClosed }

func (*RoundClosed) label() Label { return LabelClosed }

func (m *RoundClosed) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.count("round", &m.Round)
	c.flag(&m.Void)
	c.count("reports", &m.Reports)
	c.fixed(m.Digest[:])
	c.fixed(m.Shares[:])
	c.count("chunks", &m.Chunks)
	order := 0
	list(c, &m.Rejected, func(r *Rejection) {
		text(c, &r.Reason)
		c.count("rejected", &r.Count)
		at := order
		for at < len(reasons) && reasons[at] != r.Reason {
			at++
		}
		if c.read() && (at == len(reasons) || r.Count == 0) {
			c.fail("reason %q, unknown, empty or out of order", r.Reason)
		}
		order = at + 1
	})
	if c.read() && m.Void != (m.Reports == 0) {
		c.fail("round of %d reports, void: %t", m.Reports, m.Void)
	}
}

var reasons = Reasons()

// Chunk is a run of a batch's items in order: the reports' parts for one reader, all of one
// size.
type Chunk struct {
	Index int64
	Size  int64  // bytes of an item
	Items []byte // the items, one after another
}

// Len returns the number of items.
func (c Chunk) Len() int { return len(c.Items) / int(c.Size) }

// Item returns item i.
func (c Chunk) Item(i int) []byte { return c.Items[int64(i)*c.Size : int64(i+1)*c.Size] }

func (*Chunk) kind() byte { return KindChunk }

func (m *Chunk) fields(c *codec) {
	c.count("index", &m.Index)
	c.count("size", &m.Size)
	n := int64(len(m.Items))
	if c.count("bytes", &n); c.read() && (m.Size < 1 || n < 1 || n%m.Size != 0 || n != int64(len(c.b))) {
		c.fail("%d bytes of items of %d, %d are there", n, m.Size, len(c.b))
	}
	c.bytes(&m.Items, len(c.b))
}

// BatchDigest identifies one reader's parts of a batch. It covers the announcement, the
// number of reports, and the SHA-256 of each chunk's items in order.
func BatchDigest(announcement [32]byte, reports int64, chunks [][32]byte) [32]byte {
	flat := make([]byte, 0, 32*len(chunks))
	for _, c := range chunks {
		flat = append(flat, c[:]...)
	}
	return hash(LabelBatch, announcement[:], binary.LittleEndian.AppendUint64(nil, uint64(reports)), flat)
}

// CheckChunk compares a chunk with its digest.
func CheckChunk(c Chunk, index int64, digest [32]byte) error {
	if c.Index != index {
		return fmt.Errorf("%w: chunk %d, want %d", ErrMalformed, c.Index, index)
	}
	if sha256.Sum256(c.Items) != digest {
		return fmt.Errorf("%w: chunk %d is not the one that was announced", ErrMalformed, index)
	}
	return nil
}
