package endpoint

import (
	"fmt"
	"os"
)

// CheckSecret refuses a file that others may read or write, where the system's file modes show
// that.
func CheckSecret(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	return private(path, info)
}
