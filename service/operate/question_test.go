package operate

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// asked is a deployment whose clients have rows of people.
type asked struct {
	t *testing.T
	l Loopback
}

// newAsked makes a deployment of n clients, client i of age 10·(i mod 10) + 5.
func newAsked(t *testing.T, n int, budget float64) *asked {
	t.Helper()
	dir := t.TempDir()
	rows := "age,city\n"
	for i := range n {
		rows += fmt.Sprintf("%d,%s\n", 10*(i%10)+5, []string{"rome", "oslo"}[i%2])
	}
	people := filepath.Join(dir, "people.csv")
	if err := os.WriteFile(people, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	l := Loopback{Dir: filepath.Join(dir, "all"), Clients: n, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: budget, Delta: 1e-4, Data: people, Aggregator: true,
		Policy: config.Policy{MaxEps0: 20, MaxEps: 100, MaxTaskEps: 20, Delta: 1e-3, MinReports: 2, MaxTasks: 10}, Spread: -1}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &asked{t, l}
}

// serve serves a role until stop is called.
func (a *asked) serve(role, process string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := Serve(ctx, role, a.l.Config(process), Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
			a.t.Errorf("%s: %v", role, err)
		}
	})
	return sync.OnceFunc(func() { cancel(); wg.Wait() })
}

func (a *asked) api() operatorv1.OperatorServiceClient {
	a.t.Helper()
	c, err := config.Load[config.Coordinator](a.l.Config(RoleCoordinator))
	if err != nil {
		a.t.Fatal(err)
	}
	api := OperatorClient(c.Operator)
	browsertest.Until(a.t, func() error {
		_, err := api.GetStatus(a.t.Context(), connect.NewRequest(&operatorv1.GetStatusRequest{}))
		return err
	})
	return api
}

// create creates a task.
func (a *asked) create(name, settings string) (task *operatorv1.Task, err error) {
	a.t.Helper()
	seconds := 600.                         // a round ends before when all have reported
	if strings.Contains(settings, "\nk:") { // who is drawn is secret until the deadline
		seconds = 30
	}
	browsertest.Until(a.t, func() error {
		var resp *connect.Response[operatorv1.CreateTaskResponse]
		if resp, err = a.api().CreateTask(a.t.Context(), connect.NewRequest(&operatorv1.CreateTaskRequest{Name: name, Config: settings, RoundSeconds: seconds})); err == nil {
			task = resp.Msg.Task
		} else if connect.CodeOf(err) == connect.CodeUnavailable { // the shuffler may be starting
			return err
		}
		return nil
	})
	return task, err
}

// ended waits for the end of a task.
func (a *asked) ended(name string) (task *operatorv1.Task) {
	a.t.Helper()
	api := a.api()
	browsertest.Until(a.t, func() error {
		resp, err := api.GetTask(a.t.Context(), connect.NewRequest(&operatorv1.GetTaskRequest{Task: name}))
		if err != nil {
			a.t.Fatal(err)
		}
		task = resp.Msg.Task
		if task.State == "done" && task.Epsilon == task.Epsilon { // not NaN
			return nil
		} else if task.State != "running" && task.State != "done" {
			a.t.Fatalf("%s is %s: %s", name, task.State, task.Why)
		}
		return fmt.Errorf("%s has no end", name)
	})
	return task
}

// answer waits for the end of a task, and returns its answer.
func (a *asked) answer(name string) (Answer, []byte) {
	a.t.Helper()
	a.ended(name)
	resp, err := a.api().GetAnswer(a.t.Context(), connect.NewRequest(&operatorv1.GetAnswerRequest{Task: name}))
	if err != nil {
		a.t.Fatal(err)
	}
	var out Answer
	if err := json.Unmarshal(resp.Msg.Json, &out); err != nil {
		a.t.Fatal(err)
	}
	return out, resp.Msg.Json
}

// page expects an answer on the coordinator's page, and what each task asks beside the budget.
func (a *asked) page(want Answer) {
	a.t.Helper()
	c, err := config.Load[config.Coordinator](a.l.Config(RoleCoordinator))
	if err != nil {
		a.t.Fatal(err)
	}
	get := func(path string, v any) {
		resp, err := http.Get("http://" + c.Dashboard + path)
		if err != nil {
			a.t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
			a.t.Fatalf("%s: %v", path, err)
		}
	}
	var list struct {
		Tasks []struct {
			Name     string
			Question string
			Answer   *struct {
				Bars bool
				Rows []struct {
					Name       string
					Value      float64
					Low, High  float64
					Joint_low  float64
					Joint_high float64
				}
			}
		}
	}
	browsertest.Until(a.t, func() error {
		if get("/api/tasks", &list); len(list.Tasks) == 0 || list.Tasks[0].Answer == nil {
			return fmt.Errorf("the page has %+v", list)
		}
		return nil
	})
	shown := list.Tasks
	if len(shown) == 0 || shown[0].Name != want.Name || shown[0].Question != "histogram of age" || shown[0].Answer == nil || !shown[0].Answer.Bars || len(shown[0].Answer.Rows) != len(want.Bins) {
		a.t.Fatalf("the page has %+v", shown)
	}
	for i, r := range shown[0].Answer.Rows {
		near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-4*(1+math.Abs(y)) }
		if b := want.Bins[i]; !near(r.Value, b.Count) || !near(r.Low, b.Low95) || !near(r.High, b.High95) || !near(r.Joint_low, b.JointLow95) || !near(r.Joint_high, b.JointHigh95) {
			a.t.Errorf("the page has %+v, the answer %+v", r, b)
		}
	}
	var book struct {
		Tasks []struct{ Name, Asks string }
	}
	if get("/api/ledger", &book); len(book.Tasks) != 2 || book.Tasks[0].Asks != "histogram of age" {
		a.t.Errorf("the page's ledger has %+v", book)
	}
}

