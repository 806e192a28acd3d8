package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// ReportID is drawn at random by the client; reports with equal ids are the same report.
type ReportID [16]byte

// Ticket stands for a sealed report at the shuffler: its sender, its id and where its payload
// is. The payload itself streams past and is never part of a ticket.
type Ticket struct {
	// Sender is the enrolled client, of whom one report is kept. It is zero if nobody is
	// enrolled, as in a simulation; then the id alone tells reports apart.
	Sender  ClientID
	ID      ReportID
	Payload int64
}

// Batch is what the shuffler offers after a round has closed.
type Batch struct {
	Round int64
	// Payloads lists the accepted reports in their permuted order.
	Payloads []int64
}

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
	return RoundClosed{Round: b.Round, Reports: int64(len(b.Payloads)), Digest: b.digest()}
}

// Rejection is the number of reports refused for one reason.
type Rejection struct {
	Reason Reason
	Count  int64
}

// RoundClosed is the shuffler's signed word on a closed round. The ledger is charged for it
// before the batch is fetched. The shuffler's operator signs it under LabelClosed.
type RoundClosed struct {
	Announcement [32]byte // digest of the announcement
	Round        int64
	Void         bool  // too few reports: everything was destroyed
	Reports      int64 // distinct clients' reports in the batch; 0 if void
	// Digest identifies the parts for the coordinator and their order; Shares identifies
	// those for the aggregator, in the same order. See BatchDigest. Shares is zero if reports
	// have one part.
	Digest   [32]byte
	Shares   [32]byte
	Chunks   int64
	Rejected []Rejection // in the order of Reasons; reasons with a count of zero are left out
}

// Append appends the encoding to dst.
func (m RoundClosed) Append(dst []byte) []byte {
	e := encode(dst, KindClosed)
	e.raw(m.Announcement[:])
	e.i64(m.Round)
	e.flag(m.Void)
	e.i64(m.Reports)
	e.raw(m.Digest[:])
	e.raw(m.Shares[:])
	e.i64(m.Chunks)
	e.u8(byte(len(m.Rejected)))
	for _, r := range m.Rejected {
		e.text(string(r.Reason))
		e.i64(r.Count)
	}
	return e.b
}

// DecodeRoundClosed is the inverse of Append.
func DecodeRoundClosed(b []byte) (m RoundClosed, err error) {
	d := decode(b, KindClosed)
	d.fixed(m.Announcement[:])
	m.Round, m.Void, m.Reports = d.count("round"), d.flag(), d.count("reports")
	d.fixed(m.Digest[:])
	d.fixed(m.Shares[:])
	m.Chunks = d.count("chunks")
	order := 0
	for range d.u8() {
		r := Rejection{Reason: Reason(d.text()), Count: d.count("rejected")}
		at := order
		for at < len(reasons) && reasons[at] != r.Reason {
			at++
		}
		if d.err == nil && (at == len(reasons) || r.Count == 0) {
			d.fail("reason %q, unknown, empty or out of order", r.Reason)
		}
		order = at + 1
		m.Rejected = append(m.Rejected, r)
	}
	if d.err == nil && m.Void != (m.Reports == 0) {
		d.fail("round of %d reports, void: %t", m.Reports, m.Void)
	}
	if err := d.end(); err != nil {
		return RoundClosed{}, err
	}
	return m, nil
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

// Append appends the encoding to dst.
func (c Chunk) Append(dst []byte) []byte {
	e := encode(dst, KindChunk)
	e.i64(c.Index)
	e.i64(c.Size)
	e.i64(int64(len(c.Items)))
	e.raw(c.Items)
	return e.b
}

// DecodeChunk is the inverse of Append. Items are not copied.
func DecodeChunk(b []byte) (c Chunk, err error) {
	d := decode(b, KindChunk)
	c.Index, c.Size = d.count("index"), d.count("size")
	n := d.count("bytes")
	if d.err == nil && (c.Size < 1 || n < 1 || n%c.Size != 0 || n != int64(len(d.b))) {
		d.fail("%d bytes of items of %d, %d are there", n, c.Size, len(d.b))
	}
	if d.err != nil {
		return Chunk{}, d.err
	}
	c.Items = d.b
	return c, nil
}

// BatchDigest identifies one reader's parts of a batch. It covers the announcement, the
// number of reports, and the SHA-256 of each chunk's items in order.
func BatchDigest(announcement [32]byte, reports int64, chunks [][32]byte) [32]byte {
	e := encoder{}
	e.i64(reports)
	flat := make([]byte, 0, 32*len(chunks))
	for _, c := range chunks {
		flat = append(flat, c[:]...)
	}
	return Digest(LabelBatch, announcement[:], e.b, flat)
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
