// Package durable writes files that survive crashes: after a crash a file has its old content
// or the new one, whole, and a write that has returned is not lost. It reads what has an end: no
// pipes and no devices.
package durable

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// WriteFile replaces path with data: temporary file, fsync, rename, fsync of
// the directory. On error, such as a full disk, path is as it was.
func WriteFile(path string, data []byte) error { return write(path, data, 0o644, os.Rename) }

// WritePrivate is WriteFile with permission for the owner only.
func WritePrivate(path string, data []byte) error { return write(path, data, 0o600, os.Rename) }

// Create makes path with data, whole, and never replaces a file: of several processes that call it at the same time
// one succeeds, and the errors of the others wrap os.ErrExist.
func Create(path string, data []byte, mode os.FileMode) error {
	return write(path, data, mode, func(tmp, path string) error {
		err := os.Link(tmp, path)
		if err != nil && !errors.Is(err, os.ErrExist) { // a file system without links
			var f *os.File
			if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL, mode); err == nil {
				err = errors.Join(f.Close(), os.Rename(tmp, path))
			}
			return err
		}
		_ = os.Remove(tmp) // one that stays only takes space
		return err
	})
}

// write writes a temporary file, and has place give it its name.
func write(path string, data []byte, mode os.FileMode, place func(tmp, path string) error) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // it may be gone already
		}
	}()
	if _, err = tmp.Write(data); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err = tmp.Chmod(mode); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err = tmp.Sync(); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	if err = place(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Append adds data to the end of path and syncs it; of a file that it makes or that was empty, the
// name too. After a power failure during the call the end may hold a part of data, and zeros in
// place of others: see [Text].
func Append(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unblocked, 0o644)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil || info.Size() > 0 {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Text returns the bytes of a text before the first zero byte. A file system may store a file's new
// size, or later blocks of an appended text, before the others, which then read as zeros. Nothing
// after a zero was synced, because a sync covers all that is before.
func Text(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// MkdirAll makes a directory, and those above that are missing, durably.
func MkdirAll(dir string, mode os.FileMode) error {
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MkdirAll(parent, mode); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return SyncDir(parent)
}

// Remove removes a file or an empty directory, durably. If there is none the error wraps
// os.ErrNotExist, and what removed it before is durable.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	} else if synced := SyncDir(filepath.Dir(path)); err == nil {
		return synced
	} else {
		return errors.Join(err, synced)
	}
}

// Sync makes the content of a file durable, whoever wrote it. A process that acts upon what an earlier
// one left calls it first: what was only written can be read, and is lost with the power.
func Sync(path string) error {
	flag := os.O_RDONLY | unblocked
	if runtime.GOOS == "windows" {
		flag = os.O_RDWR // files open for reading cannot be synced there
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// SyncTree makes all files and directories below dir durable, and dir.
func SyncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return SyncDir(path)
		case d.Type().IsRegular():
			return Sync(path)
		}
		return nil
	})
}

// SyncDir makes renames and removals in a directory durable. On Windows it does
// nothing: NTFS logs them, and a directory cannot be synced.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
