package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/train"
)

// bind gives a command a flag for each row of a table, with its default and the completion of
// its values.
func bind(cmd *cobra.Command, t setting.Table) {
	t.Reset()
	for _, f := range t {
		flag := cmd.Flags().VarPF(f, f.Name, "", f.Usage())
		if f.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
		if f.Part != "" {
			must(cmd.Flags().SetAnnotation(f.Name, partOf, []string{f.Part}))
		}
		if !f.File {
			complete(cmd, f.Name, f.Values...)
		}
	}
}

// require gives a command a flag that it does not run without.
func require(cmd *cobra.Command, into *string, name, help string) {
	cmd.Flags().StringVar(into, name, "", help)
	must(cmd.Flags().SetAnnotation(name, required, nil))
}

// missing refuses to run a command without what it requires.
func missing(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Annotations[required]; ok && f.Value.String() == "" && err == nil {
			err = usage("--%s is required", f.Name)
		}
	})
	return err
}

// beside returns the name of the first flag that was given and is not allowed, or "" if there
// is none.
func beside(cmd *cobra.Command, allowed ...string) (name string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if name == "" && !slices.Contains(allowed, f.Name) {
			name = f.Name
		}
	})
	return name
}

// complete makes a shell offer these values of a flag, each perhaps with a tab and a note.
func complete(cmd *cobra.Command, flag string, values ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}

// completeList is complete for a flag that takes several values, separated by commas.
func completeList(cmd *cobra.Command, flag string, values ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		for _, v := range values {
			out = append(out, before+v)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}))
}

// suites lists the suites of sealing keys; config.ParseSuite reads them.
var suites = [...]string{"x25519", "mlkem768x25519\tagainst quantum computers of the future"}

// others accepts any text: a command refuses unknown values where it uses them.
func others(string) error { return nil }

// must panics on an error that can only be a mistake in this program.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// trainRows are riffle train's settings.
var trainRows = sync.OnceValue(func() setting.Table {
	c := train.Default()
	return c.Fields()
})

// rowOf returns riffle train's row of a setting.
func rowOf(name string) setting.Field {
	rows := trainRows()
	return rows[slices.IndexFunc(rows, func(f setting.Field) bool { return f.Name == name })]
}

// valuesOf returns the values that riffle train accepts for a setting, checkOf what refuses a
// text that it does not.
func valuesOf(name string) []string          { return rowOf(name).Values }
func checkOf(name string) func(string) error { return rowOf(name).Check }

// laws returns the laws of synthetic rows.
func laws() []string {
	return words(dataset.SyntheticLogistic, dataset.SyntheticHinge, dataset.SyntheticAbsolute)
}

// words converts typed names to strings.
func words[T ~string](names ...T) (out []string) {
	for _, name := range names {
		out = append(out, string(name))
	}
	return out
}

// Annotations of flags: the heading under which help shows the flag, and the mark of a flag
// that must be given.
const partOf, required = "part", "required"

// usageByPart returns cobra's template of help with the flags of each part together.
func usageByPart(root *cobra.Command) string {
	cobra.AddTemplateFunc("byPart", byPart)
	cobra.AddTemplateFunc("fold", func(text string) string { return fold(text, helpColumns(proseColumns)) })
	return strings.Replace(root.UsageTemplate(), "Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{byPart .LocalFlags}}", 1)
}

// fold breaks paragraphs into lines that fit a terminal; indented lines stay as they are.
func fold(text string, width int) string {
	var out strings.Builder
	column := 0
	for line := range strings.Lines(strings.TrimSpace(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || line[0] == ' ' {
			if column > 0 {
				out.WriteByte('\n')
			}
			out.WriteString(line)
			column = 0
			continue
		}
		for _, w := range words {
			switch n := utf8.RuneCountInString(w); {
			case column == 0:
				column = n
			case column+1+n > width:
				out.WriteByte('\n')
				column = n
			default:
				out.WriteByte(' ')
				column += 1 + n
			}
			out.WriteString(w)
		}
	}
	return out.String()
}

// Lines of help on flags are as long as the terminal's, within limits: shorter ones leave
// no room beside the names of flags, longer ones are hard to read.
const leastHelp, mostHelp, proseColumns = 72, 120, 88

func helpColumns(most int) int { return min(max(leastHelp, columnsOf(os.Stdout, most)), most) }

func byPart(all *pflag.FlagSet) string {
	var parts []string
	sets := map[string]*pflag.FlagSet{}
	all.VisitAll(func(f *pflag.Flag) {
		part := "Flags"
		if names := f.Annotations[partOf]; names != nil {
			part = names[0]
		}
		if sets[part] == nil {
			sets[part] = pflag.NewFlagSet(part, pflag.ContinueOnError)
			sets[part].SortFlags = all.SortFlags
			parts = append(parts, part)
		}
		sets[part].AddFlag(f)
	})
	// Flags that belong to no part come last.
	if i := slices.Index(parts, "Flags"); i >= 0 {
		parts = append(slices.Delete(parts, i, i+1), "Flags")
	}
	var text []string
	width := helpColumns(mostHelp)
	for _, part := range parts {
		text = append(text, part+":\n"+strings.TrimRight(sets[part].FlagUsagesWrapped(width), "\n"))
	}
	return strings.Join(text, "\n\n")
}

// newFile refuses an --out that cannot become a new file.
func newFile(out string) error {
	if _, err := os.Lstat(out); err == nil {
		return usage("--out %s exists", out)
	}
	return inFolder("out", out)
}

// inFolder refuses a file in a folder that is not there, and a folder.
func inFolder(flag, file string) error {
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return usage("--%s %s: there is no folder %s", flag, file, filepath.Dir(file))
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return usage("--%s %s is a folder, want a file", flag, file)
	}
	return nil
}
