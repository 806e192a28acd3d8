package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// object describes a stored object.
type object struct {
	Name   string
	Size   uint64
	Digest string // digest of its content: "SHA-256=" and base64url
}

func (s *Store) objects(ctx context.Context) (jetstream.ObjectStore, error) {
	o, err := retry(ctx, s, func(ctx context.Context) (jetstream.ObjectStore, error) {
		return s.js.ObjectStore(ctx, s.config.Domain)
	})
	if err != nil {
		return nil, s.fail("objects", err)
	}
	return o, nil
}

func checkObjectName(name string) error {
	if name == "" || len(name) > 256 {
		return fmt.Errorf("store: object %q: must have 1 to 256 bytes", name)
	}
	return nil
}

// PutObject stores data under a name, in place of what was there. A reader sees the
// old content or the new. It is durable on return.
func (s *Store) PutObject(ctx context.Context, name string, data []byte) error {
	if err := checkObjectName(name); err != nil {
		return err
	}
	done, err := s.writing()
	if err != nil {
		return err
	}
	defer done()
	_, err = s.putObject(ctx, name, bytes.NewReader(data))
	return err
}

// putObject writes what the client's object store would write: the chunks under a new id,
// then the entry that names them, which replaces the old one at once.
//
// It exists because the client's own Put starts a goroutine for each object; if the write
// ends before that goroutine runs, the goroutine waits on a nil channel for ever.
func (s *Store) putObject(ctx context.Context, name string, r io.Reader) (_ object, err error) {
	o, err := s.objects(ctx)
	if err != nil {
		return object{}, err
	}
	old, err := o.GetInfo(ctx, name, jetstream.GetObjectInfoShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return object{}, s.fail("object "+name, err)
	}
	info := jetstream.ObjectInfo{Bucket: s.config.Domain, NUID: randomID(),
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: MaxBlock}}}
	named := false // an entry names the chunks, or may
	defer func() {
		if err != nil && info.Chunks > 0 && !named {
			s.purgeChunks(ctx, info.NUID)
		}
	}()
	digest, chunk := sha256.New(), make([]byte, MaxBlock)
	for {
		n, end := io.ReadFull(r, chunk)
		if end != nil && end != io.EOF && end != io.ErrUnexpectedEOF {
			return object{}, fmt.Errorf("store: object %s: %w", name, end)
		}
		if n > 0 {
			info.Chunks++
			info.Size += uint64(n)
			digest.Write(chunk[:n])
			m := &nats.Msg{Subject: s.chunkSubject(info.NUID), Data: chunk[:n]}
			if err := s.publishObject(ctx, m); err != nil {
				return object{}, err
			}
		}
		if end != nil {
			break
		}
	}
	info.Digest = jetstream.GetObjectDigestValue(digest)
	m := &nats.Msg{Subject: s.entrySubject(name), Header: nats.Header{}}
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	if m.Data, err = json.Marshal(info); err != nil {
		return object{}, fmt.Errorf("store: object %s: %w", name, err)
	}
	// From here on the entry may be stored, whatever the error is: an answer was not awaited or lost, or is of another try.
	// Without its chunks the object could not be read. If it is not stored, the next Open drops them.
	named = true
	if err := s.publishObject(ctx, m); err != nil {
		return object{}, err
	}
	if old != nil && !old.Deleted {
		s.purgeChunks(ctx, old.NUID)
	}
	return object{Name: name, Size: info.Size, Digest: info.Digest}, nil
}

func (s *Store) objectsName() string               { return "OBJ_" + s.config.Domain }
func (s *Store) chunkSubject(chunks string) string { return "$O." + s.config.Domain + ".C." + chunks }

