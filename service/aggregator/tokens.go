package aggregator

import (
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// maxTokenKeys bounds the size of the signed keys of an epoch's tokens.
const maxTokenKeys = wire.MaxTokens*wire.TokenModulus + 1<<10

// mostEpochs is the number of epochs whose keys are held in memory.
const mostEpochs = 8

// learnKeys keeps the keys of a task's tokens, which the coordinator passes on. The registrar has
// signed them; the task says by their digest which are its own.
func (s *Service) learnKeys(signed []byte) error {
	if s.config.Shuffler.Registrar == nil {
		return no(wire.BadSignature, "this aggregator has no registrar's key")
	}
	message, err := wire.Verify(s.config.Shuffler.Registrar, wire.LabelTokenKeys, signed)
	if err != nil {
		return no(wire.BadSignature, "the keys are not signed by the registrar")
	}
	m, err := wire.Decode[wire.TokenKeys](message)
	if err != nil {
		return no(wire.Malformed, "%v", err)
	}
	digest := wire.Digest(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epochs == nil {
		s.epochs = map[[32]byte]wire.TokenKeys{}
	}
	if _, known := s.epochs[digest]; !known && len(s.epochs) == mostEpochs {
		for old := range s.epochs { // the coordinator passes them on again
			delete(s.epochs, old)
			break
		}
	}
	s.epochs[digest] = m
	return nil
}

// tokenKeys returns the keys of a task's tokens; nil if it has none.
func (s *Service) tokenKeys(t *wire.Task) (*token.Keys, error) {
	if t.Tokens == (wire.Tokens{}) {
		return nil, nil
	}
	s.mu.Lock()
	m, ok := s.epochs[t.Tokens.Keys]
	s.mu.Unlock()
	if !ok {
		return nil, no(wire.Unavailable, "the keys of the task's tokens are not here")
	}
	k, err := token.ForTask(m, *t)
	if err != nil {
		return nil, no(wire.Malformed, "%v", err)
	}
	return k, nil
}

// tokenRound returns the tokens of a job's round, none of which is taken; nil if it has none.
func (j *job) tokenRound() *token.Round {
	if j.tokens == nil {
		return nil
	}
	return j.tokens.Round(wire.Digest(j.task), j.announcement.Round)
}
