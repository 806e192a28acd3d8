package mechanism

import "errors"

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