const agesQuestion = "measure: histogram\ncolumn: age\nbins: 0..100:10\nepsilon: 10\ndelta: 1e-5\nn-min: 40\n"

// TestQuestionOverANetwork: clients answer with their rows; the answer is charged, stays the same after
// a restart, and is charged again for a second, identical question; the budget's end refuses a third.
func TestQuestionOverANetwork(t *testing.T) {
	embedded(t)
	a := newAsked(t, 40, 18)
	defer a.serve(RoleShuffler, RoleShuffler)()
	defer a.serve(RoleAggregator, RoleAggregator)()
	stop := a.serve(RoleCoordinator, RoleCoordinator)
	defer func() { stop() }()
	task, err := a.create("ages", agesQuestion)
	if err != nil {
		t.Fatal(err)
	}
	if task.Question != "histogram" || task.Trust != "vector-sum" || task.NMin != 40 || task.Rounds != 1 {
		t.Errorf("created %v", task)
	}
	if _, err := a.api().GetAnswer(t.Context(), connect.NewRequest(&operatorv1.GetAnswerRequest{Task: "ages"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an answer before there is one: %v", err)
	}
	defer a.serve(RoleClient, "clients-0")()
	first, text := a.answer("ages")
	if first.Measure != "histogram" || first.Column != "age" || first.Reports != 40 || first.Clients != 40 || len(first.Bins) != 10 || !(first.Epsilon > 5 && first.Epsilon <= 10) || first.Task != task.Id {
		t.Errorf("%+v", first)
	}
	for _, b := range first.Bins { // 4 in each; the noise is about 1
		if !(b.JointLow95 <= b.Low95 && b.Low95 < b.Count && b.Count < b.High95 && b.High95 <= b.JointHigh95) || b.Count < -6 || b.Count > 14 {
			t.Errorf("bin %v", b)
		}
	}
	if _, err := a.api().GetModel(t.Context(), connect.NewRequest(&operatorv1.GetModelRequest{Task: "ages"})); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "riffle task answer") {
		t.Errorf("a model of a question: %v", err)
	}

	if _, err := a.create("ages", agesQuestion); err == nil {
		t.Error("the same task was created twice")
	}
	if _, err := a.create("ages-again", agesQuestion); err != nil {
		t.Fatal(err)
	}
	second, _ := a.answer("ages-again")
	if second.Bins[0].Count == first.Bins[0].Count && second.Bins[1].Count == first.Bins[1].Count {
		t.Error("a second question has the first one's noise")
	}
	book, err := a.api().GetLedger(t.Context(), connect.NewRequest(&operatorv1.GetLedgerRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(book.Msg.Entries); n != 2 || !(book.Msg.Epsilon > float64(first.Epsilon)) {
		t.Errorf("%d entries, epsilon %v", n, book.Msg.Epsilon)
	}
	if _, err := a.create("ages-too", agesQuestion); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a question beyond the budget: %v", err)
	}

	a.page(first)
	stop()
	stop = a.serve(RoleCoordinator, RoleCoordinator)
	if _, again := a.answer("ages"); !bytes.Equal(again, text) {
		t.Errorf("after a restart the answer is\n%s\nit was\n%s", again, text)
	}
	if _, err := a.create("ages-too", agesQuestion); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a question beyond the budget after a restart: %v", err)
	}
	stop()
	stop = func() {}
	r, err := Check(t.Context(), RoleCoordinator, a.l.Config(RoleCoordinator))
	if err != nil || !r.Clean || r.Checked["answers"] != 2 {
		t.Errorf("fsck: %+v, %v", r, err)
	}
	if _, err := ReadLedger(t.Context(), a.l.Config(RoleCoordinator), false); err != nil {
		t.Error(err)
	}
}

// TestQuestionsOfEveryKindOverANetwork: what has a mechanism is answered, also with the aggregators' noise
// and proofs, and the records give each answer again; what has none is refused with the reason.
func TestQuestionsOfEveryKindOverANetwork(t *testing.T) {
	embedded(t)
	a := newAsked(t, 40, 50)
	defer a.serve(RoleShuffler, RoleShuffler)()
	defer a.serve(RoleAggregator, RoleAggregator)()
	stop := a.serve(RoleCoordinator, RoleCoordinator)
	defer func() { stop() }()
	const ages = "measure: histogram\ncolumn: age\nbins: 0..100:10\n"
	for settings, want := range map[string]string{
		ages + "trust: central\n":                          "trust",
		ages + "trust: none\n":                             "trust",
		ages + "trust: distributed\n":                      "coins",
		ages + "trust: local\nnoise-by: aggregators\n":     "noise-by",
		ages + "n-min: 1\n":                                "n-min",
		ages + "k: 41\n":                                   "k = 41",
		ages + "model: softmax\n":                          "model",
		"measure: histogram\ncolumn: age\n":                "bins",
		"measure: mode\ncolumn: age\n":                     "mode",
		"measure: mean\ncolumn: age\nrange: 100..0\n":      "range",
		ages + "epsilon: 0\n":                              "epsilon",
		"measure: heavy-hitters\ncolumn: city\nk: 20\n":    "",
		"measure: histogram\nmeasure: mean\ncolumn: age\n": "",
	} {
		if _, err := a.create("bad", settings); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", settings, err)
		}
	}
	tasks := map[string]string{
		"proved":    ages + "noise-by: aggregators\nepsilon: 10\nreceipts: true\n",
		"mean":      "measure: mean\ncolumn: age\nrange: 0..100\nepsilon: 10\n",
		"quantiles": "measure: quantiles\ncolumn: age\nrange: 0..100\nlevels: 4\nepsilon: 10\n",
		"romans":    "measure: count\nwhere: city=rome,age>=40\nepsilon: 10\nk: 30\nn-min: 30\n",
	}
	for _, name := range slices.Sorted(maps.Keys(tasks)) { // the romans' round, which ends by the clock, begins last
		if _, err := a.create(name, tasks[name]+"delta: 1e-5\n"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	defer a.serve(RoleClient, "clients-0")()
	got, ids := map[string]Answer{}, map[string][32]byte{}
	for name := range tasks {
		got[name], _ = a.answer(name)
		b, err := hex.DecodeString(got[name].Task)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = [32]byte(b)
		if !(got[name].Epsilon <= 10) || got[name].Delta != 1e-5 {
			t.Errorf("%s cost %v", name, got[name].Epsilon)
		}
	}
	if p := got["proved"]; p.NoiseBy != "aggregators" || len(p.Bins) != 10 || p.Reports != 40 {
		t.Errorf("%+v", p)
	}
	if m := got["mean"].Mean; m == nil || !(m.JointLow95 < 60 && m.JointHigh95 > 40) { // 50 in truth
		t.Errorf("mean %+v", m)
	}
	if q := got["quantiles"].Quantiles; len(q) != 3 || q[0].Value > q[1].Value || q[1].Value > q[2].Value {
		t.Errorf("quantiles %+v", q)
	}
	if c := got["romans"].Count; c == nil || got["romans"].Reports != 30 || got["romans"].Clients != 40 || !slices.Contains(got["romans"].Errors, "sampling") {
		t.Errorf("count %+v of %+v", c, got["romans"])
	}
	stop()
	stop = func() {}
	for name, id := range ids {
		again, err := ReplayQuestion(t.Context(), a.l.Config(RoleCoordinator), id)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := got[name]; !reflect.DeepEqual(again.Answer, want.Answer) {
			t.Errorf("%s again: %+v, it was %+v", name, again.Answer, want.Answer)
		}
	}
	// A record that was changed gives another answer.
	path := recordPath(filepath.Join(filepath.Dir(a.l.Config(RoleCoordinator)), "record", got["mean"].Task), 1)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[8]++
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReplayQuestion(t.Context(), a.l.Config(RoleCoordinator), ids["mean"]); err == nil {
		t.Error("a changed record gives the same answer")
	}
}

// A question without an answer is not said to lack a model, and callers treat it alike.
func TestNoAnswer(t *testing.T) {
	for state, want := range map[string]string{
		coordinator.Running: `task "ages" has no answer yet, it is running`,
		"done":              `task "ages" has no answer, it is done: riffle task show ages`,
	} {
		err := noAnswer("ages", state)
		if err.Error() != want || connect.CodeOf(apiError(err)) != connect.CodeNotFound {
			t.Errorf("%v, code %v", err, connect.CodeOf(apiError(err)))
		}
	}
}

// TestQuestionsMayBeDeclined: who stays away from a question is no chance in what it is charged.
func TestQuestionsMayBeDeclined(t *testing.T) {
	q, err := statistic.Parse([]byte(`{"measure":"count","column":"age"}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := measure.New(t.Context(), measure.Config{Question: q, Trust: dp.Local, Epsilon: 1, Delta: 1e-5, Clients: 10})
	if err != nil {
		t.Fatal(err)
	}
	if !(&coordinatorProcess{}).asking(p, created{}).Declinable {
		t.Error("a question's job credits that clients stay away")
	}
}
