package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/wire"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

func newTaskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "task", Short: "Create, list, show, stop, resume or remove a running coordinator's tasks",
		Long: `Task speaks with a running coordinator through its socket (service/proto/riffle/operator/v1),
which only its owner may open.`,
		Example: `  riffle task create --config docs/deploy/coordinator.yaml --name first --task task.yaml
  riffle task list --config docs/deploy/coordinator.yaml --json`,
		Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTaskCreate(), newTaskList(), newTaskShow(), newTaskModel(), newTaskAnswer(), newTaskStop(), newTaskResume(), newTaskRemove())
	return cmd
}

// taskJSON returns a task as the command line prints it; the keys are part of the contract. The
// entries of more are added.
func taskJSON(t *operatorv1.Task, more map[string]any) map[string]any {
	rejected, failed := map[string]int64{}, map[string]int64{} // so that JSON never has null
	maps.Copy(rejected, t.Rejected)
	maps.Copy(failed, t.Failed)
	out := map[string]any{"task": t.Id, "name": t.Name, "state": t.State, "why": t.Why, "phase": t.Phase,
		"trust": t.Trust, "participation": t.Participation, "n_min": t.NMin, "spare_reports": t.SpareReports,
		"round": t.Round, "rounds": t.Rounds, "rounds_released": t.Released, "rounds_void": t.RoundsVoid, "rounds_failed": t.RoundsFailed,
		"rounds_failed_by_reason": failed, "steps_shortened": t.StepsShortened, "reports_accepted": t.Reports, "reports_rejected": rejected,
		"model": t.Model, "epsilon": dp.Number(t.Epsilon), "delta": t.Delta, "ledger_entries": t.LedgerEntries}
	for key, v := range map[string]*float64{"test_accuracy": t.Accuracy, "test_loss": t.Loss,
		"baseline_accuracy": t.BaselineAccuracy, "baseline_loss": t.BaselineLoss} {
		if v != nil {
			out[key] = *v
		}
	}
	if t.LargestReport != 0 {
		out["largest_report"] = t.LargestReport
	}
	if t.LargestReportTries != 0 {
		out["largest_report_tries"] = t.LargestReportTries
	}
	if t.Eps0 != 0 {
		out["eps0"], out["eps0_asked"] = t.Eps0, t.Eps0Asked
	}
	if t.Messages > 1 {
		out["messages"], out["local_epsilon"] = t.Messages, t.LocalEpsilon
	}
	if t.Proofs != "" {
		out["noise_by"], out["proofs"] = t.NoiseBy, t.Proofs
	}
	if t.FailedRound != 0 {
		out["failed_round"] = t.FailedRound
	}
	if t.Failure != "" {
		out["failure"] = t.Failure
	}
	if t.Error != "" {
		out["error"] = t.Error
	}
	if t.EvaluatedRound != 0 { // a program evaluates
		out["evaluated_round"], out["metrics"] = t.EvaluatedRound, asNumbers(t.Numbers)
	}
	if t.EvaluationError != "" {
		out["evaluation_error"] = t.EvaluationError
	}
	if t.Question != "" {
		out["measure"] = t.Question
	}
	maps.Copy(out, more)
	return out
}

// planJSON is the cost of a new task's rounds if as many clients take part as it expects.
type planJSON struct {
	Epsilon dp.Number `json:"epsilon"`
	Delta   float64   `json:"delta"`
	Method  string    `json:"method"`
	Rounds  int64     `json:"rounds"`
	Fit     int64     `json:"rounds_that_fit"`
	Limit   string    `json:"limit,omitempty"` // the refusal of the next round
	// KnowsWho is Epsilon to somebody who knows who takes part, for a client in every round; absent: the same.
	KnowsWho float64 `json:"knows_who,omitempty"`
	// FurtherSums is how many sums with the same delta the population has room for besides; absent: it is no sum.
	FurtherSums *int64 `json:"further_sums,omitempty"`
}

