package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/run/train"
)

func newEval() *cobra.Command {
	var data, program string
	var workers, seconds int64
	var asJSON, all bool
	cmd := &cobra.Command{
		Use: "eval MODEL", Short: "Evaluate a stored model on a test set",
		Long: `Eval loads a model.safetensors, or the one in a run directory, and runs it on the
data's test set. If the data is the table that the model was trained on, which Eval
recognises by the number of rows, the test set is the rows that training held out;
--all adds the others. With any other table it uses all rows.

A model whose gradients a program computed is evaluated by that program.`,
		Example: `  riffle eval runs/half
  riffle eval model.safetensors --data mnist --json
  riffle eval run --data others.csv
  riffle eval model.safetensors --gradients 'python3 grad.py'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("want one model file or run directory, got %d arguments (see riffle eval --help)", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			stored, err := train.ReadModel(args[0])
			if err != nil {
				return err
			}
			flags := cmd.Flags()
			c := train.Default()
			if isRun(args[0]) {
				if err := c.ReadConfig(filepath.Join(args[0], train.ConfigFile), func(name string) bool { return name == "gradients" && program != "" }); err != nil {
					return err
				}
			}
			var e *train.Tested
			switch {
			case program == "" && flags.Changed("answer-seconds"):
				return usage("--answer-seconds goes with a program, --gradients")
			case program == "" && stored.Name == "external":
				return usage("a program computed this model, and only a program evaluates it: name it with --gradients, as 'python3 grad.py'")
			case program == "":
				if data == "" {
					data = c.Data
				}
				e, err = stored.Test(data, all, int(workers))
			case data != "" || all || workers != 0:
				return usage("--data, --all and --workers say nothing of a model that a program evaluates: it has the data")
			case seconds < 1:
				return usage("--answer-seconds must be at least 1")
			default:
				e, err = stored.TestBy(cmd.Context(), program, seconds, programErrors(cmd.ErrOrStderr(), output{quiet: asJSON}))
			}
			if err != nil {
				return err
			}
			if e.Warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "riffle: warning:", e.Warning)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), evalDocument(stored, e))
			}
			return printEval(cmd.OutOrStdout(), stored, e)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "mnist, a folder of IDX or CIFAR-10 files, or a CSV file (default: of a run directory its own, else mnist)")
	cmd.Flags().StringVar(&program, "gradients", "", "the program that evaluates a model whose gradients it computed: a command line, as 'python3 grad.py', or unix:PATH")
	cmd.Flags().Int64Var(&seconds, "answer-seconds", int64(external.DefaultTimeout/time.Second), "time for an answer of the program")
	cmd.Flags().BoolVar(&all, "all", false, "count all rows of a CSV file, also those that trained the model")
	cmd.Flags().Int64Var(&workers, "workers", 0, "worker goroutines (default: one per CPU)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func evalDocument(stored *train.Stored, e *train.Tested) map[string]any {
	out := map[string]any{
		"test_accuracy": dp.Number(e.Accuracy), "test_loss": dp.Number(e.Loss), "examples": e.Examples, "confusion": e.Confusion,
		"baseline_accuracy": dp.Number(e.Baseline.Accuracy), "baseline_loss": dp.Number(e.Baseline.Loss), "counted": e.Set,
		"model": stored.Name, "model_parameters": len(stored.Theta), "epsilon": stored.Epsilon, "delta": stored.Delta,
	}
	if e.Classes != nil {
		out["classes"] = e.Classes
	}
	if e.Numbers != nil {
		out["metrics"] = asNumbers(e.Numbers)
	}
	if e.Rows > 0 {
		out["rows"] = e.Rows
		if e.Trained >= 0 {
			out["rows_trained_on"] = e.Trained
		}
	}
	if e.LabelUnit != 1 {
		out["label_unit"] = e.LabelUnit
	}
	if e.Warning != "" {
		out["warnings"] = []string{e.Warning}
	}
	if stored.Task != "" {
		out["task"], out["round"] = stored.Task, stored.Round
	}
	return out
}

// mostClasses is the largest number of classes that get a line each.
const mostClasses = 20

func printEval(w io.Writer, stored *train.Stored, e *train.Tested) error {
	p := printer{w: w}
	p.row("model", "%s, %d parameters", stored.Name, len(stored.Theta))
	if stored.Task != "" {
		p.row("from", "round %d of task %s", stored.Round, stored.Task)
	}
	switch {
	case e.Rows > 0 && e.Trained < 0:
		p.row("counted", "all %d rows; which of them trained the model, if any, is not known", e.Rows)
	case e.Trained > 0:
		p.row("counted", "all %d rows, of which %d were in the training part", e.Rows, e.Trained)
	case e.Rows > 0:
		p.row("counted", "the %d rows held out of training, of %d (--all counts all)", e.Examples, e.Rows)
	}
	of, on := fmt.Sprintf(" of %d", e.Examples), fmt.Sprintf(" on %d examples", e.Examples)
	if e.Examples == 0 { // a program need not say it
		of, on = "", ""
	}
	if !math.IsNaN(e.Accuracy) {
		p.row("test accuracy", "%.2f %%%s", 100*e.Accuracy, of)
	}
	if e.Numbers != nil && e.Confusion != nil {
		p.row("test loss", "%.4f%s, of the best constant %.4f", e.Loss, on, e.Baseline.Loss)
	} else {
		p.row("test loss", "%s%s", lossOf(e.Loss, e.LabelUnit, e.Label), on)
	}
	p.row("baseline", "%s", unitBaseline(e.Baseline, e.LabelUnit))
	if e.Numbers != nil {
		p.figures(asNumbers(e.Numbers), e.Evaluation, e.Classes)
	} else if len(e.Confusion) <= mostClasses {
		for k, row := range e.Confusion {
			all := 0
			for _, n := range row {
				all += n
			}
			name := fmt.Sprint(k)
			if k < len(e.Classes) {
				name = e.Classes[k]
			}
			if all > 0 {
				p.row("  "+name, "%.2f %% of %d", 100*float64(row[k])/float64(all), all)
			}
		}
	}
	p.row("trained at", "epsilon = %s, delta = %g", roundUp(float64(stored.Epsilon)), stored.Delta)
	return p.err
}
