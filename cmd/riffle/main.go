// Command riffle trains models privately in the shuffle model and computes what that costs.
// This package has the flags, files, printing and exit codes; the packages that it imports
// compute.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/paper/experiment"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
)

// Exit codes, part of the command line's contract.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitInterrupted = 130
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	stdout, stderr = &visibleWriter{w: stdout}, &visibleWriter{w: stderr}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	root := newRoot()
	// Signals are caught even when the work is done: one must not stop the printing of its result.
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	defer close(done)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go attend(signals, done, patienceWith(topCommand(root, args)), cancel, func(why string) {
		time.AfterFunc(time.Second, func() { os.Exit(exitInterrupted) }) // also if nobody reads standard error
		fmt.Fprintln(stderr, "riffle:", why)
		os.Exit(exitInterrupted)
	})

	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if _, rest, found := root.Find(args); found == nil {
		args = rest
	}
	fmt.Fprintln(stderr, "riffle:", told(err, args))
	code := exitCode(err)
	if code == exitFailed && aboutArgument(err, args) {
		return exitUsage
	}
	return code
}

// topCommand returns the name of the command that arguments name, without its subcommand.
func topCommand(root *cobra.Command, args []string) string {
	cmd, _, err := root.Find(args)
	if err != nil || cmd == root {
		return ""
	}
	for cmd.Parent() != root {
		cmd = cmd.Parent()
	}
	return cmd.Name()
}

// told returns what is printed of an error.
func told(err error, args []string) string {
	text := withoutPackages(err.Error(), args)
	if errors.Is(err, context.Canceled) && text == context.Canceled.Error() { // whoever waited had nothing to say
		return "interrupted"
	}
	return text
}

// aboutArgument says whether an error is that a file or folder named by an argument cannot be
// read or made: that is bad input, not a failure of the work.
func aboutArgument(err error, args []string) bool {
	var path *fs.PathError
	if !errors.As(err, &path) || !errors.Is(path.Err, fs.ErrNotExist) && !errors.Is(path.Err, fs.ErrExist) &&
		!errors.Is(path.Err, fs.ErrPermission) && !errors.Is(path.Err, durable.ErrNoFile) && !errors.Is(path.Err, syscall.ENOTDIR) && !errors.Is(path.Err, syscall.EISDIR) {
		return false
	}
	return slices.ContainsFunc(args, func(a string) bool {
		if _, value, ok := strings.Cut(a, "="); ok && strings.HasPrefix(a, "-") {
			a = value
		}
		dir, name := filepath.Split(filepath.Clean(path.Path))
		in, given := filepath.Split(filepath.Clean(a))
		// This is the path itself, a path in it or above it, or the temporary file that
		// becomes it.
		return a != "" && (strings.HasPrefix(filepath.Clean(a), filepath.Clean(path.Path)+string(filepath.Separator)) || dir == in && (name == given || strings.HasPrefix(name, "."+given+"-")) || filepath.Clean(dir) == filepath.Clean(a))
	})
}

// usageError marks an error as the caller's mistake: exit code 2.
func usageError(err error) error { return fmt.Errorf("%w%w", err, train.ErrInput) }

func usage(format string, args ...any) error { return usageError(fmt.Errorf(format, args...)) }

// errRefused is wrapped by refusals for privacy: exit code 3. It has no text of its own.
var errRefused = errors.New("")

func exitCode(err error) int {
	switch {
	case errors.Is(err, train.ErrInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, ledger.ErrBudget), errors.Is(err, errRefused):
		return exitRefused
	case errors.Is(err, train.ErrInput), errors.Is(err, measure.ErrInput):
		return exitUsage
	default:
		return exitFailed
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "riffle",
		Short: "Private distributed learning in the shuffle model of differential privacy",
		Long: `Clients keep their data, and each sends a randomized report. A shuffler removes the
senders' identities; a coordinator learns a model. Riffle proves how little any one
client's data can have influenced what was seen.`,
		Example: `  riffle train                       # MNIST, 60,000 clients, a minute or two
  riffle eps --participation all --eps0 3 --n 60000 --rounds 80 --delta 1e-5`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: missing,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var invalid *pflag.InvalidValueError
		if errors.As(err, &invalid) {
			text := plainly(invalid.Unwrap().Error())
			number, kind := new(strconv.NumError), invalid.GetFlag().Value.Type()
			if errors.As(err, &number) && strings.Contains(kind, "int") { // not of a table
				text = fmt.Sprintf("%q must be a whole number", number.Num)
				if strings.HasPrefix(kind, "uint") {
					text += " from 0 on"
				}
			}
			err = fmt.Errorf("--%s %s", invalid.GetFlag().Name, text)
		}
		return usageError(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
	})
	root.AddCommand(newTrain(), newEval(), newPredict(), newEps(), newPlan(), newAudit(), newSolve(), newMeasure(), newExperiment(), newFigures(experiment.Recordings(), planSite), newData(), newGradients(),
		newDemo(), newServe(), newClient(), newInit(), newKeygen(), newTaskCommand(), newRegistrar(), newLedger(), newFsck(), newMigrate(), newVersion(), newAccountant())
	root.SetUsageTemplate(usageByPart(root))
	root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), "{{. | trimTrailingWhitespaces}}", "{{fold .}}", 1))
	for _, c := range root.Commands() {
		// A usage line such as "init coordinator|shuffler" lists the argument's possible
		// values; completion offers them.
		if _, names, ok := strings.Cut(c.Use, " "); ok && strings.Contains(names, "|") && c.ValidArgsFunction == nil {
			c.ValidArgs = strings.Split(names, "|")
		}
	}
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return root
}

// noArgs refuses arguments as bad usage, with exit code 2.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return usage("unknown command %q (see %s --help)", args[0], cmd.CommandPath())
	}
	return usage("unexpected argument %q (see %s --help)", args[0], cmd.CommandPath())
}
