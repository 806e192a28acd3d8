package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// patience is how long a test waits for what takes no certain time, on a busy machine too.
const patience = 5 * time.Minute

// deployment is all roles as processes of their own on loopback. A test kills them
// and starts them again; in the end everything must be as if it had not.
type deployment struct {
	t       *testing.T
	l       operate.Loopback
	rounds  int64
	config  string // of the task, in YAML
	task    string
	configs map[string]string // by process: the roles and clients-0, clients-1 …
	running map[string]*served
	launch  func(name string, cmd *exec.Cmd) error // starts a process; nil: on this machine
	leader  string                                 // the coordinator that is asked; "": the first
	models  map[int64]string                       // digest of the model seen after a round
	last    *operatorv1.Task                       // seen last
	// unrecorded says that the coordinator keeps no reports, so that nothing can be computed again.
	unrecorded bool
}

// frontName is a second shuffler's process, which takes reports and closes no rounds.
const frontName = operate.RoleShuffler + ".front"

// served is a process that was started.
type served struct {
	cmd   *exec.Cmd
	done  chan struct{}
	begin int64 // size of its log when it was started
}

// scenario is what a deployment is to do.
type scenario struct {
	clients, processes int
	trust              dp.Trust // default shuffle; proofs: vector-sum with proofs; full: that, and all that riffle demo --full has
	rounds             int64
	round              time.Duration // default: so long that a round ends when all have reported
	nMin               int64         // default 2
	spread             time.Duration // that reports arrive over
	encoding           string        // of reports; default: a new task's
	receipts           bool
	relay              bool // clients reach the shuffler through one
	tokens             bool // a registrar enrols the clients, and the task's messages need tokens
	messages           int64
	edit               func(d *deployment)
}

// withProofs is the trust of a scenario with trust vector-sum and proofs.
const withProofs dp.Trust = "proofs"

// withAll is the same with tokens, receipts, a relay, announced ledgers and counted reports.
const withAll dp.Trust = "full"

