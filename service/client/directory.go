package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/riffle-dp/riffle/internal/durable"
)

// directory is a Store of files that only their owner may read.
type directory string

func (d directory) Path(name string) string {
	return filepath.Join(string(d), filepath.FromSlash(name))
}

// make makes the directory for a ledger. It refuses one that has a ledger, also a link to one that is
// not there now.
func (d directory) make() error {
	outboxes := d.Path(outboxDir)
	if err := durable.MkdirAll(outboxes, 0o700); err != nil {
		return err
	}
	// Nobody else on the machine may see what these clients take part in.
	if err := errors.Join(os.Chmod(string(d), 0o700), os.Chmod(outboxes, 0o700), durable.Own(string(d))); err != nil {
		return err
	}
	if _, err := os.Lstat(d.Path(ledgerFile)); err == nil {
		return fmt.Errorf("%s: a ledger exists already: %w", string(d), fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d directory) Lock() (unlock func() error, err error) {
	if err := durable.Own(string(d)); err != nil {
		return nil, err
	}
	if unlock, err = durable.Lock(d.Path(lockFile)); err != nil {
		return nil, err
	}
	// It is its owner's alone, whatever became of its mode. Before it is made there is none.
	if err := os.Chmod(d.Path(ledgerFile), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, unlock())
	}
	if err := d.settle(); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// settle makes durable what an earlier process has written, perhaps without a sync: this one sends the
// reports that it finds charged, and the charge must outlast them. Tokens need none: they are written at
// once, and wiped again.
func (d directory) settle() error {
	for _, name := range []string{"", outboxDir, receiptsDir, tokensDir} {
		if err := durable.SyncDir(d.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := durable.Sync(d.Path(ledgerFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range []string{outboxDir, receiptsDir} {
		if err := durable.SyncTree(d.Path(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (d directory) List(name string) (names []string, err error) {
	entries, err := os.ReadDir(d.Path(name))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (d directory) Read(name string) ([]byte, error) { return durable.ReadFile(d.Path(name)) }

func (d directory) ReadAt(name string, b []byte, from int64) error {
	file, err := durable.Open(d.Path(name))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.ReadAt(b, from)
	return err
}

func (d directory) Write(name string, content []byte) error {
	path := d.Path(name)
	dir := filepath.Dir(path)
	if dir != filepath.Clean(string(d)) {
		if err := durable.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	return durable.WritePrivate(path, content)
}

func (d directory) Append(name string, more []byte) error { return durable.Append(d.Path(name), more) }

func (d directory) Cut(name string, size int64) error { return durable.Truncate(d.Path(name), size) }

func (d directory) Zero(name string, from, to int64) (err error) {
	file, err := os.OpenFile(d.Path(name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zeros := make([]byte, min(to-from, 1<<16))
	for at := from; at < to; at += int64(len(zeros)) {
		if _, err := file.WriteAt(zeros[:min(int64(len(zeros)), to-at)], at); err != nil {
			return err
		}
	}
	return file.Sync()
}

func (d directory) Remove(name string) error { return durable.Remove(d.Path(name)) }
