package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/paper/figures"
)

// figureFlags are the flags of riffle figures.
type figureFlags struct {
	out, site string
	only      []string
	results   string
	list      bool
	show      output
}

// sitePlan writes the planning page into a directory.
type sitePlan func(ctx context.Context, dir string, show output, stderr io.Writer) error

// newFigures returns the command riffle figures. recorded holds the experiments' e1.csv,
// e2.csv, …. If both are nil, figures from experiments have the papers' points only, and there is
// no --site.
func newFigures(recorded fs.FS, plan sitePlan) *cobra.Command {
	var f figureFlags
	cmd := &cobra.Command{
		Use:   "figures",
		Short: "Draw every figure and table of the papers, with riffle's bounds beside them",
		Long: `Figures writes each figure of the papers as SVG (a second one for phones, with the
legend below) and PNG, its data as CSV, and a note that says where it differs from the
paper's and why. It also writes claims.csv, with the numbers that the papers' texts
state, the noise of single messages beside a trusted curator's (noise-eps0, noise-eps,
noise-table, noise-trust-table), and index.html, which shows everything. It computes the bounds itself, in
minutes; accuracies come from recorded experiments. Ctrl-C keeps what is finished;
--only adds figures to the same directory.`,
		Example: `  riffle figures --out figures
  riffle figures --out figures --only g21-2a,claims
  riffle figures --list`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, recorded, plan) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.out, "out", "", "write into `DIR`")
	fs.StringSliceVar(&f.only, "only", nil, "draw these figures only, comma-separated")
	all, _ := figures.List() // cannot fail: all of them
	var names []string
	for _, fig := range all {
		names = append(names, fig.Name)
	}
	completeList(cmd, "only", names...)
	fs.StringVar(&f.results, "results", "", "read the experiments' e1.csv, e2.csv, ... from `DIR` instead of the recorded ones")
	fs.BoolVar(&f.list, "list", false, "list the figures")
	if plan != nil {
		fs.StringVar(&f.site, "site", "", "write a static site into `DIR`: the figures, and the planning page in DIR/plan")
	}
	fs.BoolVar(&f.show.json, "json", false, "print the result as one JSON document")
	fs.BoolVar(&f.show.quiet, "quiet", false, "print nothing but the result and errors")
	return cmd
}

// listedJSON is a figure of --list --json.
type listedJSON struct {
	Name  string `json:"name"`
	Paper string `json:"paper"`
	Where string `json:"where"`
	Title string `json:"title"`
}

// figuresJSON is the document of --json.
type figuresJSON struct {
	Dir     string          `json:"dir"`
	Figures []figures.Drawn `json:"figures"`
	Seconds float64         `json:"seconds"`
}

func (f figureFlags) run(cmd *cobra.Command, recorded fs.FS, plan sitePlan) error {
	p := printer{w: cmd.OutOrStdout()}
	dir := f.out
	switch {
	case f.list:
		list := []listedJSON{}
		all, _ := figures.List() // cannot fail: all of them
		for _, fig := range all {
			list = append(list, listedJSON{fig.Name, fig.Paper, fig.Where, fig.Title})
			if !f.show.json {
				p.row(fig.Name, "%s, %s: %s", fig.Paper, fig.Where, fig.Title)
			}
		}
		if f.show.json {
			return printJSON(cmd.OutOrStdout(), map[string]any{"figures": list})
		}
		return p.err
	case f.out != "" && f.site != "":
		return usage("--site %s contradicts --out %s: a site has the figures too", f.site, f.out)
	case f.site != "":
		dir = f.site
		if info, err := os.Stat(dir); err == nil && !info.IsDir() { // before anything is compiled
			return usage("--site %s: not a directory", dir)
		}
	case f.out == "":
		return usage("--out DIR says where to write (--list lists the figures)")
	}
	if _, err := figures.List(f.only...); err != nil {
		return usageError(err)
	}
	c := figures.Config{Dir: dir, Only: f.only, Results: recorded, Begin: func(name string, number, of int) {
		f.show.note(cmd.ErrOrStderr(), "figure %d of %d: %s", number, of, name)
	}}
	if f.results != "" {
		if info, err := os.Stat(f.results); err != nil || !info.IsDir() {
			return usage("--results %s: no such directory", f.results)
		}
		c.Results = os.DirFS(f.results)
	}
	if f.site != "" {
		c.Plan = "plan/index.html" // the full path also works if no server adds index.html
		if err := plan(cmd.Context(), dir, f.show, cmd.ErrOrStderr()); err != nil {
			return err
		}
	}
	start := time.Now()
	drawn, err := figures.Write(cmd.Context(), c)
	if err != nil {
		if errors.Is(err, cmd.Context().Err()) {
			f.show.note(cmd.ErrOrStderr(), "interrupted: %d figures are in %s", len(drawn), dir)
		}
		return err
	}
	seconds := time.Since(start).Seconds()
	if f.show.json {
		return printJSON(cmd.OutOrStdout(), figuresJSON{dir, drawn, seconds})
	}
	for _, d := range drawn {
		p.row(d.Name, "%s (%.1f s)", strings.Join(d.Files, " "), d.Seconds)
	}
	p.row("index", "%s", filepath.Join(dir, "index.html"))
	return p.err
}
