package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// demoResult is the output of a demo; its keys are part of the contract.
type demoResult struct {
	Released int64                 `json:"rounds_released"`
	Accepted int64                 `json:"reports_accepted"`
	Rejected map[wire.Reason]int64 `json:"reports_rejected"`
	Accuracy float64               `json:"test_accuracy"`
	Baseline float64               `json:"baseline_accuracy"` // accuracy of the most frequent class
	Epsilon  dp.Number             `json:"epsilon"`
	Entries  int64                 `json:"ledger_entries"`
	Seconds  float64               `json:"seconds"`
	Delta    float64               `json:"delta"`
	Bound    string                `json:"bound"`
	Rounds   int64                 `json:"rounds"`
	Clients  int64                 `json:"clients"`
	Trust    dp.Trust              `json:"trust"`
	Takes    string                `json:"participation"`
	// Messages and Local are those of one client in a round; absent for one message.
	Messages int64   `json:"messages,omitempty"`
	Local    float64 `json:"local_epsilon,omitempty"`
	Model    string  `json:"model"`
	Replayed bool    `json:"replayed"`     // the replayed model equals the released one, bit for bit
	Clean    bool    `json:"clean"`        // every store passed its check
	Report   int64   `json:"report_bytes"` // the size of what a client posts in a round
	Dir      string  `json:"dir,omitempty"`
	// Start and End are what a program says of its model, before and after.
	Start      map[string]dp.Number `json:"program_start,omitempty"`
	End        map[string]dp.Number `json:"program_metrics,omitempty"`
	population float64
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
		Epsilon: dp.Number(replay.Epsilon.Eps), Entries: book.Entries, Seconds: took.Seconds(), Delta: replay.Epsilon.Delta, Bound: replay.Epsilon.Method,
		Rounds: d.Rounds, Clients: d.Clients + d.External, Trust: d.Trust, Takes: string(d.Participation), Model: hex.EncodeToString(replay.Model[:]),
		Replayed: true, Clean: true, Report: size, Dir: d.dir, population: float64(book.Epsilon)}
	if e := replay.Evaluation; e != nil {
		result.Accuracy, result.Baseline = e.Accuracy, replay.Baseline.Accuracy
	} else if result.Start, result.End, err = d.evaluate(ctx, replay.Theta); err != nil {
		return nil, err
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
	if r.Messages > 1 {
		p.row("", "%d messages of each client in a round: epsilon %s together without the shuffle", r.Messages, roundUp(r.Local))
	}
	p.row("model", "%.16s…: the recorded reports give it again, bit for bit", r.Model)
	p.row("stores", "clean")
	p.row("time", "%.0f s", r.Seconds)
	if r.Dir != "" {
		p.row("directory", "%s", r.Dir)
	}
	return p.err
}
