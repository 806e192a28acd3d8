package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// demo describes a demonstration. It is stored in the demonstration's directory, so that it
// can be resumed.
type demo struct {
	Clients       int64            `json:"clients"`
	Processes     int64            `json:"processes"`
	Rounds        int64            `json:"rounds"`
	Trust         dp.Trust         `json:"trust"`
	Participation dp.Participation `json:"participation"`
	Suite         string           `json:"suite"`
	Data          string           `json:"data"`
	Config        train.Config     `json:"-"`
	Settings      string           `json:"settings"` // Config in YAML
	Round         float64          `json:"round_seconds"`
	Task          string           `json:"task,omitempty"`
	// External is the number of further clients, which the user runs. Gradients is a program
	// that has the model and the data of the demo's own clients.
	External  int64  `json:"external,omitempty"`
	Gradients string `json:"gradients,omitempty"`

	dir     string
	initial []byte // the program's first parameters, a file's content
}

const demoFile = "demo.json"

func newDemo() *cobra.Command {
	var d demo
	var out, resume string
	var eps0, epsilon, gamma float64
	var k int64
	var task train.PrivacyConfig
	var guard string
	var show output
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole system on loopback, and check what it did",
		Long: `Demo starts every role as a process of its own on loopback, with TLS, sealed
reports, a shuffler, a ledger and a store each, and clients in a few processes. It
trains on MNIST and then checks the result. It computes the model again from the
recorded reports, with the functions of a simulation: it must equal the released model
bit for bit. It computes the privacy loss again from the ledger's events, and it
checks every store.

One directory holds all keys, so a demonstration protects nobody. Ctrl-C stops all
processes; --resume continues from there. SIGTERM stops them too, and removes a
temporary directory.

With --external N there is room for N clients of your own: the demo makes what each
needs, prints the command that starts them, and waits until all are ready. With
--gradients the task is a model of your own: a program has its parameters, evaluates
it, and has the data of the demo's own clients, of which there are none then unless
--clients says so.`,
		Example: `  riffle demo --clients 1000 --rounds 20
  riffle demo --clients 200 --rounds 5 --trust vector-sum --json
  riffle demo --external 50 --rounds 3 --gradients 'python3 python/examples/numpy_mlp.py'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if resume != "" {
				if name := beside(cmd, "resume", "json", "quiet", "no-progress"); name != "" {
					return usage("--%s contradicts --resume: a resumed demo keeps its settings", name)
				}
				d, err := loadDemo(resume)
				if err != nil {
					return err
				}
				return d.run(cmd, show, true)
			}
			given := cmd.Flags().Changed
			switch {
			case given("gradients") && given("data"):
				return usage("--gradients contradicts --data: the program has the data")
			case d.Gradients != "" && !given("clients"):
				d.Clients = 0
			}
			if n := d.Clients + d.External; n < 2 {
				return usage("--clients %d and --external %d make %s: a round needs two", d.Clients, d.External, counted(n, "client"))
			}
			if err := d.settle(cmd.Context(), task, eps0, epsilon, gamma, k, guard); err != nil {
				return err
			}
			switch {
			case given("eps0") && !d.Trust.Is(dp.LocallyPrivate):
				return usage("--eps0 goes with --trust %s, not %s", dp.AnyTrust(dp.LocallyPrivate), d.Trust)
			case given("epsilon") && !d.Trust.Is(dp.SumsOnly):
				return usage("--epsilon goes with --trust %s, not %s", dp.AnyTrust(dp.SumsOnly), d.Trust)
			case given("gamma") && d.Participation != dp.CheckIn:
				return usage("--gamma goes with --participation check-in, not %s", d.Participation)
			}
			fresh := out == ""
			var err error
			if fresh {
				out, err = os.MkdirTemp("", "riffle-demo-")
			} else if entries, dirErr := os.ReadDir(out); dirErr == nil && len(entries) > 0 {
				return usage("--out %s is not empty (--resume continues a demo)", out)
			} else {
				err = os.MkdirAll(out, 0o700)
			}
			if err != nil {
				return err
			}
			if d.dir, err = filepath.Abs(out); err != nil {
				return err
			}
			if err := d.create(cmd.Context()); err != nil {
				if cmd.Context().Err() != nil {
					err = fmt.Errorf("interrupted (%w); nothing is kept", context.Canceled)
				}
				// A half-made directory can neither be resumed nor be used again.
				return errors.Join(operateError(err), empty(d.dir, fresh))
			}
			return d.run(cmd, show, !fresh)
		},
	}
	bind(cmd, setting.Table{
		{Name: "clients", Into: &d.Clients, Default: "1000", Range: "[0, 1e6]", Help: "enrolled clients n, which the demo runs"},
		{Name: "external", Into: &d.External, Range: "[0, 1000]", Help: "further clients, which you run"},
		{Name: "rounds", Into: &d.Rounds, Default: "20", Range: "[1, 1e6]", Help: "rounds of training"},
		{Name: "processes", Into: &d.Processes, Default: "2", Range: "[1, 64]", Help: "number of processes that share the clients"},
		{Name: "trust", Into: &d.Trust, Default: string(dp.DefaultTrust), Values: dp.DescribeTrusts(dp.Accountable), Help: "what hides a report: %s"},
		{Name: "participation", Into: &d.Participation, Values: valuesOf("participation"), Help: "%s (default: all; check-in where trust is distributed)"},
		{Name: "k", Into: &k, Range: "[1, 1e6]", Help: "clients a round, with --participation sampled or once (default: half; once: as many as give --rounds rounds)"},
		{Name: "gamma", Into: &gamma, Default: "0.5", Range: "(0, 1]", Help: "each client's chance to take part, with --participation check-in"},
		{Name: "randomizer", Into: &task.Randomizer, Values: valuesOf("randomizer"), Help: "with --trust " + dp.AnyTrust(dp.LocallyPrivate) + ": %s (default as for riffle train)"},
		{Name: "encoding", Into: &task.Encoding, Values: valuesOf("encoding"), Help: "of a report of privunit or stepunit: %s (default seed)"},
		{Name: "eps0", Into: &eps0, Default: "2", Range: rowOf("eps0").Range, Help: "local privacy parameter of a report, with --trust " + dp.AnyTrust(dp.LocallyPrivate)},
		{Name: "messages", Into: &task.Messages, Range: "[1, 4096]", Help: "messages of each client in a round, each with eps0 (default 1)"},
		{Name: "epsilon", Into: &epsilon, Default: "1", Range: "(0, inf)", Help: "budget that the noise is chosen for, with --trust " + dp.AnyTrust(dp.SumsOnly)},
		{Name: "guard", Into: &guard, Help: "keep the last good model where its evaluation falls by more, as accuracy:0.05 (default: none)"},
		{Name: "suite", Into: &d.Suite, Default: suites[0], Values: suites[:], Help: "of the keys that reports are sealed to: %s"},
		{Name: "data", Into: &d.Data, Default: "mnist", File: true, Help: "mnist, or a folder of images"},
		{Name: "gradients", Into: &d.Gradients, Help: "program that has a model of your own, and data: a command, or unix:PATH (default: a model of riffle's on --data)"},
	})
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "", "directory to keep, new or empty (default: a temporary one)")
	flags.StringVar(&resume, "resume", "", "go on with the demo in this directory")
	show.flags(flags)
	flags.SortFlags = false
	return cmd
}

// settle fixes the task's settings, from the demo's and the arguments.
func (d *demo) settle(ctx context.Context, task train.PrivacyConfig, eps0, epsilon, gamma float64, k int64, guard string) error {
	if d.Processes > d.Clients {
		d.Processes = d.Clients
	}
	if d.Data != "mnist" {
		path, err := filepath.Abs(d.Data)
		if err != nil {
			return err
		}
		d.Data = path
	}
	if d.Participation == "" {
		d.Participation, _ = d.Trust.Defaults()
	}
	c := train.Default()
	c.Data, c.Trust, c.Participation, c.Rounds, c.Model, c.Guard = d.Data, d.Trust, d.Participation, d.Rounds, "hog-linear", guard
	c.Randomizer, c.Encoding, c.Messages = task.Randomizer, task.Encoding, task.Messages
	n := d.Clients + d.External
	if d.Gradients != "" {
		if err := d.describe(ctx, &c); err != nil {
			return err
		}
	} else if images, _, err := train.LoadImages(train.Config{DataConfig: train.DataConfig{Data: d.Data}}); err != nil {
		return err
	} else if c.PerClient = int64(images.Len()) / n; c.PerClient < 1 {
		c.PerClient = 1 // more clients than images, so an image stands for several
	}
	switch {
	case d.Trust.Is(dp.LocallyPrivate):
		c.Eps0 = eps0
	case d.Trust.Is(dp.SumsOnly):
		c.Epsilon = epsilon
	}
	d.Round = 60 // the time limit; a round closes when all have reported
	// A round whose members are secret, because they are drawn or flip coins, ends at its
	// deadline only.
	secret := 3 + float64(n)/400
	switch d.Participation {
	case "all":
	case "sampled":
		d.Round = secret
		if c.K = k; k == 0 {
			c.K = max(2, n/2)
		}
	case "once":
		if c.K = k; k == 0 {
			c.K = max(2, n/d.Rounds)
		}
	case "check-in":
		c.Gamma = gamma
		d.Round = secret
	}
	if k != 0 && c.K == 0 {
		return usage("--k goes with --participation sampled or once")
	}
	if err := c.Check(); err != nil {
		return err
	}
	return d.fix(c)
}

// fix makes c the task's settings.
func (d *demo) fix(c train.Config) error {
	text, err := yaml.Marshal(c.Fields())
	d.Config, d.Settings = c, string(text)
	return err
}

func (d *demo) loopback() operate.Loopback {
	suite, _ := config.ParseSuite(d.Suite) // cannot fail: it was checked
	sum := d.Trust.Is(dp.SumsOnly)
	p := config.Policy{MaxEps: 1e4, Delta: 1e-5, MinReports: 2, MaxTasks: 1, MaxEps0: d.Config.Eps0 * float64(max(1, d.Config.Messages)) * 1.01, Trusts: []dp.Trust{d.Trust}}
	if sum {
		p.MaxEps0 = 0
	}
	return operate.Loopback{Dir: d.dir, Clients: int(d.Clients), Processes: int(d.Processes), External: int(d.External), Gradients: d.Gradients, Aggregator: sum, MinReports: 2, Suite: suite,
		Epsilon: 1e4, Delta: 1e-5, Data: d.Data, Policy: p, Spread: -1}
}

func (d *demo) create(ctx context.Context) error {
	if err := d.loopback().Create(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(d.begin(), d.save())
}

// empty removes the content of a directory, and the directory itself if this program made it.
func empty(dir string, ours bool) error {
	if ours {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func (d *demo) save() error {
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(d.dir, demoFile), append(b, '\n'))
}

func loadDemo(dir string) (*demo, error) {
	b, err := os.ReadFile(filepath.Join(dir, demoFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, usage("--resume %s: no demo there (%s is missing)", dir, demoFile)
	}
	if err != nil {
		return nil, err
	}
	d := &demo{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, usage("--resume %s: %v", dir, err)
	}
	d.Config = train.Default()
	if err := d.Config.Parse([]byte(d.Settings)); err != nil {
		return nil, err
	}
	d.dir, err = filepath.Abs(dir)
	return d, err
}

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
			return fmt.Errorf("interrupted (%w); all processes are stopped; continue with: riffle demo --resume %s", context.Canceled, d.dir)
		}
		return fmt.Errorf("%w\nlogs: %s; all processes are stopped; when the cause is gone: riffle demo --resume %s", operateError(err), c.dir, d.dir)
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
	for _, role := range roles {
		args := []string{"serve", role, "--config", l.Config(role)}
		if role == operate.RoleCoordinator && d.Gradients != "" {
			args = append(args, "--evaluate", d.Gradients)
		}
		if err := c.start(role, args...); err != nil {
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
		if err := errors.Join(l.SetTasks(d.Task), d.save()); err != nil {
			return err
		}
		show.note(stderr, "task %.16s: %s, %s, n = %d, n-min %d, %s", d.Task, resp.Msg.Task.Trust, resp.Msg.Task.Participation, d.Clients+d.External, resp.Msg.Task.NMin, counted(d.Rounds, "round"))
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
	if err := c.begin(operate.RoleCoordinator); err != nil {
		return err
	}
	err := d.watch(ctx, c, api, show, stderr, clients)
	if err == nil {
		d.farewell(ctx, show, stderr)
	}
	return err
}

// watch prints a line for each round until the task has ended.
func (d *demo) watch(ctx context.Context, c *children, api operatorv1.OperatorServiceClient, show output, stderr io.Writer, clients []string) error {
	shown := int64(-1)
	begun := time.Now()
	for {
		resp, err := api.GetTask(ctx, connect.NewRequest(&operatorv1.GetTaskRequest{Task: d.Task}))
		if err != nil {
			return errors.Join(c.failed(), err)
		}
		t := resp.Msg.Task
		if t.Round != shown && t.Round > 0 {
			shown = t.Round
			text := fmt.Sprintf("round %d/%d", t.Released+t.RoundsFailed, t.Rounds)
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
