package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dataset"
	"github.com/riffle-dp/riffle/train"
)

func newData() *cobra.Command {
	cmd := &cobra.Command{
		Use: "data", Short: "Look at or export a data set",
		Example: "  riffle data info\n  riffle data export --out /tmp/mnist",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDataInfo(), newDataExport())
	return cmd
}

type dataPart struct {
	Name     string  `json:"name"`
	Examples int     `json:"examples"`
	Width    int     `json:"width"`
	Height   int     `json:"height"`
	Channels int     `json:"channels"`
	Classes  int     `json:"classes"`
	PerClass []int64 `json:"per_class"`
}

func describe(name string, im *dataset.Images) dataPart {
	p := dataPart{Name: name, Examples: im.Len(), Width: im.Width, Height: im.Height, Channels: im.Channels,
		Classes: im.Classes, PerClass: make([]int64, im.Classes)}
	for _, y := range im.Labels {
		p.PerClass[y]++
	}
	return p
}

func newDataInfo() *cobra.Command {
	var data string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "info", Short: "Print a data set's shape and its classes",
		Example: "  riffle data info --data mnist --json", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			trainSet, test, err := train.LoadImages(data)
			if err != nil {
				return err
			}
			parts := []dataPart{describe("train", trainSet), describe("test", test)}
			w := cmd.OutOrStdout()
			if asJSON {
				enc := json.NewEncoder(w)
				enc.SetIndent("", "  ")
				return enc.Encode(map[string]any{"data": data, "parts": parts})
			}
			for _, p := range parts {
				if _, err := fmt.Fprintf(w, "%-6s %d images of %d×%d, %d channel(s), %d classes; per class %v\n",
					p.Name, p.Examples, p.Width, p.Height, p.Channels, p.Classes, p.PerClass); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&data, "data", "mnist", "mnist, or a folder of IDX or CIFAR-10 files")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newDataExport() *cobra.Command {
	var data, out string
	var zipped bool
	cmd := &cobra.Command{
		Use: "export", Short: "Write a data set as a folder of IDX files",
		Example: "  riffle data export --out /tmp/mnist --gzip", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return usage("--out is required: the folder to write")
			}
			if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
				return usage("--out %s is not empty", out)
			}
			trainSet, test, err := train.LoadImages(data)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return err
			}
			if err := dataset.WriteFolder(out, trainSet, test, zipped); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), out)
			return err
		},
	}
	cmd.Flags().StringVar(&data, "data", "mnist", "mnist, or a folder of IDX or CIFAR-10 files")
	cmd.Flags().StringVar(&out, "out", "", "folder to write, new or empty")
	cmd.Flags().BoolVar(&zipped, "gzip", false, "compress the files")
	return cmd
}
