package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/operate"
)

var serverRoles = []string{operate.RoleCoordinator, operate.RoleShuffler, operate.RoleAggregator, operate.RoleRegistrar, operate.RoleRelay, operate.RoleWorker, operate.RoleAll}

// roleArg accepts one of the roles as the only argument.
func roleArg(roles []string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || !slices.Contains(roles, args[0]) {
			return usage("want one of %s (see %s --help)", strings.Join(roles, ", "), cmd.CommandPath())
		}
		return nil
	}
}

const singleOperator = "single-operator mode: the shuffle does not protect from its operator"

// underDemo is a hidden flag of processes that a demo starts. They end when their standard
// input is closed, for whatever reason. A coordinator announces no round before it reads a
// line there; clients write a line when they are ready.
const underDemo = "under-demo"

// Lines by which a demo and its processes communicate.
const (
	beginLine = "begin"
	readyLine = "ready"
)

func addUnderDemo(fs *pflag.FlagSet) {
	fs.Bool(underDemo, false, "stop when standard input is closed")
	_ = fs.MarkHidden(underDemo) // cannot fail: the flag exists
}

// service runs f as a server: exit 0 after SIGTERM, which asks a server to stop, and 130
// after an interrupt.
func service(cmd *cobra.Command, f func(context.Context, operate.Options) error) error {
	o := serverOptions(cmd)
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if on, _ := cmd.Flags().GetBool(underDemo); on {
		begin := make(chan struct{})
		o.Hold = begin
		o.Ready = func() { _, _ = fmt.Fprintln(cmd.OutOrStdout(), readyLine) } // if nobody reads it, this process is about to be ended
		go func() {
			release := sync.OnceFunc(func() { close(begin) })
			for lines := bufio.NewScanner(os.Stdin); lines.Scan(); { // ends with this process
				if lines.Text() == beginLine {
					release()
				}
			}
			cancel()
		}()
	}
	err := f(ctx, o)
	// A server that is asked to stop while it starts has not failed.
	if ended := cmd.Context().Err() != nil; err != nil && !(ended && errors.Is(err, context.Canceled)) {
		return operateError(err)
	} else if !ended {
		return nil
	}
	if terminated(cmd.Context()) {
		return nil
	}
	return fmt.Errorf("interrupted: %w", context.Canceled)
}

// checkFlag is the flag that checks a configuration instead of serving it.
type checkFlag struct {
	on   bool
	show output
}

func (c *checkFlag) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.on, "check", false, "try the configuration, keys, store and peers, and end")
	fs.BoolVar(&c.show.json, "json", false, "with --check: print what was found as one JSON document")
}

func (c *checkFlag) run(cmd *cobra.Command, role, config, program string) error {
	found, err := operate.Inspect(cmd.Context(), role, config, program)
	if err != nil {
		return operateError(err)
	}
	var wrong, away bool // whether the configuration is at fault, and whether a peer or a store did not answer
	for _, f := range found {
		wrong = wrong || f.Error != "" && !f.Unreachable
		away = away || f.Unreachable
	}
	if c.show.json {
		err = printJSON(cmd.OutOrStdout(), map[string]any{"right": !wrong && !away, "checks": found})
	} else {
		p := printer{w: cmd.OutOrStdout()}
		for _, f := range found {
			what := f.What
			if role == operate.RoleAll {
				what = f.Role + ": " + what
			}
			switch {
			case f.Look:
				p.line("look     %s: %s", what, plainly(f.Note))
			case f.Note != "":
				p.line("ok       %s: %s", what, plainly(f.Note))
			case f.Error == "":
				p.line("ok       %s", what)
			case f.Unreachable:
				p.line("away     %s: %s", what, plainly(f.Error))
			default:
				p.line("wrong    %s: %s", what, plainly(strings.TrimPrefix(plainly(f.Error), "configuration: ")))
			}
		}
		err = p.err
	}
	switch {
	case err != nil:
		return err
	case wrong:
		return usage("the configuration is not right yet")
	case away:
		return errors.New("not all peers answer")
	}
	return nil
}

