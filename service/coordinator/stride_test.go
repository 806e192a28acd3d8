package coordinator

import (
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// stride skips some of the places where a process may crash; with the tag soak none is.
func stride() int {
	if testing.Short() {
		return 37
	}
	return longtest.Pick3(29, 4, 1)
}