func showPlan(p *printer, plan *operatorv1.Plan) {
	all, fit := "all "+counted(plan.Rounds, "round"), "fit"
	if plan.Rounds == 1 {
		all, fit = "the round", "fits"
	}
	p.row("planned cost", "epsilon <= %s at delta = %g for %s (%s)", roundUp(plan.Epsilon), plan.Delta, all, plan.Method)
	if eps := plan.KnownEpsilon; eps > 0 {
		p.row("", "epsilon <= %s to who knows who took part, as the shuffler: a client in every round", roundUp(eps))
	}
	if n := plan.FurtherSums; n != nil {
		p.row("tails", "room for %s in the population's delta", counted(*n, "further sum"))
	}
	if plan.Limit == "" {
		p.row("budget", "%s %s the task's and the population's, as the ledger stands", all, fit)
		return
	}
	p.row("budget", "%d of %s fit; the next is refused: %s", plan.Fit, counted(plan.Rounds, "round"), plainly(plan.Limit))
}

// showTokens prints what a task's tokens cost, by the figures of BENCHMARKS.md.
func showTokens(p *printer, t *operatorv1.Task) {
	w := wire.Task{Rounds: t.Rounds, Trust: dp.Trust(t.Trust), Participation: dp.Participation(t.Participation), Messages: t.Messages}
	n := w.LastRound() * w.PerClient()
	p.row("tokens", "%d a client, signed once in about %.2g s of the registrar's time; about %.2g ms a report to verify, %d bytes", n, 3e-3*float64(n), .03*float64(w.PerClient()), wire.TokenBytes*w.PerClient())
	p.row("", "rounds are charged for n-min = %d clients: choose it close to the reports that come", t.NMin)
}

func showTask(cmd *cobra.Command, show output, t *operatorv1.Task) error {
	if show.json {
		return printJSON(cmd.OutOrStdout(), taskJSON(t, nil))
	}
	p := printer{w: cmd.OutOrStdout()}
	printTask(&p, t)
	return p.err
}

func printTask(p *printer, t *operatorv1.Task) {
	p.row("task", "%s", t.Id)
	p.row("name", "%s", t.Name)
	if t.Question != "" {
		p.row("question", "%s", t.Question)
	}
	state := t.State
	if t.Why != "" {
		state += ": " + t.Why
	}
	p.row("state", "%s", plainly(state))
	if t.Phase == "standby" {
		p.row("here", "a standby: another coordinator leads the task, and knows the rest")
	}
	p.row("protocol", "%s, %s, n-min %d", t.Trust, t.Participation, t.NMin)
	if t.Eps0 > 0 {
		name := "one report"
		if t.Messages > 1 {
			name = "one message"
		}
		p.row(name, "promises %s", alone(t.Eps0, t.Eps0Asked))
	}
	if t.LargestReport > 0 {
		text := moves(t.LargestReport)
		if t.LargestReportTries > 0 {
			text += ": " + tried
		}
		p.row("largest report", "moves the mean by up to %s; no step is longer than honest reports give", text)
	}
	if t.Messages > 1 {
		p.row("one client", "sends %d messages a round: epsilon %s together without the shuffle", t.Messages, roundUp(t.LocalEpsilon))
	}
	if t.Proofs != "" {
		if t.NoiseBy == string(vecsum.ByClients) {
			p.row("noise", "by %s, apart from their vectors: that of n-min, or of the share of them that is honest, hides a client", t.NoiseBy)
		} else {
			p.row("noise", "by %s: as much of each as hides a client, whoever else takes part", t.NoiseBy)
		}
		p.row("proofs", "%s: reports whose norm is not proved are left out, which costs no privacy", t.Proofs)
	} else if dp.Trust(t.Trust).Is(dp.SumsOnly) {
		p.row("left out", "at most %d of a round of %d, or it gives no step (colluders, honest)", t.SpareReports, t.NMin)
	}
	if t.Phase == "standby" {
		return
	}
	p.row("rounds", "%s: %d released, %d failed", roundsRun(t), t.Released, t.RoundsFailed)
	if t.Failure != "" {
		p.row("", "round %d gave no step: %s", t.FailedRound, t.Failure)
	}
	if t.StepsShortened > 0 {
		p.row("", "%d steps were longer than honest reports give, and made shorter", t.StepsShortened)
	}
	p.row("reports", "%d summed", t.Reports)
	for _, reason := range slices.Sorted(maps.Keys(t.Rejected)) {
		p.row("", "%d %s", t.Rejected[reason], reason)
	}
	p.row("epsilon", "%s at delta = %g (%s)", roundUp(t.Epsilon), t.Delta, counted(t.LedgerEntries, "ledger entry"))
	if t.Accuracy != nil {
		p.row("accuracy", "%.2f %%%s", 100**t.Accuracy, besides(t.BaselineAccuracy, func(x float64) string { return fmt.Sprintf("%.2f %%", 100*x) }))
	}
	if t.Loss != nil {
		p.row("loss", "%.4f%s", *t.Loss, besides(t.BaselineLoss, func(x float64) string { return fmt.Sprintf("%.4f", x) }))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Numbers)) {
		p.row(name, "%.6g", t.Numbers[name])
	}
	if t.EvaluationError != "" {
		p.row("evaluation", "failed after round %d: %s", t.EvaluatedRound, plainly(t.EvaluationError))
	} else if t.EvaluatedRound != 0 && t.EvaluatedRound != t.Round {
		p.row("evaluation", "of the model after round %d", t.EvaluatedRound)
	}
	if t.Question == "" {
		p.row("model", "%s", t.Model)
	} else if t.Released > 0 {
		p.row("answer", "riffle task answer %s", t.Name)
	}
	if t.Error != "" {
		p.row("last error", "%s", plainly(t.Error))
	}
}