func newServe() *cobra.Command {
	var config, program string
	var check checkFlag
	cmd := &cobra.Command{
		Use:   "serve coordinator|shuffler|aggregator|registrar|relay|worker|all",
		Short: "Run a role as a server",
		Long: `Serve runs a role until it is stopped. On SIGTERM it finishes the requests under way
and exits with 0. Its log is JSON on stderr and names no client. docs/deploy/ has a
commented configuration for each role; docs/deploy/GUIDE.md explains all steps.

With --check it does not serve. It prints one line for each check: whether the
configuration is complete, whether keys and store exist, and whether peers answer with
the keys that this role expects. Exit code 2 means that something must be mended here;
1 means that a peer does not answer.

With --evaluate a program of yours evaluates the models of tasks whose clients' programs
compute the gradients (model external): a command that riffle starts, or unix: and the
path of a socket. Its numbers are shown wherever accuracy is. It runs beside the rounds,
which never wait for it; if it fails, riffle task show says why and the task goes on.

A relay passes sealed requests of clients on to the shuffler, which then does not see
their addresses. It can read none of them, keeps nothing and needs no riffle init.

A worker opens batches for a coordinator with opening: workers, over a queue in the
coordinator's store. On SIGTERM it finishes the ranges that it has begun. It has no ledger,
signs nothing, keeps nothing and needs no riffle init.

With "all" every role runs in this process, for development.`,
		Example: `  riffle serve shuffler --config docs/deploy/shuffler.yaml
  riffle serve shuffler --config docs/deploy/shuffler.yaml --check
  riffle serve coordinator --config docs/deploy/coordinator.yaml --evaluate 'python3 python/examples/numpy_mlp.py'`,
		Args: roleArg(serverRoles),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case program != "" && args[0] != operate.RoleCoordinator && args[0] != operate.RoleAll:
				return usage("--evaluate goes with the coordinator, which has the models, not with %s", args[0])
			case cmd.Flags().Changed("evaluate") && strings.TrimSpace(program) == "":
				return usage("--evaluate names no program")
			}
			if check.on {
				return check.run(cmd, args[0], config, program)
			}
			if args[0] == operate.RoleAll {
				fmt.Fprintln(cmd.ErrOrStderr(), "riffle:", singleOperator)
			}
			if args[0] == operate.RoleShuffler && os.Getenv("GOGC") == "" {
				collectSeldom()
			}
			return service(cmd, func(ctx context.Context, o operate.Options) error {
				o.Evaluate = program
				return operate.Serve(ctx, args[0], config, o)
			})
		},
	}
	require(cmd, &config, "config", "YAML configuration of the role")
	cmd.Flags().StringVar(&program, "evaluate", "", "program that evaluates models of programs, in place of the configuration's: a command, or unix:PATH")
	check.flags(cmd.Flags())
	addUnderDemo(cmd.Flags())
	return cmd
}

// collectSeldom lets a shuffler's memory grow to three times of what is in use, or to five times if
// GOMEMLIMIT bounds it. A report leaves 16 kB of garbage, most of it from opening.
func collectSeldom() {
	percent := 200
	if os.Getenv("GOMEMLIMIT") != "" {
		percent = 400
	}
	debug.SetGCPercent(percent)
}

func serverOptions(cmd *cobra.Command) operate.Options {
	level := new(slog.LevelVar)
	number, _ := version()
	return operate.Options{Log: endpoint.NewLogger(cmd.ErrOrStderr(), level), Level: level, Version: number, Pages: pages()}
}

