package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/loopback"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/page/plan"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/simulate"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/operate"
)

// serving says whether and for how long a run is shown on a page.
type serving struct {
	address string
	after   time.Duration
	given   func(name string) bool
}

func (s *serving) flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.address, "serve", "", "show the run live on a page at this address, such as 127.0.0.1:8080; anything but loopback needs the token that is printed")
	fs.DurationVar(&s.after, "serve-after", 0, "how long the page stays when the run has ended (default: on a terminal until Ctrl-C, else it ends with the run)")
	s.given = fs.Changed
}

func (s *serving) check() error {
	switch _, _, err := net.SplitHostPort(s.address); {
	case s.address == "" && s.given("serve-after"):
		return usage("--serve-after needs --serve")
	case s.address != "" && err != nil:
		return usage("--serve %q is not an address: want HOST:PORT, such as 127.0.0.1:8080", s.address)
	case s.after < 0:
		return usage("--serve-after %v must not be negative", s.after)
	}
	return nil
}

// liveTask is the only task on a run's page.
const liveTask = "run"

// live is a run's page. The zero value is no page, and all its methods do nothing.
type live struct {
	board  *dashboard.Board
	url    string
	stop   context.CancelFunc
	ended  chan struct{}
	opened atomic.Int64 // reports of the open round

	mu      sync.Mutex
	task    dashboard.View
	privacy report.Privacy
	ledger  dashboard.Ledger
	begun   time.Time
	last    time.Time
	before  float64 // duration of earlier processes, in seconds
	stages  [2]dashboard.Stage
}

// pages returns the pages that are served beside a run or a coordinator.
func pages() map[string]http.Handler {
	return map[string]http.Handler{"plan": plan.Handler(accountant)}
}

// serve starts the page of a run, which must not be training yet.
func serve(ctx context.Context, s serving, r *train.Run, planned dp.Bound) (*live, error) {
	if s.address == "" {
		return &live{}, nil
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return nil, fmt.Errorf("--serve: %v", err)
	}
	local, token := loopback.Address(s.address), ""
	if !local {
		token = dashboard.NewToken()
	}
	l := &live{board: &dashboard.Board{}, begun: time.Now(), last: time.Now(), ended: make(chan struct{})}
	l.describe(r, planned)
	number, _ := version()
	config := dashboard.Config{Board: l.board, Title: l.task.Task.Name, Version: number, Loopback: local, Token: token, Extra: pages(),
		Report: func() ([]byte, error) { return durable.ReadFile(filepath.Join(r.Dir, train.ReportFile)) }}
	if r.Config.Trust.Is(dp.Protecting) {
		config.Ledger = l.charges
	}
	d, err := dashboard.New(config)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	l.url = pageURL(listener.Addr(), s.address, token)
	served, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the page also shows the end of an interrupted run
	l.stop = cancel
	go func() {
		defer close(l.ended)
		var wg sync.WaitGroup
		wg.Go(func() { l.follow(served) })
		_ = d.Serve(served, endpoint.LimitListener(listener, maxViewers)) // a run continues without its page
		cancel()
		wg.Wait()
	}()
	return l, nil
}

// maxViewers is the largest number of connections to the page.
const maxViewers = 256

// pageURL returns the address of the page for a browser.
func pageURL(at net.Addr, asked, token string) string {
	host, _, _ := net.SplitHostPort(asked) // cannot fail: the server listens on this address
	_, port, _ := net.SplitHostPort(at.String())
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	url := "http://" + net.JoinHostPort(host, port) + "/"
	if token != "" {
		url += "?token=" + token
	}
	return url
}

