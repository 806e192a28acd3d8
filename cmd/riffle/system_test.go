package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/operate"
	"github.com/riffle-dp/riffle/service/store"
)

// outcome runs the program and returns its exit code and outputs.
func outcome(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := process(t, args...)
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), text.String()
}

// want runs the program and compares exit code and a part of its output.
func want(t *testing.T, code int, text string, args ...string) string {
	t.Helper()
	got, out, errText := outcome(t, args...)
	if got != code || !strings.Contains(out+errText, text) {
		t.Fatalf("riffle %s: exit %d, want %d with %q\n%s%s", strings.Join(args, " "), got, code, text, out, errText)
	}
	return out
}

// background starts a process that the test ends by a signal, or at its end.
func background(t *testing.T, args ...string) (cmd *exec.Cmd, log *bytes.Buffer) {
	t.Helper()
	cmd, log = process(t, args...), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd, log
}

func end(t *testing.T, cmd *exec.Cmd, log *bytes.Buffer, signal os.Signal, code int) {
	t.Helper()
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the exit code says it
	timer.Stop()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("%s after %v: exit %d, want %d\n%s", cmd.Args[1:], signal, got, code, log)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for begin := time.Now(); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("still not: %s", what)
		}
	}
}

// shortDir is a directory with a path that leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// remotePage is a coordinator's page on an address that others reach.
type remotePage struct {
	url, token string
	client     *http.Client
}

