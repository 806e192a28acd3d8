package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// A secret, such as the key of a round, has a stream of its own with one message. Removing a
// value from a shared stream would leave its bytes there; removing the stream removes the
// file.

func (s *Store) secretName(name string) string    { return s.config.Domain + "_key_" + name }
func (s *Store) secretSubject(name string) string { return s.config.Domain + ".key." + name }

// PutSecret stores a secret. It returns ErrExists if there is one of that name: secrets do
// not change.
func (s *Store) PutSecret(ctx context.Context, name string, value []byte) error {
	if err := errors.Join(checkName("secret", name), checkData(value)); err != nil {
		return err
	}
	done, err := s.writing()
	if err != nil {
		return err
	}
	defer done()
	return s.putSecret(ctx, name, value)
}

func (s *Store) putSecret(ctx context.Context, name string, value []byte) error {
	c := s.base(s.secretName(name), s.secretSubject(name))
	c.DenyDelete, c.DenyPurge, c.MaxMsgs = true, true, 1
	err := s.newStream(ctx, c)
	// A crash in between leaves a stream without its message.
	if err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	_, err = s.publish(ctx, write{stream: c.Name, msg: &nats.Msg{Subject: s.secretSubject(name), Data: value}, expect: lastOfStream})
	if errors.Is(err, ErrConflict) {
		if err := s.settle(c.Name); err != nil { // of a write that was cut short, perhaps
			return err
		}
		return fmt.Errorf("store: secret %s: %w", name, ErrExists)
	}
	return err
}

// Secret returns a secret, or ErrNotFound.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	if err := checkName("secret", name); err != nil {
		return nil, err
	}
	return s.secret(ctx, name)
}

func (s *Store) secret(ctx context.Context, name string) ([]byte, error) {
	return retry(ctx, s, func(ctx context.Context) ([]byte, error) {
		h, err := s.js.Stream(ctx, s.secretName(name))
		if err != nil {
			return nil, s.failUnlessRetried("secret "+name, err)
		}
		m, err := h.GetLastMsgForSubject(ctx, s.secretSubject(name))
		if err != nil {
			return nil, s.failUnlessRetried("secret "+name, err)
		}
		return m.Data, nil
	})
}
