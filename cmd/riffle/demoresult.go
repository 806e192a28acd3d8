package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// demoResult is the output of a demo; its keys are part of the contract.
type demoResult struct {
	Released int64                 `json:"rounds_released"`
	Accepted int64                 `json:"reports_accepted"`
	Rejected map[wire.Reason]int64 `json:"reports_rejected"`
	Accuracy dp.Number             `json:"test_accuracy"`     // NaN: not measured
	Baseline dp.Number             `json:"baseline_accuracy"` // accuracy of the most frequent class
	Epsilon  dp.Number             `json:"epsilon"`
	Entries  int64                 `json:"ledger_entries"` // of the training
	Seconds  float64               `json:"seconds"`
	Delta    float64               `json:"delta"`
	Bound    string                `json:"bound"`
	Rounds   int64                 `json:"rounds"`
	Clients  int64                 `json:"clients"`
	Trust    dp.Trust              `json:"trust"`
	Takes    string                `json:"participation"`
	// NoiseBy and Proofs are those of a task with proofs; otherwise absent.
	NoiseBy string `json:"noise_by,omitempty"`
	Proofs  string `json:"proofs,omitempty"`
	// Messages and Local are those of one client in a round; absent for one message.
	Messages int64   `json:"messages,omitempty"`
	Local    float64 `json:"local_epsilon,omitempty"`
	Model    string  `json:"model"`
	Replayed bool    `json:"replayed"`     // the replayed model equals the released one, bit for bit
	Clean    bool    `json:"clean"`        // every store passed its check
	Report   int64   `json:"report_bytes"` // the size of what a client posts in a round
	Dir      string  `json:"dir,omitempty"`
	// Start and End are what a program says of its model, before and after.
	Start map[string]dp.Number `json:"program_start,omitempty"`
	End   map[string]dp.Number `json:"program_metrics,omitempty"`
	// Receipts is what the clients have found in the lists of receipts; absent without --receipts.
	Receipts *foundReceipts `json:"receipts,omitempty"`
	// Tokens and Relay say that each message needed a token of the registrar, and that requests to
	// the shuffler went through a relay; absent without --full.
	Tokens bool `json:"tokens,omitempty"`
	Relay  bool `json:"relay,omitempty"`
	// Answer is that to the question; absent without --measure.
	Answer     *demoAnswer `json:"answer,omitempty"`
	population float64
	budget     float64
}

// foundReceipts is the sum over the demo's processes of clients. Each reads the list of each round.
type foundReceipts struct {
	Found    int64 `json:"found"`
	Missing  int64 `json:"missing"`
	Compared int64 `json:"rounds_compared"`
	Wrong    int64 `json:"rounds_wrong"`
}

// receipts adds up what the clients have found.
func (d *demo) receipts() (*foundReceipts, error) {
	var sum foundReceipts
	for i := range int(d.Processes) {
		c, err := config.Load[config.Client](d.loopback().Config(fmt.Sprintf("clients-%d", i)))
		if err != nil {
			return nil, err
		}
		f, err := client.ReadFindings(c.Dir)
		if err != nil {
			return nil, err
		}
		sum.Found += f.Found
		sum.Missing += f.Missing + f.Half
		sum.Compared += f.Compared
		sum.Wrong += f.Unfit + f.Untold
	}
	return &sum, nil
}

