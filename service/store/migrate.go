package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Inventory holds counts and a digest of a store's whole content.
type Inventory struct {
	Ledger, Keys, Leases, Secrets, Streams, Messages, Objects uint64
	// Digest covers names and contents of everything, in order. It ignores revisions, time
	// stamps and replicas.
	Digest [sha256.Size]byte
}

// Inventory reads the whole store.
func (s *Store) Inventory(ctx context.Context) (Inventory, error) {
	var v Inventory
	h := sha256.New()
	for e, err := range s.Entries(ctx) {
		if err != nil {
			return v, err
		}
		v.Ledger++
		digest(h, "ledger", e.Data)
	}
	for _, space := range []string{"k.", "l."} {
		keys, err := s.keys(ctx, space, "")
		if err != nil {
			return v, err
		}
		if space == "k." {
			v.Keys = uint64(len(keys))
		} else {
			v.Leases = uint64(len(keys))
		}
		for _, k := range keys {
			e, err := s.get(ctx, space+k)
			if err != nil {
				return v, err
			}
			digest(h, space+k, e.Value)
		}
	}
	secrets, err := s.List(ctx, Secrets, "")
	if err != nil {
		return v, err
	}
	for _, name := range secrets {
		value, err := s.secret(ctx, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return v, err
		}
		if err == nil {
			v.Secrets++
			digest(h, "secret "+name, value)
		}
	}
	if err := s.digestStreams(ctx, h, &v); err != nil {
		return v, err
	}
	objects, err := s.listObjects(ctx)
	if err != nil {
		return v, err
	}
	for _, o := range objects {
		content := sha256.New()
		if err := s.copyObject(ctx, content, o.Name); err != nil {
			return v, err
		}
		v.Objects++
		digest(h, "object "+o.Name, content.Sum(nil))
	}
	h.Sum(v.Digest[:0])
	return v, nil
}

func (s *Store) digestStreams(ctx context.Context, h hash.Hash, v *Inventory) error {
	streams, err := s.List(ctx, Streams, "")
	if err != nil {
		return err
	}
	for _, name := range streams {
		v.Streams++
		digest(h, "stream "+name, nil)
		for m, err := range s.Read(ctx, name, "", 0) {
			if err != nil {
				return err
			}
			v.Messages++
			digest(h, fmt.Sprintf("%d %s %s", m.Seq, m.Suffix, m.ID), m.Data)
		}
	}
	return nil
}

// digest hashes name and data so that different lists of them give different input.
func digest(h hash.Hash, name string, data []byte) {
	var n [16]byte
	binary.BigEndian.PutUint64(n[:8], uint64(len(name)))
	binary.BigEndian.PutUint64(n[8:], uint64(len(data)))
	h.Write(n[:])
	io.WriteString(h, name)
	h.Write(data)
}

// Migrate moves an embedded store into an empty one, embedded or in a cluster,
// between rounds: it copies everything, compares counts and digests of the two,
// seals the old store for good, and then lets the new one be used. It makes the new store if
// there is none. While it runs, and until it has succeeded, the new store takes no other
// writes, and afterwards the old one takes none. Neither may be open. Migrate can be run again
// after a crash at any point.
func Migrate(ctx context.Context, from, to Config) (v Inventory, err error) {
	old, err := open(ctx, from)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	next, err := open(ctx, to)
	if errors.Is(err, ErrNotFound) {
		if err := Init(ctx, to); err != nil {
			return v, err
		}
		next, err = open(ctx, to)
	}
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, next.Close()) }()
	return migrate(ctx, old, next)
}

