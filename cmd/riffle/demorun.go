package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// This file runs a demonstration: it starts the processes, watches the task, and stops them. demo.go has
// the command and its settings.

// run starts all processes, waits for the task, stops them, and checks.
func (d *demo) run(cmd *cobra.Command, show output, keep bool) error {
	begun := time.Now()
	ctx := cmd.Context()
	stderr := cmd.ErrOrStderr()
	show.note(stderr, "%s", "a demonstration on one machine: one directory holds all keys, and this protects nobody's data")
	show.note(stderr, "directory: %s", d.dir)
	c := &children{dir: filepath.Join(d.dir, "logs")}
	err := d.drive(ctx, c, show, stderr)
	if stopErr := c.stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		if !keep && terminated(ctx) {
			return d.remove(ctx)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted (%w); all processes are stopped; continue with: %s", context.Canceled, d.resumption())
		}
		return fmt.Errorf("%w\nlogs: %s; all processes are stopped; when the cause is gone: %s", operateError(err), c.dir, d.resumption())
	}
	result, err := d.check(ctx, time.Since(begun))
	if err != nil {
		if !keep && terminated(ctx) {
			return d.remove(ctx)
		}
		return fmt.Errorf("%w\nwhat was recorded is kept: %s", operateError(err), d.dir)
	}
	var left error
	if !keep {
		left = os.RemoveAll(d.dir) // the error names what is left
		result.Dir = ""
	}
	if show.json {
		err = printJSON(cmd.OutOrStdout(), result)
	} else {
		err = result.print(cmd.OutOrStdout())
	}
	return errors.Join(err, left)
}

// resumption returns the shell command that continues the demo.
func (d *demo) resumption() string {
	line := "riffle demo --resume " + shellQuote(d.dir)
	if d.Gradients != "" {
		line += " --gradients " + shellQuote(d.Gradients)
	}
	return line
}

// remove deletes the temporary directory of a demo that was told to end: whoever sends SIGTERM
// does not come back to resume it.
func (d *demo) remove(ctx context.Context) error {
	return errors.Join(fmt.Errorf("%w; all processes are stopped; nothing is kept", context.Cause(ctx)), os.RemoveAll(d.dir))
}

