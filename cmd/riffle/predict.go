package main

import (
	"bytes"
	"encoding/csv"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/run/train"
)

func newPredict() *cobra.Command {
	var data, out string
	var workers int64
	var coefficients bool
	cmd := &cobra.Command{
		Use: "predict MODEL", Short: "Predict for each row of a table",
		Long: `Predict loads a model.safetensors, or the one in a run directory, that was trained on
a table, and prints what it predicts for each row of another: CSV with a header, a
class with the probabilities of all classes, or a number in the label's own units.
Columns are taken by name, in any order; others, and the label's, are not read. Text, empty cells and ranges are
read as the model's training declared them. --coefficients prints what a linear model
adds to its score for 1 of each column's own unit. Names are printed without control
characters; --out has them as they are.`,
		Example: `  riffle predict run --data new.csv
  riffle predict model.safetensors --data new.csv --out predictions.csv
  riffle predict run --coefficients`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("want one model file or run directory, got %d arguments (see riffle predict --help)", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case data == "" && !coefficients:
				return usage("data is required: a CSV file (or --coefficients)")
			case data != "" && coefficients:
				return usage("--coefficients contradicts --data: they follow from the model alone")
			}
			if out != "" {
				if err := newFile(out); err != nil {
					return err
				}
			}
			stored, err := train.ReadModel(args[0])
			if err != nil {
				return err
			}
			var rows [][]string
			if coefficients {
				if rows, _ = coefficientTable(stored.Coefficients(), train.Config{}); rows == nil {
					return usage("--coefficients goes with a linear model of a table, not with this %s", stored.Name)
				}
			} else if rows, err = stored.Predict(data, int(workers)); err != nil {
				return err
			}
			var text bytes.Buffer
			if err := csv.NewWriter(&text).WriteAll(rows); err != nil {
				return err
			}
			if out != "" {
				return durable.WriteFile(out, text.Bytes())
			}
			_, err = cmd.OutOrStdout().Write(text.Bytes())
			return err
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "CSV file, whose rows are predicted for")
	cmd.Flags().StringVar(&out, "out", "", "write to this file (default: print)")
	cmd.Flags().BoolVar(&coefficients, "coefficients", false, "print the coefficients of a linear model by column instead")
	cmd.Flags().Int64Var(&workers, "workers", 0, "worker goroutines (default: one per CPU)")
	return cmd
}
