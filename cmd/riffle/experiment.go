package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/picture"
	"github.com/riffle-dp/riffle/paper/experiment"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/simulate"
	"github.com/riffle-dp/riffle/run/train"
)

// experimentFlags are the flags of riffle experiment.
type experimentFlags struct {
	options         experiment.Options
	quick           bool
	table, recorded bool
	show            output
}

func newExperiment() *cobra.Command {
	var f experimentFlags
	cmd := &cobra.Command{
		Use:   "experiment list|e1|e2|e3|e4|e5|e6|e7",
		Short: "Repeat the papers' experiments",
		Long: `Experiment runs the settings of one of the papers' experiments, each with seeds
1 to --seeds, and prints what the paper says beside what was measured.

Every run has a directory under --out. Start an experiment that was interrupted or
killed again with the same --out, and it continues. Finished runs are kept; a larger
--seeds only adds the new ones. The directory also gets results.csv, results.md and
results.svg.`,
		Example: `  riffle experiment list
  riffle experiment e7 --seeds 3
  riffle experiment e1 --setting coordinate --seeds 1 --out runs/one
  riffle experiment e1 --table
  riffle experiment e6 --recorded`,
		ValidArgsFunction: experimentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("want one experiment, or list (see %s --help)", cmd.CommandPath())
			}
			return f.run(cmd, args[0])
		},
	}
	fs, o := cmd.Flags(), &f.options
	fs.IntVar(&o.Seeds, "seeds", 3, "run each setting with seeds 1 to this")
	fs.StringVar(&o.Dir, "out", "", "directory of the experiment (default: runs/NAME, with --quick runs/NAME-quick)")
	fs.StringArrayVar(&o.Only, "setting", nil, "run this setting only, or all whose name begins with it and a slash; may be repeated")
	fs.BoolVar(&f.quick, "quick", false, "a fiftieth of the rounds or a tenth of the clients: shows that it runs, and nothing else")
	fs.BoolVar(&f.table, "table", false, "run nothing: the tables of what is in --out")
	fs.BoolVar(&f.recorded, "recorded", false, "run nothing: the tables of the results that come with riffle")
	must(cmd.RegisterFlagCompletionFunc("setting", settingNames))
	fs.StringVar(&o.Data, "data", "", "in place of mnist: a folder as of riffle train --data")
	bind(cmd, setting.Table{{Name: "workers", Into: &o.Workers, Range: "[1, 4096]", Help: "worker goroutines (default: one per CPU); results do not depend on it"}})
	f.show.flags(fs)
	fs.SortFlags = false
	return cmd
}