// deploy makes keys, stores and configurations, starts the servers, creates a task
// and starts the clients.
func deploy(t *testing.T, p scenario) *deployment {
	t.Helper()
	p.trust, p.round, p.nMin = cmp.Or(p.trust, "shuffle"), cmp.Or(p.round, 10*time.Minute), cmp.Or(p.nMin, 2)
	budget, proofs := 1e4, ""
	full := p.trust == withAll
	if p.trust == withProofs || full {
		p.trust, budget, proofs = dp.VectorSum, 50, wire.ProofsPine
		p.tokens, p.receipts, p.relay = p.tokens || full, p.receipts || full, p.relay || full
	}
	dir := shortDir(t)
	data := filepath.Join(dir, "images")
	if err := tiny(data, 120, 60, false); err != nil {
		t.Fatal(err)
	}
	policy := config.Policy{MaxEps0: 2.1, MaxEps: 1e4, Delta: 1e-5, MinReports: 2, MaxTasks: 2, Trusts: []dp.Trust{p.trust}}
	if p.trust != "shuffle" {
		policy.MaxEps0 = 0
	}
	if proofs != "" {
		policy.Proofs = "required"
	}
	d := &deployment{t: t, rounds: p.rounds, configs: map[string]string{}, running: map[string]*served{}, models: map[int64]string{},
		l: operate.Loopback{Dir: dir, Clients: p.clients, Processes: p.processes, Aggregator: p.trust == "vector-sum", Registrar: p.tokens, Relay: p.relay, Kept: full, MinReports: 2,
			Suite: wire.X25519, Epsilon: budget, Delta: 1e-5, Data: data, Policy: policy, Spread: cmp.Or(p.spread, -1), Answer: 200 * time.Millisecond}}
	if err := d.l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, role := range d.roles() {
		d.configs[role] = d.l.Config(role)
	}
	if d.l.Registrar {
		d.configs[operate.RoleRegistrar] = d.l.Config(operate.RoleRegistrar)
	}
	if d.l.Relay {
		d.configs[operate.RoleRelay] = d.l.Config(operate.RoleRelay)
	}
	for i := range p.processes {
		d.configs[fmt.Sprint("clients-", i)] = d.l.Config(fmt.Sprint("clients-", i))
	}
	if p.edit != nil {
		p.edit(d)
	}
	t.Cleanup(func() { d.kill(slices.Collect(maps.Keys(d.running))...) })
	if p.tokens {
		d.start(operate.RoleRegistrar)
		d.wait("the registrar enrols the clients", patience, func() bool { return d.l.EnrolAll(t.Context()) == nil })
	}
	d.start(d.roles()...)
	if p.relay {
		d.start(operate.RoleRelay)
	}

	c := train.Default()
	c.Data, c.Trust, c.Participation, c.Rounds, c.Model, c.NMin, c.PerClient = data, p.trust, "all", p.rounds, "hog-linear", p.nMin, int64(120/p.clients)
	c.Encoding, c.Receipts, c.Proofs = p.encoding, p.receipts, proofs
	c.Tokens, c.Messages = p.tokens, p.messages
	if p.trust == "shuffle" {
		c.Eps0 = 2 / float64(max(1, p.messages))
	} else {
		c.Epsilon = 1
	}
	text, err := yaml.Marshal(c.Fields())
	if err != nil {
		t.Fatal(err)
	}
	d.config = string(text)
	d.wait("the coordinator takes a task", patience, func() bool {
		resp, err := d.api().CreateTask(t.Context(), connect.NewRequest(&operatorv1.CreateTaskRequest{Name: "faults", Config: d.config,
			RoundSeconds: p.round.Seconds()}))
		if err == nil {
			d.task = resp.Msg.Task.Id
		} else if code := connect.CodeOf(err); code == connect.CodeInvalidArgument || code == connect.CodeFailedPrecondition {
			t.Fatal(err)
		}
		return err == nil
	})
	if err := d.l.SetTasks(d.task); err != nil {
		t.Fatal(err)
	}
	d.start(d.clients()...)
	return d
}

func (d *deployment) roles() []string {
	if d.l.Aggregator {
		return []string{operate.RoleShuffler, operate.RoleCoordinator, operate.RoleAggregator}
	}
	return []string{operate.RoleShuffler, operate.RoleCoordinator}
}

func (d *deployment) clients() (out []string) {
	for i := range d.l.Processes {
		out = append(out, fmt.Sprint("clients-", i))
	}
	return out
}

func (d *deployment) all() []string {
	out := append(d.roles(), d.clients()...)
	for _, name := range []string{standbyName, frontName} {
		if d.configs[name] != "" {
			out = append(out, name)
		}
	}
	return out
}

func (d *deployment) log(name string) string { return filepath.Join(d.l.Dir, name+".log") }

// start starts processes that are not running.
func (d *deployment) start(names ...string) {
	d.t.Helper()
	for _, name := range names {
		role, _, _ := strings.Cut(name, ".")
		args := []string{"serve", role, "--config", d.configs[name]}
		if strings.HasPrefix(name, "clients-") {
			args = []string{"client", "--config", d.configs[name]}
		}
		log, err := os.OpenFile(d.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			d.t.Fatal(err)
		}
		s := &served{cmd: process(d.t, args...), done: make(chan struct{}), begin: d.logged(name)}
		s.cmd.Stdout, s.cmd.Stderr = log, log
		if d.launch != nil {
			err = d.launch(name, s.cmd)
		} else {
			err = s.cmd.Start()
		}
		if err != nil {
			d.t.Fatal(err)
		}
		log.Close()
		go func() {
			_ = s.cmd.Wait() // the process state says it
			close(s.done)
		}()
		d.running[name] = s
	}
}