// check computes everything again from the files on disk.
func (d *demo) check(ctx context.Context, took time.Duration) (*demoResult, error) {
	l := d.loopback()
	raw, err := hex.DecodeString(d.Task)
	if err != nil || len(raw) != 32 {
		return nil, fmt.Errorf("no task %q", d.Task)
	}
	replay, err := operate.ReplayTask(ctx, l.Config(operate.RoleCoordinator), [32]byte(raw))
	if err != nil {
		return nil, err
	}
	book, err := operate.ReadLedger(ctx, l.Config(operate.RoleCoordinator), false)
	if err != nil {
		return nil, err
	}
	roles := []string{operate.RoleShuffler, operate.RoleCoordinator}
	if l.Aggregator {
		roles = append(roles, operate.RoleAggregator)
	}
	if l.Registrar {
		roles = append(roles, operate.RoleRegistrar)
	}
	for _, role := range roles {
		r, err := operate.Check(ctx, role, l.Config(role))
		if err != nil {
			return nil, err
		}
		if !r.Clean {
			return nil, fmt.Errorf("fsck %s: %s: %s (%d problems)", role, r.Problems[0].Where, r.Problems[0].What, len(r.Problems))
		}
	}
	suite, _ := config.ParseSuite(d.Suite) // cannot fail: it was checked
	size, err := replay.PostSize(suite)
	if err != nil {
		return nil, err
	}
	result := &demoResult{Released: replay.Released, Accepted: replay.Reports, Rejected: replay.Rejected,
		Epsilon: dp.Number(replay.Epsilon.Eps), Entries: replay.Entries, Seconds: took.Seconds(), Delta: replay.Epsilon.Delta, Bound: replay.Epsilon.Method,
		Rounds: d.Rounds, Clients: d.population(), Trust: d.Trust, Takes: string(d.Participation), Model: hex.EncodeToString(replay.Model[:]),
		Replayed: true, Clean: true, Report: size, Dir: d.dir, population: float64(book.Epsilon), budget: book.Budget}
	if sum := replay.Task.Mechanism.Sum; sum.Proved() {
		result.NoiseBy, result.Proofs = sum.NoiseBy, sum.Proofs
	}
	if e := replay.Evaluation; e != nil {
		result.Accuracy, result.Baseline = dp.Number(e.Accuracy), dp.Number(replay.Baseline.Accuracy)
	} else if result.Start, result.End, err = d.evaluate(ctx, replay.Theta); err != nil {
		return nil, err
	} else {
		result.Accuracy, result.Baseline = metric(result.End, "accuracy"), metric(result.End, "baseline_accuracy")
	}
	if d.Measure {
		if result.Answer, err = d.answer(ctx); err != nil {
			return nil, err
		}
	}
	result.Tokens, result.Relay = d.Config.Tokens, l.Relay
	if d.Receipts {
		if result.Receipts, err = d.receipts(); err != nil {
			return nil, err
		}
	}
	if m := replay.Task.PerClient(); m > 1 {
		result.Messages, result.Local = m, replay.Local
	}
	return result, nil
}

func (r *demoResult) print(w io.Writer) error {
	p := printer{w: w}
	if r.End == nil {
		p.row("test accuracy", "%.2f %%", 100*r.Accuracy)
		p.row("baseline", "%.2f %%, always the most frequent class", 100*r.Baseline)
	}
	for _, name := range slices.Sorted(maps.Keys(r.End)) {
		if name != "examples" && !strings.HasPrefix(name, "baseline_") {
			p.row(name, "%.4g, of the first parameters %.4g; the program says so", float64(r.End[name]), float64(r.Start[name]))
		}
	}
	p.row("epsilon", "%s at delta = %g (%s, proved; replace one client), counted from %s", roundUp(float64(r.Epsilon)), r.Delta, r.Bound, counted(r.Entries, "ledger entry"))
	p.row("rounds", "%d of %d released, %s summed, %d bytes each", r.Released, r.Rounds, counted(r.Accepted, "report"), r.Report)
	for reason, n := range r.Rejected {
		p.row("", "%d %s", n, reason)
	}
	if r.Proofs != "" {
		p.row("noise", "by %s; each report proves its norm (%s)", r.NoiseBy, r.Proofs)
	}
	if r.Messages > 1 {
		p.row("", "%d messages of each client in a round: epsilon %s together without the shuffle", r.Messages, roundUp(r.Local))
	}
	if f := r.Receipts; f != nil {
		p.row("receipts", "%d found by the clients, %d missing; %s compared, %d wrong", f.Found, f.Missing, counted(f.Compared, "round"), f.Wrong)
	}
	if r.Tokens {
		p.row("tokens", "one of the registrar's for each message, checked before each step")
	}
	if r.Relay {
		p.row("relay", "between clients and shuffler, which is shown no client's address")
	}
	p.row("model", "%.16s…: the recorded reports give it again, bit for bit", r.Model)
	if r.Answer != nil {
		r.Answer.print(&p)
		p.row("both tasks", "epsilon %s together, of a budget of %g", roundUp(r.population), r.budget)
	}
	p.row("stores", "clean")
	p.row("time", "%.0f s", r.Seconds)
	if r.Dir != "" {
		p.row("directory", "%s", r.Dir)
	}
	return p.err
}

// metric returns the number of that name, NaN if the program gives none.
func metric(metrics map[string]dp.Number, name string) dp.Number {
	if v, ok := metrics[name]; ok {
		return v
	}
	return dp.Number(math.NaN())
}