// drive runs the task to its end.
func (d *demo) drive(ctx context.Context, c *children, show output, stderr io.Writer) error {
	l := d.loopback()
	roles := []string{operate.RoleShuffler, operate.RoleCoordinator}
	if l.Aggregator {
		roles = append(roles, operate.RoleAggregator)
	}
	if l.Registrar { // first: the shuffler has no clients before
		roles = append([]string{operate.RoleRegistrar}, roles...)
	}
	started := roles
	if l.Relay {
		started = append(slices.Clone(roles), operate.RoleRelay)
	}
	for _, role := range started {
		args := []string{"serve", role, "--config", l.Config(role)}
		if role == operate.RoleCoordinator && d.Gradients != "" {
			args = append(args, "--evaluate", d.Gradients)
		}
		if err := c.start(role, args...); err != nil {
			return err
		}
	}
	if l.Registrar && d.Task == "" { // it is ready when somebody is enrolled
		if err := d.enrol(ctx, c, l); err != nil {
			return err
		}
	}
	for _, role := range roles {
		if err := c.ready(ctx, filepath.Join(d.dir, role, role+".sock")); err != nil {
			return err
		}
	}
	if c, err := config.Load[config.Coordinator](l.Config(operate.RoleCoordinator)); err == nil && c.Dashboard != config.NoAddress {
		show.note(stderr, "live page: http://%s/", c.Dashboard)
	}
	api := operate.OperatorClient(filepath.Join(d.dir, operate.RoleCoordinator, operate.RoleCoordinator+".sock"))
	fresh := d.Task == ""
	tabs, err := d.openPage(ctx, c, show, stderr)
	if err != nil {
		return err
	}
	defer tabs.close()
	if fresh {
		own := d.Config
		initial, err := d.readInitial(&own)
		if err != nil {
			return err
		}
		resp, err := api.CreateTask(ctx, connect.NewRequest(&operatorv1.CreateTaskRequest{Name: "demo", Config: d.Settings, Initial: initial, RoundSeconds: d.Round}))
		if err != nil {
			return err
		}
		d.Task = resp.Msg.Task.Id
		tabs.begin(d.Task)
		ids := []string{d.Task}
		if d.Measure {
			if err := d.ask(ctx, api); err != nil {
				return err
			}
			ids = append(ids, d.Question)
		}
		if err := errors.Join(l.SetTasks(ids...), d.save()); err != nil {
			return err
		}
		show.note(stderr, "task %.16s: %s, %s, n = %d, n-min %d, %s", d.Task, resp.Msg.Task.Trust, resp.Msg.Task.Participation, d.population(), resp.Msg.Task.NMin, counted(d.Rounds, "round"))
	}
	var clients []string
	for i := range int(d.Processes) {
		name := fmt.Sprintf("clients-%d", i)
		clients = append(clients, name)
		if err := c.start(name, "client", "--config", l.Config(name)); err != nil {
			return err
		}
	}
	// A round is too short for clients that are still reading their data.
	loading := time.Now()
	if err := c.hear(ctx, clients...); err != nil {
		return err
	}
	if len(clients) > 0 {
		show.note(stderr, "clients are ready after %.0f s", time.Since(loading).Seconds())
	}
	if fresh && d.External > 0 { // after a resumption they may run already, or come later
		if err := d.invite(ctx, c, show, stderr); err != nil {
			return err
		}
	}
	if fresh {
		if err := tabs.agreed(ctx, c); err != nil {
			return err
		}
	}
	if err := c.begin(operate.RoleCoordinator); err != nil {
		return err
	}
	err = d.watch(ctx, c, api, d.Task, show, stderr, clients)
	if err == nil && d.Measure {
		err = d.watch(ctx, c, api, d.Question, show, stderr, clients)
	}
	if err == nil && d.Receipts { // of the last round
		c.await(ctx, 2*time.Minute, clients...)
	}
	if err == nil {
		d.farewell(ctx, show, stderr)
		tabs.farewell(ctx)
	}
	return err
}

// enrol has the registrar enrol the clients as soon as it answers.
func (d *demo) enrol(ctx context.Context, c *children, l operate.Loopback) error {
	for begun := time.Now(); ; {
		err := l.EnrolAll(ctx)
		if err == nil || ctx.Err() != nil || time.Since(begun) > time.Minute {
			return err
		}
		if err := c.failed(); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// watch prints a line for each round until the task has ended.
func (d *demo) watch(ctx context.Context, c *children, api operatorv1.OperatorServiceClient, task string, show output, stderr io.Writer, clients []string) error {
	shown := int64(-1)
	begun := time.Now()
	for {
		resp, err := api.GetTask(ctx, connect.NewRequest(&operatorv1.GetTaskRequest{Task: task}))
		if err != nil {
			return errors.Join(c.failed(), err)
		}
		t := resp.Msg.Task
		if t.Round != shown && t.Round > 0 {
			shown = t.Round
			text := fmt.Sprintf("round %d/%d", t.Released+t.RoundsFailed, t.Rounds)
			if t.Question != "" {
				text = "question " + t.Name
			}
			if t.Accuracy != nil {
				text += fmt.Sprintf("  accuracy %.2f %%", 100**t.Accuracy)
				if t.EvaluatedRound != 0 && t.EvaluatedRound != t.Round { // a program takes its time
					text += fmt.Sprintf(" after round %d", t.EvaluatedRound)
				}
			}
			text += fmt.Sprintf("  epsilon %s  %d reports", roundUp(t.Epsilon), t.Reports)
			if t.RoundsVoid > 0 {
				text += fmt.Sprintf("  %d void", t.RoundsVoid)
			}
			show.note(stderr, "%s  %.0f s", text, time.Since(begun).Seconds())
		}
		switch t.State {
		case "done":
			return nil
		case "running":
		default:
			return fmt.Errorf("the task was %s: %s", t.State, t.Why)
		}
		// Clients end with the task; any other process ends only when it is asked to.
		if err := c.failed(clients...); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(150 * time.Millisecond):
		}
	}
}
