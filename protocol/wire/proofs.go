package wire

import (
	"fmt"
	"io"
)

// Who adds the noise of a vector sum, besides "", the clients to their vectors.
const (
	NoiseByAggregators = "aggregators"
	// NoiseByClients: each client sends a vector of noise apart from its own one.
	NoiseByClients = "clients"
)

// ProofsPine names the proofs of package pine over the field of 64 bits, with that package's
// default numbers of projections and proofs.
const ProofsPine = "pine"

// VerifyKey is the secret that the coordinator and the aggregator of a round share, and clients do
// not know. Printing it does not show the key.
type VerifyKey [16]byte

// Format hides the key.
func (VerifyKey) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "wire.VerifyKey") }

// ProofKey gives the aggregator the key with which the proofs of a round are checked. There is
// one for a round, drawn after the round was closed. The coordinator signs it under LabelProofKey.
type ProofKey struct {
	Announcement [32]byte
	Closed       [32]byte // digest of the shuffler's word on the round
	Key          VerifyKey
}

func (*ProofKey) kind() byte { return KindProofKey }

func (*ProofKey) label() Label { return LabelProofKey }

func (m *ProofKey) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.fixed(m.Closed[:])
	if c.fixed(m.Key[:]); c.read() && m.Key == (VerifyKey{}) {
		c.fail("verify key of zeros")
	}
}

// Proofs carries what the coordinator and the aggregator tell each other of some places of a
// batch, so that both decide alike which reports are valid. The coordinator signs its own under
// LabelProofs.
type Proofs struct {
	Announcement [32]byte
	Message      []byte // of package mechanism/vecsum/proved
}

func (*Proofs) kind() byte { return KindProofs }

func (*Proofs) label() Label { return LabelProofs }

func (m *Proofs) fields(c *codec) {
	c.fixed(m.Announcement[:])
	n := c.rest("bytes", len(m.Message), 1)
	if c.bytes(&m.Message, n); c.read() && n == 0 {
		c.fail("proofs without a message")
	}
}

// Agreed says that its signer sums the reports that an exclusion leaves, and never another set of
// this round. The aggregator signs it under LabelAgreed, the coordinator signs the Exclusion.
type Agreed struct {
	Announcement [32]byte
	Exclusion    [32]byte // digest of the exclusion
}

func (*Agreed) kind() byte { return KindAgreed }

func (*Agreed) label() Label { return LabelAgreed }

func (m *Agreed) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.fixed(m.Exclusion[:])
}

// Proved says whether reports of the sum carry proofs.
func (s Sum) Proved() bool { return s.Proofs != "" }

// proofsPart is what a sum has whose noise is no part of clients' vectors.
func (s *Sum) proofsPart() part {
	return part{tagProofs, func() bool {
		return s.NoiseBy != "" || s.Proofs != "" || s.Steps != 0 || s.Bound != 0 || s.Variance != 0
	}, func(c *codec) {
		text(c, &s.NoiseBy)
		text(c, &s.Proofs)
		c.count("steps", &s.Steps)
		c.count("norm bound", &s.Bound)
		c.u64(&s.Variance)
		switch {
		case !c.read():
		case s.NoiseBy != NoiseByAggregators && s.NoiseBy != NoiseByClients:
			c.fail("noise by %q", s.NoiseBy)
		case s.Proofs != "" && s.Proofs != ProofsPine:
			c.fail("proofs %q", s.Proofs)
		case s.Steps < 1 || s.Bound < s.Steps || s.Variance < 1:
			c.fail("%d steps, norm bound %d, variance %d", s.Steps, s.Bound, s.Variance)
		}
	}}
}
