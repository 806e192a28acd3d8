// Package randomizer holds the local randomizers: what a client does to its vector before
// anything leaves the device, and how the coordinator turns the sum of the reports back into
// an unbiased mean.
//
// Every report is a vector of fixed-point integers, dense or sparse. Quantising is part of
// the randomizer, so that a sum of reports is exact and does not depend on the order of the
// reports or on the machine.
//
// A randomizer's parameters are checked once, in its constructor. Randomizing cannot fail: an
// input outside the declared ball is brought into it by the rule in the randomizer's comment,
// and NaN counts as 0. Neither errors nor panics nor the size of a report depend on the
// values of the input; the running time does, see [Mechanism].
//
// eps0 (ε₀) is the local privacy parameter in nats of one report, E = e^ε₀.
//
//	name        input ball            E‖R(x)−x‖², worst x, ≈            message
//	rr          |x_i| ≤ a             a²d/tanh²(ε₀/2d)                  d bits
//	krr         distributions on K    ((1−q)²+(K−1)q²)/(p−q)² − 1/K     ⌈log₂K⌉ bits
//	signed-krr  ‖x‖₁ ≤ a              a²((E+2d−1)/(E−1))²               ⌈log₂2d⌉ bits
//	rinf        |x_i| ≤ a             a²d²/(m·tanh²(ε₀/2m))             m(⌈log₂d⌉+1) bits
//	r1          ‖x‖₁ ≤ a              a²d/(m·tanh²(ε₀/2m))              m(⌈log₂d⌉+1) bits
//	r2          ‖x‖₂ ≤ C              C²(π/2)d/tanh²(ε₀/2)              18d bits
//	privunit    ‖x‖₂ ≤ C              C²d·v(ε₀)                         18d bits, or 128
//	stepunit    ‖x‖₂ ≤ C              C²d·v                             18d bits, or 128
//	laplace     ‖x‖₁ ≤ C              8d(C/ε₀)²                         25d bits at ε₀ = 2
//
// privunit and stepunit can report 16 bytes whatever the dimension, see [Keyed].
//
// None of them relies on a shuffler. Without one each report is ε₀-differentially
// private as it stands, against everybody including the coordinator, and T reports of a
// client spend Tε₀. Package account computes what a shuffler adds. So local use needs only a
// randomizer, the sum of the reports, and Estimate.
package randomizer

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Report is one client's message: fixed-point integers whose unit depends on the randomizer.
// If Index is nil the report is dense and Value[i] belongs to coordinate i. Otherwise
// Value[i] belongs to coordinate Index[i], and all other coordinates are 0.
type Report struct {
	Index []uint32
	Value []int32
}

// Mechanism is a local randomizer with its estimator. All methods may be used
// by several goroutines at once, as long as each has its own source and report.
//
// No method runs in constant time. The time of Randomize depends on the noise
// and on whether the input is zero or not finite; a client must not let others
// time single reports.
type Mechanism interface {
	// Facts returns the mechanism's constants.
	Facts() Facts
	// NewReport returns a report of the right size, to be reused.
	NewReport() *Report
	// Randomize overwrites r, made by NewReport, with a randomized report of x.
	// It panics only if x or r has the wrong length.
	Randomize(src rng.Source, x []float32, r *Report)
	// Check returns an error if r cannot have come from Randomize, by shape and range. It
	// bounds what a dishonest client can add to a sum.
	Check(r *Report) error
	// Add adds a report that passed Check to sum, of length Dim. No sum of fewer
	// than 2^32 reports overflows, whatever the mechanism; PrivUnit's, RR's and
	// R_∞'s hold 2^46.
	Add(sum []int64, r *Report)
	// Estimate stores in mean the unbiased estimate of the mean of the n inputs
	// whose reports were added to sum; zeros if n < 1.
	Estimate(mean []float64, sum []int64, n int64)
	// MeanBound returns a bound, in the units of the inputs, that the ℓ₂ norm of the mean of
	// n honest reports exceeds with probability at most [MeanChance], whatever the inputs. A
	// longer mean may be shortened to it: shortening uses reports only, and so costs no
	// privacy. Derived in largest.md. +Inf if the mechanism knows none.
	MeanBound(n int64) float64
}

