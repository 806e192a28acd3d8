package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// An outbox is a file of a round's sealed reports, named by the announcement's digest:
// a header, the round's deadline (Unix ms, 8 bytes), then for each report the client's
// id (16), the report's length (4), the sealed bytes, and their SHA-256. Numbers are
// little endian. A report that is not whole was never charged.
const outboxHeader = "riffle-client-outbox 1\n"

type outbox struct {
	deadline time.Time
	file     appender
	reports  []sealedReport // reports found at start
	holders  int            // how many use it now
	made     bool           // whether there is a file
	needed   bool           // whether the next process needs it
}

type sealedReport struct {
	client wire.ID
	sealed []byte
	digest [32]byte
}

func newSealed(id wire.ID, sealed []byte) sealedReport {
	return sealedReport{client: id, sealed: sealed, digest: sha256.Sum256(sealed)}
}

func (o *outbox) header() []byte {
	return binary.LittleEndian.AppendUint64([]byte(outboxHeader), uint64(o.deadline.UnixMilli()))
}

func (r sealedReport) append(dst []byte) []byte {
	dst = append(dst, r.client[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.sealed)))
	dst = append(dst, r.sealed...)
	return append(dst, r.digest[:]...)
}

// decodeOutbox returns the whole reports, and how many bytes they take.
func decodeOutbox(b []byte) (o *outbox, size int, err error) {
	if len(b) < len(outboxHeader)+8 || !bytes.HasPrefix(b, []byte(outboxHeader)) {
		return nil, 0, errors.New("client: not an outbox of this version")
	}
	size = len(outboxHeader)
	o = &outbox{deadline: time.UnixMilli(int64(binary.LittleEndian.Uint64(b[size:])))}
	size += 8
	for {
		rest := b[size:]
		if len(rest) < 16+4 {
			return o, size, nil
		}
		n := int64(binary.LittleEndian.Uint32(rest[16:]))
		if int64(len(rest)) < 20+n+32 {
			return o, size, nil
		}
		r := newSealed(wire.ID(rest[:16]), rest[20:20+n])
		if r.digest != [32]byte(rest[20+n:20+n+32]) {
			return o, size, nil
		}
		o.reports = append(o.reports, r)
		size += 20 + int(n) + 32
	}
}
