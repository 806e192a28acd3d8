package operate

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/loopback"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// serveDashboard adds the page to the coordinator's servers: plain HTTP on loopback, HTTPS
// with the coordinator's certificate elsewhere.
func (r *coordinatorProcess) serveDashboard(s *server) error {
	c := r.config
	if c.Dashboard == config.NoAddress {
		return nil
	}
	token, err := c.LoadToken()
	if err != nil {
		return err
	}
	v := &pageWriter{process: r, board: &dashboard.Board{}, begun: time.Now(), tasks: map[[32]byte]*shownTask{},
		histories: histories{store: r.store, revision: map[string]uint64{}, warn: s.options.Log.Warn}, plans: map[[32]byte]chan costs{}, woken: make(chan struct{}, 1)}
	local := loopback.Address(c.Dashboard)
	d, err := dashboard.New(dashboard.Config{Board: v.board, Title: "Coordinator", Version: r.version, Ledger: v.ledger,
		Loopback: local, Token: token, Extra: s.options.Pages})
	if err != nil {
		return config.Errorf("%w", err)
	}
	s.front = append(s.front, v.follow)
	if !local {
		return s.listen("dashboard", c.Dashboard, nil, 4<<10, d)
	}
	l, err := net.Listen("tcp", c.Dashboard)
	if err != nil {
		return fmt.Errorf("operate: dashboard: %v", err)
	}
	s.options.Log.Info("listening", "server", "dashboard", "address", l.Addr().String())
	s.front = append(s.front, func(ctx context.Context) error { return d.Serve(ctx, endpoint.LimitListener(l, maxViewers)) })
	return nil
}

// maxViewers is the largest number of connections to a page on loopback.
const maxViewers = 256

// pageWriter writes the state of the coordinator's tasks to a board. It sees only what a
// status holds: counts and bounds.
type pageWriter struct {
	process   *coordinatorProcess
	board     *dashboard.Board
	begun     time.Time
	tasks     map[[32]byte]*shownTask
	histories histories
	plans     map[[32]byte]chan costs // of all of a task's rounds; each channel gets one value
	woken     chan struct{}           // holds a value when a plan was made
}

// shownTask is a task as it was last shown.
type shownTask struct {
	led     bool // whether this process leads the task, or has led it
	round   int64
	counts  wire.Counts
	first   wire.Counts // before this process led it
	over    bool        // whether it was shown to have ended
	error   string      // the last error, which occurred in the round errorAt
	errorAt int64

	// The measures of earlier processes: their duration in seconds, and their last accuracy
	// and loss.
	before, accuracy, loss float64

	measured progress // how far its history goes on the page, and in the store
	kept     progress
	keptAt   time.Time

	examined   *report.Examined
	examinedAt int64

	evaluatedAt int64 // the round of the last evaluation that was shown

	answer   *dashboard.Answer // to the task's question, after round answerAt
	answerAt int64
}

// progress is how far a history goes. A round is shown before its model is evaluated.
type progress struct {
	round     int64
	evaluated bool
}

// lookEvery is the least time between two looks at all tasks.
const lookEvery = 100 * time.Millisecond

