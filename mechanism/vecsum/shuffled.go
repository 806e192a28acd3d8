package vecsum

import (
	"fmt"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// shuffled is a transport of many small messages to one honest shuffler.
type shuffled struct {
	*format
	each, size int64   // a client's messages, and the bytes of one
	distance   float64 // see Distance
	splitting
}

// splitting says what the messages of a shuffled transport hold.
type splitting interface {
	// split returns the messages of one client. There are at least as many as shuffled.each;
	// Messages leaves out a random choice of the surplus.
	split(src rng.Source, counts []int64) [][]byte
	// join adds up all messages of a round; shuffled.each come from every client.
	join(messages [][]byte, clients int64) ([]int64, error)
}

var _ Transport = (*shuffled)(nil)

// maxMessages bounds one client's messages.
const maxMessages = 1 << 28

func newShuffled(s shuffled) (Transport, error) {
	if s.each > maxMessages {
		return nil, fmt.Errorf("vecsum: %d messages a client are more than 2^28", s.each)
	}
	return &s, nil
}

// Size implements [Transport].
func (s *shuffled) Size() (messages, bytes int64) { return s.each, s.each * s.size }

// Distance implements [Transport].
func (s *shuffled) Distance() float64 { return s.distance }

// Messages returns one client's messages in random order.
func (s *shuffled) Messages(src rng.Source, counts []int64) ([][]byte, error) {
	if err := s.check(counts); err != nil {
		return nil, err
	}
	out := s.split(src, counts)
	sample.Shuffle(src, out)
	return out[:s.each], nil
}

// Sum adds up the messages of a round. Their number must be a multiple of the number that each
// client sends.
func (s *shuffled) Sum(messages [][]byte) ([]int64, int64, error) {
	n := int64(len(messages)) / s.each
	if n*s.each != int64(len(messages)) {
		return nil, 0, fmt.Errorf("vecsum: %d messages are not %d from each client", len(messages), s.each)
	}
	if err := s.params.CheckCohort(n); err != nil {
		return nil, 0, err
	}
	counts, err := s.join(messages, n)
	if err != nil {
		return nil, 0, err
	}
	return counts, n, nil
}
