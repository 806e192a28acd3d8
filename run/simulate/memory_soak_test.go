//go:build soak

package simulate

import (
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// The same over many rounds, and for clients who flip coins of their own.
func TestMemoryDoesNotGrowWithClientsOverTime(t *testing.T) {
	checkFlat(t, dp.Sampled, 100)
	checkFlat(t, dp.CheckIn, 20)
}
