package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	sums "github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
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
	Receipts  bool   `json:"receipts,omitempty"`
	// Browser is the number of further clients that are tabs of a browser, and Page the address of the
	// page for them.
	Browser int64  `json:"browser,omitempty"`
	Page    string `json:"page,omitempty"`
	// Full says that everything that keeps liars and operators honest is on.
	Full bool `json:"full,omitempty"`
	// Measure says that a second task asks a question; Question is its digest.
	Measure  bool    `json:"measure,omitempty"`
	Question string  `json:"question,omitempty"`
	Budget   float64 `json:"budget,omitempty"` // the population's ε, of a demo with a question

	dir     string
	initial []byte // the program's first parameters, a file's content
	client  []byte // the client for tabs, compiled
}

const demoFile = "demo.json"

// mostProcesses bounds the number of processes of clients.
const mostProcesses = 64

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

With --full everything is on that keeps liars and operators honest: vector sums whose
reports prove their norm, receipts, a registrar that enrols the clients and gives them a
token for each message, a relay between clients and shuffler, and what clients and
shuffler keep to notice a coordinator or a client that was restored from a copy.

One directory holds all keys, so a demonstration protects nobody. Ctrl-C stops all
processes; --resume continues from there. SIGTERM stops them too, and removes a
temporary directory.

With --measure a second task asks the same clients a question, a histogram of their
ages, which are made up, and the demo compares the answer with the truth. Both tasks are
charged to one budget.

With --external N there is room for N clients of your own: the demo makes what each
needs, prints the command that starts them, and waits until all are ready. With
--gradients the task is a model of your own: a program has its parameters, evaluates
it, and has the data of the demo's own clients, of which there are none then unless
--clients says so.

