//go:build long || soak

package account

import (
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// TestSumAboveExactCohorts with other settings, and more.
func TestSumAboveExactManyCohorts(t *testing.T) {
	bruteSums(t, rand.New(rand.NewPCG(6, 0)), longtest.Pick3(0, 400, 1500))
}
