// Package wire holds the messages that pass between the roles.
//
// The roles (client, shuffler, coordinator) know each other only through
// these types. Payloads are opaque here: the shuffler never needs to see one.
package wire

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/riffle-dp/riffle/dp"
)

// Announcement opens a round. The coordinator publishes it, every client and
// the shuffler read it.
type Announcement struct {
	Task  [32]byte // digest of the task's configuration
	Round int64    // 1-based
	// ModelDigest is the SHA-256 of the published parameters.
	ModelDigest   [32]byte
	Trust         dp.Trust
	Participation dp.Participation
	Population    int64   // n, the enrolled clients
	Sample        int64   // k, where Participation is Sampled
	CheckInRate   float64 // p, where Participation is CheckIn
	PerEpoch      int64   // blocks of an epoch, where Participation is Once
	MinReports    int64   // fewer unique reports void the round
	Randomizer    string
	Eps0          float64 // per report, numeric slack included
	Sigma         float64 // of a vector sum: what a client's noise is worth, in units of Clip
	Clip          float64 // radius of the gradient's ball
}

// ReportID is drawn at random by the client; equal IDs are the same report.
type ReportID [16]byte

// Ticket stands for a sealed report in the shuffler's hands: its id and where
// its payload is kept. The payload itself streams past, it is never held here.
type Ticket struct {
	ID      ReportID
	Payload int64
}

// Batch is what the shuffler offers once a round is closed.
type Batch struct {
	Round int64
	// Payloads lists the accepted reports in their permuted order.
	Payloads []int64
}

// Digest identifies the batch: SHA-256 of its round and its payloads in order.
func (b Batch) Digest() (d [32]byte) {
	h := sha256.New()
	word := binary.LittleEndian.AppendUint64(nil, uint64(b.Round))
	h.Write(word)
	for _, p := range b.Payloads {
		h.Write(binary.LittleEndian.AppendUint64(word[:0], uint64(p)))
	}
	h.Sum(d[:0])
	return d
}