With --browser the demo serves a page, on which you draw digits: your tab is one more
client, which learns from them. It says how to open the page, and waits for the tab.`,
		Example: `  riffle demo --clients 1000 --rounds 20
  riffle demo --clients 200 --rounds 5 --trust vector-sum --json
  riffle demo --clients 200 --rounds 5 --trust vector-sum --proofs pine
  riffle demo --full --clients 100 --rounds 5
  riffle demo --every 4 --clients 200 --rounds 12
  riffle demo --browser --clients 100 --rounds 10
  riffle demo --measure --clients 500 --rounds 3
  riffle demo --external 50 --rounds 3 --gradients 'python3 python/examples/numpy_mlp.py'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if resume != "" {
				if name := beside(cmd, "resume", "gradients", "json", "quiet", "no-progress"); name != "" {
					return usage("--%s contradicts --resume: a resumed demo keeps its settings", name)
				}
				program := d.Gradients
				d, err := loadDemo(resume)
				if err == nil {
					err = d.refuseForeign(program)
				}
				if err != nil {
					return err
				}
				if err := d.loadClient(cmd, show); err != nil {
					return err
				}
				return d.run(cmd, show, true)
			}
			given := cmd.Flags().Changed
			switch {
			case given("gradients") && given("data"):
				return usage("--gradients contradicts --data: the program has the data")
			case d.Browser != 0 && (d.Gradients != "" || d.Data != "mnist"):
				return usage("--browser goes with --data mnist: the page learns from digits")
			case d.Browser < 0 || d.Browser > mostTabs:
				return usage("--browser %d: want 1 to %d tabs", d.Browser, mostTabs)
			case d.Measure && d.Browser > 0:
				return usage("--measure contradicts --browser: a tab has drawings and no row that could answer")
			case d.Gradients != "" && !given("clients"):
				d.Clients = 0
			}
			if task.Every == 0 && given("noise-by") {
				return usage("--noise-by goes with --every here: otherwise --proofs says who adds the noise")
			}
			if task.Every != 0 {
				if !given("trust") {
					d.Trust = dp.Trust(dp.TrustNames(dp.SumsOnly)[0])
				}
				if d.Trust.Is(dp.SumsOnly) {
					task.Proofs = wire.ProofsPine // the one kind of proofs
					task.NoiseBy = cmp.Or(task.NoiseBy, vecsum.ByAggregators)
				}
			}
			if task.Every != 0 && given("gamma") {
				return usage("--gamma contradicts --every: with it clients count rounds and flip no coins")
			}
			if d.Full && task.Every != 0 && task.NoiseBy != vecsum.ByClients {
				return usage("--every contradicts --full, which has tokens: how many clients a round has costs nothing there, but with --noise-by clients")
			}
			if d.Full {
				if !given("trust") {
					d.Trust = dp.Trust(dp.TrustNames(dp.SumsOnly)[0]) // the commonest is first
				}
				if d.Trust.Is(dp.SumsOnly) && !given("proofs") {
					task.Proofs = wire.ProofsPine
				}
				d.Receipts, task.Tokens = true, true
			}
			if n := d.population(); n < 2 && d.Browser > 0 {
				return usage("--clients %d and --browser %d make %s: a round needs two", d.Clients, d.Browser, counted(n, "client"))
			} else if n < 2 {
				return usage("--clients %d and --external %d make %s: a round needs two", d.Clients, d.External, counted(n, "client"))
			}
			if entries, err := os.ReadDir(out); out != "" && err == nil && len(entries) > 0 {
				return usage("--out %s is not empty (--resume continues a demo)", out)
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
			if err := d.divide(cmd.Context()); err != nil {
				return err
			}
			if err := d.loadClient(cmd, show); err != nil {
				return err
			}
			fresh := out == ""
			var err error
			if fresh {
				out, err = os.MkdirTemp("", "riffle-demo-")
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
		{Name: "processes", Into: &d.Processes, Default: "2", Range: fmt.Sprintf("[1, %d]", mostProcesses), Help: "number of processes that share the clients"},
		{Name: "trust", Into: &d.Trust, Default: string(dp.DefaultTrust), Values: dp.DescribeTrusts(dp.Accountable), Help: "what hides a report: %s"},
		{Name: "participation", Into: &d.Participation, Values: valuesOf("participation"), Help: "%s (default: all; check-in where trust is distributed)"},
		{Name: "k", Into: &k, Range: "[1, 1e6]", Help: "clients a round, with --participation sampled or once (default: half; once: as many as give --rounds rounds)"},
		{Name: "gamma", Into: &gamma, Default: "0.5", Range: "(0, 1]", Help: "each client's chance to take part, with --participation check-in"},
		{Name: "randomizer", Into: &task.Randomizer, Values: valuesOf("randomizer"), Help: "with --trust " + dp.AnyTrust(dp.LocallyPrivate) + ": %s (default as for riffle train)"},
		{Name: "encoding", Into: &task.Encoding, Values: valuesOf("encoding"), Help: "of a report of privunit or stepunit: %s (default seed)"},
		{Name: "eps0", Into: &eps0, Default: "2", Range: rowOf("eps0").Range, Help: "local privacy parameter of a report, with --trust " + dp.AnyTrust(dp.LocallyPrivate)},
		{Name: "messages", Into: &task.Messages, Range: "[1, 4096]", Help: "messages of each client in a round, each with eps0 (default 1)"},
		{Name: "epsilon", Into: &epsilon, Default: "1", Range: "(0, inf)", Help: "budget that the noise is chosen for, with --trust " + dp.AnyTrust(dp.SumsOnly)},
		{Name: "receipts", Into: &d.Receipts, Help: "publish after each round which receipts arrived; the clients look for theirs"},
		{Name: "proofs", Into: &task.Proofs, Values: valuesOf("proofs"), Help: "with --trust " + dp.AnyTrust(dp.SumsOnly) + ": reports prove their norm (%s), and the aggregators add the noise (default: none)"},
		{Name: "every", Into: &task.Every, Range: "[2, 1000]", Help: "vector sums with proofs whose noise is correlated over rounds: each client takes part in at most one of so many consecutive rounds, by its own count (default: none)"},
		{Name: "noise-by", Into: &task.NoiseBy, Values: []string{string(vecsum.ByClients), string(vecsum.ByAggregators) + "\tthe default"}, Help: "with --every: who adds the noise, %s"},
		{Name: "full", Into: &d.Full, Help: "all that keeps liars and operators honest: proofs, receipts, a registrar with tokens, a relay"},
		{Name: "measure", Into: &d.Measure, Help: "a second task asks how many clients are of what age, on the same budget"},
		{Name: "guard", Into: &guard, Help: "keep the last good model where its evaluation falls by more, as accuracy:0.05 (default: none)"},
		{Name: "suite", Into: &d.Suite, Default: suites[0], Values: suites[:], Help: "of the keys that reports are sealed to: %s"},
		{Name: "data", Into: &d.Data, Default: "mnist", File: true, Help: "mnist, or a folder of images"},
		{Name: "gradients", Into: &d.Gradients, Help: "program that has a model of your own, and data: a command, or unix:PATH (default: a model of riffle's on --data)"},
	})
	flags := cmd.Flags()
	flags.Int64Var(&d.Browser, "browser", 0, "serve a page on which a visitor draws digits, and whose tab is one more client; --browser=3: three tabs")
	flags.Lookup("browser").NoOptDefVal = "1"
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
		if d.Participation, _ = d.Trust.Defaults(); task.Every != 0 {
			d.Participation = dp.CheckIn
		}
	}
	c := train.Default()
	c.Data, c.Trust, c.Participation, c.Rounds, c.Model, c.Guard = d.Data, d.Trust, d.Participation, d.Rounds, "hog-linear", guard
	c.Randomizer, c.Encoding, c.Messages, c.Receipts, c.Proofs, c.Tokens = task.Randomizer, task.Encoding, task.Messages, d.Receipts, task.Proofs, task.Tokens
	c.Every, c.NoiseBy = task.Every, task.NoiseBy
	n := d.population()
	if d.Gradients != "" {
		if err := d.describe(ctx, &c); err != nil {
			return err
		}
	}
	switch {
	case d.Trust.Is(dp.LocallyPrivate):
		c.Eps0 = eps0
	case d.Trust.Is(dp.SumsOnly):
		c.Epsilon = epsilon
	}
	d.Round = 60 // the time limit; a round closes when all have reported
	if d.Browser > 0 {
		d.Round = 20 // a round waits no longer for a tab that was closed
	}
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
		if c.Gamma = gamma; c.Every != 0 {
			c.Gamma = 1 / float64(c.Every)
		}
		d.Round = secret
	}
	if k != 0 && c.K == 0 {
		return usage("--k goes with --participation sampled or once")
	}
	d.Config = c
	return c.Check()
}

