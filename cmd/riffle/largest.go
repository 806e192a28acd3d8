package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// documented is an answer as JSON; its keys are part of the contract.
type documented struct {
	account.Document
	reportFacts
}

// reportFacts is what is known of the reports of an answer beside what they cost.
type reportFacts struct {
	// Largest is how far one report can move a mean, in clip norms and multiplied by the
	// number of reports. It is absent if the randomizer or its dimension is not known.
	Largest float64 `json:"largest_report,omitempty"`
	// Tries is how many seeds a client tries for a report that moves the mean so far; absent if
	// reports are no seeds.
	Tries int64 `json:"largest_report_tries,omitempty"`
	// Encodings are the costs of what a report of the randomizer can hold; absent if that is not
	// for choice.
	Encodings []encodingCost `json:"encodings,omitempty"`
}

// moves describes how far one report can move a mean.
func moves(largest float64) string {
	return fmt.Sprintf("%.4g clip norms / n, whatever its client's data is", largest)
}

// tried says how far a liar is taken to search for a seed.
var tried = fmt.Sprintf("the best of 2^%d seeds that its client tries", randomizer.TriesExponent)

// largestOf returns how far one report can move a mean.
func (p *protocolFlags) largestOf(r account.Reply) reportFacts {
	out := reportFacts{Largest: p.largest(r)}
	if out.Largest > 0 && p.steps.encoding == randomizer.Seed {
		out.Tries = 1 << randomizer.TriesExponent
	}
	return out
}

// reportFacts returns all that is known of the reports of an answer.
func (p *protocolFlags) reportFacts(ctx context.Context, r account.Reply) (reportFacts, error) {
	out := p.largestOf(r)
	var err error
	out.Encodings, err = p.encodings(ctx, r)
	return out, err
}

// encodingCost is the tightest bound for reports of one encoding.
type encodingCost struct {
	Encoding string    `json:"encoding"`
	Method   string    `json:"method"`
	Eps0     float64   `json:"eps0"` // of a report
	Eps      dp.Number `json:"eps"`
	Delta    float64   `json:"delta"`
}

// encodings returns the costs of both encodings of a named randomizer that has two; nil if it does
// not, or if one is refused or has no bound. r is the answer for the encoding that is asked for.
func (p *protocolFlags) encodings(ctx context.Context, r account.Reply) ([]encodingCost, error) {
	if k, err := randomizer.KindOf(p.class); err != nil || !k.Seeds || r.Upper == nil {
		return nil, nil
	}
	asked := p.steps.encoding
	if asked == "" {
		asked = randomizer.Values
	}
	var out []encodingCost
	for _, name := range []string{randomizer.Values, randomizer.Seed} {
		answer := r
		if name != asked {
			other := *p
			other.steps.encoding = name
			m, ok, err := other.named(p.asked.Eps0)
			if err != nil || !ok {
				return nil, nil // this encoding does not take these values
			}
			// Where one encoding is best counted by its own law, so is the other.
			e, which := m.Event(), "best"
			if r.Upper.Method == string(r.Query.Class)+"-pld" {
				which = string(e.Class) + "-pld"
			}
			if e.Class == dp.Generic {
				which = "best"
			}
			if answer, err = account.Answer(ctx, r.Query.Of(e), which); err != nil {
				return nil, err
			}
		}
		u := answer.Upper
		if u == nil {
			return nil, nil
		}
		out = append(out, encodingCost{name, u.Method, answer.Query.Eps0, dp.Number(u.Eps), u.Delta})
	}
	return out, nil
}

// describeEncodings says what the encodings cost if that differs in the digits shown.
func describeEncodings(costs []encodingCost, askDelta bool) string {
	var parts []string
	shown := map[string]bool{}
	for _, c := range costs {
		text := "epsilon <= " + roundUp(float64(c.Eps))
		if askDelta {
			text = "delta <= " + roundUp(c.Delta)
		}
		shown[text] = true
		parts = append(parts, fmt.Sprintf("%s with --encoding %s", text, c.Encoding))
	}
	if len(shown) < 2 {
		return ""
	}
	return strings.Join(parts, ", ")
}

// dimNamed says whether --randomizer names a randomizer that takes --dim.
func (p *protocolFlags) dimNamed() bool {
	k, err := randomizer.KindOf(p.class)
	return err == nil && k.Trained != ""
}

// known says whether --randomizer is one of its values.
func (p *protocolFlags) known() bool {
	class, _, _ := strings.Cut(p.class, ":")
	return slices.ContainsFunc(classes(), func(value string) bool {
		name, _, _ := strings.Cut(value, "\t")
		return name == class || name == class+":K"
	})
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
	if r.Query.NoiseBy == vecsum.ByAggregators || r.Query.Every != 0 {
		return 0 // as much as the proofs let pass
	}
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

// gap says by how much the upper bound exceeds a lower one.
func gap(r account.Reply, lower *dp.Bound) string {
	by, ok := r.Gap(lower)
	if !ok {
		return ""
	}
	return fmt.Sprintf("; gap %s", roundUp(by))
}
