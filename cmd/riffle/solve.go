package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/solve"
	"github.com/riffle-dp/riffle/run/train"
)

// solveFlags are those of riffle solve.
type solveFlags struct {
	config               solve.Config
	ranges               string
	n, dim, rows, rounds count
	show                 output
}

func newSolve() *cobra.Command {
	s := solveFlags{n: 1e5, dim: 50}
	cmd := &cobra.Command{
		Use:   "solve",
		Short: "Solve a convex problem privately and compare with the optimum",
		Long: `Solve minimises a population's mean loss over a ball of linear models: every
client has one row and sends gradients that are protected, and an optimiser
whose parameters follow from public numbers sees noisy means of them. It prints
the population's loss beside the least that any model in the ball has.

A CSV file's rows are the clients and the population. Synthetic rows are drawn
from a law; each client holds one of them. It is a simulation: every role runs
in this process. epsilon is the cost of the parameters alone: the losses and the
optimum are computed from the rows themselves, for the experimenter.`,
		Example: `  riffle solve --synthetic logistic --n 1e6 --dim 50 --epsilon 1
  riffle solve --synthetic hinge --optimizer psgd --trust local --epsilon 2 --json
  riffle solve --data patients.csv --label readmitted --range age=0..120,*=0..1 --lambda 0.05 --optimizer agd-phases`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	fs, c := cmd.Flags(), &s.config
	fs.StringVar(&c.Data, "data", "", "CSV file; every row is a client")
	fs.StringVar(&c.Label, "label", "", "column of the CSV file to predict")
	fs.StringVar(&s.ranges, "range", "", "public ranges that CSV columns are scaled from, to 0..1, as age=0..120,*=0..10")
	fs.StringVar(&c.Synthetic, "synthetic", "logistic", "law of synthetic rows: logistic, hinge or absolute")
	fs.Var(&s.n, "n", "clients of a synthetic problem (1e6 notation is fine)")
	fs.Var(&s.dim, "dim", "features of a synthetic problem")
	fs.Var(&s.rows, "rows", "different rows of a synthetic population, which clients share (default: by --dim, at most 1e5)")
	fs.StringVar(&c.Loss, "loss", "", "logistic, hinge, absolute or pinball:T (default: that of --synthetic; logistic)")
	fs.StringVar(&c.Optimizer, "optimizer", "", "psgd, agd, agd-smooth, agd-phases, gd or pan-private (default: agd, agd-smooth if the loss is not smooth)")
	bind(cmd, setting.Table{{Name: "trust", Into: &c.Trust, Values: dp.DescribeTrusts(dp.Trust.Known), Help: "what protects gradients: %s (default: vector-sum; central with pan-private)"}})
	fs.Float64Var(&c.Epsilon, "epsilon", 1, "budget of the whole run")
	fs.Float64Var(&c.Delta, "delta", 1e-6, "delta of the budget")
	fs.Float64Var(&c.Lambda, "lambda", 0, "ridge: lambda/2 of the squared norm of the parameters is added to the loss")
	fs.Float64Var(&c.Radius, "radius", 8, "radius of the ball that parameters lie in")
	fs.Float64Var(&c.Clip, "clip", 0, "norm that clients clip gradients to (default: what the rows' public bound allows)")
	fs.Var(&s.rounds, "max-rounds", "most rounds (default: 20000; gd 100)")
	fs.Uint64Var(&c.Seed, "seed", 1, "seed of data and noise; equal seeds give equal results")
	fs.IntVar(&c.Workers, "workers", 0, "worker goroutines (default: one per CPU); results do not depend on it")
	fs.BoolVar(&s.show.json, "json", false, "print the result as one JSON document")
	fs.BoolVar(&s.show.quiet, "quiet", false, "print nothing but the result and errors")
	fs.SortFlags = false
	return cmd
}

// solveDocument is the JSON of riffle solve.
type solveDocument struct {
	Excess    float64      `json:"excess_loss"`
	Loss      float64      `json:"loss"`
	Optimum   float64      `json:"optimum"`
	Epsilon   train.Number `json:"epsilon"`
	Delta     float64      `json:"delta"`
	Rounds    int64        `json:"rounds"`
	Batch     int64        `json:"batch"`
	Optimizer string       `json:"optimizer"`
	Seconds   float64      `json:"seconds"`
	Trust     dp.Trust     `json:"trust"`
	Objective string       `json:"objective"`
	N         int64        `json:"n"`
	Dim       int          `json:"dim"`
	Clip      float64      `json:"clip"`
	Lambda    float64      `json:"lambda"`
	Radius    float64      `json:"radius"`
	Bound     train.Number `json:"excess_bound"`
	Gap       float64      `json:"optimum_gap"`
	Seed      uint64       `json:"seed"`
	Theta     []float64    `json:"theta"`
}

// configure checks flags against each other and fills in the configuration.
func (s *solveFlags) configure(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	c := &s.config
	source, foreign := "--synthetic", []string{"label", "range"}
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
	if !c.Trust.Protects() {
		for _, name := range []string{"epsilon", "delta"} {
			if given(name) {
				return usage("--%s contradicts --trust none", name)
			}
		}
	}
	if given("clip") && c.Clip == 0 { // to the library it would mean the default
		return usage("--clip 0 must be above 0")
	}
	if given("max-rounds") && s.rounds < 1 {
		return usage("--max-rounds %d must be at least 1", s.rounds)
	}
	if given("rows") && s.rows < 1 {
		return usage("--rows %d must be at least 1", s.rows)
	}
	if s.dim > math.MaxInt32 || s.rows > math.MaxInt32 {
		return usage("--dim %d, --rows %d must be below 2^31", s.dim, s.rows)
	}
	var err error
	if c.Scale, c.Rest, err = train.ParseRanges(s.ranges); err != nil {
		return usage("--range: %w", err)
	}
	c.N, c.Dim, c.Rows, c.MaxRounds = int64(s.n), int(s.dim), int(s.rows), int64(s.rounds)
	if given("workers") && c.Workers < 1 {
		return usage("--workers %d must be at least 1", c.Workers)
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
		return usageError{err} // a budget's refusal keeps its exit code
	}
	stderr, c := cmd.ErrOrStderr(), task.Config
	s.show.note(stderr, "%s, %s, %s loss, %s: %s of at least %d, trust %s",
		counted(task.Clients(), "client"), counted(task.Params(), "parameter"), c.Loss, c.Optimizer, counted(task.Rounds(), "round"), task.Batch(), c.Trust)
	if !c.Trust.Protects() {
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
	return s.print(cmd.OutOrStdout(), task, r, time.Since(begin).Seconds())
}

func (s *solveFlags) print(w io.Writer, task *solve.Task, r solve.Result, seconds float64) error {
	c := task.Config
	if s.show.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(solveDocument{
			r.Excess, r.Loss, r.Optimum, train.Number(task.Epsilon), task.Delta, task.Rounds(), task.Batch(), c.Optimizer, seconds,
			c.Trust, c.Loss, task.Clients(), task.Params(), c.Clip, c.Lambda, c.Radius, train.Number(task.Bound()), r.Gap, c.Seed, r.Theta,
		})
	}
	p := printer{w: w}
	p.row("excess loss", "%.6f", r.Excess)
	p.row("loss", "%.6f", r.Loss)
	p.row("optimum", "%.6f, known to %.1g", r.Optimum, r.Gap)
	if !c.Trust.Protects() {
		p.row("epsilon", "infinite: no privacy (--trust none)")
	} else {
		p.row("epsilon", "%s at delta = %g (%s one client)", roundUp(task.Epsilon), task.Delta, dp.ReplaceOne)
	}
	p.row("optimizer", "%s, %d rounds of at least %d clients", c.Optimizer, task.Rounds(), task.Batch())
	p.row("time", "%s", fmt.Sprintf("%.1f s", seconds))
	return p.err
}
