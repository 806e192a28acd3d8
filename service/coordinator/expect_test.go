package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/aggregator"
)

// expect runs package coordinator's functions on the same reports and returns the
// digest of the model and the entries of its ledger.
func (w *world) expect(skip ...int) ([32]byte, []ledger.Entry) {
	w.t.Helper()
	l, err := ledger.New(w.config.Budget)
	if err != nil {
		w.t.Fatal(err)
	}
	o, _ := newOptimizer()
	c := pure.Config{Task: wire.Digest(w.task), Optimizer: o, Mechanism: w.mech, Report: w.config.Report, Ledger: l, Trust: w.task.Trust,
		Participation: w.task.Participation, Population: w.n, Sample: w.config.Sample, Gamma: w.config.Gamma,
		MinReports: w.task.MinReports, Messages: w.task.Messages, Clip: 1, Colluders: w.config.Colluders, Tokens: w.bureau != nil, Every: w.task.Every}
	if w.task.Participation == dp.Once {
		c.Blocks, _ = schedule.NewBlocks(w.n, w.config.BlockSize)
	}
	co, err := pure.New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	run := int64(0)
	for round := range w.task.LastRound() {
		if run == w.task.Rounds {
			break
		}
		a := co.Announce()
		who := w.who(a)
		if int64(len(who)) < w.task.MinReports {
			if err := co.Void(); err != nil {
				w.t.Fatal(err)
			}
			continue
		}
		if err := co.Receive(w.t.Context(), wire.RoundClosed{Round: round + 1, Reports: int64(len(who))}); err != nil {
			w.t.Fatal(err)
		}
		if w.forgets[round+1] {
			if err := co.Forget(); err != nil {
				w.t.Fatal(err)
			}
		}
		if w.fails != nil && w.fails(round+1) {
			if _, _, err := co.End(); err != nil {
				w.t.Fatal(err)
			}
			if err := co.Forget(); err != nil {
				w.t.Fatal(err)
			}
			run++
			continue
		}
		tally, err := co.NewTally()
		if err != nil {
			w.t.Fatal(err)
		}
		all, message := w.batched(a)
		for place, client := range all {
			if !slices.Contains(skip, place) {
				tally.Open(w.report(round+1, client, a.ModelDigest, message[place]))
			}
		}
		if w.proofs {
			tally = w.provedTally(co, round+1, int64(len(all)-len(skip)))
		}
		if _, _, err := co.End(tally); err != nil {
			w.t.Fatal(err)
		}
		run++
	}
	return co.Announce().ModelDigest, l.Entries()
}

// check holds a run against what was to be expected of it.
func (w *world) check(s wire.Status, skip ...int) {
	w.t.Helper()
	model, entries := w.expect(skip...)
	if s.State != Done || s.Model != model {
		w.t.Errorf("the task is %s (%s) in round %d with model %x, want %x", s.State, s.Why, s.Round, s.Model[:6], model[:6])
	}
	if len(w.disk.Log) != len(entries) {
		w.t.Fatalf("%d entries are charged, want %d", len(w.disk.Log), len(entries))
	}
	for i, b := range w.disk.Log {
		e, err := wire.Decode[wire.Entry](b)
		if err != nil || e.Round != entries[i].Round || e.Event != entries[i].Event || e.Times != entries[i].Times {
			w.t.Errorf("entry %d is %+v (%v), want %+v", i, e, err, entries[i])
		}
	}
	w.order()
	w.fsck()
	w.fsckAggregator()
	if w.proofs && w.task.Participation == dp.All {
		w.checkNoise(skip...)
	}
	if w.task.Every > 0 {
		w.checkMixed(skip...)
	}
	w.checkTold()
}

// problems is what Check finds.
func problems(s storage, kept promiseStore, j *ledger.Journal, task wire.Task) (found []string) {
	j.View(func(b *ledger.Book) {
		Check(context.Background(), s, b, kept, task, func(where, format string, args ...any) {
			found = append(found, where+": "+fmt.Sprintf(format, args...))
		})
	})
	return found
}

// found is what fsck finds.
func (w *world) found() []string {
	w.t.Helper()
	j, err := w.disk.journal(context.Background(), nil, w.task.Population, w.budget())
	if err != nil {
		w.t.Fatal(err)
	}
	return problems(w.disk.store(nil), memoryPromises{w.disk, nil}, j, w.task)
}

// fsck holds that fsck finds nothing.
func (w *world) fsck() {
	w.t.Helper()
	for _, p := range w.found() {
		w.t.Error(p)
	}
}

// fsckAggregator checks what the aggregator has stored.
func (w *world) fsckAggregator() { w.t.Helper(); w.fsckCrashed("") }

// lagging is what is found of a mark that a crash has left one entry behind.
const lagging = "the high-water mark lags"

// fsckCrashed is fsckAggregator, and leaves out the problems with a text.
func (w *world) fsckCrashed(but string) {
	w.t.Helper()
	if w.aggDisk == nil {
		return
	}
	_, err := aggregator.Check(context.Background(), w.aggDisk.store(nil), w.aggDisk.marks(nil), func(where, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); but == "" || !strings.Contains(text, but) {
			w.t.Errorf("aggregator: %s: %s", where, text)
		}
	})
	if err != nil {
		w.t.Error(err)
	}
}

// order holds that no chunk is asked for before its round is in the ledger, before the mark counts all
// entries, and before the shuffler was told of the entry if it is told of any.
func (w *world) order() {
	w.t.Helper()
	entries, marked, told := 0, 0, 0 // entries that were written, that the mark counts, and that the shuffler was told of
	charged := map[string]bool{}
	for _, e := range w.disk.happened() {
		if name, ok := bytes.CutPrefix([]byte(e), []byte("charged ")); ok {
			charged[string(name)] = true
			entries++
		}
		if n, ok := strings.CutPrefix(e, "marked "); ok {
			marked, _ = strconv.Atoi(n)
		}
		if marked < entries && strings.Contains(e, "/chunks") {
			w.t.Errorf("%s: the mark counts %d of %d entries", e, marked, entries)
		}
		if e == "POST /v1/ledger" {
			told = entries
		}
		if w.tells && told < entries && bytes.Contains([]byte(e), []byte("/chunks")) {
			w.t.Errorf("%s: the shuffler was told of %d entries, there are %d", e, told, entries)
		}
		if i := bytes.Index([]byte(e), []byte("/chunks")); i > 0 && w.task.Participation != dp.Once {
			if name := e[i-64 : i]; !charged[name] {
				w.t.Errorf("%s before the charge", e)
			}
		}
	}
}
