package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/run/setting"
)

// stepFlags say how the density of a named randomizer's reports rises, and what a report holds.
type stepFlags struct {
	steps           int64
	edges, encoding string
}

func (s *stepFlags) flags(cmd *cobra.Command) {
	bind(cmd, setting.Table{
		{Name: "steps", Into: &s.steps, Range: fmt.Sprintf("[1, %d]", randomizer.MaxSteps), Help: fmt.Sprintf("of stepunit: number of steps in which the density of a report rises, at most %d (default 3)", randomizer.MaxSteps)},
		{Name: "edges", Into: &s.edges, Check: checkOf("edges"), Help: "of stepunit: the scores at which it rises, such as .95,1.49,2.02 (default: those with the least noise for what a shuffle shows)"},
		{Name: "encoding", Into: &s.encoding, Values: words(randomizer.Values, randomizer.Seed), Help: "of privunit and stepunit: what a report holds, %s (default values)"},
	})
}

// apply puts the flags into the configuration of a randomizer.
func (s *stepFlags) apply(c *randomizer.Config) error {
	c.Steps, c.Encoding = int(s.steps), s.encoding
	if s.edges == "" {
		return nil
	}
	for _, text := range strings.Split(s.edges, ",") {
		z, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return fmt.Errorf("--edges %s: %q is not a number", s.edges, text)
		}
		c.Edges = append(c.Edges, z)
	}
	return nil
}

// check refuses the flags where no randomizer is named.
func (s *stepFlags) check(fs *pflag.FlagSet, p *protocolFlags) error {
	for _, name := range []string{"steps", "edges", "encoding"} {
		switch {
		case fs.Changed(name) && !p.dimNamed():
			return usage("--%s goes with --randomizer privunit or stepunit and --dim, not %s", name, p.class)
		case fs.Changed(name) && p.vecsum.dim == 0:
			return usage("--%s needs --dim, the length of the input of --randomizer %s", name, p.class)
		}
	}
	return nil
}

// describeSteps is what a query says of the steps of its reports.
func describeSteps(s dp.Steps) string {
	var shares []string
	for _, q := range s.Each() {
		shares = append(shares, fmt.Sprintf("%.4g", q))
	}
	return fmt.Sprintf(", density steps above shares of %s", strings.Join(shares, " "))
}