// besides describes the best constant's result on the same data; "" if there is none.
func besides(baseline *float64, text func(float64) string) string {
	if baseline == nil {
		return ""
	}
	return fmt.Sprintf(", the best constant %s", text(*baseline))
}

func newTaskCreate() *cobra.Command {
	var f operatorFlags
	var name, file string
	var round time.Duration
	var show output
	var settings taskSettings
	config := &settings.train
	cmd := &cobra.Command{
		Use: "create", Short: "Create a task and start it",
		Long: `Create makes the coordinator sign a task and start it. A task has the settings of
riffle train, from a file and from flags; flags win. Settings that a network cannot
follow are refused. Each client decides by its own policy whether to take part.

With --model external and --dim the clients' programs compute the gradients of a model
of their own (riffle client --gradients), of up to 1e7 parameters. The task says only
how many there are, their names and shapes, and with --initial where they start.

With --measure, or a file that says measure, the task asks a question in place of a
model (riffle measure --help): its answer is released once, riffle task answer shows it.
Of the other settings such a task has trust, noise-by, epsilon, delta, k, n-min,
receipts and tokens.

Create prints the cost of all rounds if the expected number of clients report, and how
many rounds the budgets allow as the ledger stands. It refuses a task that could not
run with exit code 2, and a task whose first round does not fit the budgets with 3;
neither leaves a trace.`,
		Example: `  riffle task create --config docs/deploy/coordinator.yaml --name first --task task.yaml
  riffle task create --config docs/deploy/coordinator.yaml --name second --eps0 2 --rounds 20 --n-min 500
  riffle task create --config docs/deploy/coordinator.yaml --name own --model external --dim 7850 \
    --parameters 'weight=10x784 bias=10' --initial start.safetensors
  riffle task create --config docs/deploy/coordinator.yaml --name ages --measure histogram \
    --column age --bins 0..100:20 --epsilon 1`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asks, err := settings.read(cmd, file)
			if err != nil {
				return err
			}
			if file != "" && !cmd.Flags().Changed("initial") && config.Initial != "" && !filepath.IsAbs(config.Initial) {
				config.Initial = filepath.Join(filepath.Dir(file), config.Initial)
			}
			initial, err := config.ReadInitial()
			if err != nil {
				return usageError(err)
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			text, err := settings.text(asks)
			if err != nil {
				return err
			}
			resp, err := c.CreateTask(cmd.Context(), connect.NewRequest(&operatorv1.CreateTaskRequest{Name: name, Config: string(text), Initial: initial,
				RoundSeconds: round.Seconds()}))
			if err != nil {
				return operateError(err)
			}
			if plan := resp.Msg.Plan; plan != nil && !show.quiet {
				warnLargeEps(cmd.ErrOrStderr(), plan.Epsilon)
			}
			if !asks && !show.quiet {
				warnStuffed(cmd.ErrOrStderr(), *config)
			}
			if plan := resp.Msg.Plan; show.json && plan != nil {
				return printJSON(cmd.OutOrStdout(), taskJSON(resp.Msg.Task, map[string]any{
					"plan": planJSON{dp.Number(plan.Epsilon), plan.Delta, plan.Method, plan.Rounds, plan.Fit, plan.Limit, plan.KnownEpsilon, plan.FurtherSums}}))
			} else if show.json {
				return showTask(cmd, show, resp.Msg.Task)
			}
			p := printer{w: cmd.OutOrStdout()}
			printTask(&p, resp.Msg.Task)
			showPlan(&p, resp.Msg.Plan)
			if config.Tokens || asks && settings.question.Tokens {
				showTokens(&p, resp.Msg.Task)
			}
			return p.err
		},
	}
	flags := cmd.Flags()
	f.flags(cmd)
	require(cmd, &name, "name", "for people: a-z, 0-9 and dashes")
	flags.StringVar(&file, "task", "", "YAML file with settings of riffle train, or of a question (measure: histogram)")
	flags.DurationVar(&round, "round", 0, "how long clients have to report (default: as the coordinator is configured)")
	show.flags(flags)
	settings.bind(cmd)
	flags.SortFlags = false
	return cmd
}