// migrate is Migrate for open stores.
func migrate(ctx context.Context, from, to *Store) (Inventory, error) {
	if from.server == nil {
		return Inventory{}, errors.New("store: migrate from a cluster: other processes may be writing; only an embedded store can be moved")
	}
	if from.marker().ID == to.marker().ID {
		return Inventory{}, errors.New("store: migrate a store into itself")
	}
	from.gate.Lock()
	defer from.gate.Unlock()
	to.gate.Lock()
	defer to.gate.Unlock()
	done, err := mayMigrate(ctx, from, to)
	if err != nil {
		return Inventory{}, err
	}
	if done {
		return to.Inventory(ctx)
	}
	if to.marker().State == stateOpen {
		m := to.marker()
		m.State, m.Peer, m.PeerPlace, m.Since = stateReceiving, from.marker().ID, from.where(), time.Now().UTC()
		if err := to.writeMarker(ctx, m); err != nil {
			return Inventory{}, err
		}
	}
	for _, step := range []func(context.Context, *Store, *Store) error{copyLedger, copyKeys, copySecrets, copyStreams, copyObjects} {
		if err := step(ctx, from, to); err != nil {
			return Inventory{}, fmt.Errorf("store: migrate to %s: %w", to.where(), err)
		}
	}
	old, err := from.Inventory(ctx)
	if err != nil {
		return Inventory{}, err
	}
	copied, err := to.Inventory(ctx)
	if err != nil {
		return Inventory{}, err
	}
	if old != copied {
		return Inventory{}, fmt.Errorf("store: migrate: the copy differs: %+v in %s, %+v in %s", old, from.where(), copied, to.where())
	}
	kv, err := from.info(ctx, from.kvName())
	if err != nil {
		return Inventory{}, err
	}
	// Seal the old store first, so that the two are never open at the same time.
	if from.marker().State != stateSealed {
		m := from.marker()
		m.State, m.Peer, m.PeerPlace, m.Since = stateSealed, to.marker().ID, to.where(), time.Now().UTC()
		if err := from.writeMarker(ctx, m); err != nil {
			return Inventory{}, err
		}
	}
	m := to.marker()
	m.State, m.Base = stateOpen, from.marker().Base+kv.last
	return copied, to.writeMarker(ctx, m)
}

// mayMigrate checks the states of both stores; done says that nothing is left to do.
func mayMigrate(ctx context.Context, from, to *Store) (done bool, err error) {
	f, t := from.marker(), to.marker()
	if f.Domain != t.Domain {
		return false, fmt.Errorf("store: migrate domain %q into %q", f.Domain, t.Domain)
	}
	if f.State == stateReceiving {
		return false, f.usable(from.where())
	}
	if f.State == stateSealed && f.Peer != t.ID {
		return false, f.usable(from.where())
	}
	switch t.State {
	case stateSealed:
		return false, t.usable(to.where())
	case stateReceiving:
		if t.Peer != f.ID {
			return false, t.usable(to.where())
		}
		return false, nil
	}
	if f.State == stateSealed {
		return true, nil
	}
	v, err := to.Inventory(ctx)
	if err != nil {
		return false, err
	}
	if v != (Inventory{Digest: v.Digest}) {
		return false, fmt.Errorf("store: migrate into %s: it is not empty: %w", to.where(), ErrExists)
	}
	return false, nil
}

// copyLedger adds the missing entries. If the new ledger is not a beginning of the old one it
// stays as it is: entries are never taken back.
func copyLedger(ctx context.Context, from, to *Store) error {
	have := map[uint64][sha256.Size]byte{}
	var last uint64
	for e, err := range to.Entries(ctx) {
		if err != nil {
			return err
		}
		have[e.Seq], last = sha256.Sum256(e.Data), e.Seq
	}
	var n uint64
	for e, err := range from.Entries(ctx) {
		if err != nil {
			return err
		}
		n = e.Seq
		if sum, ok := have[e.Seq]; ok {
			if sum != sha256.Sum256(e.Data) {
				return fmt.Errorf("store: ledger entry %d is another in the copy: %w", e.Seq, ErrConflict)
			}
			continue
		}
		if _, err := to.appendEntry(ctx, e.Seq-1, e.Data); err != nil {
			return err
		}
	}
	if last > n {
		return fmt.Errorf("store: the copy's ledger has %d entries, the old one %d: %w", last, n, ErrConflict)
	}
	return nil
}

func copyKeys(ctx context.Context, from, to *Store) error {
	for _, space := range []string{"k.", "l."} {
		keys, extra, err := compareNames(func(s *Store) ([]string, error) { return s.keys(ctx, space, "") }, from, to)
		if err != nil {
			return err
		}
		for _, k := range extra {
			if err := to.erase(ctx, space+k); err != nil {
				return err
			}
		}
		for _, k := range keys {
			e, err := from.get(ctx, space+k)
			if err != nil {
				return err
			}
			copied, err := to.get(ctx, space+k)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			if err == nil && bytes.Equal(copied.Value, e.Value) {
				continue
			}
			if _, err := to.put(ctx, space+k, e.Value, copied.Revision); err != nil {
				return err
			}
		}
	}
	return nil
}

