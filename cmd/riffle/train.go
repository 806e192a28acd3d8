package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/run/simulate"
	"github.com/riffle-dp/riffle/run/train"
)

func newTrain() *cobra.Command {
	var configPath, out, resume string
	var show output
	var page serving
	config := train.Default()
	cmd := &cobra.Command{
		Use:   "train",
		Short: "Train a model privately; the main job",
		Long: `Train simulates a population of clients, a shuffler and a coordinator in this
process, round by round, and accounts for every round before its reports are
opened. Without flags it trains on MNIST: one client per image, every client in
every round, one StepUnit report each.

It writes a run directory with the configuration, metrics, checkpoint, model
and a report page. Ctrl-C saves the state; --resume continues bit for bit.`,
		Example: `  riffle train
  riffle train --epsilon 0.5 --rounds 60 --out runs/half
  riffle train --participation sampled --k 10000 --randomizer rinf --eps0 1.5 --clip 0.01 --lr 0.3 --rounds 100
  riffle train --optimizer agd --trust distributed --participation check-in --gamma 0.02 --epsilon 1
  riffle train --trust vector-sum --every 20 --epsilon 1 --rounds 400
  riffle train --serve 127.0.0.1:8080
  riffle train --resume runs/half`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page.check(); err != nil {
				return err
			}
			if f := cmd.Flags().Lookup("gradients"); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
				return usage("--gradients names no program")
			}
			if resume != "" {
				return resumeTrain(cmd, config, resume, show, page)
			}
			if configPath != "" {
				changed := func(name string) bool { return cmd.Flags().Changed(name) }
				if err := config.ReadConfig(configPath, changed); err != nil {
					return usageError(err)
				}
			}
			// The defaults of these flags are those of cldp-sgd; other optimisers have none.
			for _, name := range []string{"momentum", "average"} {
				if f := cmd.Flags().Lookup(name); f.Changed && config.Optimizer != "cldp-sgd" && config.Optimizer != "adam" && f.Value.String() != "0" {
					return usage("--%s %s goes with --optimizer cldp-sgd, not %s, which has its own way to combine steps", name, f.Value, config.Optimizer)
				}
			}
			config.Stderr = programErrors(cmd.ErrOrStderr(), show)
			r, err := train.Prepare(cmd.Context(), config)
			if err != nil {
				return err
			}
			defer r.Close()
			if out == "" {
				if out, err = freshDirectory("runs", time.Now(), r.Config); err != nil {
					return err
				}
			}
			if err := r.Create(out); err != nil {
				return err
			}
			return runTrain(cmd, r, show, page)
		},
	}
	bind(cmd, config.Fields())
	flags := cmd.Flags()
	flags.StringVar(&configPath, "config", "", "YAML file with the same names as the flags; flags win")
	flags.StringVar(&out, "out", "", "run directory, new or empty (default: a fresh one under runs/)")
	flags.StringVar(&resume, "resume", "", "continue the run in this directory")
	page.flags(flags)
	show.flags(flags)
	flags.SortFlags = false
	return cmd
}

// resumeTrain continues a run with its own configuration: only settings that do not change
// the result may be given.
func resumeTrain(cmd *cobra.Command, config train.Config, dir string, show output, page serving) error {
	allowed := []string{"resume", "json", "quiet", "no-progress", "serve", "serve-after"}
	adjust := map[string]string{}
	for _, f := range config.Fields() {
		if f.Local {
			allowed = append(allowed, f.Name)
			if cmd.Flags().Changed(f.Name) {
				adjust[f.Name] = f.String()
			}
		}
	}
	if name := beside(cmd, allowed...); name != "" {
		return usage("--%s contradicts --resume: a resumed run keeps its configuration (%s)", name, filepath.Join(dir, train.ConfigFile))
	}
	if !isRun(dir) {
		return usage("--resume %s: no run there (%s is missing)", dir, train.ConfigFile)
	}
	r, err := train.Resume(cmd.Context(), dir, func(c *train.Config) {
		for _, f := range c.Fields() {
			if text, ok := adjust[f.Name]; ok {
				must(f.Set(text)) // cannot fail: the flag has accepted the text
			}
		}
		c.Stderr = programErrors(cmd.ErrOrStderr(), show)
	})
	if err != nil {
		return err
	}
	defer r.Close()
	return runTrain(cmd, r, show, page)
}

// isRun says whether dir is a run directory.
func isRun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, train.ConfigFile))
	return err == nil
}