func newTaskList() *cobra.Command {
	return operates(&cobra.Command{
		Use: "list", Short: "List tasks", Example: "  riffle task list --config docs/deploy/coordinator.yaml", Args: noArgs,
	}, func(cmd *cobra.Command, c operatorv1.OperatorServiceClient, show output, _ []string) error {
		resp, err := c.ListTasks(cmd.Context(), connect.NewRequest(&operatorv1.ListTasksRequest{}))
		if err != nil {
			return err
		}
		if show.json {
			list := []map[string]any{}
			for _, t := range resp.Msg.Tasks {
				list = append(list, taskJSON(t, nil))
			}
			return printJSON(cmd.OutOrStdout(), map[string]any{"tasks": list})
		}
		p := printer{w: cmd.OutOrStdout()}
		for _, t := range resp.Msg.Tasks {
			if t.Phase == "standby" {
				p.line("%.16s  %-20s %-8s a standby: another coordinator leads it", t.Id, t.Name, t.State)
				continue
			}
			p.line("%.16s  %-20s %-8s %s, %d released, epsilon %s", t.Id, t.Name, t.State, roundsRun(t), t.Released, roundUp(t.Epsilon))
		}
		return p.err
	})
}

// roundsRun says how many of a task's rounds were run. Void ones are none of them: for each another one is
// announced, so that a round's number may be above the number of rounds.
func roundsRun(t *operatorv1.Task) string {
	text := fmt.Sprintf("%d of %s run", t.Released+t.RoundsFailed, counted(t.Rounds, "round"))
	if t.RoundsVoid > 0 {
		text += fmt.Sprintf(", %d void", t.RoundsVoid)
	}
	return text
}

// taskArg accepts a task's name, or its digest or the beginning of that.
func taskArg(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return usage("want one task: its name, or the beginning of its digest (see %s --help)", cmd.CommandPath())
}

// operates completes a command that asks a running coordinator.
func operates(cmd *cobra.Command, ask func(cmd *cobra.Command, c operatorv1.OperatorServiceClient, show output, args []string) error) *cobra.Command {
	var f operatorFlags
	var show output
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := f.client()
		if err != nil {
			return err
		}
		return operateError(ask(cmd, c, show, args))
	}
	f.flags(cmd)
	show.flags(cmd.Flags())
	return cmd
}