func newClient() *cobra.Command {
	var config, program string
	var seconds int64
	var check checkFlag
	var load loadFlags
	cmd := &cobra.Command{
		Use:   "client",
		Short: "Take part with one or many clients",
		Long: `Client takes part in tasks with the credentials and data of its configuration. It
refuses what its policy does not allow, and charges its own ledger before a report
leaves. It runs until it is stopped, or until the last of the named tasks has ended.

With --gradients a program of yours has the data and computes the gradients: a
command that riffle starts, or unix: and the path of a socket on which the program
listens, for this process and others. Credential i of the configuration is client
first + i to the program (first: is a key of the configuration, 0 by default).

Nobody on the network sees what the program does. Reports leave when the time for
its answers is over, whenever it answers; a program that fails, hangs or answers
wrongly only makes this client report a gradient of 0, which the log here says.
Riffle opens it again.

With --load the clients are virtual, for a plan of capacity (docs/capacity.md): they
report zeros in one task as fast as they may, for --seconds, and print how long the
servers took. Sessions, announcements and models are part of it. Their reports count
in the task's rounds like any other, and each round is charged: make a task for it,
and enrol credentials that are nobody's. Clients that have a ledger are refused.`,
		Example: `  riffle init client --config docs/deploy/client.yaml
  riffle client --config docs/deploy/client.yaml --check
  riffle client --config docs/deploy/client.yaml
  riffle client --config docs/deploy/client.yaml --gradients 'python3 python/examples/numpy_mlp.py'
  riffle client --config load.yaml --load "$TASK" --connections resumed --at-once 256 --seconds 120`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			switch {
			case given("gradients") && strings.TrimSpace(program) == "":
				return usage("--gradients names no program")
			case given("answer-seconds") && (seconds < 1 || seconds > 86400):
				return usage("--answer-seconds = %d must be between 1 and 86400", seconds)
			}
			if err := load.check(given); err != nil {
				return err
			}
			if given("load") {
				return load.run(cmd, config, check.show)
			}
			if check.on {
				return check.run(cmd, operate.RoleClient, config, program)
			}
			return service(cmd, func(ctx context.Context, o operate.Options) error {
				o.Gradients, o.Answer = program, time.Duration(seconds)*time.Second
				return operate.Serve(ctx, operate.RoleClient, config, o)
			})
		},
	}
	require(cmd, &config, "config", "YAML configuration of the clients")
	cmd.Flags().StringVar(&program, "gradients", "", "program that has the data, in place of the configuration's: a command, or unix:PATH")
	cmd.Flags().Int64Var(&seconds, "answer-seconds", 0, "time for a gradient in a round, of the program or of the data (default: a quarter of the round, at most 120 with a program and 10 without)")
	load.flags(cmd.Flags())
	check.flags(cmd.Flags())
	cmd.Flags().Lookup("json").Usage = "with --check and --load: print the result as one JSON document"
	addUnderDemo(cmd.Flags())
	return cmd
}

func newInit() *cobra.Command {
	var config string
	var show output
	cmd := &cobra.Command{
		Use:   "init coordinator|shuffler|aggregator|registrar|all|client",
		Short: "Make a role's empty store",
		Long: `Init makes a role's store and, for a coordinator, the ledger and its high-water mark.
No other command makes a ledger: a new ledger would be a new budget, so a role whose
store is missing refuses to start.`,
		Example: `  riffle init coordinator --config docs/deploy/coordinator.yaml`,
		Args:    roleArg(append(slices.DeleteFunc(slices.Clone(serverRoles), func(r string) bool { return r == operate.RoleRelay || r == operate.RoleWorker }), operate.RoleClient)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := operate.Init(cmd.Context(), args[0], config); err != nil {
				return operateError(err)
			}
			show.note(cmd.ErrOrStderr(), "made an empty store for: %s", args[0])
			if show.json {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "{\"role\": %q}\n", args[0])
				return err
			}
			return nil
		},
	}
	require(cmd, &config, "config", "YAML configuration of the role")
	show.flags(cmd.Flags())
	return cmd
}