// freshDirectory names a directory that does not exist yet.
func freshDirectory(parent string, now time.Time, c train.Config) (string, error) {
	base := filepath.Join(parent, fmt.Sprintf("%s-%s-%s", now.Format("2006-01-02-150405"), c.Model, cmp.Or(c.Randomizer, string(c.Trust))))
	for i := 1; i < 1000; i++ {
		dir := base
		if i > 1 {
			dir = fmt.Sprintf("%s-%d", base, i)
		}
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no fresh directory name under %s", parent)
}

func runTrain(cmd *cobra.Command, r *train.Run, show output, page serving) (err error) {
	stderr := cmd.ErrOrStderr()
	c := r.Config
	planned, err := r.Planned(cmd.Context())
	if err != nil {
		return err
	}
	show.note(stderr, "%s, %s, %s, %s, %s", counted(c.Population, "client"), counted(r.Model.Params, "parameter"), mechanism(r), takesPart(c), counted(c.Rounds, "round"))
	if r.ExcessBound != nil {
		whose := ""
		if c.Participation != dp.Once && c.Optimizer != "gd" {
			whose = ", of the clients' own mean loss"
		}
		show.note(stderr, "optimizer %s, by its bound: rounds of at least %d reports, expected excess loss at most %.4g%s", c.Optimizer, r.Plan.Stages[0].Batch, float64(*r.ExcessBound), whose)
	} else if r.Plan != nil {
		show.note(stderr, "optimizer %s, by its bound: rounds of at least %d reports; clip = %g is below the longest gradient, so the bound itself is not claimed", c.Optimizer, r.Plan.Stages[0].Batch, c.Clip)
	}
	if c.Trust.Is(dp.Protecting) {
		show.note(stderr, "planned cost: epsilon <= %s at delta = %g (%s, %s, replace one client)",
			roundUp(planned.Eps), planned.Delta, planned.Method, dp.Proved)
		known, differs, err := r.PlannedKnowsWho(cmd.Context())
		if err != nil {
			return err
		}
		if differs {
			show.note(stderr, "to who knows who took part, as the shuffler: epsilon <= %s at delta = %g for a client in every round (%s)", roundUp(known.Eps), known.Delta, known.Method)
		}
		if !show.quiet {
			warnLargeEps(stderr, planned.Eps)
		}
		if what := r.Assumes; what != "" {
			show.note(stderr, "assumed: %s", what)
		}
	} else {
		show.note(stderr, "no privacy: --trust none")
	}
	if r.Data.Public > 0 {
		show.note(stderr, "%d training examples are taken as public: the model's principal axes show them, and they are no clients", r.Data.Public)
	}
	show.note(stderr, "simulation: every role runs in this process and noise comes from seed %d; this protects nobody's data", c.Seed)
	show.note(stderr, "baseline: %s", r.Baseline.Text)
	for _, text := range r.Data.Notes {
		show.note(stderr, "%s", text)
	}
	for _, text := range r.Data.Warnings {
		show.note(stderr, "warning: %s", text)
	}
	show.note(stderr, "run directory: %s", r.Dir)
	if r.Resumed > 0 {
		show.note(stderr, "resumed after round %d", r.Resumed)
	}

	shown, err := serve(cmd.Context(), page, r, planned)
	if err != nil {
		return err
	}
	if shown.url != "" {
		fmt.Fprintf(stderr, "riffle: live page: %s\n", shown.url)
	}
	defer func() { shown.close(cmd.Context(), page, err == nil, stderr, show) }()

	bar := newProgress(stderr, show, r)
	if e, ok := c.Stderr.(*programLines); ok {
		e.bar.Store(bar.bar)
	}
	odd := int64(0)
	summary, err := r.Train(cmd.Context(), train.Observer{
		Reports:   func(n int64) { bar.reports(n); shown.reports(n) },
		Evaluated: func(m train.Metrics) { bar.evaluated(m); shown.evaluated(r, m) },
		Round: func(result simulate.Result) {
			bar.round(result.Round)
			shown.round(r, result)
			if result.Void {
				charge := "nothing was released or charged"
				if c.Every > 0 || c.Participation == dp.Sampled || c.Participation == dp.CheckIn {
					charge = "nothing was released, and its cost comes with the next round"
				}
				bar.line("round %d is void: fewer than n-min = %d reports; %s", result.Round, c.NMin, charge)
			}
			if n := r.Odd(); n > odd {
				bar.line("round %d: %s of the program's gradients NaN or infinite, counted as 0", result.Round, counted(n-odd, "value"))
				odd = n
			}
			if result.Rejected > 0 {
				bar.line("round %d: %s failed the coordinator's check", result.Round, counted(result.Rejected, "report"))
			}
		},
		Stopped: func(reason string) { bar.line("training stops: %s", reason); shown.stopped(reason) },
	})
	bar.finish()
	if err == nil {
		err = writeReport(r, summary, false)
	}
	halfway := false // whether the page shows a run that stopped early and can be resumed
	if errors.Is(err, train.ErrInterrupted) && r.Round > 0 {
		so, reportErr := r.Summary()
		if reportErr == nil {
			reportErr = writeReport(r, so, true)
		}
		if halfway = reportErr == nil; !halfway {
			show.note(stderr, "the report was not written: %v", reportErr)
		}
	}
	shown.finish(summary, err, halfway)
	if errors.Is(err, train.ErrInterrupted) {
		return fmt.Errorf("%w; continue with: %s", err, resumption(r))
	}
	if err != nil {
		if !errors.Is(err, ledger.ErrBudget) {
			show.note(stderr, "what was finished is kept; when the cause is gone: %s", resumption(r))
		}
		return err
	}
	for _, text := range summary.Warnings[len(r.Data.Warnings):] { // the others were printed at the start
		show.note(stderr, "warning: %s", text)
	}
	if show.json {
		return printJSON(cmd.OutOrStdout(), summary)
	}
	return printSummary(cmd.OutOrStdout(), r, summary)
}

// takesPart says who is in a round.
func takesPart(c train.Config) string {
	if c.Every > 0 {
		return fmt.Sprintf("each client in at most one of %d rounds", c.Every)
	}
	return string(c.Participation)
}

func mechanism(r *train.Run) string {
	if !r.Config.Trust.Is(dp.Protecting) {
		return "no randomizer"
	}
	if r.Config.NoiseBy == vecsum.ByAggregators {
		text := fmt.Sprintf("vector sum, noise of each of two aggregators worth sigma = %.4g clip norms", r.Config.Sigma)
		if r.Config.Every > 0 {
			text += fmt.Sprintf(", correlated over rounds (%s), each client in at most one of %d", cmp.Or(r.Config.Strategy, toeplitz.Band), r.Config.Every)
		}
		return text
	}
	if n := r.NoisyClients(); n > 0 {
		return fmt.Sprintf("vector sum, noise of %d clients together worth sigma = %.4g clip norms, correlated over rounds (%s), each client in at most one of %d",
			n, r.Config.Sigma, cmp.Or(r.Config.Strategy, toeplitz.Band), r.Config.Every)
	}
	if r.Config.Trust.Is(dp.SumsOnly) {
		return fmt.Sprintf("%s, each client's noise worth sigma = %.4g clip norms", r.Mechanism.Facts().Name, r.Config.Sigma)
	}
	text := fmt.Sprintf("%s with eps0 = %s", r.Mechanism.Facts().Name, roundUp(r.Config.Eps0))
	if m := r.Config.Messages; m > 1 {
		_, all := r.LocalEps()
		text += fmt.Sprintf(" in each of %d messages, together %s a round", m, roundUp(all))
	}
	return text
}

// lossOf writes a loss, also in the units of the column to predict.
func lossOf(loss, unit float64, label string) string {
	if unit == 0 || unit == 1 {
		return fmt.Sprintf("%.4f", loss)
	}
	return fmt.Sprintf("%.4f (%.4g in the units of %s)", loss, unit*loss, label)
}

// unitBaseline describes a baseline in words. If it predicts numbers, its loss is also given in
// the column's units.
func unitBaseline(b train.Baseline, unit float64) string {
	if loss, rest, ok := strings.Cut(b.Text, ", "); ok && b.Class < 0 && unit != 0 && unit != 1 {
		return fmt.Sprintf("%s (%.4g), %s", loss, unit*b.Loss, rest)
	}
	return b.Text
}

func printSummary(w io.Writer, r *train.Run, s *train.Summary) error {
	p := printer{w: w}
	if math.IsNaN(s.Evaluation.Accuracy) {
		p.row(r.Data.EvalName+" loss", "%s", lossOf(s.Evaluation.Loss, s.LabelUnit, r.Config.Label))
	} else {
		p.row(r.Data.EvalName+" accuracy", "%.2f %%", 100*s.Evaluation.Accuracy)
	}
	if m := s.Private; m != nil {
		if m.Accuracy != nil {
			p.row("clients' accuracy", "%.2f %% (%.2f .. %.2f %%), measured on rows that they held out", 100*m.Accuracy.Value, 100*m.Accuracy.Low95, 100*m.Accuracy.High95)
		}
		p.row("clients' loss", "%.4f (%.4f .. %.4f), a row's loss cut at %.4g", m.Loss.Value, m.Loss.Low95, m.Loss.High95, m.LossLimit)
	}
	p.row("baseline", "%s", unitBaseline(s.Baseline, s.LabelUnit))
	if _, ok := s.Numbers["baseline_accuracy"]; ok {
		p.row(r.Data.EvalName+" loss", "%.4f, of the best constant %.4f", s.Evaluation.Loss, s.Baseline.Loss)
	}
	p.figures(s.Numbers, s.Evaluation, r.Data.ClassNames)
	p.coefficients(s.Coefficients, r.Config)
	if !r.Config.Trust.Is(dp.Protecting) {
		p.row("epsilon", "infinite: no privacy (--trust none)")
	} else {
		p.row("epsilon", "%s at delta = %g (%s, %s; %s one client)", roundUp(float64(s.Epsilon)), s.Delta, s.Bound, dp.Proved, dp.ReplaceOne)
	}
	p.row("rounds", "%d of %s, %s summed", s.Rounds, s.Optimizer, counted(s.ClientGradients, "report"))
	p.row("time", "%.0f s, %.0f reports/s", s.Seconds, s.ClientsPerSecond)
	p.row("model", "%s", filepath.Join(r.Dir, train.ModelFile))
	p.row("report", "%s", filepath.Join(r.Dir, train.ReportFile))
	return p.err
}