// openDashboard gives a coordinator's page such an address, and a token.
func openDashboard(t *testing.T, file string) remotePage {
	t.Helper()
	c, err := config.Load[config.Coordinator](file)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(c.Dashboard)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := remotePage{url: "https://127.0.0.1:" + port, token: dashboard.NewToken(),
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}}
	t.Cleanup(p.client.CloseIdleConnections)
	open := strings.Replace(string(text), "dashboard: "+c.Dashboard, "dashboard: 0.0.0.0:"+port, 1)
	open = strings.Replace(open, `dashboard-token: ""`, "dashboard-token: page.token", 1)
	if err := errors.Join(os.WriteFile(file, []byte(open), 0o600), os.WriteFile(filepath.Join(filepath.Dir(file), "page.token"), []byte(p.token+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	want(t, exitUsage, "chmod 600", "serve", "coordinator", "--config", file)
	if err := os.Chmod(filepath.Join(filepath.Dir(file), "page.token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p remotePage) get(t *testing.T, path, token string, into any) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if into != nil {
		b, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Fatalf("%s: %s: %v\n%s", path, resp.Status, err, b)
		}
	}
	return resp.StatusCode
}

// pageTask is what the page says of a task.
type pageTask struct {
	ID, Name, State, Baseline  string
	Round, Released, Reports   int64
	Examined                   int64
	Epsilon, Accuracy, Planned float64
	Stages                     []struct{ Name string }
}

// pageHistory is what the page draws of a task.
type pageHistory struct {
	Measures struct {
		Round             []int64
		Epsilon, Accuracy []*float64
	}
	Rounds struct{ Round, Reports []int64 }
}

func (p remotePage) tasks(t *testing.T) []pageTask {
	t.Helper()
	var all struct{ Tasks []pageTask }
	p.get(t, "/api/tasks", p.token, &all)
	return all.Tasks
}

func (p remotePage) history(t *testing.T, task string) (h pageHistory) {
	t.Helper()
	p.get(t, "/api/history?task="+task, p.token, &h)
	return h
}

// plan asks /plan of the coordinator: as its page does, without the token, and too much.
func (p remotePage) plan(t *testing.T) {
	t.Helper()
	const question = `{"query":{"participation":"all","randomizer":"generic","eps0":2,"n":1000,"rounds":10,"delta":1e-5},"which":"best"}`
	for _, c := range []struct {
		token, body string
		code        int
		says        string
	}{{p.token, question, 200, `"upper":{"method":"blanket-pld"`}, {"not the token at all", question, 401, "token"}, {p.token, question + strings.Repeat(" ", 1<<20), 413, ""}} {
		r, err := http.NewRequest(http.MethodPost, p.url+"/plan/ask", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+c.token)
		r.Header.Set("Content-Type", "application/json")
		resp, err := p.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || resp.StatusCode != c.code || !strings.Contains(string(text), c.says) {
			t.Errorf("a question of %d bytes: %s, %v\n%s", len(c.body), resp.Status, err, text)
		}
	}
}

// check compares what the page says of a task of two rounds with what was done, and
// returns its accuracy.
func (p remotePage) check(t *testing.T, task string) float64 {
	t.Helper()
	if code := p.get(t, "/api/tasks", "not the token at all", nil); code != http.StatusUnauthorized {
		t.Errorf("the page answers %d without its token", code)
	}
	var s pageTask
	var history pageHistory
	until(t, "the page shows the end, and then what was measured", func() bool {
		if all := p.tasks(t); len(all) == 1 {
			s = all[0]
		}
		history = p.history(t, task)
		n := len(history.Measures.Round)
		return s.State == "done" && n > 0 && history.Measures.Round[n-1] == s.Round && history.Measures.Accuracy[n-1] != nil
	})
	if s.ID != task || s.Round != 2 || s.Released != 2 || s.Reports != 24 || !(s.Epsilon > 0) || s.Baseline == "" || len(s.Stages) < 5 {
		t.Errorf("the page shows %+v", s)
	}
	last := len(history.Measures.Round) - 1
	if last < 0 || history.Measures.Round[last] != 2 || history.Measures.Epsilon[last] == nil || *history.Measures.Epsilon[last] != s.Epsilon || history.Measures.Accuracy[last] == nil || math.Abs(*history.Measures.Accuracy[last]-s.Accuracy) > 1e-3 {
		t.Errorf("the measures are %+v", history.Measures)
	}
	reports := int64(0)
	for _, n := range history.Rounds.Reports {
		reports += n
	}
	if n := len(history.Rounds.Round); n == 0 || history.Rounds.Round[n-1] != 2 || reports != 24 {
		t.Errorf("the rounds are %+v", history.Rounds)
	}
	var book struct {
		Entries int64
		Lines   []struct{ Event, Task string }
	}
	p.get(t, "/api/ledger", p.token, &book)
	if book.Entries != 2 || len(book.Lines) == 0 || book.Lines[0].Task != "first" || !strings.Contains(book.Lines[0].Event, "eps0=2") {
		t.Errorf("the ledger is %+v", book)
	}
	var said struct{ Lead string }
	if p.get(t, "/api/statement?task="+task, p.token, &said); !strings.Contains(said.Lead, "the whole run of 2 rounds") {
		t.Errorf("the statement is %q", said.Lead)
	}
	p.plan(t)
	// By HTTP/2, news come as they happen.
	r, err := http.NewRequest(http.MethodGet, p.url+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || line != "event: about\n" || resp.ProtoMajor != 2 {
		t.Errorf("%q, %v by %s", line, err, resp.Proto)
	}
	return s.Accuracy
}

// checkModel takes the first task's model out, and it does in another process what it
// did in the coordinator.
func checkModel(t *testing.T, coordinator, dir, data string) {
	t.Helper()
	file := filepath.Join(dir, "model.safetensors")
	want(t, exitUsage, "--out FILE says", "task", "model", "first", "--config", coordinator)
	want(t, exitUsage, "is a directory", "task", "model", "first", "--config", coordinator, "--out", dir)
	want(t, exitUsage, `no such task: "nothing"`, "task", "model", "nothing", "--config", coordinator, "--out", file)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was refused has left a file: %v", err)
	}
	want(t, exitDone, "round 2 of task first", "task", "model", "first", "--config", coordinator, "--out", file)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	want(t, exitUsage, "already exists; --overwrite", "task", "model", "first", "--config", coordinator, "--out", file)
	want(t, exitDone, `"file": "`+file, "task", "model", "first", "--config", coordinator, "--out", file, "--overwrite", "--json")
	if after, err := os.Stat(file); err != nil || os.SameFile(before, after) {
		t.Errorf("a model is not written beside and renamed: %v", err)
	}
	type figures struct {
		Accuracy float64 `json:"test_accuracy"`
		Loss     float64 `json:"test_loss"`
		Baseline float64 `json:"baseline_accuracy"`
		Epsilon  float64 `json:"epsilon"`
		Task     string  `json:"task"`
	}
	var shown, read figures
	for _, part := range []struct {
		into *figures
		args []string
	}{{&shown, []string{"task", "show", "first", "--config", coordinator, "--json"}}, {&read, []string{"eval", file, "--data", data, "--json"}}} {
		if err := json.Unmarshal([]byte(want(t, exitDone, "", part.args...)), part.into); err != nil {
			t.Fatal(err)
		}
	}
	shown.Task = "first" // elsewhere it is the digest
	// With so much noise the accuracy may be 0.
	if read != shown || read.Loss == 0 || read.Baseline == 0 || read.Epsilon == 0 {
		t.Errorf("the file does %+v, the coordinator said %+v", read, shown)
	}
	want(t, exitDone, "round 2 of task first", "eval", file, "--data", data)
}

// TestOperateTwoRounds goes the operator's way: servers, a task, clients, the
// checks at rest, a ledger that was edited, a move to another store.
func TestOperateTwoRounds(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes; the services have their own tests")
	}
	dir := shortDir(t)
	data := filepath.Join(dir, "images")
	if err := tiny(data, 120, 60, false); err != nil {
		t.Fatal(err)
	}
	l := operate.Loopback{Dir: dir, Clients: 12, Processes: 2, MinReports: 2, Suite: wire.X25519, Epsilon: 100, Delta: 1e-5, Data: data,
		Policy: config.Policy{MaxEps0: 3, MaxEps: 100, MaxTaskEps: 50, Delta: 1e-5, MinReports: 2, MaxTasks: 2}, Spread: -1}
	ctx := context.Background()
	if err := l.Create(ctx); err != nil {
		t.Fatal(err)
	}
	shuffler, coordinator := l.Config("shuffler"), l.Config("coordinator")
	page := openDashboard(t, coordinator)

	want(t, exitUsage, "exists already", "init", "shuffler", "--config", shuffler)
	want(t, exitUsage, "exists already", "init", "coordinator", "--config", coordinator)
	want(t, exitUsage, "there is a ledger already", "init", "client", "--config", l.Config("clients-0"))
	want(t, exitFailed, "no coordinator is running", "task", "list", "--config", coordinator)
	want(t, exitDone, "0 entries", "ledger", "verify", "--config", coordinator)

	shufflerCmd, shufflerLog := background(t, "serve", "shuffler", "--config", shuffler)
	coordinatorCmd, coordinatorLog := background(t, "serve", "coordinator", "--config", coordinator)
	until(t, "the coordinator serves", func() bool {
		code, _, _ := outcome(t, "task", "list", "--config", coordinator)
		return code == exitDone
	})
	c, err := config.Load[config.Coordinator](coordinator)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the coordinator is ready", func() bool { return get(t, "http://"+c.Admin+"/readyz") == http.StatusOK })

	sh, err := config.Load[config.Shuffler](shuffler)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the shuffler is ready", func() bool { return get(t, "http://"+sh.Admin+"/readyz") == http.StatusOK })
	until(t, "the shuffler's socket", func() bool { _, err := os.Stat(sh.Operator); return err == nil })
	want(t, exitUsage, "this is the shuffler", "task", "list", "--socket", sh.Operator)
	want(t, exitUsage, "trust none", "task", "create", "--config", coordinator, "--name", "bare", "--data", data, "--trust", "none")
	want(t, exitUsage, "name", "task", "create", "--config", coordinator, "--name", "A B", "--data", data)
	want(t, exitUsage, `no such task: "nothing"`, "task", "show", "nothing", "--config", coordinator)
	created := want(t, exitDone, `"state": "running"`, "task", "create", "--config", coordinator, "--name", "first", "--data", data, "--eps0", "2",
		"--examples-per-client", "10", "--rounds", "2", "--round", "10m", "--n-min", "5", "--json")
	want(t, exitUsage, "exists already", "task", "create", "--config", coordinator, "--name", "first", "--data", data, "--eps0", "2",
		"--examples-per-client", "10", "--rounds", "2", "--round", "10m", "--n-min", "5")
	weak := []string{"task", "create", "--config", coordinator, "--name", "weak", "--data", data, "--trust", "local", "--eps0", "3",
		"--examples-per-client", "10", "--rounds", "20", "--round", "30s", "--n-min", "5"}
	if code, _, stderr := outcome(t, weak...); code != exitDone || !strings.Contains(stderr, "is above 20 and protects next to nobody") {
		t.Errorf("a weak task: %d %s", code, stderr)
	}
	until(t, "the page shows both tasks", func() bool { return len(page.tasks(t)) == 2 })
	want(t, exitDone, "", "task", "remove", "weak", "--config", coordinator)
	var task struct{ Task string }
	if err := json.Unmarshal([]byte(created), &task); err != nil {
		t.Fatal(err)
	}
	var clients []*exec.Cmd
	var logs []*bytes.Buffer
	for i := range l.Processes {
		cmd, log := background(t, "client", "--config", l.Config(fmt.Sprint("clients-", i)))
		clients, logs = append(clients, cmd), append(logs, log)
	}
	until(t, "the task is done", func() bool {
		return strings.Contains(want(t, exitDone, "", "task", "show", "first", "--config", coordinator, "--json"), `"state": "done"`)
	})
	accuracy := page.check(t, task.Task)
	until(t, "the page shows what was planned", func() bool { return page.tasks(t)[0].Planned > 0 })
	past := page.history(t, task.Task)
	want(t, exitDone, "2 released", "task", "list", "--config", coordinator)
	checkModel(t, coordinator, dir, data)
	var alone, running struct{ Epsilon float64 }
	text := want(t, exitDone, "-pld", "ledger", "show", "--config", coordinator, "--json") // by the socket
	if err := json.Unmarshal([]byte(text), &alone); err != nil {
		t.Fatal(err)
	}
	want(t, exitDone, `"state": "running"`, "task", "create", "--config", coordinator, "--name", "second", "--data", data, "--eps0", "2",
		"--examples-per-client", "10", "--rounds", "1", "--round", "10m", "--n-min", "5", "--json")
	// They would look for tasks in a minute.
	end(t, clients[0], logs[0], syscall.SIGTERM, exitDone)
	end(t, clients[1], logs[1], syscall.SIGINT, exitInterrupted)
	for i := range l.Processes {
		cmd, log := background(t, "client", "--config", l.Config(fmt.Sprint("clients-", i)))
		clients[i], logs = cmd, append(logs, log)
	}
	until(t, "the second task is done", func() bool {
		return strings.Contains(want(t, exitDone, "", "task", "show", "second", "--config", coordinator, "--json"), `"state": "done"`)
	})
	text = want(t, exitDone, `"method": "tasks-basic"`, "ledger", "show", "--config", coordinator, "--json")
	if err := json.Unmarshal([]byte(text), &running); err != nil {
		t.Fatal(err)
	}
	if code, body := fetch(t, "http://"+c.Admin+"/metrics"); code != http.StatusOK || !strings.Contains(body, `riffle_population_epsilon{method="tasks-basic"}`) {
		t.Errorf("metrics: %d\n%s", code, body)
	}
	want(t, exitDone, `"state": "running"`, "task", "create", "--config", coordinator, "--name", "third", "--data", data, "--eps0", "2",
		"--examples-per-client", "10", "--rounds", "1", "--round", "300s", "--n-min", "12", "--json")
	want(t, exitDone, "stopped by the operator: no need of it", "task", "stop", "third", "--reason", "no need of it", "--config", coordinator)
	// Offline commands keep off a store that is in use.
	want(t, exitFailed, "open in another process", "ledger", "verify", "--config", coordinator)
	want(t, exitFailed, "open in another process", "fsck", "shuffler", "--config", shuffler)

	var before []pageTask
	until(t, "the page shows the stop", func() bool {
		before = page.tasks(t)
		return len(before) == 3 && before[2].State == "stopped" && before[1].Examined == before[1].Round
	})
	for i, cmd := range clients {
		end(t, cmd, logs[len(clients)+i], syscall.SIGTERM, exitDone)
	}
	end(t, coordinatorCmd, coordinatorLog, syscall.SIGTERM, exitDone)
	end(t, shufflerCmd, shufflerLog, syscall.SIGINT, exitInterrupted)
	for _, log := range append(logs, coordinatorLog, shufflerLog) {
		for line := range strings.Lines(log.String()) {
			if strings.HasPrefix(line, "riffle: ") {
				continue
			}
			if !json.Valid([]byte(line)) {
				t.Errorf("a line of the log is not JSON: %s", line)
			}
			if strings.Contains(line, `"level":"ERROR"`) {
				t.Errorf("an error was logged: %s", line)
			}
		}
	}

	want(t, exitDone, `"clean": true`, "fsck", "shuffler", "--config", shuffler, "--json")
	want(t, exitDone, `"clean": true`, "fsck", "coordinator", "--config", coordinator, "--json")
	want(t, exitDone, "3 entries", "ledger", "verify", "--config", coordinator)
	// As if the second task had been planned upon the first one's models.
	offline := want(t, exitDone, `"method": "tasks-basic"`, "ledger", "show", "--config", coordinator, "--json")
	want(t, exitDone, "basic composition of 2 tasks", "ledger", "show", "--config", coordinator)
	var counted struct{ Epsilon float64 }
	if err := json.Unmarshal([]byte(offline), &counted); err != nil || counted.Epsilon != running.Epsilon || !(counted.Epsilon > alone.Epsilon) {
		t.Errorf("offline %v, running %v, with one task %v (%v)", counted.Epsilon, running.Epsilon, alone.Epsilon, err)
	}
	id, err := hex.DecodeString(task.Task)
	if err != nil {
		t.Fatal(err)
	}
	if replay, err := operate.ReplayTask(ctx, coordinator, [32]byte(id)); err != nil || replay.Reports != 24 || replay.Entries != 2 {
		t.Errorf("%+v %v", replay, err)
	}

	// What has ended does not need its data.
	if err := os.Rename(data, data+".away"); err != nil {
		t.Fatal(err)
	}
	withoutCmd, withoutLog := background(t, "serve", "coordinator", "--config", coordinator)
	until(t, "the coordinator shows tasks without data", func() bool {
		code, out, _ := outcome(t, "task", "show", "first", "--config", coordinator, "--json")
		return code == exitDone && strings.Contains(out, `"state": "done"`) && strings.Contains(out, `"trust": "shuffle"`)
	})
	// A task's rounds are shown one after the other.
	until(t, "the page shows the past as before the restart", func() bool {
		return reflect.DeepEqual(page.history(t, task.Task).Measures, past.Measures)
	})
	until(t, "the page shows all tasks", func() bool {
		all := page.tasks(t)
		return len(all) == 3 && all[1].Examined > 0
	})
	for i, s := range page.tasks(t) { // the task of one round, and in the order in which they were created
		if was := before[i]; s.Name != was.Name || s.Accuracy != was.Accuracy || s.Examined != was.Examined || s.Examined != s.Round && s.Round > 0 {
			t.Errorf("%+v after a restart, before %+v", s, was)
		}
	}
	want(t, exitFailed, "the shuffler does not say how many clients there are", "task", "create", "--config", coordinator, "--name", "fourth", "--data", data,
		"--eps0", "2", "--rounds", "1", "--n-min", "12") // it was stopped
	late := filepath.Join(dir, "late.safetensors")
	until(t, "what the first task was charged is counted", func() bool {
		_, _, stderr := outcome(t, "task", "model", "first", "--config", coordinator, "--out", late)
		return !strings.Contains(stderr, "is not known yet")
	})
	want(t, exitUsage, "the model's shape follows from the data of task \"first\", which cannot be read", "task", "model", "first", "--config", coordinator, "--out", late)
	if err := os.Rename(data+".away", data); err != nil {
		t.Fatal(err)
	}
	want(t, exitDone, "round 2 of task first", "task", "model", "first", "--config", coordinator, "--out", late)
	if err := os.Rename(data, data+".away"); err != nil {
		t.Fatal(err)
	}
	if before[0].Accuracy != accuracy {
		t.Errorf("accuracy %v, before %v", before[0].Accuracy, accuracy)
	}
	var examined struct {
		Round   int64
		Matrix  struct{ Right string }
		Samples []struct{ Samples []struct{ Image string } }
	}
	page.get(t, "/api/examined?task="+task.Task, page.token, &examined)
	if examined.Round != 2 || !strings.Contains(examined.Matrix.Right, "of 60 right") || len(examined.Samples) == 0 || !strings.HasPrefix(examined.Samples[0].Samples[0].Image, "data:image/png;base64,") {
		t.Errorf("the page examined %+v", examined)
	}
	end(t, withoutCmd, withoutLog, syscall.SIGTERM, exitDone)
	if err := os.Rename(data+".away", data); err != nil {
		t.Fatal(err)
	}

	// Without its mark a ledger is not believed, and init makes no new one for it.
	if err := os.Rename(c.Mark, c.Mark+".away"); err != nil {
		t.Fatal(err)
	}
	want(t, exitRefused, "high-water mark", "ledger", "verify", "--config", coordinator)
	want(t, exitRefused, "high-water mark", "serve", "coordinator", "--config", coordinator)
	want(t, exitFailed, "high-water mark", "fsck", "coordinator", "--config", coordinator)
	want(t, exitUsage, "exists already", "init", "coordinator", "--config", coordinator)
	if _, err := os.Stat(c.Mark); err == nil {
		t.Error("init made a mark")
	}
	if err := os.Rename(c.Mark+".away", c.Mark); err != nil {
		t.Fatal(err)
	}

	editLedger(t, coordinator, c)
	replayCharged(t, moveStore(t, coordinator), [32]byte(id))
}

// replayCharged replays a task whose process died after a charge, and which had a
// round before that gave no step.
func replayCharged(t *testing.T, file string, id [32]byte) {
	t.Helper()
	ctx := context.Background()
	c, err := config.Load[config.Coordinator](file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, c.Store)
	if err != nil {
		t.Fatal(err)
	}
	limit := ledger.Config{Accountant: new(account.Accountant), Delta: 1e-5, MaxEps: 1e6}
	j, err := coordinator.OpenJournal(ctx, s, c.Mark, c.ID, limit)
	if err != nil {
		t.Fatal(err)
	}
	l, err := j.Task(id, limit)
	if err != nil {
		t.Fatal(err)
	}
	third := ledger.Charge{Task: id, Round: 3, Announcement: [32]byte{1}, Batch: [32]byte{2}, Event: l.Entries()[0].Event}
	if err := l.Charge(ctx, third); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if replay, err := operate.ReplayTask(ctx, file, id); err != nil || replay.Charged != 1 || replay.Released != 2 || replay.Entries != 3 {
		t.Errorf("charged and not ended: %+v, %v", replay, err)
	}
	if s, err = store.Open(ctx, c.Store); err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("state.%x", id)
	e, err := s.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(e.Value, &state); err != nil {
		t.Fatal(err)
	}
	state["model"] = state["recent"].([]any)[1]
	counts := state["counts"].(map[string]any)
	counts["released"], counts["failed"], counts["reports"] = 1, 1, 12
	b, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(ctx, key, b, e.Revision)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := operate.ReplayTask(ctx, file, id); err == nil {
		t.Error("a round without a step is recorded as if it had one")
	}
	if err := os.Remove(filepath.Join(c.Record, fmt.Sprintf("%x", id), "round-000002")); err != nil {
		t.Fatal(err)
	}
	if replay, err := operate.ReplayTask(ctx, file, id); err != nil || replay.Charged != 2 || replay.Released != 1 {
		t.Errorf("charged without a step: %+v, %v", replay, err)
	}
}

func get(t *testing.T, url string) int {
	t.Helper()
	code, _ := fetch(t, url)
	return code
}

func fetch(t *testing.T, url string) (code int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// editLedger verifies ledgers that are not what was written, under the same mark.
func editLedger(t *testing.T, file string, c config.Coordinator) {
	t.Helper()
	ctx := context.Background()
	var entries []wire.Entry
	s, err := store.Open(ctx, c.Store)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range s.Entries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		d, err := wire.Decode[wire.Entry](e.Data)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, d)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]struct {
		change func([]wire.Entry) []wire.Entry
		code   int
		text   string
	}{
		"changed": {func(e []wire.Entry) []wire.Entry {
			e[0].Event.Population++
			return e
		}, exitRefused, "does not follow"},
		"chained again": {func(e []wire.Entry) []wire.Entry {
			e[0].Event.Report.Eps0 /= 2 // what was cheaper
			for i := range e[1:] {
				e[i+1].Before = wire.Digest(e[i])
			}
			return e
		}, exitRefused, "mark"},
		"cut short": {func(e []wire.Entry) []wire.Entry { return e[:1] }, exitRefused, "mark"},
		"emptied":   {func(e []wire.Entry) []wire.Entry { return nil }, exitRefused, "mark"},
		"untouched": {func(e []wire.Entry) []wire.Entry { return e }, exitDone, "3 entries"},
	} {
		other := filepath.Join(filepath.Dir(file), strings.ReplaceAll(name, " ", "-"))
		path := other + ".yaml"
		if err := os.WriteFile(path, bytes.Replace(text, []byte("dir: data"), []byte("dir: "+filepath.Base(other)), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := config.Load[config.Coordinator](path)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Init(ctx, o.Store); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(ctx, o.Store)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range edit.change(append([]wire.Entry(nil), entries...)) {
			if _, err := s.AppendEntry(ctx, uint64(i), wire.Encode(e)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		want(t, edit.code, edit.text, "ledger", "verify", "--config", path)
		// It has no models, and fsck says so.
		if name == "untouched" {
			want(t, exitFailed, "the store does not know it", "fsck", "coordinator", "--config", path)
		}
	}
}

// moveStore migrates, after which only the new store can be used.
func moveStore(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(file), "moved.yaml")
	if err := os.WriteFile(path, bytes.Replace(text, []byte("dir: data"), []byte("dir: moved"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, exitDone, `"ledger_entries": 3`, "migrate", "coordinator", "--config", file, "--to", path, "--json")
	want(t, exitDone, "3 entries", "ledger", "verify", "--config", path)
	want(t, exitDone, `"clean": true`, "fsck", "coordinator", "--config", path, "--json")
	want(t, exitRefused, "was migrated", "ledger", "verify", "--config", file)
	want(t, exitRefused, "was migrated", "serve", "coordinator", "--config", file)

	// A released model that is gone.
	ctx := context.Background()
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, c.Store)
	if err != nil {
		t.Fatal(err)
	}
	models, err := s.List(ctx, store.Objects, "model/")
	for _, name := range models {
		err = errors.Join(err, s.Delete(ctx, store.Objects, name))
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	want(t, exitFailed, "model/", "fsck", "coordinator", "--config", path)
	return path
}

// TestDemo runs the demonstration in each way that takes other code, stops one
// half-way and goes on.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes; the services have their own tests")
	}
	data := filepath.Join(t.TempDir(), "images")
	if err := tiny(data, 120, 60, false); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"shuffle":        {"--participation", "once", "--k", "5"},
		"vector-sum":     {"--trust", "vector-sum", "--suite", "mlkem768x25519"},
		"proofs":         {"--trust", "vector-sum", "--proofs", "pine"},
		"full":           {"--full"},
		"full, shuffle":  {"--full", "--trust", "shuffle"},
		"messages":       {"--messages", "8", "--participation", "check-in", "--gamma", "0.9"},
		"measure":        {"--measure"},
		"full, measure":  {"--full", "--measure"},
		"every":          {"--every", "3"},
		"every, clients": {"--every", "3", "--noise-by", "clients"},
		"interrupted":    {},
	} {
		if !longtest.On && name != "full" {
			continue
		}
		out, rounds, clients := shortDir(t), int64(2), 12
		if name == "interrupted" {
			rounds = 20 // it must not be at its end before
		}
		every := strings.HasPrefix(name, "every")
		if every {
			// Each client comes in one of them, by its own dice: of 64 fewer than two in some round less than once in 10⁹ times.
			rounds, clients = 3, 64
		}
		cmd := process(t, append([]string{"demo", "--clients", fmt.Sprint(clients), "--rounds", fmt.Sprint(rounds), "--data", data, "--out", out, "--json"}, args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if name == "interrupted" {
			until(t, "a task", func() bool {
				b, err := os.ReadFile(filepath.Join(out, demoFile))
				return err == nil && bytes.Contains(b, []byte(`"task"`))
			})
			// Killed, it leaves no process behind: a store can be opened again.
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			l := operate.Loopback{Dir: out}
			said := map[string]string{}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("of the killed demo's stores: %q", said)
				}
			})
			until(t, "the processes of a killed demo end", func() bool {
				done := true
				for _, role := range []string{"coordinator", "shuffler"} {
					code, out, text := outcome(t, "fsck", role, "--config", l.Config(role))
					said[role] = out + text
					done = done && code == exitDone
				}
				return done
			})
			socket := filepath.Join(out, "coordinator", "coordinator.sock")
			if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of the killed one
				t.Fatal(err)
			}
			cmd = process(t, "demo", "--resume", out, "--json")
			stderr.Reset()
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			until(t, "the demo runs again", func() bool {
				_, err := os.Stat(socket)
				return err == nil
			})
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if cmd.ProcessState.ExitCode() != exitInterrupted || !strings.Contains(stderr.String(), "--resume") {
				t.Fatalf("%s: exit %d\n%s", name, cmd.ProcessState.ExitCode(), &stderr)
			}
			cmd = process(t, "demo", "--resume", out, "--json")
			stdout.Reset()
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &stderr)
		}
		var r demoResult
		if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &stdout)
		}
		if r.Released != rounds || r.Accepted < 10 || !r.Replayed || !r.Clean || !(r.Epsilon > 0) || r.Entries < 1 {
			t.Errorf("%s: %+v\n%s", name, r, &stderr)
		}
		asked := int64(0) // reports of the question
		if a := r.Answer; (a != nil) != strings.HasSuffix(name, "measure") {
			t.Errorf("%s: answer %+v", name, a)
		} else if a != nil {
			asked = a.Reports
			people := 0.
			for _, n := range a.True {
				people += n
			}
			if asked != 12 || len(a.Bins) != 10 || people != 12 || !(a.Epsilon > 0 && a.Epsilon <= 1) || r.Entries != 2 { // of the training
				t.Errorf("%s: %+v", name, a)
			}
		}
		if full := strings.HasPrefix(name, "full"); full != (r.Tokens && r.Relay && r.Receipts != nil && r.Receipts.Found == r.Accepted+asked && r.Receipts.Missing == 0) {
			t.Errorf("%s: tokens %t, relay %t, receipts %+v", name, r.Tokens, r.Relay, r.Receipts)
		}
		by := "aggregators"
		if name == "every, clients" {
			by = "clients"
		}
		if (name == "proofs" || name == "full" || name == "full, measure" || every) != (r.Proofs == "pine" && r.NoiseBy == by) {
			t.Errorf("%s: proofs %q, noise by %q", name, r.Proofs, r.NoiseBy)
		}
		if name == "messages" && (r.Messages != 8 || !(r.Local > 16 && r.Local < 16.001) || r.Report != 178+8*74) {
			t.Errorf("%d messages, %v together, %d bytes", r.Messages, r.Local, r.Report)
		}
	}
}
