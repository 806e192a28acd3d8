// Package experiment repeats the papers' experiments for the program: named settings, each
// run with several seeds by packages train and solve. It keeps runs in directories from which
// an interrupted experiment continues, and makes tables of the papers' figures beside the
// measured ones.
package experiment

import (
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/run/solve"
	"github.com/riffle-dp/riffle/run/train"
)

// Experiment is a question that a paper, or this project, answers by measurement.
type Experiment struct {
	Name   string // e1, e2, …
	Title  string
	Source string // the paper's name
	// Claims are the source's measurements; empty for this project's own experiments.
	Claims   []claim
	Settings []Setting
	// Rivals names experiments whose recorded results are compared at the same ε, in addition
	// to this one's own settings.
	Rivals []string
	// Notes say what in the source could not be repeated exactly.
	Notes []string
}

// claim is a figure of the source: Value at a cost of eps, by its own formula.
type claim struct {
	Value, Eps float64
	About      string // the source's setting; "" if there is only one
}

// Setting is one configuration of an experiment. Exactly one of Train and Solve is set; runs
// fill in the seeds.
type Setting struct {
	Name  string // its name in the column "setting" of the results
	Paper bool   // whether it is the source's own setting, as far as the source states it
	Note  string // what the source leaves open, and what was chosen
	Train *train.Config
	Solve *solve.Config
	// Method is the accountant's id of the source's own formula; "": none.
	Method string
	// Trust is the setting's trust mode, if it differs from the simulated one. Both modes
	// release results of the same law.
	Trust dp.Trust
}

// key names the setting's directory. Convex settings of one name differ in size.
func (s Setting) key() string {
	if s.Solve == nil {
		return s.Name
	}
	return s.Name + "/" + size(s.Solve)
}

// rounds returns the number of rounds of a finished run; 0 if a bound chooses them.
func (s Setting) rounds() int64 {
	if s.Train == nil {
		return 0
	}
	return s.Train.Rounds
}

// List returns the experiments of these names, in order; no names mean all.
func List(names ...string) []Experiment {
	all := []Experiment{e1(), e2(), e3(), e4(), e5(), e6(), e7()}
	return slices.DeleteFunc(all, func(e Experiment) bool { return len(names) > 0 && !slices.Contains(names, e.Name) })
}

// Quick returns the experiment with a fiftieth of the rounds, or with a tenth of the clients
// if a bound chooses the rounds. It shows that everything runs; its figures mean nothing.
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