// experimentNames completes the argument.
func experimentNames(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		names = append(names, "list\twhat there is")
		for _, e := range experiment.List() {
			names = append(names, e.Name+"\t"+e.Title)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// settingNames completes --setting if the experiment is known.
func settingNames(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) == 1 {
		for _, e := range experiment.List(args[0]) {
			for _, s := range e.Settings {
				names = append(names, s.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (f *experimentFlags) run(cmd *cobra.Command, name string) error {
	if name == "list" {
		if flag := beside(cmd, "json", "quiet", "no-progress"); flag != "" {
			return usage("--%s contradicts list", flag)
		}
		return f.list(cmd.OutOrStdout())
	}
	found := experiment.List(name)
	if len(found) == 0 {
		return usage("experiment %q must be one of e1 to e7, or list", name)
	}
	e := found[0]
	given := cmd.Flags().Changed
	switch {
	case f.options.Seeds < 1 || f.options.Seeds > 1000:
		return usage("--seeds %d must lie between 1 and 1000", f.options.Seeds)
	case given("data") && f.options.Data == "":
		return usage("--data is empty, want a folder")
	case f.table && f.recorded:
		return usage("--table contradicts --recorded")
	case f.recorded && (given("out") || f.quick):
		return usage("--recorded contradicts --out and --quick: recorded results are in the program")
	}
	for _, flag := range []string{"seeds", "setting", "data", "workers"} {
		if given(flag) && (f.table || f.recorded) {
			return usage("--%s contradicts --table and --recorded, which run nothing", flag)
		}
	}
	if f.options.Dir == "" {
		f.options.Dir = filepath.Join("runs", name)
		if f.quick {
			f.options.Dir += "-quick"
		}
	}
	if f.quick {
		e = e.Quick()
	}
	if f.recorded {
		rows, err := experiment.Recorded(name)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fmt.Errorf("%s is not recorded", name)
		}
		return f.print(cmd.OutOrStdout(), e, rows, "")
	}
	if f.table {
		return f.tabulate(cmd, e)
	}
	f.show.note(cmd.ErrOrStderr(), "%s: %s", e.Name, e.Title)
	f.show.note(cmd.ErrOrStderr(), "simulation: every role runs in this process and noise comes from seeds; this protects nobody's data")
	f.show.note(cmd.ErrOrStderr(), "directory: %s", f.options.Dir)
	ended := e.Run(cmd.Context(), f.options, f.observer(cmd.ErrOrStderr()))
	if errors.Is(ended, train.ErrInput) {
		return ended
	}
	if ended != nil {
		f.show.note(cmd.ErrOrStderr(), "what was finished is kept: the same command goes on from there")
		return ended
	}
	return f.tabulate(cmd, e)
}

// observer returns an observer that prints the progress of an experiment.
func (f *experimentFlags) observer(stderr io.Writer) experiment.Observer {
	var bar *progress
	return experiment.Observer{
		Begun: func(s experiment.Setting, seed int64, finished bool) {
			what := "begins"
			if finished {
				what = "is finished"
			}
			f.show.note(stderr, "%s, seed %d %s", sized(s), seed, what)
		},
		Training: func(r *train.Run) train.Observer {
			if r.Resumed > 0 {
				f.show.note(stderr, "resumed after round %d", r.Resumed)
			}
			bar = newProgress(stderr, f.show, r)
			return train.Observer{Reports: bar.reports, Evaluated: bar.evaluated,
				Round:   func(result simulate.Result) { bar.round(result.Round) },
				Stopped: func(reason string) { bar.line("training stops: %s", reason) }}
		},
		Trained: func(r *train.Run, s *train.Summary) error {
			bar.finish()
			if s == nil {
				return nil
			}
			return writeReport(r, s, false)
		},
		Solved: func(s experiment.Setting, seed int64, excess, seconds float64) {
			f.show.note(stderr, "%s, seed %d: excess loss %.4g, %.1f s", sized(s), seed, excess, seconds)
		},
	}
}

func sized(s experiment.Setting) string {
	if c := s.Solve; c != nil {
		return fmt.Sprintf("%s, n = %s, d = %d, epsilon = %g", s.Name, picture.Number(float64(c.N)), c.Dim, c.Epsilon)
	}
	return s.Name
}

// tabulate writes the results files and prints the tables.
func (f *experimentFlags) tabulate(cmd *cobra.Command, e experiment.Experiment) error {
	rows, err := e.Collect(cmd.Context(), f.options.Dir)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return usage("%s holds no results of %s", f.options.Dir, e.Name)
	}
	return f.print(cmd.OutOrStdout(), e, rows, f.options.Dir)
}

// print prints the tables and, if there is a directory, writes the files in it.
func (f *experimentFlags) print(w io.Writer, e experiment.Experiment, rows []experiment.Row, dir string) error {
	var rivals []experiment.Row
	for _, name := range e.Rivals {
		more, err := experiment.Recorded(name)
		if err != nil {
			return err
		}
		rivals = append(rivals, more...)
	}
	t := experiment.NewTable(e, rows, rivals)
	files := map[string][]byte{}
	if dir != "" {
		files = t.Files(experimentCommand)
		for name, p := range experimentPictures(t) {
			text, err := p.Render(".svg")
			if err != nil {
				return err
			}
			files[name] = text
		}
		for name, text := range files {
			if err := durable.WriteFile(filepath.Join(dir, name), text); err != nil {
				return err
			}
		}
	}
	if f.show.json {
		return printJSON(w, newExperimentDocument(t, dir))
	}
	p := printer{w: w}
	p.line("%s", strings.TrimRight(t.Text(), "\n"))
	if dir != "" {
		p.line("")
		for _, name := range slices.Sorted(maps.Keys(files)) {
			p.row(strings.TrimPrefix(filepath.Ext(name), "."), "%s", filepath.Join(dir, name))
		}
	}
	return p.err
}

// experimentCommand returns the command that runs a setting by itself, with seed 1.
func experimentCommand(s experiment.Setting) string {
	if s.Train != nil {
		return command(s.Asked())
	}
	c := s.Solve
	words := []string{"riffle solve", "--synthetic", c.Synthetic, "--n", picture.Number(float64(c.N)), "--dim", fmt.Sprint(c.Dim),
		"--rows", fmt.Sprint(c.Rows), "--optimizer", c.Optimizer, "--trust", string(c.Trust)}
	if c.Trust.Is(dp.Protecting) {
		words = append(words, "--epsilon", fmt.Sprint(c.Epsilon), "--delta", fmt.Sprint(c.Delta))
	}
	if c.Lambda > 0 {
		words = append(words, "--lambda", fmt.Sprint(c.Lambda))
	}
	return strings.Join(words, " ")
}

// styled returns the i-th line of a picture, without points.
func styled(name string, i int) picture.Line {
	l := picture.Line{Name: name, Style: picture.Style{Colour: picture.Palette[i%len(picture.Palette)]}}
	if i >= len(picture.Palette) { // colours repeat from here on
		l.Style.Dash = picture.LongDash
	}
	return l
}

// experimentPictures returns results.svg, accuracy against proved ε by setting, or for each
// loss a picture of the excess loss against n.
func experimentPictures(t experiment.Table) map[string]picture.Picture {
	out := map[string]picture.Picture{}
	for _, o := range t.Outcomes {
		if o.N > 0 {
			method, loss := path.Split(o.Setting.Name)
			file := "results-" + loss + ".svg"
			p, ok := out[file]
			if !ok {
				p = picture.Picture{Title: "Excess population loss, " + loss, X: picture.Axis{Label: "n"}, Y: picture.Axis{Label: "excess loss"}}
			}
			name := fmt.Sprintf("%s, d = %d, ε = %g", strings.Trim(method, "/"), o.Dim, o.Epsilon)
			i := slices.IndexFunc(p.Lines, func(l picture.Line) bool { return l.Name == name })
			if i < 0 {
				i, p.Lines = len(p.Lines), append(p.Lines, styled(name, len(p.Lines)))
			}
			p.Lines[i].X, p.Lines[i].Y = append(p.Lines[i].X, float64(o.N)), append(p.Lines[i].Y, o.Value.Mean)
			out[file] = p
			continue
		}
		p, ok := out["results.svg"]
		if !ok {
			p = picture.Picture{Title: t.Experiment.Title, X: picture.Axis{Label: "ε (nats), proved"}, Y: picture.Axis{Label: "accuracy in %"}}
		}
		l := styled(o.Setting.Name, len(p.Lines))
		for _, point := range o.Curve {
			if eps := point.EpsProved; !math.IsInf(eps, 0) && !math.IsNaN(eps) {
				l.X, l.Y = append(l.X, eps), append(l.Y, 100*point.Value)
			}
		}
		p.Lines = append(p.Lines, l)
		out["results.svg"] = p
	}
	for file, p := range out {
		// A single point is not a line: those settings vary something else than n.
		p.Lines = slices.DeleteFunc(p.Lines, func(l picture.Line) bool { return len(l.X) < 2 })
		if out[file] = p; len(p.Lines) == 0 {
			delete(out, file)
		}
	}
	return out
}

func (f *experimentFlags) list(w io.Writer) error {
	type entry struct {
		Name     string   `json:"name"`
		Title    string   `json:"title"`
		Source   string   `json:"source"`
		Settings []string `json:"settings"`
		Recorded bool     `json:"recorded"`
	}
	var all []entry
	for _, e := range experiment.List() {
		rows, err := experiment.Recorded(e.Name)
		if err != nil {
			return err
		}
		x := entry{Name: e.Name, Title: e.Title, Source: e.Source, Recorded: len(rows) > 0}
		for _, s := range e.Settings {
			if !slices.Contains(x.Settings, s.Name) {
				x.Settings = append(x.Settings, s.Name)
			}
		}
		all = append(all, x)
	}
	if f.show.json {
		return printJSON(w, all)
	}
	p := printer{w: w}
	for _, x := range all {
		p.line("%s  %s", x.Name, x.Title)
		p.line("    %s", x.Source)
		p.line("    %s", strings.Join(x.Settings, ", "))
	}
	return p.err
}

// experimentDocument is the JSON of riffle experiment.
type experimentDocument struct {
	Experiment  string              `json:"experiment"`
	Title       string              `json:"title"`
	Source      string              `json:"source"`
	Directory   string              `json:"directory,omitempty"`
	Settings    []experimentSetting `json:"settings"`
	Comparisons []experimentPaper   `json:"paper"`
	Slopes      []experimentSlope   `json:"slopes,omitempty"`
	Notes       []string            `json:"notes"`
}

type experimentStat struct {
	Mean dp.Number `json:"mean"`
	Min  dp.Number `json:"min"`
	Max  dp.Number `json:"max"`
}

type experimentSetting struct {
	Setting    string         `json:"setting"`
	Paper      bool           `json:"paper"`
	Seeds      int            `json:"seeds"`
	Unfinished int            `json:"unfinished"`
	Rounds     int64          `json:"rounds"`
	EpsProved  dp.Number      `json:"eps_proved"`
	EpsBest    dp.Number      `json:"eps_best"`
	EpsPaper   dp.Number      `json:"eps_paper"`
	Value      experimentStat `json:"value"`
	Seconds    experimentStat `json:"seconds"`
	N          int64          `json:"n,omitempty"`
	Dim        int64          `json:"dim,omitempty"`
	Epsilon    float64        `json:"epsilon,omitempty"`
	Command    string         `json:"command"`
}

type experimentPaper struct {
	Value       float64   `json:"value"`
	Eps         float64   `json:"eps"`
	About       string    `json:"about,omitempty"`
	Setting     string    `json:"setting"`
	Same        dp.Number `json:"same_formula"`
	Final       dp.Number `json:"final"`
	FinalProved dp.Number `json:"final_eps_proved"`
	Ours        dp.Number `json:"riffle"`
	OurSetting  string    `json:"riffle_setting"`
	OurProved   dp.Number `json:"riffle_eps_proved"`
}

type experimentSlope struct {
	Setting string  `json:"setting"`
	Dim     int64   `json:"dim"`
	Epsilon float64 `json:"epsilon"`
	Slope   float64 `json:"slope"`
}

func newExperimentDocument(t experiment.Table, dir string) experimentDocument {
	stat := func(s experiment.Stat) experimentStat {
		return experimentStat{dp.Number(s.Mean), dp.Number(s.Min), dp.Number(s.Max)}
	}
	e := t.Experiment
	d := experimentDocument{Experiment: e.Name, Title: e.Title, Source: e.Source, Directory: dir,
		Settings: []experimentSetting{}, Comparisons: []experimentPaper{}, Notes: append([]string{}, e.Notes...)}
	for _, o := range t.Outcomes {
		x := experimentSetting{Setting: o.Setting.Name, Paper: o.Setting.Paper, Seeds: o.Seeds, Unfinished: o.Unfinished, Rounds: o.Rounds,
			EpsProved: dp.Number(o.EpsProved), EpsBest: dp.Number(o.EpsBest), EpsPaper: dp.Number(o.EpsPaper),
			Value: stat(o.Value), Seconds: stat(o.Seconds), N: o.N, Dim: o.Dim, Command: experimentCommand(o.Setting)}
		if o.N > 0 {
			x.Epsilon = o.Epsilon
		}
		d.Settings = append(d.Settings, x)
	}
	for _, c := range t.Comparisons {
		d.Comparisons = append(d.Comparisons, experimentPaper{Value: c.Claim.Value, Eps: c.Claim.Eps, About: c.Claim.About, Setting: c.Setting,
			Same: dp.Number(c.Same.Mean), Final: dp.Number(c.Final.Mean), FinalProved: dp.Number(c.FinalProved),
			Ours: dp.Number(c.Ours.Mean), OurSetting: c.OurSetting, OurProved: dp.Number(c.OurProved)})
	}
	for _, s := range t.Slopes {
		d.Slopes = append(d.Slopes, experimentSlope{s.Setting, s.Dim, s.Epsilon, s.Slope})
	}
	return d
}
