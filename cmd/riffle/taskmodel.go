package main

import (
	"errors"
	"io/fs"
	"os"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/run/train"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

func newTaskModel() *cobra.Command {
	var f operatorFlags
	var show output
	var out string
	var overwrite bool
	cmd := &cobra.Command{
		Use: "model TASK", Short: "Write a task's last released model to a file",
		Long: `Model writes the parameters that a task released last to a safetensors file, with
everything that riffle eval needs to use them. The file's metadata names the task, the
round, the epsilon and delta of everything charged until now with the bound's name, and
the last entry of the ledger. The tensors of a program's model have the names and shapes
that the task says. An existing file is kept unless --overwrite is given; a file is
written whole or not at all.`,
		Example: `  riffle task model first --config docs/deploy/coordinator.yaml --out model.safetensors
  riffle eval model.safetensors --data mnist`, Args: taskArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usage("--out FILE says where to write the model")
			}
			switch info, err := os.Stat(out); {
			case err == nil && info.IsDir():
				return usage("--out %s is a directory, want a file's name", out)
			case err == nil && !overwrite:
				return usage("--out %s already exists; --overwrite replaces it", out)
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return usage("--out %v", err)
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			resp, err := c.GetModel(cmd.Context(), connect.NewRequest(&operatorv1.GetModelRequest{Task: args[0]}))
			if err != nil {
				return operateError(err)
			}
			if err := durable.WriteFile(out, resp.Msg.Safetensors); err != nil {
				return err
			}
			stored, err := train.ReadModel(out)
			if err != nil {
				return err
			}
			if show.json {
				return printJSON(cmd.OutOrStdout(), taskJSON(resp.Msg.Task, map[string]any{"file": out, "bytes": len(resp.Msg.Safetensors)}))
			}
			p := printer{w: cmd.OutOrStdout()}
			p.row("model", "%s, %d parameters", stored.Name, len(stored.Theta))
			p.row("from", "round %d of task %s", stored.Round, stored.Task)
			p.row("epsilon", "%s at delta = %g", roundUp(float64(stored.Epsilon)), stored.Delta)
			p.row("file", "%s", out)
			return p.err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write into `FILE` (required)")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace a file that exists")
	f.flags(cmd)
	show.flags(cmd.Flags())
	return cmd
}