// taskCommand completes a command that requests something for one task, and prints the task's
// state afterwards.
func taskCommand(cmd *cobra.Command, ask func(ctx context.Context, c operatorv1.OperatorServiceClient, task string) (*operatorv1.Task, error)) *cobra.Command {
	cmd.Args = taskArg
	return operates(cmd, func(cmd *cobra.Command, c operatorv1.OperatorServiceClient, show output, args []string) error {
		t, err := ask(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		return showTask(cmd, show, t)
	})
}

// answered returns the task of a coordinator's answer.
func answered[T any, P interface {
	*T
	GetTask() *operatorv1.Task
}](resp *connect.Response[T], err error) (*operatorv1.Task, error) {
	if err != nil {
		return nil, err
	}
	return P(resp.Msg).GetTask(), nil
}

func newTaskShow() *cobra.Command {
	return taskCommand(&cobra.Command{
		Use: "show TASK", Short: "Show a task", Example: "  riffle task show first --config docs/deploy/coordinator.yaml",
	}, func(ctx context.Context, c operatorv1.OperatorServiceClient, task string) (*operatorv1.Task, error) {
		return answered(c.GetTask(ctx, connect.NewRequest(&operatorv1.GetTaskRequest{Task: task})))
	})
}

func newTaskStop() *cobra.Command {
	var reason string
	cmd := taskCommand(&cobra.Command{
		Use: "stop TASK", Short: "Stop a task; released models stay",
		Long: `Stop ends a task. An open round is destroyed unread. What was charged stays charged,
and released models stay valid. A stopped task cannot be started again.`,
		Example: "  riffle task stop first --config docs/deploy/coordinator.yaml",
	}, func(ctx context.Context, c operatorv1.OperatorServiceClient, task string) (*operatorv1.Task, error) {
		return answered(c.StopTask(ctx, connect.NewRequest(&operatorv1.StopTaskRequest{Task: task, Reason: reason})))
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept with the task")
	return cmd
}

func newTaskResume() *cobra.Command {
	return taskCommand(&cobra.Command{
		Use: "resume TASK", Short: "Resume a paused task",
		Long: `Resume continues a paused task. A task pauses if several rounds in a row were charged
and gave no step (pause-after in the coordinator's configuration), if many in a row
were void (pause-after-void), or if its guard demands it; riffle task show says why.
Each charged round has cost its part of the budget, so find the cause first. After
Resume the guard compares with the present model.`,
		Example: "  riffle task resume first --config docs/deploy/coordinator.yaml",
	}, func(ctx context.Context, c operatorv1.OperatorServiceClient, task string) (*operatorv1.Task, error) {
		return answered(c.ResumeTask(ctx, connect.NewRequest(&operatorv1.ResumeTaskRequest{Task: task})))
	})
}

func newTaskRemove() *cobra.Command {
	return operates(&cobra.Command{
		Use: "remove TASK", Short: "Remove a task that was never charged",
		Long: `Remove ends a task and deletes what is stored about it, if the ledger has no entry for
it: a task that was created by mistake, or that cannot run (state "unusable"). A task
that was charged stays in the ledger for good: Remove refuses it (exit code 3), but it
can be stopped. A removed task cannot be created again with the same name and
settings, as clients and shuffler may have seen rounds of it.`,
		Example: "  riffle task remove first --config docs/deploy/coordinator.yaml", Args: taskArg,
	}, func(cmd *cobra.Command, c operatorv1.OperatorServiceClient, show output, args []string) error {
		if _, err := c.RemoveTask(cmd.Context(), connect.NewRequest(&operatorv1.RemoveTaskRequest{Task: args[0]})); err != nil {
			return err
		}
		if show.json {
			return printJSON(cmd.OutOrStdout(), map[string]string{"removed": args[0]})
		}
		show.note(cmd.ErrOrStderr(), "removed: %s", args[0])
		return nil
	})
}
