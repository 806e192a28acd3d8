//go:build unix

package endpoint

import (
	"fmt"
	"os"
)

// CheckSecret refuses a file that others may read or write.
func CheckSecret(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("endpoint: %s has mode %#o and must be its owner's alone (chmod 600)", path, mode)
	}
	return nil
}