// describe fills in what does not change, and what earlier processes did.
func (l *live) describe(r *train.Run, planned dp.Bound) {
	c, unknown := r.Config, dp.Number(math.NaN())
	l.privacy = privacyOf(r)
	if known, differs, err := r.PlannedKnowsWho(context.Background()); err == nil && differs {
		l.privacy.KnowsWho, l.privacy.KnownRounds = known.Eps, c.Rounds
	}
	l.stages = [2]dashboard.Stage{{Name: "training", Unit: "reports"}, {Name: "evaluating", Unit: "examples"}}
	t := &l.task
	*t = dashboard.View{ID: liveTask, Expected: dp.Number(r.ExpectedReports), Planned: dp.Number(planned.Eps), Budget: dp.Number(c.Epsilon),
		Accuracy: unknown, Loss: unknown, Dir: r.Dir, EvalEvery: c.EvalEvery, Numbers: r.Data.Classes == nil,
		Status: wire.Status{Task: wire.Task{Name: title(r), Rounds: c.Rounds, Delta: c.Delta}, State: dashboard.Running, Phase: "training",
			Round: r.Resumed, Until: c.Rounds, Eps: unknown, Method: planned.Method, Source: planned.Source,
			Counts: wire.Counts{Reports: r.Reports, Rejected: map[wire.Reason]int64{}}}}
	operate.Compare(t, r.Setup)
	add := func(name, format string, args ...any) {
		t.Facts = append(t.Facts, dashboard.Fact{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	add("Baseline", "%s", r.Baseline.Text)
	add("Clients", "%s", dashboard.Grouped(c.Population))
	add("Taking part", "%s", takesPart(c))
	add("Hidden by", "%s", c.Trust)
	add("Mechanism", "%s", mechanism(r))
	add("Optimizer", "%s", c.Optimizer)
	add("Model", "%s, %s parameters", named(r), dashboard.Grouped(int64(r.Model.Params)))
	add("Simulated", "every role in one process, noise from seed %d", c.Seed)
	if !c.Trust.Is(dp.Protecting) {
		t.Eps, t.Method = dp.Number(math.Inf(1)), ""
	}
	for _, e := range r.Charged {
		l.ledger.Charge(t.Task.Name, e.Round, operate.DescribeCharge(e.Event, e.Times))
		t.Charge = operate.DescribeCharge(e.Event, e.Times)
	}
	t.Charged = l.ledger.Entries
	l.board.Set(l.current())
	if r.Resumed > 0 {
		l.past(r)
	}
}

// past shows what earlier processes charged and measured.
func (l *live) past(r *train.Run) {
	l.task.Released = r.Steps
	l.task.Void = r.Resumed - l.task.Released
	for _, e := range dashboard.Past(r.Charged, r.Resumed, dashboard.Round{Reports: r.Reports, Void: l.task.Void}) {
		l.board.Ended(liveTask, e)
	}
	for _, m := range r.Metrics {
		l.before = m.Seconds
		l.measure(r, m)
	}
	if e, err := r.Evaluate(r.Theta()); err == nil {
		l.examine(r, e, r.Resumed)
	}
	l.board.Set(l.current())
}

// examine shows the model's result on the evaluation set.
func (l *live) examine(r *train.Run, e *model.Evaluation, round int64) {
	if x, err := report.Examine(operate.Examine(r.Setup, e, r.Theta())); err == nil { // without the picture the run continues
		l.task.Examined, l.task.ExaminedAt = x, round
	}
}

// current returns the task's present state. The caller holds mu, or nothing runs yet.
func (l *live) current() dashboard.View {
	t := l.task
	t.Opened = l.opened.Load()
	t.Seconds = l.before + time.Since(l.begun).Seconds()
	t.Rejected = maps.Clone(t.Rejected)
	for _, s := range l.stages {
		if s.Seconds > 0 {
			t.Stages = append(t.Stages, s)
		}
	}
	t.Privacy = l.privacy
	p := &t.Privacy
	p.Rounds, p.Running, p.Epsilon = t.EpsAt, t.State == dashboard.Running, float64(t.Eps)
	if t.State != dashboard.Running {
		p.PlannedRounds = t.Task.Rounds
	}
	if t.Released > 0 {
		p.ReportsPerRound = float64(t.Reports) / float64(t.Released)
	}
	return t
}

// follow shows the progress of the open round.
func (l *live) follow(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	shown := int64(0)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if n := l.opened.Load(); n != shown {
			shown = n
			l.set(func(*dashboard.View) {})
		}
	}
}

func (l *live) set(f func(*dashboard.View)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.task)
	l.board.Set(l.current())
}

// lap adds to a stage the time since lap was last called.
func (l *live) lap(stage int, items int64) {
	now := time.Now()
	l.stages[stage].Seconds += now.Sub(l.last).Seconds()
	l.stages[stage].Items += items
	l.last = now
}

func (l *live) reports(n int64) {
	if l.board != nil {
		l.opened.Add(n)
	}
}

func (l *live) round(r *train.Run, result simulate.Result) {
	if l.board == nil {
		return
	}
	charged := r.Charged
	ended := dashboard.Round{Round: result.Round, Reports: result.Reports, Rejected: result.Rejected}
	l.set(func(t *dashboard.View) {
		l.lap(0, result.Reports)
		l.opened.Store(0)
		t.Round = result.Round
		t.Reports += result.Reports
		if result.Rejected > 0 {
			t.Rejected[wire.OutOfRange] += result.Rejected
		}
		if result.Void {
			t.Void++
			ended.Void = 1
		} else {
			t.Released++
		}
		if n := int64(len(charged)); n > l.ledger.Entries {
			e := charged[n-1]
			t.Charge, t.Charged = operate.DescribeCharge(e.Event, e.Times), n
			l.ledger.Charge(t.Task.Name, e.Round, t.Charge)
		}
	})
	l.board.Ended(liveTask, ended)
}

// alsoMeasured names the fact with the figures besides accuracy and loss.
const alsoMeasured = "Also measured"

// measure shows an evaluation.
func (l *live) measure(r *train.Run, m train.Metrics) {
	t := &l.task
	t.Eps, t.EpsAt, t.Accuracy, t.Loss = m.Epsilon, m.Round, m.Accuracy, dp.Number(m.Loss)
	operate.Compare(t, r.Setup)
	if named := measures(m.Numbers); len(named) > 0 {
		t.Facts = slices.DeleteFunc(slices.Clone(t.Facts), func(f dashboard.Fact) bool { return f.Name == alsoMeasured })
		t.Facts = append(t.Facts, dashboard.Fact{Name: alsoMeasured, Value: strings.Join(named, ", ")})
	}
	l.ledger.Eps = t.Eps
	l.board.Measured(liveTask, dashboard.Measure{Round: m.Round, Eps: float64(t.Eps), Accuracy: float64(t.Accuracy), Loss: m.Loss, Seconds: m.Seconds})
}

func (l *live) evaluated(r *train.Run, m train.Metrics) {
	if l.board != nil {
		l.set(func(*dashboard.View) {
			l.lap(1, r.Data.Examples)
			l.measure(r, m)
			l.examine(r, r.Evaluation, m.Round)
		})
	}
}

func (l *live) stopped(reason string) {
	if l.board != nil {
		l.set(func(t *dashboard.View) { t.Why = reason })
	}
}

// charges returns the ledger in the form for pages.
func (l *live) charges(context.Context) (dashboard.Ledger, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.ledger.Clone()
	out.Delta, out.Budget, out.Method = dp.Number(l.task.Task.Delta), l.task.Budget, l.task.Method
	out.Tasks = []dashboard.LedgerTask{{ID: liveTask, Name: l.task.Task.Name, Entries: out.Entries, Round: l.task.Round, Eps: l.task.Eps, Delta: dp.Number(l.task.Task.Delta)}}
	return out, nil
}

// finish shows how the run ended, once its files are written.
func (l *live) finish(s *train.Summary, err error, halfway bool) {
	if l.board == nil {
		return
	}
	l.set(func(t *dashboard.View) {
		t.Phase = ""
		switch {
		case errors.Is(err, train.ErrInterrupted):
			t.State, t.Why, t.Report = dashboard.Interrupted, "its state is saved", halfway
		case errors.Is(err, ledger.ErrBudget):
			t.State, t.Why = dashboard.Refused, err.Error()
		case err != nil:
			t.State, t.Why = dashboard.Failed, err.Error()
		case t.Round < t.Task.Rounds:
			t.State, t.Report = dashboard.Stopped, true
		default:
			t.State, t.Report = dashboard.Done, true
		}
		if s != nil && err == nil {
			t.Eps, t.EpsAt, t.Method, t.Source = s.Epsilon, s.Rounds, s.Bound, s.BoundSource
			l.ledger.Eps = t.Eps
		}
	})
}

// drained is the time in which pages are told how a run ended.
const drained = 2 * time.Second

// close keeps the page for the requested time, and then ends it.
func (l *live) close(ctx context.Context, s serving, done bool, stderr io.Writer, show output) {
	if l.board == nil {
		return
	}
	tell, cancel := context.WithTimeout(context.WithoutCancel(ctx), drained)
	l.board.Drain(tell)
	cancel()
	f, isFile := fileOf(stderr)
	terminal := isFile && term.IsTerminal(int(f.Fd()))
	if done && ctx.Err() == nil && (s.after > 0 || terminal && !s.given("serve-after")) {
		stay := ctx
		if s.after > 0 {
			stay, cancel = context.WithTimeout(ctx, s.after)
			defer cancel()
		}
		show.note(stderr, "the run has ended; its page stays at %s until Ctrl-C", l.url)
		select {
		case <-stay.Done():
		case <-l.ended:
		}
	}
	l.stop()
	<-l.ended
}
