// Package report writes the page that a training run leaves behind: one HTML
// file with the run's figures, charts, confusion matrix, sample predictions,
// privacy statement, configuration and command.
//
// The page is self-contained. It asks for nothing over the network and its
// content security policy forbids that it ever does. Text from the run is
// escaped wherever it lands. The same Run gives the same bytes.
//
// Upper bounds (ε and what follows from it) are rounded up when they are shown.
package report

import (
	"image"
	"io"

	"github.com/riffle-dp/riffle/dp"
)

// Run is everything the page shows. A section whose data is absent is left out.
type Run struct {
	Title string // Required.
	// Command repeats the run, as one would type it. Required.
	Command string
	// Resume continues an interrupted run; shown only if Interrupted.
	Resume      string
	Interrupted bool
	Version     string  // of riffle
	Started     string  // shown as it is
	Seconds     float64 // wall time; 0 or NaN: not shown
	Void        int64   // rounds of which nothing was released or charged

	// TestAccuracy lies in [0, 1], TestLoss is in nats; NaN: not measured.
	TestAccuracy float64
	TestLoss     float64
	// Baseline says what the best constant reaches; empty: not known.
	Baseline string
	// LossUnits is TestLoss in the units of what is predicted; empty: as it is.
	LossUnits string
	// Warnings are what to look at before the model is used.
	Warnings []string
	Privacy  Privacy

	// Points are in order of rounds. Evaluated says on what they were measured,
	// such as "10,000 test examples".
	Points    []Point
	Evaluated string

	Classes []string
	// Confusion counts test examples: [true class][predicted class].
	Confusion [][]int64
	Samples   []Sample
	Config    []Setting
}

// Privacy is what the run promises and what the promise rests on.
type Privacy struct {
	// Trust is one that events have, or dp.None: reports are exact gradients. Required.
	Trust dp.Trust
	// Participation is required unless Trust is dp.None.
	Participation dp.Participation
	// Adjacency is required unless Trust is dp.None.
	Adjacency dp.Adjacency
	// Population is n, the number of clients. Required, at least 1.
	Population int64
	// ReportsPerRound is the mean over the rounds that were released.
	ReportsPerRound float64
	// Rounds were released; PlannedRounds were asked for (0: unknown).
	Rounds        int64
	PlannedRounds int64
	// Running says that more rounds follow: what is said is of those so far.
	Running bool
	// ReportsPerClient is the most reports that one client sends over all
	// rounds; 0: one a round.
	ReportsPerClient int64
	// PerClient is how many examples a client holds; 0: one.
	PerClient int64
	// PublicExamples were declared public and are nobody's to protect.
	PublicExamples int64
	// Randomizer is its name and Eps0 what one report promises, in nats.
	// Required unless Trust is dp.None.
	Randomizer string
	Eps0       float64
	// Sigma takes Eps0's place where only sums are seen: what one client's noise
	// is worth, in units of the clip norm.
	Sigma float64
	// Epsilon is the proved central loss in nats; +Inf: none is promised.
	Epsilon float64
	// Delta lies in (0, 1). Required if Epsilon is finite.
	Delta float64
	// Method is the bound's id, Source its theorem, Status what it rests on.
	Method string
	Source string
	Status dp.Status
	// Assumes is what the transport needs besides, half a sentence; empty where nothing.
	Assumes string
	// Simulated: one process played every role, with noise from a seed.
	Simulated bool
}

// Point is one evaluation during training. Values that are not finite are
// left out of the charts. Epsilon is the loss up to and with that round.
type Point struct {
	Round    int64
	Epsilon  float64 // nats
	Loss     float64 // nats per example
	Accuracy float64 // share in [0, 1]
	Seconds  float64 // since the start
}

// Sample is one test example and what the model made of it. Label and
// Predicted index Classes.
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

// Write writes the page. It fails on a Run that makes no sense, before it
// writes anything, and on a writer's error.
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
