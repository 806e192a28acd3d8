package durable

import (
	"errors"
	"os"
)

// Own refuses a directory that another user than this one and root owns, or into which others may write, where the
// system's file modes show that: they could put an older file into the place of one that is relied on. A
// directory that is not there is not refused.
func Own(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return own(dir, info)
}