// divide gives each client its share of the images, and the tasks their budget. It reads the images, which takes
// longer than what may refuse the settings before.
func (d *demo) divide(ctx context.Context) error {
	if d.Gradients == "" {
		images, _, err := train.LoadImages(train.Config{DataConfig: train.DataConfig{Data: d.Data}})
		if err != nil {
			return err
		}
		d.Config.PerClient = max(1, int64(images.Len())/d.population()) // with more clients than images, an image stands for several
	}
	if err := d.fix(d.Config); err != nil || !d.Measure {
		return err
	}
	return d.budget(ctx)
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
	budget := 1e4
	if sum {
		p.MaxEps0 = 0
	}
	if d.Config.Proofs != "" {
		p.Proofs, budget = "required", sums.MostEps
	}
	delta, rows := 1e-5, ""
	if d.Measure { // two tasks share what was one's
		delta, rows = 2*delta, filepath.Join(d.dir, demoPeople)
		budget = d.Budget
		p.MaxTasks, p.Delta, p.Trusts = 2, delta, []dp.Trust{d.Trust, d.sums()}
		if p.MaxEps0 == 0 && !sum {
			p.MaxEps0 = d.Config.Eps0
		}
		sum = true
	}
	return operate.Loopback{Dir: d.dir, Rows: rows, Clients: int(d.Clients), Processes: int(d.Processes), External: int(d.External), Gradients: d.Gradients, Aggregator: sum, MinReports: 2, Suite: suite,
		Registrar: d.Full || d.Browser > 0, Relay: d.Full, Kept: d.Full || d.Browser > 0, Origins: d.origins(),
		Epsilon: budget, Delta: delta, Data: d.Data, Policy: p, Spread: -1}
}

// population is the number of all clients.
func (d *demo) population() int64 { return d.Clients + d.External + d.Browser }

func (d *demo) create(ctx context.Context) error {
	if err := d.choosePage(); err != nil {
		return err
	}
	if err := d.loopback().Create(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(d.begin(), d.writePeople(), d.save())
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
	b, err := durable.ReadFile(filepath.Join(dir, demoFile))
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
