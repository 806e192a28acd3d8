package proved

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A message on some places has version, sender's role, tag (16), name of the key (16), first place
// (8, little endian) and number of places (2). Then follows for each place what the sender says: one
// byte, unless it has no half the report's commitment (32), and if its half is good its prep share, of each vector.
const (
	messageVersion = 1
	keyNameSize    = 16
	headerSize     = 2 + tagSize + keyNameSize + 8 + 2
)

// entry is what the other aggregator says of a place.
type entry struct {
	kind       byte
	commitment [digestSize]byte
	preps      [][]byte // of each vector
}

// MessageSize is the largest size of a message on so many places.
func (r *Round) MessageSize(places int) int {
	size := 1 + digestSize
	for _, p := range r.parts {
		size += p.sizes.Prep
	}
	return headerSize + places*size
}

func (s *Sum) message() []byte {
	b := make([]byte, 0, s.round.MessageSize(len(s.begun)))
	b = append(b, messageVersion, byte(s.config.Role))
	b = append(b, s.round.tag[:]...)
	b = append(b, s.keyName[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.next))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.begun)))
	for _, p := range s.begun {
		b = append(b, p.kind)
		if p.kind != unopened {
			b = append(b, p.commitment[:]...)
		}
		if p.kind == good {
			for _, of := range p.vectors {
				b = append(b, of.prep...)
			}
		}
	}
	return b
}

// Covers returns which places a message of the other aggregator is on: count of them from first
// on, all within the batch. It refuses messages of other rounds, parameters, keys and roles.
func (s *Sum) Covers(message []byte) (first int64, count int, err error) {
	if len(message) < headerSize {
		return 0, 0, fmt.Errorf("proved: message of %d bytes is shorter than its header", len(message))
	}
	b := message[2:]
	switch {
	case message[0] != messageVersion:
		return 0, 0, fmt.Errorf("proved: message of version %d", message[0])
	case int(message[1]) != 1-int(s.config.Role):
		return 0, 0, fmt.Errorf("proved: message of aggregator %d came to %d", message[1], s.config.Role)
	case [tagSize]byte(b) != s.round.tag:
		return 0, 0, errors.New("proved: message from another round or of other parameters")
	case [keyNameSize]byte(b[tagSize:]) != s.keyName:
		return 0, 0, errors.New("proved: the aggregators hold different verify keys")
	}
	b = b[tagSize+keyNameSize:]
	at, n := binary.LittleEndian.Uint64(b), int(binary.LittleEndian.Uint16(b[8:]))
	if n < 1 || n > s.round.Places() || at >= uint64(s.config.Reports) || int64(n) > s.config.Reports-int64(at) {
		return 0, 0, fmt.Errorf("proved: message on %d places from place %d on, of %d", n, at, s.config.Reports)
	}
	return int64(at), n, nil
}

// decode takes a message on places from the next on.
func (s *Sum) decode(message []byte) ([]entry, error) {
	first, count, err := s.Covers(message)
	if err != nil {
		return nil, err
	}
	if first != s.next {
		return nil, fmt.Errorf("proved: message on place %d, not %d", first, s.next)
	}
	b := message[headerSize:]
	take := func(n int) []byte {
		if len(b) < n {
			b = nil
			return nil
		}
		part := b[:n]
		b = b[n:]
		return part
	}
	out := make([]entry, count)
	for i := range out {
		e := &out[i]
		kind := take(1)
		if kind == nil {
			return nil, errors.New("proved: a message is too short")
		}
		e.kind = kind[0]
		if e.kind > good {
			return nil, fmt.Errorf("proved: a message says %d of place %d", e.kind, first+int64(i))
		}
		if e.kind != unopened {
			commitment := take(digestSize)
			if commitment == nil {
				return nil, errors.New("proved: a message is too short")
			}
			copy(e.commitment[:], commitment)
		}
		if e.kind == good {
			for _, p := range s.round.parts {
				prep := take(p.sizes.Prep)
				if prep == nil {
					return nil, errors.New("proved: a message is too short")
				}
				e.preps = append(e.preps, prep)
			}
		}
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("proved: %d bytes follow a message", len(b))
	}
	return out, nil
}
