package main

import (
	"fmt"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// documented is an answer as JSON; its keys are part of the contract.
type documented struct {
	account.Document
	// Largest is how far one report can move a mean, in clip norms and multiplied by the
	// number of reports. It is absent if the randomizer or its dimension is not known.
	Largest float64 `json:"largest_report,omitempty"`
}

// moves describes how far one report can move a mean.
func moves(largest float64) string {
	return fmt.Sprintf("%.4g clip norms / n, whatever its client's data is", largest)
}

// dimNamed says whether --randomizer names a randomizer that takes --dim.
func (p *protocolFlags) dimNamed() bool {
	k, err := randomizer.KindOf(p.class)
	return err == nil && k.Trained != ""
}

// named returns the randomizer that --randomizer names. It returns false if the flag names
// none, or if too little is known to make it.
func (p *protocolFlags) named(eps0 float64) (randomizer.Randomizer, bool, error) {
	if !p.dimNamed() || dp.Class(p.class).LDP() && p.vecsum.dim == 0 {
		return nil, false, nil
	}
	if p.vecsum.dim < 1 || p.vecsum.dim > 1<<24 {
		return nil, false, fmt.Errorf("--dim %d must lie between 1 and 2^24 with --randomizer %s", p.vecsum.dim, p.class)
	}
	if eps0 == 0 {
		return nil, false, nil
	}
	dim, bits := int(p.vecsum.dim), 0
	if k, err := randomizer.KindOf(p.class); err == nil && k.Bits {
		bits = randomizer.BestBits(dim, eps0)
	}
	c := randomizer.Config{Dim: dim, Radius: 1, Eps0: eps0, Bits: bits}
	if err := p.steps.apply(&c); err != nil {
		return nil, false, err
	}
	m, err := randomizer.New(p.class, c)
	return m, err == nil, err
}

// largest returns the distance by which one report of an answer can move a mean, in clip
// norms over n; 0: not known.
func (p *protocolFlags) largest(r account.Reply) float64 {
	if r.Query.Class == account.VectorSumClass {
		return r.Query.Sum.Largest()
	}
	eps0 := p.asked.Eps0
	if eps0 == 0 {
		eps0 = r.Query.Eps0
	}
	var m randomizer.Randomizer
	var err error
	switch {
	case p.class == "rr2":
		m, err = randomizer.New(randomizer.RR, randomizer.Config{Dim: 1, Radius: 1, Eps0: eps0})
	case r.Query.Symbols > 0 && !p.dimNamed():
		m, err = randomizer.New(randomizer.KRR, randomizer.Config{Dim: r.Query.Symbols, Eps0: eps0})
	default:
		m, _, err = p.named(eps0)
	}
	if m == nil || err != nil {
		return 0
	}
	return m.Facts().Largest
}
