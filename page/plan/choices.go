package plan

import (
	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// choice is a row of the list "How a report is randomized".
type choice struct {
	account.Class
	// Named says that Class.Class names a randomizer. What its reports promise follows from its
	// settings, as with riffle eps --randomizer NAME --dim D.
	Named bool `json:"named"`
}

// bySum is the page's name for account.VectorSumClass with noise by the aggregators.
const bySum dp.Class = "vecsum-by-aggregators"

// choices lists the accountant's classes, then randomizers whose class has no words of its own.
func choices() []choice {
	var out []choice
	for _, c := range account.Classes() {
		out = append(out, choice{Class: c})
	}
	named := func(name, label, hint string, settings ...string) {
		out = append(out, choice{account.Class{Class: dp.Class(name), Label: label, Hint: hint, Settings: settings, Pair: true}, true})
	}
	named(randomizer.PrivUnit, "PrivUnit, one cap",
		"A direction at random, e^ε₀ times as likely in a cap round the client’s vector as elsewhere.", "eps0", "dim", "encoding")
	named(randomizer.StepUnit, "StepUnit, several caps",
		"A direction at random, in several steps the likelier the nearer it is to the client’s vector: made for the shuffle.", "eps0", "dim", "steps", "edges", "encoding")
	// Last, so that the lists of other texts keep their order.
	out = append(out, choice{Class: account.Class{Class: bySum, Label: "Sum, aggregators’ noise",
		Hint: "Each aggregator adds all the noise to its share of the sum; nothing is asked of other clients.", Settings: []string{"sumSigma", "dim"}}})
	return out
}
