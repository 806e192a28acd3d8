// Command riffle trains models privately in the shuffle model and says what
// that costs. Commands hold flags, files, printing and exit codes; what they
// compute lies in the packages below.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/experiment"
	"github.com/riffle-dp/riffle/ledger"
	"github.com/riffle-dp/riffle/plan"
	"github.com/riffle-dp/riffle/train"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the process at once. Nothing else stops listening: a
	// signal that comes when the work is done must not kill what is reporting it.
	context.AfterFunc(ctx, stop)

	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, "riffle:", strings.TrimSpace(err.Error()))
	return exitCode(err)
}

// usageError marks an error as the caller's: exit 2.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func exitCode(err error) int {
	var u usageError
	var refused refusedError
	switch {
	case errors.Is(err, train.ErrInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, ledger.ErrBudget), errors.As(err, &refused):
		return exitRefused
	case errors.As(err, &u), errors.Is(err, train.ErrInput):
		return exitUsage
	default:
		return exitFailed
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "riffle",
		Short: "Private distributed learning in the shuffle model of differential privacy",
		Long: `Clients keep their data; each sends a randomized report; a shuffler strips who
sent it; a coordinator learns a model; and riffle proves how little anyone's
data can have influenced what was seen.`,
		Example: `  riffle train                       # MNIST, 60,000 clients, a few minutes
  riffle eps --participation all --eps0 3 --n 60000 --rounds 80 --delta 1e-5`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	root.AddCommand(newTrain(), newEval(), newEps(), newPlan(), newAudit(), newSolve(), newExperiment(), newFigures(experiment.Recordings(), plan.Site), newData(),
		newDemo(), newServe(), newClient(), newInit(), newKeygen(), newTaskCommand(), newLedger(), newFsck(), newMigrate(), newVersion())
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
