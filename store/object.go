package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Object describes a stored object.
type Object struct {
	Name   string
	Size   uint64
	Digest string // of its content, "SHA-256=" and base64url
}

func (s *Store) objectConfig() jetstream.ObjectStoreConfig {
	return jetstream.ObjectStoreConfig{Bucket: s.config.Domain, Storage: jetstream.FileStorage, Replicas: s.config.Replicas,
		Metadata: map[string]string{"riffle-format": fmt.Sprint(format)}}
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

// PutObject stores what r holds under a name, in place of what was there. A
// reader sees the old content or the new. It is durable on return.
func (s *Store) PutObject(ctx context.Context, name string, r io.Reader) (Object, error) {
	if err := checkObjectName(name); err != nil {
		return Object{}, err
	}
	done, err := s.writing()
	if err != nil {
		return Object{}, err
	}
	defer done()
	return s.putObject(ctx, name, r)
}

func (s *Store) putObject(ctx context.Context, name string, r io.Reader) (Object, error) {
	o, err := s.objects(ctx)
	if err != nil {
		return Object{}, err
	}
	info, err := o.Put(ctx, jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: MaxBlock}}, r)
	if err != nil {
		return Object{}, s.fail("object "+name, err)
	}
	return Object{Name: name, Size: info.Size, Digest: info.Digest}, nil
}

// GetObject returns an object, or ErrNotFound. The digest has been checked.
func (s *Store) GetObject(ctx context.Context, name string) ([]byte, error) {
	var buf bytes.Buffer
	if err := s.CopyObject(ctx, &buf, name); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// CopyObject writes an object to w. Only after a nil error is what w got
// known to be the object.
func (s *Store) CopyObject(ctx context.Context, w io.Writer, name string) error {
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
	n, err := io.Copy(w, r)
	err = errors.Join(err, r.Error(), r.Close())
	if err != nil {
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

// DeleteObject removes an object, or fails with ErrNotFound. Its space is
// reused later.
func (s *Store) DeleteObject(ctx context.Context, name string) error {
	if err := checkObjectName(name); err != nil {
		return err
	}
	done, err := s.writing()
	if err != nil {
		return err
	}
	defer done()
	return s.deleteObject(ctx, name)
}

func (s *Store) deleteObject(ctx context.Context, name string) error {
	o, err := s.objects(ctx)
	if err != nil {
		return err
	}
	// Deleting a deleted object would be no error.
	if _, err := o.GetInfo(ctx, name); err != nil {
		return s.fail("object "+name, err)
	}
	return s.fail("object "+name, o.Delete(ctx, name))
}

// ListObjects returns the objects, sorted by name.
func (s *Store) ListObjects(ctx context.Context) ([]Object, error) {
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
	var out []Object
	for _, i := range list {
		out = append(out, Object{Name: i.Name, Size: i.Size, Digest: i.Digest})
	}
	slices.SortFunc(out, func(a, b Object) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out, nil
}
