package endpoint

import (
	"fmt"
	"os"
)

// CheckSecret does not look at who may read: that is in lists of this system
// which the mode does not show.
func CheckSecret(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	return nil
}
