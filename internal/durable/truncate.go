package durable

import (
	"errors"
	"os"
)

// Truncate cuts a file to size bytes and syncs it.
func Truncate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unblocked, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
