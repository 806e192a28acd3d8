package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/run/train"
)

func newGradients() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gradients",
		Short: "Check a program that computes gradients",
		Long: `A program of any language can compute the gradients for riffle train and evaluate
the model: train --gradients 'python3 grad.py'. It reads requests from standard
input and writes answers to standard output; docs/SPEC.md has the format, and
python/examples has programs.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGradientsCheck())
	return cmd
}

func newGradientsCheck() *cobra.Command {
	var asJSON bool
	var seconds, speed, clients, seed int64
	cmd := &cobra.Command{
		Use:   "check COMMAND|unix:PATH",
		Short: "Ask a program for gradients and look at its answers",
		Long: `Check starts the program, or connects to it, and looks at its answers: sizes,
values that are not finite, whether the same question has the same answer,
whether a row depends on its own client's data only, whether steps against the
gradient help, and speed. It says what a client would send.

The command is one argument. It is split into words as a shell does it, and run
without one.`,
		Example: `  riffle gradients check 'python3 python/examples/numpy_mlp.py'
  riffle gradients check unix:/tmp/grad --json`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage("no program is named: want a command in quotes, as 'python3 grad.py', or unix:PATH")
			case len(args) > 1:
				return usage("%d arguments: the command is one, so put it in quotes: '%s'", len(args), strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if seconds < 1 || speed < 0 || clients < 0 || seed < 0 {
				return usage("--answer-seconds must be at least 1, and --speed-seconds, --population and --seed not negative")
			}
			c := external.Config{Program: args[0], Purpose: external.Simulate, Clients: clients, Seed: uint64(seed), Timeout: time.Duration(seconds) * time.Second,
				Stderr: programErrors(cmd.ErrOrStderr(), output{quiet: asJSON})}
			found, err := external.Check(cmd.Context(), c, time.Duration(speed)*time.Second)
			if err != nil {
				return errors.Join(err, printFindings(cmd.ErrOrStderr(), found))
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), findingsJSON(args[0], found))
			} else {
				err = printFindings(cmd.OutOrStdout(), found)
			}
			if err == nil && !found.OK() {
				err = errors.New("the program must be corrected")
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print the result as one JSON document")
	flags.Int64Var(&seconds, "answer-seconds", int64(external.DefaultTimeout/time.Second), "time for an answer")
	flags.Int64Var(&speed, "speed-seconds", 2, "how long to measure the speed; 0: not")
	flags.Int64Var(&clients, "population", 0, "clients to ask the program for (default: as many as it has)")
	flags.Int64Var(&seed, "seed", 1, "seed that the program is told")
	return cmd
}

// reportBytes returns the size of a report of a model's gradient: its values, for privunit.
func reportBytes(dim int) (int, error) {
	m, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: dim, Radius: 1, Eps0: 2.5})
	if err != nil {
		return 0, err
	}
	return m.Facts().Bytes, nil
}

func printFindings(w io.Writer, c *external.Checked) error {
	p := printer{w: w}
	for _, f := range c.Findings {
		mark := ""
		if f.Level != external.Fine {
			mark = string(f.Level) + ": "
		}
		p.row(f.Check, "%s%s", mark, f.Text)
	}
	if c.PerSecond > 0 {
		if n, err := reportBytes(c.About.Dim); err == nil {
			p.row("a client sends", "16 bytes a report as a seed (to eps0 %d), or %d as values; of a vector sum a number for each parameter", randomizer.MaxSeedEps0, n)
		}
	}
	return p.err
}

func findingsJSON(program string, c *external.Checked) any {
	type parameter struct {
		Name  string `json:"name"`
		Shape []int  `json:"shape"`
	}
	out := struct {
		OK         bool                 `json:"ok"`
		Program    string               `json:"program"`
		Name       string               `json:"name,omitempty"`
		Dim        int                  `json:"dim"`
		Clients    int64                `json:"clients"`
		Update     string               `json:"update"`
		Parameters []parameter          `json:"parameters"`
		Findings   []external.Finding   `json:"findings"`
		Rows       int                  `json:"rows"`
		Norms      map[string]dp.Number `json:"norms"`
		PerSecond  float64              `json:"rows_per_second,omitempty"`
		Numbers    map[string]dp.Number `json:"metrics"`
		Bytes      int                  `json:"report_bytes_values"`
		SeedBytes  int                  `json:"report_bytes_seed"`
	}{OK: c.OK(), Program: program, Name: c.About.Name, Dim: c.About.Dim, Clients: c.About.Clients, Update: "gradient", Findings: c.Findings, Rows: c.Clients,
		Norms:     map[string]dp.Number{"least": dp.Number(c.Norms[0]), "median": dp.Number(c.Norms[1]), "p90": dp.Number(c.Norms[2]), "largest": dp.Number(c.Norms[3])},
		PerSecond: math.Round(c.PerSecond), Numbers: map[string]dp.Number{}, SeedBytes: 16}
	if c.About.Delta {
		out.Update = "delta"
	}
	for _, t := range c.About.Parameters {
		out.Parameters = append(out.Parameters, parameter(t))
	}
	for name, x := range c.Numbers {
		out.Numbers[name] = dp.Number(x)
	}
	out.Bytes, _ = reportBytes(c.About.Dim) // of a model of one parameter there is none
	return out
}

// programLines shows what a program writes to standard error, line by line, beside a progress
// bar if there is one.
type programLines struct {
	w   io.Writer
	bar atomic.Pointer[bar]
}

// programErrors returns where to show a program's standard error; nil with --quiet.
func programErrors(w io.Writer, show output) io.Writer {
	if show.quiet {
		return nil
	}
	return &programLines{w: w}
}

func (p *programLines) Write(line []byte) (int, error) {
	p.bar.Load().clear()
	fmt.Fprintf(p.w, "  | %s", line)
	return len(line), nil
}

// named returns the name of a run's model.
func named(r *train.Run) string {
	if r.Config.Gradients != "" {
		return r.Model.Name
	}
	return r.Config.Model
}
