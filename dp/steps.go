package dp

import (
	"fmt"
	"math"
)

// MaxSteps bounds the number of steps of class Rising.
const MaxSteps = 16

// Steps describes reports of class Rising. With input x a report v has a density proportional
// to 1 + Height·j against a law that is common to all inputs, j the number of edges that
// v's score for x exceeds.
type Steps struct {
	Height float64 // above 0
	// Shares are the Count shares of the common law above the edges, falling; the others are 0.
	Shares [MaxSteps]float64
	Count  int
	// Eta bounds how unequal inputs are: for every input the share above an edge lies within
	// a factor 1 ± Eta of the one given, or the density differs from such a one by no more than
	// dp/amplify/rising.md allows.
	Eta float64
}

// NewSteps returns the steps with these shares, at most MaxSteps.
func NewSteps(height float64, shares []float64, eta float64) Steps {
	s := Steps{Height: height, Count: len(shares), Eta: eta}
	copy(s.Shares[:], shares)
	return s
}

// Each returns the shares.
func (s Steps) Each() []float64 { return s.Shares[:min(max(s.Count, 0), MaxSteps)] }

func (s Steps) check() error {
	switch {
	case !(s.Height > 0 && s.Height <= math.MaxFloat64):
		return fmt.Errorf("dp: height = %v of a step must be above 0 and finite", s.Height)
	case s.Count < 1 || s.Count > MaxSteps:
		return fmt.Errorf("dp: %d steps must lie between 1 and %d", s.Count, MaxSteps)
	case !(s.Eta >= 0 && s.Eta < 1):
		return fmt.Errorf("dp: eta = %v must be at least 0 and below 1", s.Eta)
	}
	last := 1.
	for i, q := range s.Shares {
		switch {
		case i >= s.Count && q != 0:
			return fmt.Errorf("dp: share %v beyond the %d steps", q, s.Count)
		case i < s.Count && !(q > 0 && q < last):
			return fmt.Errorf("dp: shares %v of steps must fall, below 1 and above 0", s.Each())
		}
		last = q
	}
	return nil
}
