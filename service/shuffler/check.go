package shuffler

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// Check checks a shuffler's store, which must not be in use. It calls problem with each problem
// and the key where it is. operator is the key that signs enrolments and statements on closed
// rounds; registrar is the key that signs rosters, nil if there is none. It returns the number of rounds, or an error if the store cannot be listed.
func Check(ctx context.Context, s storage, operator, registrar ed25519.PublicKey, p wire.ID, problem func(where, format string, args ...any)) (rounds int64, err error) {
	e, err := s.Get(ctx, keyEnrolment)
	if err == nil {
		_, err = readEnrolment(operator, e.Value)
	}
	if gone(err) != nil { // there is none if the shuffler was never started
		problem(keyEnrolment, "%v", err)
	}
	if registrar != nil {
		if err := checkRosters(ctx, s, registrar, p, problem); err != nil {
			return 0, err
		}
	}
	c := checker{operator: operator, problem: problem}
	if c.streams, err = s.List(ctx, store.Streams, ""); err != nil {
		return 0, err
	}
	if c.secrets, err = s.List(ctx, store.Secrets, ""); err != nil {
		return 0, err
	}
	if c.open, err = s.List(ctx, store.Values, keyOpen("")); err != nil {
		return 0, err
	}
	keys, err := s.List(ctx, store.Values, keyRecord(""))
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		e, err := s.Get(ctx, key)
		var r *record
		if err == nil {
			r, err = decodeRecord(e)
		}
		if err != nil {
			problem(key, "%v", err)
			continue
		}
		c.round(strings.TrimPrefix(key, keyRecord("")), r)
	}
	for _, name := range c.names() {
		if !slices.Contains(c.open, keyOpen(name)) && !slices.Contains(keys, keyRecord(name)) {
			problem(keyRecord(name), "there is no such round, but streams or keys of one")
		}
	}
	return int64(len(keys)), nil
}

// checker holds what a store has about rounds, apart from their records.
type checker struct {
	operator               ed25519.PublicKey
	open, streams, secrets []string
	problem                func(where, format string, args ...any)
}

func (c checker) round(name string, r *record) {
	key := keyRecord(name)
	marked := slices.Contains(c.open, keyOpen(name))
	sealed := slices.Contains(c.secrets, name)
	switch r.State {
	case Open, Closing:
		if !marked || !sealed {
			c.problem(key, "the round is %s, and has no mark or no keys", r.State)
		}
	case Closed:
		missing := !marked || !sealed
		for _, stream := range r.streams(name) {
			missing = missing || !slices.Contains(c.streams, stream)
		}
		if missing {
			c.problem(key, "the round is closed, and its batch or its keys are not there")
		}
		if slices.Contains(c.secrets, linksName(name)) {
			c.problem(key, "the batch is offered, and the keys of its order are still there")
		}
		c.closed(key, r)
	case Void, Released, Abandoned:
		c.closed(key, r)
		if marked {
			return // the next start finishes its destruction
		}
		if sealed || slices.Contains(c.secrets, linksName(name)) {
			c.problem(key, "the round has ended, and its keys are still there")
		}
		for _, stream := range c.streams {
			if roundOf(stream) == name {
				c.problem(key, "the round has ended, and stream %s is still there", stream)
			}
		}
	default:
		c.problem(key, "state %q", r.State)
	}
}

// closed checks the signed statement on a closed round.
func (c checker) closed(key string, r *record) {
	message, err := wire.Verify(c.operator, wire.LabelClosed, r.Closed)
	var word wire.RoundClosed
	if err == nil {
		word, err = wire.Decode[wire.RoundClosed](message)
	}
	if err == nil && len(r.Announcement) < ed25519.SignatureSize {
		err = errors.New("no announcement")
	}
	if err != nil {
		c.problem(key, "%v", err)
		return
	}
	a, err := wire.Decode[wire.Announcement](r.Announcement[ed25519.SignatureSize:])
	if err != nil || wire.Digest(a) != word.Announcement || word.Void != (r.State == Void) {
		c.problem(key, "the signed word is not on this round")
	}
}

// names lists the rounds to which streams and secrets belong.
func (c checker) names() (names []string) {
	for _, secret := range c.secrets {
		if !strings.HasPrefix(secret, masterPrefix) { // masters of sessions belong to no round
			names = append(names, strings.TrimPrefix(secret, linksName("")))
		}
	}
	for _, stream := range c.streams {
		names = append(names, roundOf(stream))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// roundOf returns the round that a stream belongs to; see streamIn and its like.
func roundOf(stream string) string {
	if f := strings.Split(stream, "-"); len(f) > 1 {
		return f[1]
	}
	return ""
}

// checkRosters checks the roster that was taken last, and that every stored roster is what its name
// says.
func checkRosters(ctx context.Context, s storage, registrar ed25519.PublicKey, p wire.ID, problem func(where, format string, args ...any)) error {
	names, err := s.List(ctx, store.Objects, rosterPrefix)
	if err != nil {
		return err
	}
	e, err := s.Get(ctx, keyRoster)
	var r wire.Roster
	if err == nil {
		r, err = readTaken(registrar, p, e.Value)
	}
	switch {
	case gone(err) != nil:
		problem(keyRoster, "%v", err)
	case err == nil && !slices.Contains(names, rosterName(r.Digest)):
		problem(keyRoster, "the clients of roster %d are not there", r.Serial)
	}
	for _, name := range names {
		var digest [32]byte
		if b, err := hex.DecodeString(strings.TrimPrefix(name, rosterPrefix)); err != nil || copy(digest[:], b) != len(digest) {
			problem(name, "the name is none of a roster")
			continue
		}
		if _, err := readMembers(ctx, s, digest); err != nil {
			problem(name, "%v", err)
		}
	}
	return nil
}
