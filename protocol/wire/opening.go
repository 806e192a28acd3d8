package wire

import (
	"bytes"
	"encoding/binary"
)

// Opening is a range of a charged batch's chunks that one of the coordinator's workers is to open. The
// coordinator signs it under LabelOpening.
type Opening struct {
	Announcement [32]byte
	Task         []byte     // the encoded Task
	Size         int64      // size of a sealed part
	From         int64      // index of the first chunk
	Keys         [][]byte   // the key of the round, and the range's ticket, sealed to each worker
	Digests      [][32]byte // of the chunks of the range, at least one
}

func (*Opening) kind() byte { return KindOpening }

func (*Opening) label() Label { return LabelOpening }

func (m *Opening) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.blob(&m.Task)
	if c.count("size", &m.Size); c.read() && m.Size < 1 {
		c.fail("parts of %d bytes", m.Size)
	}
	c.count("first chunk", &m.From)
	list(c, &m.Keys, func(b *[]byte) { c.blob(b) })
	n := c.rest("digests", len(m.Digests), 32)
	if c.read() && (n == 0 || len(m.Keys) == 0 || m.From > maxChunks) {
		c.fail("%d chunks from %d on, for %d workers", n, m.From, len(m.Keys))
		return
	}
	if c.reads {
		m.Digests = make([][32]byte, n)
	}
	for i := range m.Digests {
		c.fixed(m.Digests[i][:])
	}
}

// maxChunks keeps sums of indices from overflowing.
const maxChunks = 1 << 48

// To is the index after the last chunk.
func (m Opening) To() int64 { return m.From + int64(len(m.Digests)) }

// Place binds what is sealed for a range to its round and range, in the place of an announcement's digest.
func (m Opening) Place() [32]byte { return openingPlace(LabelOpening, m.Announcement, m.From, m.To()) }

func openingPlace(l Label, announcement [32]byte, from, to int64) [32]byte {
	return hash(l, announcement[:], binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(from)), uint64(to)))
}

// Opened is the tally of a range of chunks. A worker seals it to the key of the round.
type Opened struct {
	Announcement [32]byte
	From, To     int64    // the range, To excluded
	Ticket       [32]byte // that was sealed to the workers with the range
	Accepted     int64    // number of messages in Sum
	WrongKey     int64    // number of those that could not be opened
	OutOfRange   int64    // number of those out of shape or range
	Sum          []int64
	// Identities are those of the accepted messages, ascending, where equal ones count once; else empty.
	Identities [][16]byte
	// Receipts are those of the messages that could be opened, ascending, if the task has them.
	Receipts []ID
}

func (*Opened) kind() byte { return KindOpened }

func (m *Opened) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.count("first chunk", &m.From)
	c.count("end", &m.To)
	c.fixed(m.Ticket[:])
	for _, n := range []*int64{&m.Accepted, &m.WrongKey, &m.OutOfRange} {
		if c.count("messages", n); c.read() && *n > maxReceipts {
			c.fail("%d messages", *n)
		}
	}
	if c.read() && (m.From >= m.To || m.To > maxChunks) {
		c.fail("chunks from %d to %d", m.From, m.To)
	}
	n := c.some("values", len(m.Sum), 8)
	if c.reads && n > 0 {
		m.Sum = make([]int64, n)
	}
	for j := range m.Sum {
		c.i64(&m.Sum[j])
	}
	ascending(c, "identities", &m.Identities, c.some("identities", len(m.Identities), 16))
	ascending(c, "receipts", &m.Receipts, c.rest("receipts", len(m.Receipts), 16))
	if c.read() && (len(m.Identities) != 0 && int64(len(m.Identities)) != m.Accepted || int64(len(m.Receipts)) > m.Accepted+m.OutOfRange) {
		c.fail("%d identities and %d receipts of %d messages", len(m.Identities), len(m.Receipts), m.Accepted)
	}
}

// Place binds a sealed tally to its round and range, in the place of an announcement's digest.
func (m Opened) Place() [32]byte { return openingPlace(LabelOpened, m.Announcement, m.From, m.To) }

// some reads or writes a number of items of size bytes each, with more fields after them. It returns that
// number, or 0 after an error.
func (c *codec) some(name string, items, size int) int {
	n := int64(items)
	c.count(name, &n)
	if c.read() && n > int64(len(c.b)/size) {
		c.fail("%d %s in %d bytes", n, name, len(c.b))
	}
	if c.err != nil {
		return 0
	}
	return int(n)
}

// ascending reads or writes n values that do not fall.
func ascending[T ~[16]byte](c *codec, name string, values *[]T, n int) {
	if c.reads && n > 0 {
		*values = make([]T, n)
	}
	var last T
	for i := range *values {
		var v [16]byte
		if !c.reads {
			v = (*values)[i]
		}
		if c.fixed(v[:]); c.read() && bytes.Compare(last[:], v[:]) > 0 {
			c.fail("%s that do not ascend", name)
		}
		(*values)[i], last = T(v), T(v)
	}
}
