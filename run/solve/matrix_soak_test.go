//go:build soak

package solve

import "testing"

// All of TestEveryOptimizerAndTrust, a minute.
func TestWholeMatrix(t *testing.T) {
	everyOptimizerAndTrust(t, func(string, string, string) bool { return true })
}
