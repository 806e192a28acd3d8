package config

import (
	"os"
	"path/filepath"
	"testing"
)

// A token file that holds nothing must not open the page to everyone.
func TestEmptyTokenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for text, ok := range map[string]bool{"": false, " \n": false, "a-long-enough-token\n": true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := Coordinator{DashboardToken: path}.LoadToken()
		if (err == nil) != ok || ok && token != "a-long-enough-token" {
			t.Errorf("%q: %q, %v", text, token, err)
		}
	}
}
