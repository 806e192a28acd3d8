package main

import (
	"encoding/json"
	"math"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/train"
)

func newEval() *cobra.Command {
	var data string
	var workers int64
	var asJSON bool
	cmd := &cobra.Command{
		Use: "eval MODEL", Short: "Evaluate a stored model on a test set",
		Long:    "Eval loads a model.safetensors, or the one in a run directory, and runs it on the data's test set.",
		Example: "  riffle eval runs/half\n  riffle eval model.safetensors --data mnist --json",
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
			e, err := stored.EvaluateTest(data, int(workers))
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if asJSON {
				enc := json.NewEncoder(w)
				enc.SetIndent("", "  ")
				return enc.Encode(map[string]any{
					"test_accuracy": train.Number(e.Accuracy()), "test_loss": e.Loss, "examples": e.Examples, "confusion": e.Confusion,
					"model": stored.Name, "model_parameters": len(stored.Theta), "epsilon": stored.Epsilon, "delta": stored.Delta,
				})
			}
			p := printer{w: w}
			p.row("model", "%s, %d parameters", stored.Name, len(stored.Theta))
			if !math.IsNaN(e.Accuracy()) {
				p.row("test accuracy", "%.2f %% of %d", 100*e.Accuracy(), e.Examples)
			}
			p.row("test loss", "%.4f on %d examples", e.Loss, e.Examples)
			p.row("trained at", "epsilon = %s, delta = %g", roundUp(float64(stored.Epsilon)), stored.Delta)
			return p.err
		},
	}
	cmd.Flags().StringVar(&data, "data", "mnist", "mnist, a folder of IDX or CIFAR-10 files, or a CSV file (all its rows)")
	cmd.Flags().Int64Var(&workers, "workers", 0, "worker goroutines (default: one per CPU)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