// Randomizer is a mechanism that is ε₀-LDP with δ₀ = 0, as the bounds on shuffled reports
// require. A mechanism without a pure guarantee lacks the method Event, so it cannot be given
// to a pure accounting by mistake.
type Randomizer interface {
	Mechanism
	// Event says what one report promises, including numerical slack and rounded up.
	Event() dp.Report
}

// Sparse is a Mechanism whose report is about few coordinates of the input. Each of them is
// projected on its own, so the other coordinates need not be known.
type Sparse interface {
	Mechanism
	// RandomizeAt is Randomize for the input whose coordinate j is at(j); the same source gives
	// the same report. It calls at(j) only for the coordinates j that it needs.
	RandomizeAt(src rng.Source, at func(j int) float32, r *Report)
}

// Several is a mechanism that can draw the sum of a client's reports at once, which takes hardly
// longer than one report. It is for simulations: a client of a running system sends every report by
// itself.
type Several interface {
	Mechanism
	// AddSeveral adds to sum what count reports of x add up to, at most 2^12: independent ones, each
	// with noise, coins and score of its own. The sum is drawn from its law, exactly but for two
	// things. It is rounded to the grid once and not count times, so of the count·Dim/12 squared
	// units of rounding a count-th is left. And nothing is cut or refused, which happens to a
	// single report's coordinate with a chance of 1.2e-15, to a whole report with e^−100.
	AddSeveral(src rng.Source, sum []int64, x []float32, count int64)
}

// mostSeveral is the largest number of reports that AddSeveral takes.
const mostSeveral = 1 << 12

func checkSeveral(dim int, sum []int64, count int64) {
	if len(sum) != dim || count < 1 || count > mostSeveral {
		panic(fmt.Sprintf("randomizer: sum of %d reports over %d values asked of a randomizer of dimension %d", count, len(sum), dim))
	}
}

func checkDim(dim int) error {
	// Indices are uint32, and privunit.md's slack covers float sums over at most this many
	// coordinates.
	if dim < 1 || dim > 1<<30 {
		return fmt.Errorf("randomizer: dim = %d must lie between 1 and 2^30", dim)
	}
	return nil
}

// MinEps0 keeps the estimators unbiased and their errors finite: their scales divide by
// differences of probabilities, which are about ε₀. At 2^−20 these keep a relative accuracy
// of 4e-9.
const MinEps0 = 0x1p-20

// check refuses parameters out of range; bits says whether the randomizer takes Bits.
func (c Config) check(bits bool) error {
	if err := checkBall(c.Dim, c.Radius); err != nil {
		return err
	}
	if c.Bits != 0 && !bits {
		return fmt.Errorf("randomizer: %d coordinates or bits given to a randomizer that takes none", c.Bits)
	}
	if c.Encoding != "" || c.Steps != 0 || len(c.Edges) != 0 {
		return fmt.Errorf("randomizer: encoding %q, %d steps and edges %v given to a randomizer that takes none", c.Encoding, c.Steps, c.Edges)
	}
	return checkEps0(c.Eps0)
}

func checkBall(dim int, radius float64) error {
	if err := checkDim(dim); err != nil {
		return err
	}
	// The limits keep squares of inputs and estimates inside float64.
	if !(radius >= 1e-30 && radius <= 1e30) {
		return fmt.Errorf("randomizer: radius = %v must lie between 1e-30 and 1e30", radius)
	}
	return nil
}

func checkEps0(eps0 float64) error {
	if !(eps0 >= MinEps0 && eps0 <= dp.MaxEps0) {
		return fmt.Errorf("randomizer: eps0 = %v must lie between 2^-20 and %d", eps0, dp.MaxEps0)
	}
	return nil
}

func checkInput(dim int, x []float32) {
	if len(x) != dim {
		panic(fmt.Sprintf("randomizer: input of length %d given to a randomizer of dimension %d", len(x), dim))
	}
}

// checkReport panics where r is not of the shape that NewReport makes.
func checkReport(r *Report, indices, values int) {
	if len(r.Index) != indices || len(r.Value) != values {
		panic(fmt.Sprintf("randomizer: report of %d indices and %d values given to a randomizer of %d and %d", len(r.Index), len(r.Value), indices, values))
	}
}

// checkTail sets how often Check refuses honest reports: it refuses a length or size that an
// honest client exceeds with probability at most e^−checkTail. Refusing is post-processing.
const checkTail = 100
