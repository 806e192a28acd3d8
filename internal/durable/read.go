package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrNoFile is wrapped by the refusal to read what is neither a file nor a directory.
var ErrNoFile = errors.New("want a file")

// Open opens a file or a directory for reading. It refuses pipes, sockets and devices, at which
// opening or reading may wait for ever or never end.
func Open(path string) (*os.File, error) {
	// Opening some devices does something, so they are refused unopened.
	info, err := os.Stat(path)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			at.Op = "open"
		}
		return nil, err
	}
	if err := readable(path, info); err != nil {
		return nil, err
	}
	// In between another may have come to the path: opening must not wait for a pipe's writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unblocked, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = readable(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readable refuses pipes, sockets and devices.
func readable(path string, info fs.FileInfo) error {
	what := ""
	switch mode := info.Mode(); {
	case mode&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&(fs.ModeDevice|fs.ModeCharDevice) != 0:
		what = "a device"
	default:
		return nil
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("it is %s: %w", what, ErrNoFile)}
}

// ReadFile is os.ReadFile for what Open opens.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	return raw, errors.Join(err, f.Close())
}