func (v *pageWriter) follow(ctx context.Context) error {
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		for _, s := range v.process.service.List() { // show what has happened since the last look
			v.show(last, s)
		}
		v.keep(last, true)
	}()
	changed, stop := v.process.service.Watch()
	defer stop()
	for {
		listed := map[[32]byte]bool{}
		for _, s := range v.process.service.List() {
			listed[s.ID] = true
			v.show(ctx, s)
		}
		for task := range v.tasks {
			if !listed[task] {
				v.board.Remove(hex.EncodeToString(task[:]))
				delete(v.tasks, task)
				delete(v.plans, task)
			}
		}
		v.keep(ctx, false)
		select {
		case <-changed:
		case <-v.woken:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

func total(by map[wire.Reason]int64) (n int64) {
	for _, x := range by {
		n += x
	}
	return n
}

// boardID names a task on the board and in the store.
func boardID(s wire.Status) string { return hex.EncodeToString(s.ID[:]) }

func (v *pageWriter) show(ctx context.Context, s wire.Status) {
	last := v.tasks[s.ID]
	if last == nil {
		last = &shownTask{accuracy: math.NaN(), loss: math.NaN()}
		v.tasks[s.ID] = last
	}
	if last.over && s.Error == "" && s.EvaluatedAt == last.evaluatedAt && len(v.plans[s.ID]) == cap(v.plans[s.ID]) {
		return // nothing changes any more
	}
	last.evaluatedAt = s.EvaluatedAt
	last.over = s.State != coordinator.Running && s.State != coordinator.Paused
	// An error is over once a round has ended since.
	if s.Error != last.error {
		last.error, last.errorAt = s.Error, s.Round
	} else if s.Round > last.errorAt {
		s.Error = ""
	}
	id := boardID(s)
	if !last.led && s.Phase != "starting" && s.Phase != "standby" {
		last.led, last.round, last.counts, last.first = true, s.Round, s.Counts, s.Counts
		v.past(id, s)
		v.restore(ctx, s, last)
	}
	if e, ok := s.Evaluation.(evaluation); ok && e.examined != nil {
		last.examined, last.examinedAt = e.examined, s.EvaluatedAt
	}
	v.board.Set(v.task(ctx, id, s, last))
	if !last.led {
		return
	}
	if n := s.Round - last.round; n > 0 {
		v.board.Ended(id, dashboard.Round{Round: s.Round, Rounds: n, Reports: s.Reports - last.counts.Reports,
			Rejected: total(s.Rejected) - total(last.counts.Rejected), Void: s.Void - last.counts.Void, Failed: s.Failed - last.counts.Failed})
		last.round, last.counts = s.Round, s.Counts
	}
	m := dashboard.Measure{Round: s.Round, Eps: float64(s.Eps), Accuracy: math.NaN(), Loss: math.NaN(), Seconds: last.before + time.Since(v.begun).Seconds()}
	if e, ok := s.Evaluation.(evaluation); ok && s.EvaluatedAt == s.Round {
		if m.Loss = float64(e.Loss); e.Accuracy != nil {
			m.Accuracy = *e.Accuracy
		}
	}
	if s.Round > 0 {
		v.board.Measured(id, m)
		if e, ok := s.Evaluation.(evaluation); ok && e.beside && s.EvaluatedAt < s.Round { // it came after a further round
			late := dashboard.Measure{Round: s.EvaluatedAt, Eps: math.NaN(), Accuracy: math.NaN(), Loss: float64(e.Loss)}
			if e.Accuracy != nil {
				late.Accuracy = *e.Accuracy
			}
			v.board.Measured(id, late)
		}
		last.measured = progress{s.Round, s.EvaluatedAt == s.Round}
	}
}

// past shows the rounds that ended before this process began, as far as the ledger tells.
func (v *pageWriter) past(id string, s wire.Status) {
	var entries []ledger.Entry
	v.process.journal.View(func(b *ledger.Book) { entries = b.TaskEntries(s.ID) })
	if n := len(entries); n > 0 && entries[n-1].Round > s.Round {
		entries = entries[:n-1] // leave out the entry of the open round
	}
	for _, r := range dashboard.Past(entries, s.Round, dashboard.Round{Reports: s.Reports, Rejected: total(s.Rejected), Void: s.Void, Failed: s.Failed}) {
		v.board.Ended(id, r)
	}
}

// stageNames are the phases in which time is spent on a round, in order.
var stageNames = []string{"waiting", "announcing", "collecting", "charging", "opening", "aggregating", "releasing", "evaluating"}

func (v *pageWriter) task(ctx context.Context, id string, s wire.Status, last *shownTask) dashboard.View {
	t := dashboard.View{ID: id, Status: s, EpsAt: s.Round, Planned: dp.Number(math.NaN()), Accuracy: dp.Number(last.accuracy), Loss: dp.Number(last.loss),
		Examined: last.examined, ExaminedAt: last.examinedAt, Seconds: last.before + time.Since(v.begun).Seconds()}
	if s.Phase == "failed" || s.State == coordinator.Unusable {
		t.State = dashboard.Failed
	}
	if s.FailedRound == s.Round && s.Round > 0 && t.Why == "" {
		t.Why = fmt.Sprintf("round %d gave no step: %s", s.FailedRound, s.Failure)
	}
	if s.Error != "" {
		t.Why = s.Error
	}
	if e, ok := s.Evaluation.(evaluation); ok {
		if t.Loss = e.Loss; e.Accuracy != nil {
			t.Accuracy = dp.Number(*e.Accuracy)
		}
	}
	for _, name := range stageNames {
		seconds := s.Spent[name]
		if s.Phase == name {
			seconds += time.Since(s.Since).Seconds()
		}
		if seconds == 0 {
			continue
		}
		part := dashboard.Stage{Name: name, Seconds: seconds}
		switch name {
		case "collecting", "opening", "aggregating":
			part.Items, part.Unit = s.Reports-last.first.Reports, "reports"
		case "evaluating", "releasing":
			part.Items, part.Unit = s.Released-last.first.Released, "rounds"
		}
		t.Stages = append(t.Stages, part)
	}
	v.process.mu.Lock()
	made, question := v.process.tasks[s.ID], v.process.questions[s.ID]
	v.process.mu.Unlock()
	if question != nil {
		v.asked(ctx, &t, question, s, last)
		return t
	}
	if made == nil {
		t.Blind = "This coordinator does not evaluate the task: it cannot read the task's data."
		return t
	}
	c := made.Config
	t.Expected, t.Budget = dp.Number(made.ExpectedReports), dp.Number(c.Epsilon)
	t.Numbers = made.Regression && made.Config.Dim == 0
	t.Facts = append(facts(made), published(s, made.Config.Population)...)
	t.Privacy = promise(made, s)
	if m := v.process.measured(s); m != nil {
		t.Answer = shownMeasured(m, s.Round)
	}
	switch {
	case s.State == coordinator.Unusable:
		t.Blind = "This coordinator cannot run the task."
	case made.Data == nil:
		t.Blind = "The task has ended, and none of its models was evaluated here."
	case made.Config.Dim != 0:
		if e, ok := s.Evaluation.(evaluation); ok {
			e.program(&t)
		} else if v.process.config.Evaluate == "" {
			t.Blind = "Only programs know this task's model, and this coordinator has none that evaluates it (evaluate in its configuration)."
		}
		v.price(&t, s.ID, made)
	default:
		Compare(&t, made)
		v.price(&t, s.ID, made)
	}
	return t
}

// costs are ε of all rounds of a task, and to somebody who knows who takes part; 0: the same.
type costs struct{ planned, known float64 }

// price shows what all rounds of a task will cost.
func (v *pageWriter) price(t *dashboard.View, id [32]byte, made *train.Setup) {
	c := v.planned(id, made)
	t.Planned = dp.Number(c.planned)
	t.Privacy.KnowsWho, t.Privacy.KnownRounds = c.known, made.Wire.Rounds
}

// planned returns what all rounds of a task will cost, planned NaN while that is being computed,
// which can take seconds.
func (v *pageWriter) planned(id [32]byte, t *train.Setup) costs {
	known, asked := v.plans[id]
	if !asked {
		known = make(chan costs, 1)
		v.plans[id] = known
		go func() {
			entry, times, err := charges(t, t.Wire, t.Limit, v.process.config.Colluders)
			var all, who dp.Bound
			if err == nil {
				all, err = cost(t.Limit, entry, times)
			}
			if err == nil {
				who, err = costKnown(t.Limit, entry, times)
			}
			if err != nil {
				all.Eps = math.NaN()
			}
			known <- costs{all.Eps, who.Eps}
			select {
			case v.woken <- struct{}{}:
			default:
			}
		}()
	}
	select {
	case c := <-known:
		known <- c
		return c
	default:
		return costs{planned: math.NaN()}
	}
}

// takesPart says who is in a round.
func takesPart(c train.Config) string {
	if c.Every > 0 {
		return fmt.Sprintf("each client in at most one of %d rounds", c.Every)
	}
	return string(c.Participation)
}

func facts(t *train.Setup) []dashboard.Fact {
	c := t.Config
	list := []dashboard.Fact{
		{Name: "Clients", Value: dashboard.Grouped(c.Population)}, {Name: "Taking part", Value: takesPart(c)}, {Name: "Hidden by", Value: string(c.Trust)},
		{Name: "Fewest reports of a round", Value: dashboard.Grouped(t.Wire.MinReports)}, {Name: "Optimizer", Value: c.Optimizer},
		{Name: "Model", Value: string(c.Model) + ", " + dashboard.Grouped(t.Wire.Mechanism.Dim) + " parameters"},
	}
	if c.Tokens {
		what := "a token of the registrar"
		if !c.NoiseOfSum() && !c.Trust.Is(dp.Alone) { // their charges do not count reports
			what += "; rounds are charged for the fewest reports"
		}
		list = append(list, dashboard.Fact{Name: "Each message has", Value: what})
	}
	if c.NoiseOfSum() && c.NoiseBy == vecsum.ByClients {
		return append(list, dashboard.Fact{Name: fmt.Sprintf("Noise of %d clients together", t.NoisyClients()), Value: fmt.Sprintf("σ = %.4g clip norms, sent apart from vectors", c.Sigma)},
			dashboard.Fact{Name: "A report proves", Value: "that its vector is no longer than one clip norm and its rounding, and how long its noise is at most (" + c.Proofs + ")"})
	}
	if c.NoiseBy == vecsum.ByAggregators {
		return append(list, dashboard.Fact{Name: "Noise of each aggregator", Value: fmt.Sprintf("σ = %.4g clip norms, added to the sum", c.Sigma)},
			dashboard.Fact{Name: "A report proves", Value: "that its vector is no longer than one clip norm and its rounding (" + c.Proofs + ")"})
	}
	if c.Trust.Is(dp.SumsOnly) {
		return append(list, dashboard.Fact{Name: "Noise of a client", Value: fmt.Sprintf("σ = %.4g clip norms", c.Sigma)})
	}
	one, all := t.LocalEps()
	up := func(eps float64) string { return fmt.Sprintf("%.12g", math.Ceil(1e7*eps)/1e7) }
	own := fmt.Sprintf("%s with ε₀ = %s", c.Randomizer, up(one))
	if asked := fmt.Sprintf("%.8g", c.Eps0); asked != up(one) {
		own += fmt.Sprintf(" (eps0 %s, and what covers rounding)", asked)
	}
	if m := c.Messages; m > 1 {
		own += fmt.Sprintf(" in each of %d messages, together %s a round", m, up(all))
	}
	list = append(list, dashboard.Fact{Name: "Randomizer", Value: own})
	if t.Wire.Mechanism.Encoding == wire.EncodingSeed {
		what := "a seed of 16 bytes"
		if c.Messages > 1 {
			what = fmt.Sprintf("%d seeds of 16 bytes", c.Messages)
		}
		list = append(list, dashboard.Fact{Name: "A report holds", Value: what})
	}
	return list
}

// published describes what is published of the last round. The coordinator has compared the word with
// the announcement before it charged the round.
func published(s wire.Status, most int64) []dashboard.Fact {
	var list []dashboard.Fact
	if c := s.Word; c != nil {
		what := fmt.Sprintf("round %d void", c.Round)
		if !c.Void {
			what = fmt.Sprintf("round %d: %s reports of at most %s, batch %x…", c.Round, dashboard.Grouped(c.Reports), dashboard.Grouped(most), c.Digest[:4])
		}
		list = append(list, dashboard.Fact{Name: "The shuffler's signed word", Value: what})
	}
	if !s.Task.Receipts {
		return list
	}
	what := "16 bytes in each message; no list yet"
	if r := s.Receipts; r != nil {
		what = fmt.Sprintf("%s published", dashboard.Grouped(r.Whole))
		if r.Half > 0 {
			what += fmt.Sprintf(", %s of one half only", dashboard.Grouped(r.Half))
		}
		if r.Unopened > 0 {
			what += fmt.Sprintf("; %s messages could not be opened", dashboard.Grouped(r.Unopened))
		}
	}
	return append(list, dashboard.Fact{Name: "Receipts", Value: what})
}

// mostReports is the most reports that one client sends in a task. For each void round
// another one is announced, which asks for one more.
func mostReports(t *train.Setup, s wire.Status) int64 {
	if every := t.Wire.Every; every > 0 {
		all := *t
		all.Wire.Every = 0
		return (mostReports(&all, s) + every - 1) / every
	}
	switch last := t.Wire.LastRound(); {
	case t.Wire.Participation == dp.Once:
		return t.ReportsPerClient
	case s.State == coordinator.Done:
		return s.Round
	case s.State == coordinator.Stopped, s.State == coordinator.Refused:
		return min(last, s.Round+1) // one more may have been open
	default:
		return last
	}
}

// promise returns what the task's clients are promised for the charges so far.
func promise(t *train.Setup, s wire.Status) report.Privacy {
	c := t.Config
	eps0, _ := t.LocalEps()
	p := report.Privacy{Trust: t.Wire.Trust, Participation: t.Wire.Participation, Adjacency: dp.ReplaceOne, Population: c.Population,
		Rounds: s.Charged, ReportsPerClient: mostReports(t, s), Randomizer: c.Randomizer, Eps0: eps0, Asked: c.Eps0, Messages: c.Messages, Sigma: c.Sigma, SumNoise: c.NoiseOfSum(), Every: c.Every, Honest: t.NoisyClients(), Epsilon: float64(s.Eps),
		Delta: s.Task.Delta, Method: s.Method, Source: s.Source, Status: dp.Proved, Assumes: t.Assumes, PerClient: c.PerClient,
		Running: s.State == coordinator.Running}
	if t.Data != nil {
		p.PublicExamples = int64(t.Data.Public)
	}
	if t.Wire.Participation == dp.Once {
		p.Rounds = s.Released + s.Failed // not the number of entries: one entry stands for an epoch
	}
	if s.Released > 0 {
		p.ReportsPerRound = float64(s.Reports) / float64(s.Released)
	}
	return p
}

// asks says in words what a task asks; "" if it trains a model.
func (v *pageWriter) asks(id [32]byte) string {
	v.process.mu.Lock()
	defer v.process.mu.Unlock()
	if p := v.process.questions[id]; p != nil {
		return inWords(p.Question)
	}
	return ""
}

// ledger returns the population's ledger, over all tasks.
func (v *pageWriter) ledger(ctx context.Context) (dashboard.Ledger, error) {
	var entries []wire.Entry
	var spent dp.Bound
	var err error
	v.process.journal.View(func(b *ledger.Book) {
		entries = b.Entries()
		spent, err = b.Spent()
	})
	budget := v.process.config.Budget
	out := dashboard.Ledger{Eps: dp.Number(spent.Eps), Budget: dp.Number(budget.Epsilon), Delta: dp.Number(budget.Delta), Method: spent.Method}
	if err != nil {
		out.Eps, out.Method = dp.Number(math.NaN()), ""
	}
	if n := len(entries); n > 0 {
		digest := wire.Digest(entries[n-1])
		out.Digest = hex.EncodeToString(digest[:])
	}
	at := map[[32]byte]int{}
	for i, s := range v.process.service.List() {
		at[s.ID] = i
		out.Tasks = append(out.Tasks, dashboard.LedgerTask{ID: hex.EncodeToString(s.ID[:]), Name: s.Task.Name, Asks: v.asks(s.ID), Eps: s.Eps, Delta: dp.Number(s.Task.Delta)})
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		name := hex.EncodeToString(e.Task[:4])
		if i, ok := at[e.Task]; ok {
			t := &out.Tasks[i]
			t.Entries++
			t.Round, name = e.Round, t.Name
		}
		out.Charge(name, e.Round, DescribeCharge(e.Event, e.Times))
	}
	return out, nil
}
