//go:build unix

package durable

import (
	"fmt"
	"os"
	"syscall"
)

func own(dir string, info os.FileInfo) error {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	uid, mode := uint32(os.Getuid()), info.Mode().Perm()
	switch {
	case s.Uid != 0 && s.Uid != uid:
		return fmt.Errorf("directory %s belongs to another user (number %d), who may replace what is in it", dir, s.Uid)
	case mode&0o002 != 0, mode&0o020 != 0 && s.Gid != uid: // a group with the user's number is the user's own
		return fmt.Errorf("others may write into directory %s (mode %#o), and so replace what is in it: chmod go-w mends that", dir, mode)
	}
	return nil
}
