// Package report writes the program's report on a training run: one HTML file with the run's
// figures, charts, confusion matrix, sample predictions, privacy statement, configuration and
// command.
//
// The page is self-contained. It asks for nothing over the network and its content security
// policy forbids that it ever does. Text from the run is escaped wherever it lands. The same
// Run gives the same bytes.
//
// Upper bounds (ε and figures derived from it) are rounded up when they are shown.
package report

import (
	"image"
	"io"

	"github.com/riffle-dp/riffle/dp"
)

// Run is everything the page shows. A section whose data is absent is left out.
type Run struct {
	Title string // Required.
	// Command repeats the run, as one types it. Required.
	Command string
	// Resume continues an interrupted run; shown only if Interrupted.
	Resume      string
	Interrupted bool
	Version     string  // riffle's version
	Started     string  // shown unchanged
	Seconds     float64 // wall time; 0 or NaN: not shown
	Void        int64   // rounds that released nothing and charged nothing

	// TestAccuracy lies in [0, 1], TestLoss is in nats; NaN: not measured.
	TestAccuracy float64
	TestLoss     float64
	// Baseline is the best constant's result; empty: not known.
	Baseline string
	// LossUnits is TestLoss in the units of the predicted number; empty: TestLoss is in these
	// units.
	LossUnits string
	// Also has other figures that were measured, such as "auc 0.93"; empty: none.
	Also string
	// Warnings are problems to look at before the model is used.
	Warnings []string
	Privacy  Privacy

	// Points are in the order of rounds. Evaluated names the data on which they were
	// measured, such as "10,000 test examples".
	Points    []Point
	Evaluated string

	Classes []string
	// Confusion counts test examples: [true class][predicted class].
	Confusion [][]int64
	Samples   []Sample
	// Coefficients are those of a linear model of a table: a head, and a row for each column
	// with its name first. Caption says of what they are.
	Coefficients [][]string
	Caption      string
	// Measured is what clients measured of the model on rows that they held out: a head, and a row for
	// each evaluation. MeasuredOn says how.
	Measured   [][]string
	MeasuredOn string
	Config     []Setting
}

// Privacy has the run's promise and the assumptions behind it.
type Privacy struct {
	// Trust is a trust mode that events can have, or a mode without noise, in which reports
	// are exact gradients. Required.
	Trust dp.Trust
	// Participation is required where Trust protects.
	Participation dp.Participation
	// Adjacency is required where Trust protects.
	Adjacency dp.Adjacency
	// Population is n, the number of clients. Required, at least 1.
	Population int64
	// Question says that the clients answered a question, so that there is an answer and no model.
	Question bool
	// ReportsPerRound is the mean over the rounds that were released.
	ReportsPerRound float64
	// Rounds is the number of released rounds, PlannedRounds the number asked for (0:
	// unknown).
	Rounds        int64
	PlannedRounds int64
	// KnowsWho is ε over KnownRounds rounds, to somebody who knows who took part in each, for a client in every round; 0: the same as
	// to everybody.
	KnowsWho    float64
	KnownRounds int64
	// Running says that more rounds follow; the statement is about the rounds so far.
	Running bool
	// ReportsPerClient is the most reports that one client sends over all rounds; 0: one a
	// round.
	ReportsPerClient int64
	// PerClient is the number of examples that a client holds; 0: one.
	PerClient int64
	// PublicExamples is the number of examples declared public, which nothing protects.
	PublicExamples int64
	// Randomizer is its name and Eps0 what one message promises and is charged with, in nats.
	// Required where Trust protects. Asked is the ε₀ of the settings, which Eps0 exceeds by what
	// covers rounding; 0: not told.
	Randomizer string
	Eps0       float64
	Asked      float64
	// Messages is the number of messages of each client in a round, each of which promises Eps0;
	// 0: one.
	Messages int64
	// Sigma replaces Eps0 where only sums are seen: the standard deviation of one client's
	// noise as the accountant counts it, in units of the clip norm. SumNoise says that clients add
	// none: each of two aggregators adds noise of this size to the sum.
	Sigma    float64
	SumNoise bool
	// Every, if not 0, says that a client takes part in at most one of so many consecutive rounds, by its
	// own count, and that the aggregators' noise is correlated over rounds. Sigma is then that of a release
	// over the weight of the round's own vectors.
	Every int64
	// Honest, if not 0, says that clients add the correlated noise in place of the aggregators, and that at least so many
	// honest clients are in each round: Sigma is that of their noise together.
	Honest int64
	// Epsilon is the proved central loss in nats; +Inf: none is promised.
	Epsilon float64
	// Delta lies in (0, 1). Required if Epsilon is finite.
	Delta float64
	// Method is the bound's id, Source its theorem, Status whether it is proved.
	Method string
	Source string
	Status dp.Status
	// Assumes is half a sentence on what else the transport needs; empty: nothing.
	Assumes string
	// Simulated says that one process played every role, with noise from a seed.
	Simulated bool
}

// Point is one evaluation during training. The charts leave out values that are not finite.
// Epsilon is the loss up to and including that round.
type Point struct {
	Round    int64
	Epsilon  float64 // nats
	Loss     float64 // nats per example
	Accuracy float64 // share in [0, 1]
	Seconds  float64 // since the start
}

// Sample is one test example and the model's prediction. Label and Predicted index Classes.
type Sample struct {
	Image      image.Image // nil: not shown
	Label      int
	Predicted  int
	Confidence float64 // of the prediction, in [0, 1]; NaN: not shown
}

// Setting is one line of the configuration.
type Setting struct {
	Name   string
	Value  string
	Origin string // such as "default", "flag", "config", "solved"
}

// Write writes the page. It fails on an inconsistent Run before it writes anything, and on a
// writer's error.
func Write(w io.Writer, r Run) error {
	if err := r.check(); err != nil {
		return err
	}
	v, err := newView(r)
	if err != nil {
		return err
	}
	page, err := render(v)
	if err != nil {
		return err
	}
	_, err = w.Write(page)
	return err
}
