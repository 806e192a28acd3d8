package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/train"
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
	Name     string   `json:"name"`
	Examples int      `json:"examples"`
	Width    int      `json:"width"`
	Height   int      `json:"height"`
	Channels int      `json:"channels"`
	Classes  int      `json:"classes"`
	PerClass []int64  `json:"per_class"`
	Names    []string `json:"names,omitempty"`
}

func describe(name string, im *dataset.Images) dataPart {
	p := dataPart{Name: name, Examples: im.Len(), Width: im.Width, Height: im.Height, Channels: im.Channels,
		Classes: im.Classes, Names: im.Names, PerClass: make([]int64, im.Classes)}
	for _, y := range im.Labels {
		p.PerClass[y]++
	}
	return p
}

// declarations are what riffle data info takes of a table's columns.
var declarations = [3]string{"categories", "missing", "drop"}

func newDataInfo() *cobra.Command {
	var data, label string
	var declared [3]string
	var pictures pictureFlags
	var regression, ranges, asJSON bool
	cmd := &cobra.Command{
		Use: "info", Short: "Print a data set's shape and its classes",
		Long: `Info prints what a data set holds. With --ranges it also prints the range of each
column of a CSV file. It reads the ranges from the rows, which helps to find a mistake
in a file; the ranges for riffle train must be public, known without looking.`,
		Example: "  riffle data info --data mnist --json\n  riffle data info --data people.csv --label income", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.EqualFold(filepath.Ext(data), ".csv") {
				if label == "" {
					return usage("label is required with a .csv file: the column to predict")
				}
				for _, f := range pictures.rows() {
					if cmd.Flags().Changed(f.Name) {
						return usage("--%s goes with a folder of pictures, not with --data %s", f.Name, data)
					}
				}
				columns := dataset.CSVConfig{Label: label, Regression: regression}
				for i, what := range declarations {
					if err := columns.Declare(what, declared[i]); err != nil {
						return usage("--%s: %w", what, err)
					}
				}
				file, err := dataset.ReadCSV(data, columns)
				if errors.Is(err, fs.ErrNotExist) {
					return usage("data %s: no such file", data)
				}
				if err != nil {
					return usageError(fmt.Errorf("%w%s", err, train.Hint(err)))
				}
				return tableInfo(cmd.OutOrStdout(), data, label, file, ranges, asJSON)
			}
			for _, name := range append([]string{"label", "regression", "ranges"}, declarations[:]...) {
				if cmd.Flags().Changed(name) {
					return usage("--%s goes with a .csv file, not with --data %s", name, data)
				}
			}
			trainSet, test, err := train.LoadImages(pictures.of(data))
			if err != nil {
				return err
			}
			parts := []dataPart{describe("train", trainSet), describe("test", test)}
			w := cmd.OutOrStdout()
			if asJSON {
				return printJSON(w, map[string]any{"data": data, "parts": parts})
			}
			out := printer{w: w}
			for _, p := range parts {
				out.line("%-6s %d images of %d×%d, %d channel(s), %d classes; per class %v", p.Name, p.Examples, p.Width, p.Height, p.Channels, p.Classes, p.PerClass)
			}
			if trainSet.Names != nil {
				out.line("classes %s", oneLine(strings.Join(trainSet.Names, ", ")))
			}
			return out.err
		},
	}
	cmd.Flags().StringVar(&data, "data", "mnist", "mnist, a folder of IDX or CIFAR-10 files or of pictures, or a .csv file")
	cmd.Flags().StringVar(&label, "label", "", "column of a .csv file to predict")
	var rows setting.Table
	for i, what := range declarations {
		rows = append(rows, setting.Field{Name: what, Into: &declared[i], Check: checkOf(what), Help: rowOf(what).Help})
	}
	bind(cmd, append(rows, pictures.rows()...))
	cmd.Flags().BoolVar(&regression, "regression", false, "the column to predict holds numbers, not classes")
	cmd.Flags().BoolVar(&ranges, "ranges", false, "also print the least and greatest value of each column of a .csv file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// pictureFlags say how a folder of PNG and JPEG files is read.
type pictureFlags struct{ size, colours string }

func (p *pictureFlags) rows() setting.Table {
	return setting.Table{
		{Name: "image-size", Into: &p.size, Check: checkOf("image-size"), Help: rowOf("image-size").Help},
		{Name: "image-colours", Into: &p.colours, Values: valuesOf("image-colours"), Help: rowOf("image-colours").Help},
	}
}

// of returns the configuration for LoadImages, with a fifth of the pictures for the test.
func (p *pictureFlags) of(data string) train.Config {
	c := train.Default()
	c.Data, c.ImageSize, c.ImageColours, c.TestFraction = data, p.size, p.colours, .2
	return c
}

type columnRange struct {
	Name string  `json:"name"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// tableInfo describes a CSV file's rows.
func tableInfo(w io.Writer, data, label string, file *dataset.CSV, ranges, asJSON bool) error {
	t := file.Table
	count := make([]int64, len(file.Labels))
	for _, y := range t.Y {
		count[y]++
	}
	var columns []columnRange
	if ranges {
		for j, name := range file.Columns {
			r := columnRange{name, math.Inf(1), math.Inf(-1)}
			for i := range t.Len() {
				v := float64(t.Row(i)[j])
				r.Low, r.High = min(r.Low, v), max(r.High, v)
			}
			columns = append(columns, r)
		}
	}
	if asJSON {
		doc := map[string]any{"data": data, "rows": t.Len(), "columns": file.Columns, "label": label, "classes": file.Labels, "per_class": count}
		if ranges {
			doc["ranges"] = columns
		}
		return printJSON(w, doc)
	}
	p := printer{w: w}
	p.line("%d rows; features %s", t.Len(), oneLine(strings.Join(file.Columns, ", ")))
	for i, name := range file.Labels {
		p.line("%s = %s: %d rows", label, oneLine(name), count[i])
	}
	for _, r := range columns {
		p.line("%s: %v to %v", oneLine(r.Name), r.Low, r.High)
	}
	return p.err
}

func newDataExport() *cobra.Command {
	var data, out string
	var pictures pictureFlags
	var synthetic dataset.SyntheticKind
	var zipped bool
	var n, dim int64
	var seed uint64
	cmd := &cobra.Command{
		Use: "export", Short: "Write a data set as a folder of IDX files, or synthetic rows as a CSV file",
		Example: "  riffle data export --out /tmp/mnist --gzip\n  riffle data export --synthetic logistic --n 1e4 --dim 5 --out people.csv", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return usage("--out is required: the folder, or with --synthetic the .csv file, to write")
			}
			foreign := []string{"n", "dim", "seed"}
			if synthetic != "" {
				foreign = []string{"data", "gzip", "image-size", "image-colours"}
			}
			for _, name := range foreign {
				if cmd.Flags().Changed(name) {
					return usage("--%s %s --synthetic", name, map[bool]string{true: "does not go with", false: "goes with"}[synthetic != ""])
				}
			}
			if synthetic == dataset.SyntheticShop && cmd.Flags().Changed("dim") {
				return usage("--dim contradicts --synthetic shop, which has columns of its own")
			}
			if synthetic != "" {
				if err := exportSynthetic(out, dataset.SyntheticConfig{Kind: synthetic, Dim: int(dim), Rows: int(n), HeldOut: true, Seed: seed}); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), out)
				return err
			}
			if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
				return usage("--out %s is not empty", out)
			}
			trainSet, test, err := train.LoadImages(pictures.of(data))
			if err != nil {
				return err
			}
			if trainSet.Channels != 1 {
				return usage("data %s: %d channels, an IDX file holds 1 (--image-colours grey makes one of a picture)", data, trainSet.Channels)
			}
			if err := dataset.WriteFolder(out, trainSet, test, zipped); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), out)
			return err
		},
	}
	cmd.Flags().StringVar(&data, "data", "mnist", "mnist, or a folder of IDX or CIFAR-10 files or of pictures")
	cmd.Flags().StringVar(&out, "out", "", "folder to write, new or empty; with --synthetic a new .csv file")
	cmd.Flags().BoolVar(&zipped, "gzip", false, "compress the files")
	bind(cmd, setting.Table{
		{Name: "synthetic", Into: &synthetic, Values: append(laws(), string(dataset.SyntheticShop)+"\tcustomers: text, empty cells, a rare class"), Help: "write rows of this law instead: %s (see riffle solve)"},
		{Name: "n", Into: &n, Default: "10000", Help: "synthetic rows (1e6 notation is fine)"},
		{Name: "dim", Into: &dim, Default: "5", Help: "features of a synthetic row"},
	})
	bind(cmd, pictures.rows())
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of synthetic rows")
	return cmd
}

// exportSynthetic writes rows to a file that is not there yet.
func exportSynthetic(path string, c dataset.SyntheticConfig) error {
	if !strings.EqualFold(filepath.Ext(path), ".csv") {
		return usage("--out %s must end in .csv", path)
	}
	if c.Dim > dataset.MaxCSVCells/max(1, c.Rows) {
		return usage("--n %d times --dim %d exceeds the %d values that a file may have", c.Rows, c.Dim, dataset.MaxCSVCells)
	}
	if err := newFile(path); err != nil {
		return err
	}
	var text bytes.Buffer
	if c.Kind == dataset.SyntheticShop {
		if err := dataset.WriteShop(&text, c.Rows, c.Seed); err != nil {
			return usage("%v", err)
		}
	} else {
		rows, _, err := dataset.NewSynthetic(c)
		if err != nil {
			return usage("%v", err)
		}
		if err := dataset.WriteCSV(&text, rows); err != nil {
			return err
		}
	}
	return durable.WriteFile(path, text.Bytes())
}