// kill is kill -9, of all of them at the same time.
func (d *deployment) kill(names ...string) {
	for _, name := range names {
		if s := d.running[name]; s != nil {
			_ = s.cmd.Process.Kill()
		}
	}
	for _, name := range names {
		if s := d.running[name]; s != nil {
			<-s.done
			delete(d.running, name)
		}
	}
}

// stop asks processes to stop, in this order, and expects that they do.
func (d *deployment) stop(names ...string) {
	d.t.Helper()
	for _, name := range names {
		s := d.running[name]
		if s == nil {
			continue
		}
		if !strings.HasPrefix(name, "clients-") { // a signal before its first lines would kill it
			d.wait(name+" has begun", patience, func() bool { return d.logged(name) > s.begin })
		}
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.done:
		case <-time.After(patience):
			d.kill(name)
			d.t.Fatalf("%s does not stop\n%s", name, d.tail(name))
		}
		delete(d.running, name)
		if code := s.cmd.ProcessState.ExitCode(); code != exitDone {
			d.t.Fatalf("%s: exit %d\n%s", name, code, d.tail(name))
		}
	}
}

// alive expects that what was started still runs. Clients may have ended with the
// task. A server whose port another process got while it was down is started again,
// as its unit would.
func (d *deployment) alive() {
	d.t.Helper()
	for name, s := range d.running {
		select {
		case <-s.done:
		default:
			continue
		}
		code, text := s.cmd.ProcessState.ExitCode(), d.tail(name)
		switch {
		case code == exitDone && strings.HasPrefix(name, "clients-"):
		case strings.Contains(text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:], "address already in use"):
			d.start(name)
		default:
			d.t.Fatalf("%s has ended: %v\n%s", name, s.cmd.ProcessState, text)
		}
	}
}

