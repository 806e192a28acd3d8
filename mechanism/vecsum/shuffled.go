package vecsum

import (
	"fmt"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// shuffled is a transport of many small messages to one honest shuffler.
type shuffled struct {
	*format
	splitting
}

// splitting says what the messages of a shuffled transport hold.
type splitting interface {
	// split returns the messages of one client. There are at least as many as Cost says;
	// Messages leaves out a random choice of the surplus.
	split(src rng.Source, counts []int64) [][]byte
	// join adds up all messages of a round; as many as Cost says come from every client.
	join(messages [][]byte, clients int64) ([]int64, error)
}

var _ Transport = (*shuffled)(nil)

// maxMessages bounds one client's messages.
const maxMessages = 1 << 28

func newShuffled(f *format, s splitting, c Cost) (Transport, error) {
	if c.Messages > maxMessages {
		return nil, fmt.Errorf("vecsum: %d messages a client are more than 2^28", c.Messages)
	}
	f.cost = c
	return &shuffled{f, s}, nil
}

// Messages returns one client's messages in random order.
func (s *shuffled) Messages(src rng.Source, counts []int64) ([][]byte, error) {
	if err := s.check(counts); err != nil {
		return nil, err
	}
	out := s.split(src, counts)
	sample.Shuffle(src, out)
	return out[:s.cost.Messages], nil
}

// Sum adds up the messages of a round. Their number must be a multiple of the number that each
// client sends.
func (s *shuffled) Sum(messages [][]byte) ([]int64, int64, error) {
	each := s.cost.Messages
	n := int64(len(messages)) / each
	if n*each != int64(len(messages)) {
		return nil, 0, fmt.Errorf("vecsum: %d messages are not %d from each client", len(messages), each)
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