func (s *Store) entrySubject(name string) string {
	return "$O." + s.config.Domain + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func (s *Store) publishObject(ctx context.Context, m *nats.Msg) error {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header.Set(jetstream.MsgIDHeader, randomID())
	_, err := s.publish(ctx, write{stream: s.objectsName(), msg: m, repeat: true})
	return err
}

// purgeChunks frees the space of chunks that no entry names. If it fails, the write still
// succeeded: the chunks are never read.
func (s *Store) purgeChunks(ctx context.Context, chunks string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
	defer cancel()
	if h, err := s.fixed(ctx, s.objectsName()); err == nil {
		h.Purge(ctx, jetstream.WithPurgeSubject(s.chunkSubject(chunks)))
	}
}

// dropChunks frees the space of chunks that no entry names: of writes and deletions that were cut short. Nobody else may
// write. It needs to have seen every entry; what cannot be dropped now is left for the next time.
func (s *Store) dropChunks(ctx context.Context) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	o, err := s.objects(ctx)
	if err != nil {
		return
	}
	list, err := o.List(ctx, jetstream.ListObjectsShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return
	}
	named := map[string]bool{}
	for _, i := range list {
		if !i.Deleted {
			named[s.chunkSubject(i.NUID)] = true
		}
	}
	h, err := s.fixed(ctx, s.objectsName())
	if err != nil {
		return
	}
	info, err := h.Info(ctx, jetstream.WithSubjectFilter("$O."+s.config.Domain+".>"))
	if err != nil {
		return
	}
	entries, unnamed := 0, []string(nil)
	for subject := range info.State.Subjects {
		switch {
		case strings.HasPrefix(subject, s.entrySubject("")):
			entries++
		case !named[subject]:
			unnamed = append(unnamed, subject)
		}
	}
	if entries != len(list) { // the list may end early, and leaves out what it cannot read
		return
	}
	for _, subject := range unnamed {
		if h.Purge(ctx, jetstream.WithPurgeSubject(subject)) != nil {
			return
		}
	}
}

// GetObject returns an object whose digest it has checked, or ErrNotFound. The caller owns the bytes.
func (s *Store) GetObject(ctx context.Context, name string) ([]byte, error) {
	var buf bytes.Buffer
	if err := s.copyObject(ctx, &buf, name); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// copyObject writes an object to w. What w got is known to be the object only if the error is
// nil.
func (s *Store) copyObject(ctx context.Context, w io.Writer, name string) error {
	if err := checkObjectName(name); err != nil {
		return err
	}
	o, err := s.objects(ctx)
	if err != nil {
		return err
	}
	r, err := o.Get(ctx, name)
	if err != nil {
		return s.fail("object "+name, err)
	}
	if b, ok := w.(*bytes.Buffer); ok {
		if info, err := r.Info(); err == nil && info.Size < 1<<40 {
			b.Grow(int(info.Size) + bytes.MinRead) // less would double it at the end
		}
	}
	n, err := io.Copy(w, r)
	err = errors.Join(err, r.Error(), r.Close())
	if err != nil {
		if s.torn(ctx, o, name) {
			return fmt.Errorf("store: object %s: %w: its content is gone", name, ErrDamaged)
		}
		return s.fail("object "+name, err)
	}
	info, err := r.Info()
	if err != nil {
		return s.fail("object "+name, err)
	}
	if uint64(n) != info.Size {
		return fmt.Errorf("store: object %s: %d of %d bytes", name, n, info.Size)
	}
	return nil
}

// torn says whether an entry's chunks are gone.
func (s *Store) torn(ctx context.Context, o jetstream.ObjectStore, name string) bool {
	info, err := o.GetInfo(ctx, name)
	if err != nil || info.Chunks == 0 {
		return false
	}
	h, err := s.fixed(ctx, s.objectsName())
	if err != nil {
		return false
	}
	_, err = h.GetLastMsgForSubject(ctx, s.chunkSubject(info.NUID))
	return errors.Is(err, jetstream.ErrMsgNotFound)
}

// deleteObject removes an object. Its space is reused later.
func (s *Store) deleteObject(ctx context.Context, name string) error {
	o, err := s.objects(ctx)
	if err != nil {
		return err
	}
	// This check is needed because deleting a deleted object would succeed.
	if _, err := o.GetInfo(ctx, name); err != nil {
		return s.fail("object "+name, err)
	}
	if err := o.Delete(ctx, name); err != nil {
		return s.fail("object "+name, err)
	}
	return s.settle(s.objectsName())
}

// listObjects returns the objects, sorted by name.
func (s *Store) listObjects(ctx context.Context) ([]object, error) {
	o, err := s.objects(ctx)
	if err != nil {
		return nil, err
	}
	list, err := o.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, nil
	}
	if err != nil {
		return nil, s.fail("list objects", err)
	}
	var out []object
	for _, i := range list {
		out = append(out, object{Name: i.Name, Size: i.Size, Digest: i.Digest})
	}
	slices.SortFunc(out, func(a, b object) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out, nil
}