// logged is the size of a process's log.
func (d *deployment) logged(name string) int64 {
	info, err := os.Stat(d.log(name))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (d *deployment) tail(name string) string {
	b, err := os.ReadFile(d.log(name))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}

func (d *deployment) tails() string {
	var b strings.Builder
	for _, name := range d.all() {
		fmt.Fprintf(&b, "--- %s\n%s", name, d.tail(name))
	}
	return b.String()
}

// goOn lets the processes work for a time, so that what comes next finds them at any moment of their work.
func goOn(span time.Duration) { time.Sleep(span) }

// wait polls quickly: what it waits for may last some milliseconds only.
func (d *deployment) wait(what string, limit time.Duration, f func() bool) {
	d.t.Helper()
	checked := time.Now()
	for begin := time.Now(); !f(); time.Sleep(500 * time.Microsecond) {
		if time.Since(begin) > limit {
			d.t.Fatalf("still not: %s\nlast seen: %v\n%s", what, d.last, d.tails())
		}
		if time.Since(checked) > 100*time.Millisecond {
			d.alive()
			checked = time.Now()
		}
	}
}

func (d *deployment) api() operatorv1.OperatorServiceClient {
	c, err := config.Load[config.Coordinator](d.configs[cmp.Or(d.leader, operate.RoleCoordinator)])
	if err != nil {
		d.t.Fatal(err)
	}
	return operate.OperatorClient(c.Operator)
}

// look asks for the task's state and returns nil if nobody answers. A round has one
// model, whenever it is looked at, and rounds do not go back.
func (d *deployment) look(api operatorv1.OperatorServiceClient) *operatorv1.Task {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	resp, err := api.GetTask(ctx, connect.NewRequest(&operatorv1.GetTaskRequest{Task: d.task}))
	if err != nil {
		return nil
	}
	now := resp.Msg.Task
	if now.Model == strings.Repeat("0", 64) || now.Phase == "standby" || now.Phase == "starting" {
		return now // it has not read its state yet
	}
	if d.last != nil && now.Round < d.last.Round {
		d.t.Fatalf("round %d after round %d", now.Round, d.last.Round)
	}
	if have, ok := d.models[now.Round]; ok && have != now.Model {
		d.t.Fatalf("round %d has released model %s and model %s", now.Round, have, now.Model)
	}
	d.models[now.Round], d.last = now.Model, now
	return now
}

// reach waits until a round has ended.
func (d *deployment) reach(round int64, limit time.Duration) {
	d.t.Helper()
	api := d.api()
	d.wait(fmt.Sprintf("round %d has ended", round), limit, func() bool {
		now := d.look(api)
		return now != nil && now.Round >= round
	})
}

// phase waits until a round after the given one is in a phase, or has ended.
func (d *deployment) phase(after int64, phase string, limit time.Duration) (seen bool) {
	d.t.Helper()
	api := d.api()
	d.wait(fmt.Sprintf("%s after round %d", phase, after), limit, func() bool {
		now := d.look(api)
		if now == nil {
			return false
		}
		seen = now.Round >= after && now.Phase == phase
		return seen || now.Round > after+1 || now.State != "running"
	})
	return seen
}

// taskOutcome is how a task ended.
type taskOutcome struct {
	released, void, failed, reports, sent int64
}

// finish waits for the task's end, stops everything and tries everything that must
// hold whatever happened on the way.
func (d *deployment) finish(limit time.Duration) taskOutcome {
	d.t.Helper()
	api := d.api()
	var now *operatorv1.Task
	d.wait("the task has ended", limit, func() bool {
		now = d.look(api)
		return now != nil && now.State != "running"
	})
	if now.State != "done" || now.Round != d.rounds || now.Released+now.RoundsVoid+now.RoundsFailed != d.rounds {
		d.t.Fatalf("the task has ended otherwise: %v\n%s", now, d.tails())
	}
	for _, name := range d.clients() {
		s := d.running[name]
		if s == nil {
			continue
		}
		select {
		case <-s.done: // clients end with the task
		case <-time.After(patience):
			d.t.Fatalf("%s does not end with the task\n%s", name, d.tail(name))
		}
	}
	d.stop(d.clients()...)
	d.stop(frontName, standbyName, operate.RoleCoordinator, operate.RoleAggregator, operate.RoleShuffler)
	out := taskOutcome{released: now.Released, void: now.RoundsVoid, failed: now.RoundsFailed, reports: now.Reports}
	for _, role := range d.roles() {
		d.fsck(role)
	}
	d.ledger(now)
	d.logs()
	d.records()
	out.sent = d.charged()
	return out
}

// whole is finish where nothing may be void: every client's report of every round
// is in the model, once.
func (d *deployment) whole(limit time.Duration) {
	d.t.Helper()
	o := d.finish(limit)
	if all := d.rounds * int64(d.l.Clients); o.released != d.rounds || o.reports != all || o.sent != all {
		d.t.Errorf("%d clients, %d rounds: %+v\n%s", d.l.Clients, d.rounds, o, d.tails())
	}
}

// fsck expects a clean store of a role that is not running.
func (d *deployment) fsck(role string) { d.t.Helper(); d.fsckWithout(role, "") }

// fsckKilled is fsck of a role that was killed, which may have left its mark behind.
func (d *deployment) fsckKilled(role string) {
	d.t.Helper()
	d.fsckWithout(role, "the high-water mark lags")
}

// fsckWithout is fsck but for problems with a text.
func (d *deployment) fsckWithout(role, but string) {
	d.t.Helper()
	r, err := operate.Check(d.t.Context(), role, d.configs[role])
	if err != nil {
		d.t.Fatalf("fsck %s: %v", role, err)
	}
	for _, p := range r.Problems {
		if but == "" || !strings.Contains(p.What, but) {
			d.t.Errorf("fsck %s: %+v", role, p)
		}
	}
}

// ledger tries the ledger, and computes model and epsilon again.
func (d *deployment) ledger(now *operatorv1.Task) {
	d.t.Helper()
	id, err := hex.DecodeString(d.task)
	if err != nil {
		d.t.Fatal(err)
	}
	book, err := operate.ReadLedger(d.t.Context(), d.configs[operate.RoleCoordinator], false)
	if err != nil {
		d.t.Fatal(err)
	}
	rounds, batches := map[int64]bool{}, map[string]bool{}
	for _, e := range book.Lines {
		if e.Task != d.task || rounds[e.Round] || batches[e.Batch] {
			d.t.Errorf("a charge of another task, or the second of a round or a batch: %+v", e)
		}
		rounds[e.Round], batches[e.Batch] = true, true
	}
	if want := now.Released + now.RoundsFailed; book.Entries != want || book.Marked != want || now.LedgerEntries != want {
		d.t.Errorf("%d entries, %d marked, %d shown; %d rounds were charged", book.Entries, book.Marked, now.LedgerEntries, want)
	}
	if now.RoundsFailed > 0 || d.unrecorded {
		return // a replay has no record, or none of why
	}
	replay, err := operate.ReplayTask(d.t.Context(), d.configs[operate.RoleCoordinator], [32]byte(id))
	if err != nil {
		d.t.Error(err)
		return
	}
	if replay.Released != now.Released || replay.Reports != now.Reports || replay.Entries != now.LedgerEntries ||
		hex.EncodeToString(replay.Model[:]) != now.Model || replay.Epsilon.Eps != now.Epsilon {
		d.t.Errorf("computed again: %+v; the coordinator said: %v", replay, now)
	}
}

// logs expects that no round was released twice, no client was shown two
// announcements of a round, and nothing went wrong that is nobody's fault.
func (d *deployment) logs() {
	d.t.Helper()
	ended := map[float64]int{}
	for _, name := range d.all() {
		b, err := os.ReadFile(d.log(name))
		if err != nil {
			d.t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			var m map[string]any
			if json.Unmarshal(line, &m) != nil {
				continue // cut short by a kill
			}
			switch {
			case m["msg"] == "round has ended":
				ended[m["round"].(float64)]++
			case m["level"] == "ERROR", m["msg"] == "declined" && m["times"] == nil && strings.Contains(fmt.Sprint(m["error"]), "another announcement"):
				d.t.Errorf("%s: %s", name, line)
			}
		}
	}
	for round, n := range ended {
		if n > 1 {
			d.t.Errorf("round %v was released %d times", round, n)
		}
	}
}

// records expects no report twice in a round's record. Reports of one mechanism
// have one size, and enough randomness to be all different.
func (d *deployment) records() {
	d.t.Helper()
	if d.l.Aggregator || d.unrecorded {
		return // only sums are known
	}
	dir := filepath.Join(filepath.Dir(d.l.Config(operate.RoleCoordinator)), "record", d.task)
	files, err := os.ReadDir(dir)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			d.t.Fatal(err)
		}
		n := d.l.Clients
		if len(b)%n != 0 || len(b) < 16*n {
			continue // of fewer clients
		}
		seen := map[string]bool{}
		for part := range slices.Chunk(b, len(b)/n) {
			if seen[string(part)] {
				d.t.Errorf("%s: a report is there twice", f.Name())
			}
			seen[string(part)] = true
		}
	}
}

// charged counts the reports that the clients' own ledgers are charged for, of
// which a client has one a round at most.
func (d *deployment) charged() (n int64) {
	d.t.Helper()
	seen := map[string]bool{}
	for i := range d.l.Processes {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(d.l.Config(fmt.Sprint("clients-", i))), "ledger", "ledger"))
		if err != nil {
			d.t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 4 || f[0] != "sent" {
				continue
			}
			key := strings.Join(f[1:4], " ")
			if seen[key] {
				d.t.Errorf("two reports are charged: %s", key)
			}
			seen[key] = true
			n++
		}
	}
	return n
}
