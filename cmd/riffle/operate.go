package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
	"github.com/riffle-dp/riffle/service/store"
)

// mended are errors of what is stored that another start does not mend, nor time: only a person can.
var mended = []error{ledger.ErrMark, ledger.ErrChain, mark.Err, mark.ErrDamaged, store.ErrNoLedger, store.ErrSealed, store.ErrNewer, store.ErrDamaged,
	store.ErrClustered, document.ErrNewer, coordinator.ErrFatal, client.ErrNoLedger, client.ErrDamaged, client.ErrVersion}

// operateError gives errors of configurations, stores and the operator API their exit codes.
func operateError(err error) error {
	var api *connect.Error
	if errors.As(err, &api) {
		text := errors.New(api.Message())
		switch api.Code() {
		case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeUnimplemented:
			return usageError(text)
		case connect.CodeFailedPrecondition:
			return fmt.Errorf("%w%w", text, errRefused)
		}
		return text
	}
	switch {
	case slices.ContainsFunc(mended, func(by error) bool { return errors.Is(err, by) }):
		return fmt.Errorf("%w%w", err, errRefused)
	case errors.Is(err, config.ErrInvalid), errors.Is(err, store.ErrExists):
		return usageError(err)
	}
	return err
}

// operatorFlags name the running coordinator.
type operatorFlags struct{ config, socket string }

// flags adds the flags to a command, whose argument may be a task.
func (f *operatorFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", "the coordinator's configuration, which names its socket")
	cmd.Flags().StringVar(&f.socket, "socket", "", "the socket itself")
	cmd.ValidArgsFunction = f.tasks
}

// completionTime is the time for which a shell waits for a coordinator's tasks.
const completionTime = 2 * time.Second

// tasks completes a task's name. If no coordinator answers it offers nothing.
func (f *operatorFlags) tasks(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if c, err := f.client(); err == nil && cmd.Args != nil && cmd.Args(cmd, append(args, "")) == nil {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		if resp, err := c.ListTasks(ctx, connect.NewRequest(&operatorv1.ListTasksRequest{})); err == nil {
			for _, t := range resp.Msg.Tasks {
				names = append(names, fmt.Sprintf("%s\t%s, %s", t.Name, t.State, roundsRun(t)))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (f operatorFlags) client() (operatorv1.OperatorServiceClient, error) {
	switch {
	case (f.config == "") == (f.socket == ""):
		return nil, usage("give one of --config and --socket")
	case f.config != "":
		c, err := config.Load[config.Coordinator](f.config)
		if err != nil {
			return nil, operateError(err)
		}
		f.socket = c.Operator
	}
	if info, err := os.Stat(f.socket); err != nil {
		return nil, fmt.Errorf("no coordinator is running: %v", err)
	} else if info.Mode().Type() != os.ModeSocket {
		return nil, usage("%s is no socket", f.socket)
	}
	return operate.OperatorClient(f.socket), nil
}

func newLedger() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ledger", Short: "Show or verify a coordinator's ledger, or make its lost mark again",
		Long: `Ledger reads the budget of a population: what was charged, for which batch, and the
cost of all of it, computed again. The coordinator must not be running, except that
show asks a running one through its socket.`,
		Example: "  riffle ledger verify --config docs/deploy/coordinator.yaml",
		Args:    noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLedgerShow(), newLedgerVerify(), newLedgerRecoverMark())
	return cmd
}

func newLedgerShow() *cobra.Command {
	var config string
	var show output
	cmd := &cobra.Command{
		Use: "show", Short: "Show what was charged", Example: "  riffle ledger show --config docs/deploy/coordinator.yaml --json", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := operate.ReadLedger(cmd.Context(), config, true)
			if err != nil && r == nil {
				return operateError(err)
			}
			if show.json {
				return errors.Join(printJSON(cmd.OutOrStdout(), r), operateError(err))
			}
			p := printer{w: cmd.OutOrStdout()}
			for i, e := range r.Lines {
				p.line("%6d  task %.16s round %-6d %s", i+1, e.Task, e.Round, e.Event)
			}
			for _, t := range r.Tasks {
				p.row("task", "%.16s: %s, epsilon %s by itself", t.Task, counted(t.Entries, "entry"), roundUp(float64(t.Epsilon)))
			}
			p.row("epsilon", "%s at delta = %g (%s), of a budget of %g", roundUp(float64(r.Epsilon)), r.Delta, r.Method, r.Budget)
			p.row("method", "%s", cmp.Or(r.Basis, "nothing was charged"))
			return errors.Join(p.err, operateError(err))
		},
	}
	require(cmd, &config, "config", "the coordinator's configuration")
	show.flags(cmd.Flags())
	return cmd
}

func newLedgerVerify() *cobra.Command {
	var config string
	var show output
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the ledger's chain, compare it with its high-water mark, and compute its cost again",
		Long: `Verify exits with 0 if every entry follows the one before, the high-water mark
agrees, and the cost, computed again, is within the budget. It exits with 3 if the
ledger is missing, changed, behind its mark or above the budget, which only a person
can mend, and with 1 if the mark is behind the ledger, as a crash may leave it: the
coordinator's next start mends that.`,
		Example: "  riffle ledger verify --config docs/deploy/coordinator.yaml", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := operate.ReadLedger(cmd.Context(), config, false)
			if r == nil {
				return operateError(err)
			}
			r.Lines = nil
			if show.json {
				return errors.Join(printJSON(cmd.OutOrStdout(), r), operateError(err))
			}
			p := printer{w: cmd.OutOrStdout()}
			p.row("ledger", "%s, one chain; the mark agrees at entry %d", counted(r.Entries, "entry"), r.Marked)
			p.row("epsilon", "%s at delta = %g (%s), of a budget of %g", roundUp(float64(r.Epsilon)), r.Delta, r.Method, r.Budget)
			return errors.Join(p.err, operateError(err))
		},
	}
	require(cmd, &config, "config", "the coordinator's configuration")
	show.flags(cmd.Flags())
	return cmd
}

