package mechanism

import (
	"errors"

	"github.com/riffle-dp/riffle/vecsum"
)

// Shares returns the transport of a round of the vector sum: clients, coordinator
// (aggregator 0, of the seeds) and second aggregator (1) make the same from the
// announcement's digest.
func (m *VectorSum) Shares(announcement [32]byte) (*vecsum.Shares, error) {
	return vecsum.NewShares(vecsum.SharesConfig{Params: m.params, Round: vecsum.RoundID(announcement[:16])})
}

// ShareSizes returns the bytes of a client's message to the coordinator and to
// the second aggregator, before they are sealed.
func (m *VectorSum) ShareSizes() (seed, vector int64, err error) {
	s, err := m.Shares([32]byte{})
	if err != nil {
		return 0, 0, err
	}
	if m.params.Split {
		return 0, 0, errors.New("mechanism: a vector sum with split signs has no reports over a network")
	}
	return s.MessageSize(0), s.MessageSize(1), nil
}
