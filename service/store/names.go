package store

import (
	"context"
	"fmt"
	"strings"
)

// Kind is a kind of what a store keeps under names.
type Kind int

const (
	Values Kind = iota // Put and Get
	Secrets
	Streams
	Objects
)

// List returns the names of a kind that begin with prefix, sorted.
func (s *Store) List(ctx context.Context, k Kind, prefix string) (names []string, err error) {
	switch k {
	case Values:
		return s.keys(ctx, "k.", prefix)
	case Secrets:
		return s.listNames(ctx, s.secretName(""), s.config.Domain+".key.>", prefix)
	case Streams:
		return s.listNames(ctx, s.logName(""), s.config.Domain+".log.>", prefix)
	case Objects:
		all, err := s.listObjects(ctx)
		for _, o := range all {
			if strings.HasPrefix(o.Name, prefix) {
				names = append(names, o.Name)
			}
		}
		return names, err
	}
	return nil, fmt.Errorf("store: no kind %d", k)
}

// Delete removes what has a name, or fails with ErrNotFound. The package comment says what is
// then left on a disk. A value that is changed meanwhile stays, with ErrConflict.
func (s *Store) Delete(ctx context.Context, k Kind, name string) (err error) {
	switch k {
	case Values:
		err = checkKey(name)
	case Secrets:
		err = checkName("secret", name)
	case Streams:
		err = checkName("stream", name)
	case Objects:
		err = checkObjectName(name)
	default:
		err = fmt.Errorf("store: no kind %d", k)
	}
	if err != nil {
		return err
	}
	done, err := s.writing()
	if err != nil {
		return err
	}
	defer done()
	switch k {
	case Values:
		return s.erase(ctx, "k."+name)
	case Secrets:
		return s.removeStream(ctx, s.secretName(name))
	case Streams:
		return s.removeStream(ctx, s.logName(name))
	default:
		return s.deleteObject(ctx, name)
	}
}
