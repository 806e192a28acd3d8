//go:build !soak

package coordinator

import "testing"

// stride skips some of the places where a process may crash; with the tag soak
// none is.
func stride() int {
	if testing.Short() {
		return 11
	}
	return 4
}
