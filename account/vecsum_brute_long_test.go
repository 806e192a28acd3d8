//go:build long

package account

import (
	"math/rand/v2"
	"testing"
)

// TestSumAboveExactCohorts with other settings, and more.
func TestSumAboveExactManyCohorts(t *testing.T) {
	bruteSums(t, rand.New(rand.NewPCG(6, 0)), 1500)
}
