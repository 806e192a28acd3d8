//go:build unix && !aix && !solaris && !illumos

package durable

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock takes the lock of a file, which it makes if there is none. It is given
// back by the function it returns, and by the end of the process.
func Lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f.Close, nil
}
