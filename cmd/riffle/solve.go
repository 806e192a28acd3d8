package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/solve"
	"github.com/riffle-dp/riffle/run/train"
)

// solveFlags are the flags of riffle solve.
type solveFlags struct {
	config solve.Config
	table  train.DataConfig // what is declared of columns
	out    string
	show   output
}

func newSolve() *cobra.Command {
	var s solveFlags
	cmd := &cobra.Command{
		Use:   "solve",
		Short: "Solve a convex problem privately and compare with the optimum",
		Long: `Solve minimises a population's mean loss over a ball of linear models. Every client
has one row and sends protected gradients; an optimiser, whose parameters follow from
public numbers, sees noisy means of them. It prints the population's loss beside the
smallest loss of any model in the ball.

A CSV file's rows are the clients and the population. Synthetic rows are drawn
from a distribution; each client holds one of them. Solve is a simulation: every role
runs in this process. The printed epsilon is the cost of the parameters alone: the
losses and the optimum are computed from the rows themselves, for the experimenter.`,
		Example: `  riffle solve --synthetic logistic --n 1e6 --dim 50 --epsilon 1
  riffle solve --synthetic hinge --optimizer psgd --trust local --epsilon 2 --json
  riffle solve --data patients.csv --label readmitted --range age=0..120,*=0..1 --lambda 0.05 --optimizer agd-phases`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	fs, c := cmd.Flags(), &s.config
	bind(cmd, setting.Table{
		{Name: "data", Into: &c.Data, File: true, Help: "CSV file; every row is a client"},
		{Name: "label", Into: &c.Label, Help: "column of the CSV file to predict"},
		{Name: "range", Into: &s.table.Range, Help: "public ranges that CSV columns are scaled from, to 0..1, as age=0..120,*=0..10"},
		{Name: "categories", Into: &s.table.Categories, Check: checkOf("categories"), Help: rowOf("categories").Help},
		{Name: "missing", Into: &s.table.Missing, Check: checkOf("missing"), Help: rowOf("missing").Help},
		{Name: "drop", Into: &s.table.Drop, Check: checkOf("drop"), Help: rowOf("drop").Help},
		{Name: "classes", Into: &s.table.Classes, Check: checkOf("classes"), Help: rowOf("classes").Help},
		{Name: "synthetic", Into: &c.Synthetic, Default: "logistic", Values: laws(), Check: others, Help: "law of synthetic rows: %s"},
		{Name: "n", Into: &c.N, Default: "1e5", Help: "clients of a synthetic problem (1e6 notation is fine)"},
		{Name: "dim", Into: &c.Dim, Default: "50", Help: "features of a synthetic problem"},
		{Name: "rows", Into: &c.Rows, Range: "[1, inf)", Help: "different rows of a synthetic population, which clients share (default: by --dim, at most 1e5)"},
		{Name: "loss", Into: &c.Loss, Values: []string{"logistic", "hinge", "absolute", "pinball:T"}, Check: others, Help: "%s (default: that of --synthetic; logistic)"},
		{Name: "optimizer", Into: &c.Optimizer, Values: valuesOf("optimizer")[1:], Check: others, Help: "%s (default: agd, agd-smooth if the loss is not smooth)"},
		{Name: "trust", Into: &c.Trust, Values: dp.DescribeTrusts(dp.Known), Check: others, Help: "what protects gradients: %s (default: vector-sum; central with pan-private)"},
		{Name: "noise-by", Into: &c.NoiseBy, Values: []string{string(vecsum.ByClients) + "\tthe default", string(vecsum.ByAggregators) + "\teach of the two adds all of it"}, Help: "who adds the noise of a sum, trust vector-sum or distributed: %s"},
		{Name: "epsilon", Into: &c.Epsilon, Default: "1", Help: "budget of the whole run"},
		{Name: "delta", Into: &c.Delta, Default: "1e-6", Help: "delta of the budget"},
		{Name: "lambda", Into: &c.Lambda, Help: "ridge: lambda/2 of the squared norm of the parameters is added to the loss"},
		{Name: "radius", Into: &c.Radius, Default: "8", Help: "radius of the ball that parameters lie in"},
		{Name: "clip", Into: &c.Clip, Range: "(0, inf)", Help: "norm that clients clip gradients to (default: what the rows' public bound allows)"},
		{Name: "max-rounds", Into: &c.MaxRounds, Range: "[1, inf)", Help: "most rounds (default: 20000; gd 100)"},
		{Name: "workers", Into: &c.Workers, Range: "[1, inf)", Help: "worker goroutines (default: one per CPU); results do not depend on it"},
	})
	fs.Uint64Var(&c.Seed, "seed", 1, "seed of data and noise; equal seeds give equal results")
	fs.StringVar(&s.out, "out", "", "write the model to this new file, for riffle predict and eval; with --data")
	fs.BoolVar(&s.show.json, "json", false, "print the result as one JSON document")
	fs.BoolVar(&s.show.quiet, "quiet", false, "print nothing but the result and errors")
	fs.SortFlags = false
	return cmd
}

// solveDocument is the JSON of riffle solve.
type solveDocument struct {
	Excess    float64   `json:"excess_loss"`
	Loss      float64   `json:"loss"`
	Optimum   float64   `json:"optimum"`
	Epsilon   dp.Number `json:"epsilon"`
	Delta     float64   `json:"delta"`
	Rounds    int64     `json:"rounds"`
	Batch     int64     `json:"batch"`
	Optimizer string    `json:"optimizer"`
	Seconds   float64   `json:"seconds"`
	Trust     dp.Trust  `json:"trust"`
	Objective string    `json:"objective"`
	N         int64     `json:"n"`
	Dim       int       `json:"dim"`
	Clip      float64   `json:"clip"`
	Lambda    float64   `json:"lambda"`
	Radius    float64   `json:"radius"`
	Bound     dp.Number `json:"excess_bound"`
	Gap       float64   `json:"optimum_gap"`
	Seed      uint64    `json:"seed"`
	Theta     []float64 `json:"theta"`
	// Coefficients are those of a CSV file's columns, in their own units.
	Coefficients []train.Coefficient `json:"coefficients,omitempty"`
	Model        string              `json:"model,omitempty"` // the file that was written
}

// configure checks flags against each other and fills in the configuration.
func (s *solveFlags) configure(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	c := &s.config
	source, foreign := "--synthetic", []string{"label", "range", "categories", "missing", "drop", "classes", "out"}
	if given("data") {
		source, foreign = "--data", []string{"synthetic", "n", "dim", "rows"}
	}
	for _, name := range foreign {
		if given(name) {
			return usage("--%s contradicts %s", name, source)
		}
	}
	if given("data") && c.Data == "" {
		return usage("--data is empty, want a CSV file")
	}
	if !c.Trust.Is(dp.Protecting) {
		for _, name := range []string{"epsilon", "delta"} {
			if given(name) {
				return usage("--%s contradicts --trust none", name)
			}
		}
	}
	t := s.table
	for what, text := range map[string]string{"range": t.Range, "categories": t.Categories, "missing": t.Missing, "drop": t.Drop, "classes": t.Classes} {
		if err := c.Columns.Declare(what, text); err != nil {
			return usage("--%s: %w", what, err)
		}
	}
	if loss, err := model.ParseLoss(c.Loss); err == nil && !loss.Binary && t.Classes != "" {
		return usage("--classes goes with classes, and loss %s predicts numbers", c.Loss)
	}
	if s.out != "" {
		if err := newFile(s.out); err != nil {
			return err
		}
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	return nil
}

func (s *solveFlags) run(cmd *cobra.Command) error {
	if err := s.configure(cmd); err != nil {
		return err
	}
	begin := time.Now()
	task, err := solve.Prepare(cmd.Context(), s.config)
	if err != nil {
		return usageError(fmt.Errorf("%w%s", err, train.Hint(err))) // a budget's refusal keeps its own exit code
	}
	stderr, c := cmd.ErrOrStderr(), task.Config
	s.show.note(stderr, "%s, %s, %s loss, %s: %s of at least %d, trust %s",
		counted(c.N, "client"), counted(task.Params, "parameter"), c.Loss, c.Optimizer, counted(task.Rounds, "round"), task.Batch, c.Trust)
	if !c.Trust.Is(dp.Protecting) {
		s.show.note(stderr, "no privacy: --trust none")
	} else {
		s.show.note(stderr, "cost: epsilon <= %s at delta = %g (%s one client)", roundUp(task.Epsilon), task.Delta, dp.ReplaceOne)
		if !s.show.quiet {
			warnLargeEps(stderr, task.Epsilon)
		}
	}
	s.show.note(stderr, "simulation: every role runs in this process and noise comes from seed %d; this protects nobody's data", c.Seed)
	r, err := task.Run(cmd.Context(), solve.Observer{
		Optimum: func(loss float64) { s.show.note(stderr, "optimum without privacy: loss %.6f", loss) },
		Evaluated: func(round, rounds int64, excess float64) {
			s.show.note(stderr, "round %d/%d  excess loss %.6f  %.0f s", round, rounds, excess, time.Since(begin).Seconds())
		},
	})
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted; nothing is kept: %w", err)
	}
	if err != nil {
		return err
	}
	if s.out != "" {
		raw, err := train.SolvedFile(task, r, s.table)
		if err != nil {
			return err
		}
		if err := durable.WriteFile(s.out, raw); err != nil {
			return err
		}
	}
	return s.print(cmd.OutOrStdout(), task, r, time.Since(begin).Seconds())
}

func (s *solveFlags) print(w io.Writer, task *solve.Setup, r solve.Result, seconds float64) error {
	c := task.Config
	if s.show.json {
		return printJSON(w, solveDocument{
			r.Excess, r.Loss, r.Optimum, dp.Number(task.Epsilon), task.Delta, task.Rounds, task.Batch, c.Optimizer, seconds,
			c.Trust, c.Loss, c.N, task.Params, c.Clip, c.Lambda, c.Radius, dp.Number(task.Bound), r.Gap, c.Seed, r.Theta, train.SolvedCoefficients(task, r), s.out,
		})
	}
	p := printer{w: w}
	p.row("excess loss", "%.6f", r.Excess)
	p.row("loss", "%.6f", r.Loss)
	p.row("optimum", "%.6f, known to %.1g", r.Optimum, r.Gap)
	of := train.Config{DataConfig: train.DataConfig{Label: c.Label}, LearningConfig: train.LearningConfig{Loss: c.Loss}}
	p.coefficients(train.SolvedCoefficients(task, r), of)
	if !c.Trust.Is(dp.Protecting) {
		p.row("epsilon", "infinite: no privacy (--trust none)")
	} else {
		p.row("epsilon", "%s at delta = %g (%s one client)", roundUp(task.Epsilon), task.Delta, dp.ReplaceOne)
	}
	p.row("optimizer", "%s, %d rounds of at least %d clients", c.Optimizer, task.Rounds, task.Batch)
	p.row("time", "%s", fmt.Sprintf("%.1f s", seconds))
	if s.out != "" {
		p.row("model", "%s", s.out)
	}
	return p.err
}
