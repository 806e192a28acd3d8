package wire

import (
	"math"
	"slices"
)

// Tags of the optional parts of a message. A number is never reused.
const (
	tagMessages byte = 1
	tagEncoding byte = 2
	tagSteps    byte = 3
	tagReceipts byte = 4
	tagTokens   byte = 5
	tagHead     byte = 6
	tagProofs   byte = 7

	tagRegistrar byte = 8
	tagModelDim  byte = 9
	tagOnes      byte = 10
	tagWeights   byte = 11
	tagEarlier   byte = 12
	tagTaken     byte = 15
	tagPasses    byte = 16
)

// maxRoster bounds the size of a signed Roster.
const maxRoster = 1 << 16

// MaxMessages is the largest number of messages that a client sends in a round.
const MaxMessages = 1 << 12

// maxEdges bounds the number of edges of a mechanism.
const maxEdges = 64

// MaxWeights bounds the number of weights of correlated noise over a network, and so how many rounds an
// aggregator holds a sum.
const MaxWeights = 1 << 10

// part is an optional part of a message.
type part struct {
	tag byte
	set func() bool // whether the message carries the part
	// fields reads or writes the content, up to its end.
	fields func(c *codec)
}

// extended is a message that may have optional parts after its fields.
type extended interface {
	parts() []part // in the order of their tags
}

// writeParts appends the number of the parts that are set, and those parts. If there are none it
// appends nothing, so each message has one encoding.
func (c *codec) writeParts(parts []part) {
	parts = slices.DeleteFunc(parts, func(p part) bool { return !p.set() })
	if len(parts) == 0 {
		return
	}
	c.b = append(c.b, byte(len(parts)))
	for _, p := range parts {
		var content codec
		p.fields(&content)
		c.b = append(c.b, p.tag)
		c.blob(&content.b)
	}
}

// readParts reads the parts of a message, if it has any.
func (c *codec) readParts(known []part) {
	if len(c.b) == 0 {
		return
	}
	var n byte
	if c.u8(&n); c.read() && n == 0 {
		c.fail("a list of no parts")
	}
	for ; c.read() && n > 0; n-- {
		var tag byte
		c.u8(&tag)
		for len(known) > 0 && known[0].tag < tag {
			known = known[1:]
		}
		if len(known) == 0 || known[0].tag != tag {
			c.fail("part %d, unknown or out of order", tag)
			return
		}
		p := known[0]
		known = known[1:]
		content := codec{b: c.take(c.length("part", 0, maxBlob)), reads: true}
		if !c.read() {
			return
		}
		p.fields(&content)
		if err := content.end(); err != nil {
			c.b, c.err = nil, err
		} else if !p.set() {
			c.fail("part %d says what its absence says", tag)
		}
	}
}

// messagesPart is the number of messages, if it is above one.
func messagesPart(m *int64, check func(c *codec)) part {
	return part{tagMessages, func() bool { return *m > 1 }, func(c *codec) {
		c.i64(m)
		if c.read() && (*m < 2 || *m > MaxMessages) {
			c.fail("%d messages must lie between 2 and %d", *m, MaxMessages)
		}
		check(c)
	}}
}

func (m *Task) parts() []part {
	w := &m.Mechanism
	return []part{
		messagesPart(&m.Messages, func(*codec) {}),
		{tagEncoding, func() bool { return w.Encoding != "" && w.Encoding != EncodingValues }, func(c *codec) {
			text := []byte(w.Encoding)
			c.bytes(&text, len(c.b))
			if c.reads {
				w.Encoding = string(text)
			}
			if c.read() && w.Encoding != EncodingSeed {
				c.fail("encoding %q", w.Encoding)
			}
		}},
		{tagSteps, func() bool { return len(w.Edges) > 0 || w.Height != 0 }, func(c *codec) {
			c.f64("height", &w.Height)
			if c.reads {
				w.Edges = make([]float64, min(len(c.b)/8, maxEdges))
			}
			last := math.Inf(-1)
			for i := range w.Edges {
				edge := &w.Edges[i]
				if c.f64("edge", edge); c.read() && *edge <= last {
					c.fail("edge %v after %v", *edge, last)
				}
				last = *edge
			}
			if c.read() && (!(w.Height > 0) || len(w.Edges) == 0) {
				c.fail("%d edges of height %v", len(w.Edges), w.Height)
			}
		}},
		{tagReceipts, func() bool { return m.Receipts }, func(c *codec) { c.flag(&m.Receipts) }},
		{tagTokens, func() bool { return m.Tokens != (Tokens{}) }, func(c *codec) {
			c.fixed(m.Tokens.Epoch[:])
			c.fixed(m.Tokens.Keys[:])
		}},
		w.Sum.proofsPart(),
		minClientsPart(&m.MinClients),
		{tagModelDim, func() bool { return m.ModelDim != 0 && m.ModelDim != w.Dim }, func(c *codec) { c.count("parameters", &m.ModelDim) }},
		{tagOnes, func() bool { return w.Sum.Ones != 0 }, func(c *codec) { c.count("ones", &w.Sum.Ones) }},
		{tagWeights, func() bool { return m.Every != 0 || w.WeightBits != 0 || len(w.Weights) != 0 }, func(c *codec) {
			c.count("every", &m.Every)
			c.count("weight bits", &w.WeightBits)
			n := c.rest("weights", len(w.Weights), 8)
			if c.reads {
				w.Weights = make([]int64, min(n, MaxWeights))
			}
			for i := range w.Weights {
				c.count("weight", &w.Weights[i])
			}
			if c.read() && (m.Every < 2 || len(w.Weights) == 0 || int64(len(w.Weights)) > m.Every) {
				c.fail("%d weights, a client in one of %d rounds: 1 to as many as rounds, which are at least 2", len(w.Weights), m.Every)
			}
		}},
	}
}

// minClientsPart is the number of clients that every round counts on, if a registrar may change
// the roster.
func minClientsPart(n *int64) part {
	return part{tagRegistrar, func() bool { return *n != 0 }, func(c *codec) { c.count("min clients", n) }}
}

func (m *Enrolment) parts() []part { return []part{m.registrarPart()} }

// registrarPart is the registrar's statement in an enrolment.
func (m *Enrolment) registrarPart() part {
	return part{tagRegistrar, func() bool { return len(m.Registrar) > 0 }, func(c *codec) {
		c.bytes(&m.Registrar, len(c.b))
		if c.reads {
			m.Registrar = slices.Clone(m.Registrar)
		}
		if c.read() && len(m.Registrar) > maxRoster {
			c.fail("a roster of %d bytes, at most %d", len(m.Registrar), maxRoster)
		}
	}}
}

func (m *Announcement) parts() []part {
	return []part{messagesPart(&m.Messages, func(c *codec) {
		if c.read() && m.ReportBytes > maxPart/m.Messages {
			c.fail("%d parts of %d bytes, at most %d", m.Messages, m.ReportBytes, maxPart)
		}
	}), {tagHead, func() bool { return m.Ledger != nil }, func(c *codec) {
		if c.reads {
			m.Ledger = new(Head)
		}
		m.Ledger.fields(c)
	}}, minClientsPart(&m.MinClients)}
}

// PerClient returns the number of messages that each client sends in a round, at least 1.
func (m Task) PerClient() int64 { return max(1, m.Messages) }

// PerClient returns the number of messages that each client sends in the round, at least 1.
func (m Announcement) PerClient() int64 { return max(1, m.Messages) }

// PartBytes returns the total size of a report's sealed parts for the coordinator.
func (m Announcement) PartBytes() int64 { return m.PerClient() * m.ReportBytes }
