//go:build !windows && (!unix || aix || solaris || illumos)

package durable

import (
	"errors"
	"fmt"
)

// lock fails, because this package has no file locks for this system.
func lock(path string) (unlock func() error, err error) {
	return nil, fmt.Errorf("%s: cannot be locked here: %w", path, errors.ErrUnsupported)
}
