// Package experiment repeats the papers' experiments: named settings, each run
// with several seeds by packages train and solve, kept in directories from which
// an interrupted experiment goes on, and tables of what the paper says beside
// what was measured.
package experiment

import (
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/run/solve"
	"github.com/riffle-dp/riffle/run/train"
)

// Experiment is a question that a paper, or this project, answers by measuring.
type Experiment struct {
	Name   string // e1, e2, …
	Title  string
	Source string // the paper
	// Claims are what the source measured; empty for this project's own.
	Claims   []Claim
	Settings []Setting
	// Rivals names experiments whose recorded results are compared at the same ε,
	// besides this one's own settings.
	Rivals []string
	// Notes say what of the source could not be repeated as it stands.
	Notes []string
}

// Claim is a figure of the source: Value at a cost of Eps, by its own formula.
type Claim struct {
	Value, Eps float64
	About      string // which of the source's settings; "" if there is only one
}

// Setting is one way of an experiment. Exactly one of Train and Solve is set;
// seeds are filled in.
type Setting struct {
	Name  string // of the results' column setting
	Paper bool   // the source's own settings, as far as it gives them
	Note  string // what the source leaves open and how it was chosen
	Train *train.Config
	Solve *solve.Config
	// Method is the account's id of the source's own formula; "": none.
	Method string
	// Trust is what the reports are protected by where that differs from how the
	// run is simulated, with the same law of what is released.
	Trust dp.Trust
}

// key names the setting's directory. Convex settings of one name differ in size.
func (s Setting) key() string {
	if s.Solve == nil {
		return s.Name
	}
	return s.Name + "/" + size(s.Solve)
}

// rounds is how many a finished run has; 0 where a bound chooses them.
func (s Setting) rounds() int64 {
	if s.Train == nil {
		return 0
	}
	return s.Train.Rounds
}

// List returns all experiments, in order.
func List() []Experiment {
	return []Experiment{e1(), e2(), e3(), e4(), e5(), e6(), e7()}
}

// Find returns the experiment of that name.
func Find(name string) (Experiment, bool) {
	all := List()
	i := slices.IndexFunc(all, func(e Experiment) bool { return e.Name == name })
	if i < 0 {
		return Experiment{}, false
	}
	return all[i], true
}

// Quick is the experiment with a fiftieth of the rounds, or a tenth of the
// clients where rounds are chosen by a bound: it shows that everything runs, and
// its figures mean nothing.
func (e Experiment) Quick() Experiment {
	e.Settings = slices.Clone(e.Settings)
	for i, s := range e.Settings {
		if s.Train != nil {
			c := *s.Train
			c.Rounds = max(2, c.Rounds/50)
			s.Train = &c
		} else {
			c := *s.Solve
			c.N = max(1000, c.N/10)
			c.Rows = min(int(c.N), 1000)
			s.Solve = &c
		}
		e.Settings[i] = s
	}
	e.Claims, e.Rivals = nil, nil
	e.Notes = append(slices.Clone(e.Notes), "Quick: far fewer rounds or clients than the experiment has. These figures mean nothing.")
	return e
}
