//go:build unix

package endpoint

import (
	"fmt"
	"os"
)

// private refuses a file that others may read or write.
func private(path string, info os.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("endpoint: %s has mode %#o and must be its owner's alone (chmod 600)", path, mode)
	}
	return nil
}
