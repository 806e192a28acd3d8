package store

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// dirLock is held while an embedded store is open. The system releases it with
// the process, so a crash leaves none behind.
type dirLock struct{ file *os.File }

func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{})
	if err != nil {
		f.Close()
		if err == windows.ERROR_LOCK_VIOLATION {
			return nil, fmt.Errorf("store: %s: %w", dir, ErrLocked)
		}
		return nil, fmt.Errorf("store: lock %s: %w", dir, err)
	}
	return &dirLock{f}, nil
}

func (l *dirLock) release() error { return l.file.Close() }

// syncDir does nothing: NTFS logs removals, and a directory cannot be synced.
func syncDir(string) error { return nil }