func copySecrets(ctx context.Context, from, to *Store) error {
	names, extra, err := compareNames(func(s *Store) ([]string, error) { return s.List(ctx, Secrets, "") }, from, to)
	if err != nil {
		return err
	}
	for _, name := range extra {
		if err := to.removeStream(ctx, to.secretName(name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		value, err := from.secret(ctx, name)
		if errors.Is(err, ErrNotFound) {
			continue // the store was never told the secret: its stream has no message
		}
		if err != nil {
			return err
		}
		copied, err := to.secret(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return err
		case bytes.Equal(copied, value):
			continue
		default:
			if err := to.removeStream(ctx, to.secretName(name)); err != nil {
				return err
			}
		}
		if err := to.putSecret(ctx, name, value); err != nil {
			return err
		}
	}
	return nil
}

func copyStreams(ctx context.Context, from, to *Store) error {
	names, extra, err := compareNames(func(s *Store) ([]string, error) { return s.List(ctx, Streams, "") }, from, to)
	if err != nil {
		return err
	}
	for _, name := range extra {
		if err := to.removeStream(ctx, to.logName(name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := copyStream(ctx, from, to, name); err != nil {
			return err
		}
	}
	return nil
}

// copyStream continues an interrupted copy. It begins anew if the new stream is not a
// beginning of the old one.
func copyStream(ctx context.Context, from, to *Store, name string) error {
	h, err := from.js.Stream(ctx, from.logName(name))
	if err != nil {
		return from.fail("stream "+name, err)
	}
	c := streamConfig{window: h.CachedInfo().Config.Duplicates, maxBytes: max(h.CachedInfo().Config.MaxBytes, 0)}
	if err := to.createStream(ctx, name, c); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	have, err := streamDigest(ctx, to, name, 0)
	if err != nil {
		return err
	}
	if have.count > 0 {
		want, err := streamDigest(ctx, from, name, have.count)
		if err != nil {
			return err
		}
		if want != have {
			if err := to.removeStream(ctx, to.logName(name)); err != nil {
				return err
			}
			if err := to.createStream(ctx, name, c); err != nil {
				return err
			}
			have.count = 0
		}
	}
	for m, err := range from.Read(ctx, name, "", have.count+1) {
		if err != nil {
			return err
		}
		msg, err := to.message(name, "", m.Suffix, m.Data)
		if err != nil {
			return err
		}
		// The id is not used as the broker's id: it may occur twice, further apart than the
		// window.
		msg.Header = nats.Header{copiedID: {m.ID}}
		w := write{stream: to.logName(name), msg: msg, expect: lastOfStream, expectLast: m.Seq - 1}
		seq, err := to.publish(ctx, w)
		if err != nil {
			return err
		}
		if seq != m.Seq {
			return fmt.Errorf("store: message %d of %s is %d in the copy", m.Seq, name, seq)
		}
	}
	return nil
}

// copiedID is the header with a copied message's original id.
const copiedID = "Riffle-Id"

func messageID(h nats.Header) string {
	if id, copied := h[copiedID]; copied {
		return id[0]
	}
	return h.Get(jetstream.MsgIDHeader)
}

type lengthAndDigest struct {
	count  uint64
	digest [sha256.Size]byte
}

// streamDigest covers the first limit messages, or all if limit is 0.
func streamDigest(ctx context.Context, s *Store, name string, limit uint64) (lengthAndDigest, error) {
	var out lengthAndDigest
	h := sha256.New()
	for m, err := range s.Read(ctx, name, "", 0) {
		if err != nil {
			return out, err
		}
		out.count++
		digest(h, fmt.Sprintf("%d %s %s", m.Seq, m.Suffix, m.ID), m.Data)
		if out.count == limit {
			break
		}
	}
	h.Sum(out.digest[:0])
	return out, nil
}

func copyObjects(ctx context.Context, from, to *Store) error {
	old, err := from.listObjects(ctx)
	if err != nil {
		return err
	}
	copies, err := to.listObjects(ctx)
	if err != nil {
		return err
	}
	for _, o := range copies {
		if !slices.ContainsFunc(old, func(x object) bool { return x.Name == o.Name }) {
			if err := to.deleteObject(ctx, o.Name); err != nil {
				return err
			}
		}
	}
	for _, o := range old {
		if slices.Contains(copies, o) {
			continue
		}
		r, w := io.Pipe()
		go func() { w.CloseWithError(from.copyObject(ctx, w, o.Name)) }()
		_, err := to.putObject(ctx, o.Name, r)
		r.CloseWithError(err)
		if err != nil {
			return err
		}
	}
	return nil
}

// compareNames returns the names in from, and those that are in to only.
func compareNames(list func(*Store) ([]string, error), from, to *Store) (names, extra []string, err error) {
	if names, err = list(from); err != nil {
		return nil, nil, err
	}
	copies, err := list(to)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range copies {
		if !slices.Contains(names, c) {
			extra = append(extra, c)
		}
	}
	return names, extra, nil
}
