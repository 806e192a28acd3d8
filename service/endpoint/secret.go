package endpoint

import (
	"fmt"
	"os"
	"path/filepath"
)

// CheckSecret refuses a file that others may read or write, where the system's file modes show
// that.
func CheckSecret(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if filepath.Ext(path) == ".pub" {
		return fmt.Errorf("endpoint: %s is the public half: name the file of the private key", path)
	}
	return private(path, info)
}