func newLedgerRecoverMark() *cobra.Command {
	var config string
	var heads []string
	var show output
	cmd := &cobra.Command{
		Use: "recover-mark", Short: "Make a ledger's lost high-water mark again, from what others were told",
		Long: `Recover-mark makes the file that mark: names, or the one with .rounds after its name,
if it is lost and the store is not. The mark tells an old copy of the store from the
real one, so it is in no backup; without it the coordinator does not start. With
announce-ledger: true others know how far the ledger was written: recover-mark asks the
shuffler, which must be running, and reads copies of clients' files heads (from dir: of
their configuration). It makes the mark only if the ledger has all that they were told
of, and exits with 3 if not: the store is then an old copy, and what was spent since is
not in it.

The shuffler gives no batch before it was told of the charge, so its word is enough if it is
honest and its store is not an old copy itself. Clients' files help against that: ask a few.

Of a round with proofs that was open and not settled yet nobody knows what was settled
afterwards: it ends without a step.`,
		Example: "  riffle ledger recover-mark --config docs/deploy/coordinator.yaml --heads client-1.heads --heads client-2.heads",
		Args:    noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := operate.RecoverMark(cmd.Context(), config, heads)
			if err != nil {
				return operateError(err)
			}
			if show.json {
				return printJSON(cmd.OutOrStdout(), r)
			}
			p := printer{w: cmd.OutOrStdout()}
			p.row("mark", "at entry %d, %.16s", r.Entries, r.Digest)
			p.row("told", "the shuffler of %s, clients of %d", counted(r.Shuffler, "entry"), r.Clients)
			if r.Lost > 0 {
				p.row("open", "%s with proofs will end without a step", counted(r.Lost, "round"))
			}
			return p.err
		},
	}
	require(cmd, &config, "config", "the coordinator's configuration")
	cmd.Flags().StringArrayVar(&heads, "heads", nil, "copy of a client's file heads; may be repeated")
	show.flags(cmd.Flags())
	return cmd
}

func newFsck() *cobra.Command {
	var config string
	var show output
	cmd := &cobra.Command{
		Use: "fsck coordinator|shuffler|aggregator|registrar", Short: "Check a role's store at rest",
		Long: `Fsck reads a store that is not in use and reports problems: a ledger that does not
agree with its mark, a released model that is missing or differs, reports or keys
left behind by a round that ended. It changes nothing. It exits with 1 if there is a
problem.`,
		Example: "  riffle fsck coordinator --config docs/deploy/coordinator.yaml",
		Args:    roleArg(serverRoles[:4]),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := operate.Check(cmd.Context(), args[0], config)
			if err != nil {
				return operateError(err)
			}
			if show.json {
				if err := printJSON(cmd.OutOrStdout(), r); err != nil {
					return err
				}
			} else {
				p := printer{w: cmd.OutOrStdout()}
				for _, x := range r.Problems {
					p.line("%s: %s", x.Where, plainly(x.What))
				}
				for _, kind := range slices.Sorted(maps.Keys(r.Checked)) {
					p.row(kind, "%d", r.Checked[kind])
				}
				if p.err != nil {
					return p.err
				}
			}
			if !r.Clean {
				return errors.New(counted(len(r.Problems), "problem"))
			}
			show.note(cmd.ErrOrStderr(), "clean")
			return nil
		},
	}
	require(cmd, &config, "config", "YAML configuration of the role")
	show.flags(cmd.Flags())
	return cmd
}

func newMigrate() *cobra.Command {
	var config, to string
	var show output
	cmd := &cobra.Command{
		Use: "migrate coordinator|shuffler|aggregator|registrar", Short: "Move a role's store, for instance to a cluster",
		Long: `Migrate copies a role's store to the place that another configuration of the same
role names, compares the two, and seals the old one for good. The role must not be
running, and its rounds should have ended. If Migrate is interrupted, run it again.
docs/deploy/GUIDE.md says how to grow to a cluster of three.`,
		Example: "  riffle migrate coordinator --config coordinator.yaml --to coordinator-cluster.yaml",
		Args:    roleArg(serverRoles[:4]),
		RunE: func(cmd *cobra.Command, args []string) error {
			if config == "" || to == "" {
				return usage("--config and --to are required")
			}
			v, err := operate.Migrate(cmd.Context(), args[0], config, to)
			if err != nil {
				return operateError(err)
			}
			if show.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{"role": args[0], "ledger_entries": v.Ledger, "keys": v.Keys, "secrets": v.Secrets,
					"streams": v.Streams, "messages": v.Messages, "objects": v.Objects, "digest": fmt.Sprintf("%x", v.Digest)})
			}
			p := printer{w: cmd.OutOrStdout()}
			p.row("moved", "%d ledger entries, %d keys, %d secrets, %d streams of %d messages, %d objects", v.Ledger, v.Keys, v.Secrets, v.Streams, v.Messages, v.Objects)
			p.row("digest", "%x, of both stores", v.Digest)
			show.note(cmd.ErrOrStderr(), "the old store is sealed; run the role with %s from now on", to)
			return p.err
		},
	}
	require(cmd, &config, "config", "configuration that names the old store")
	cmd.Flags().StringVar(&to, "to", "", "configuration that names the new store")
	show.flags(cmd.Flags())
	return cmd
}
