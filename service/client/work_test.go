package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// costly is a task whose noise takes minutes to check.
func costly(name string) wire.Task {
	return wire.Task{Population: wire.ID{3}, Name: name, Trust: dp.Distributed, Participation: dp.All, MinReports: 3, Rounds: 9, Delta: 1e-5,
		Mechanism: wire.Mechanism{Name: "vector-sum-skellam", Dim: dim, Clip: 1, ClipMode: "norm", Sum: wire.Sum{Users: 1 << 40, MinUsers: 2, Honest: .5,
			Grid: 1 << 10, Norm: 1 << 30, Noise: string(vecsum.Skellam), NoiseVariance: 1 << 20, Sigma: 1e-9}}}
}

// A task that would keep a client's processor busy is refused after a while, and why
// is said.
func TestCostlyTaskIsRefused(t *testing.T) {
	p := policy()
	p.MaxWork = 100 * time.Millisecond
	_, err := p.Agree(t.Context(), costly("one")) // it would take minutes
	var refused *pure.Refused
	if !errors.As(err, &refused) || refused.Cause != pure.CausePolicy || !strings.Contains(refused.Detail, "to check") {
		t.Errorf("error %v", err)
	}
	// What costs nothing to see is seen first.
	p.MaxModelBytes = 4
	p.MaxWork = time.Hour
	if _, err = p.Agree(t.Context(), costly("two")); !errors.As(err, &refused) || !strings.Contains(refused.Detail, "a model of") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p = policy()
	if _, err := p.Agree(ctx, costly("three")); err == nil {
		t.Error("agreed after the end")
	}
}

// A task may ask for seeds that are rare, of a large model, in many messages; each is within the
// policy. One that would keep a client busy for longer than MaxWork is refused.
func TestTaskOfCostlySeedsIsRefused(t *testing.T) {
	task := func(dim int64, messages int64, eps0, edge float64) wire.Task {
		w := shuffleTask()
		w.Messages = messages
		w.Mechanism = wire.Mechanism{Name: "stepunit", Dim: dim, Clip: 1, ClipMode: "norm", Eps0: eps0, Encoding: wire.EncodingSeed, Edges: []float64{edge}, Height: math.Expm1(eps0)}
		return w
	}
	p := policy()
	p.MaxEps0 = 6
	for name, c := range map[string]struct {
		task   wire.Task
		refuse bool
	}{
		"a common one":       {task(1930, 1, 2, 1.2), false},
		"eight of a network": {task(1e6, 8, .7, .8), false},
		"4,096 of a network": {task(1e6, 4096, 1e-3, .5), true},
		"a rare one":         {task(1<<24, 1, 5.9, 6), true},
		"a rare one, small":  {task(1930, 1, 5.9, 6), false},
	} {
		_, err := p.Agree(t.Context(), c.task)
		var refused *pure.Refused
		if c.refuse && (!errors.As(err, &refused) || refused.Cause != pure.CausePolicy || !strings.Contains(refused.Detail, "seeds")) || !c.refuse && err != nil {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// manyMessages is a task whose reports take long to make, because they have many messages of many values.
func manyMessages() wire.Task {
	task := shuffleTask()
	task.Name, task.Messages = "many messages", wire.MaxMessages
	task.Mechanism = wire.Mechanism{Name: "krr", Dim: 1 << 18, Clip: 1, ClipMode: "norm", Eps0: 1e-3}
	return task
}

// What a message takes to make counts as often as a report has messages.
func TestMessagesAreWork(t *testing.T) {
	terms, err := policy().Agree(t.Context(), manyMessages())
	if err != nil {
		t.Fatal(err)
	}
	if err := terms.Affordable(30 * time.Second / wire.MaxMessages); err != nil {
		t.Error(err)
	}
	var refused *pure.Refused
	if err := terms.Affordable(30*time.Second/wire.MaxMessages + time.Millisecond); !errors.As(err, &refused) || refused.Cause != pure.CausePolicy || !strings.Contains(refused.Detail, "4096 messages") {
		t.Errorf("error %v", err)
	}
}

// A client that is told to stop while it makes a report charges nothing for it, of one message or of several, and
// makes no further message.
func TestStopChargesNothing(t *testing.T) {
	for _, messages := range []int64{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			task := shuffleTask()
			task.Messages = messages
			w := newWorld(t, 3, task)
			config := w.config()
			f, err := client.NewFleet(config, w.members[:1])
			if err != nil {
				t.Fatal(err)
			}
			made := 0
			f.Replay(w.coins, func(id wire.ID, round int64) rng.Source {
				made++
				cancel()
				return w.noise(id, round)
			})
			theta := make([]float32, dim)
			w.publish(w.announcement(1, theta), theta, nil)
			if err := errors.Join(f.Run(ctx), f.Close()); err != nil {
				t.Fatal(err)
			}
			book, err := client.OpenBook(config.Directory)
			if err != nil || made != 1 || len(book.Charged) != 0 || w.asked("POST report") != 0 {
				t.Errorf("%d messages: %d reports begun, %d charged, %d sent, %v", messages, made, len(book.Charged), w.asked("POST report"), err)
			}
		})
	}
}

// serveTasks has the coordinator list these tasks.
func (w *world) serveTasks(tasks []wire.Task) {
	byID := map[string][]byte{}
	var list strings.Builder
	for _, task := range tasks {
		name := fmt.Sprintf("%x", wire.Digest(task))
		byID[name] = wire.Sign(w.coordinator, wire.LabelTask, wire.Encode(task))
		fmt.Fprintln(&list, name)
	}
	w.before = func(rw http.ResponseWriter, r *http.Request) bool {
		path := strings.TrimPrefix(r.URL.Path, "/v1/tasks")
		if path == "" {
			fmt.Fprint(rw, list.String())
			return true
		}
		b, ok := byID[strings.TrimPrefix(path, "/")]
		if ok {
			w.count(r, "task")
			rw.Write(b)
		}
		return ok
	}
}

// A coordinator that makes tasks without end, or such as cost much to refuse, gets so
// much of a client and no more.
func TestTasksWithoutEnd(t *testing.T) {
	run := func(t *testing.T, tasks []wire.Task, change func(*client.JoinConfig), last func(client.Notice) bool, prepare ...func(*client.Fleet)) map[string]int {
		t.Helper()
		w := newWorld(t, 3, shuffleTask())
		w.serveTasks(tasks)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		ended := false
		c := w.config()
		c.Tasks = nil
		notices := make(chan client.Notice, 1<<12)
		c.Watch = func(n client.Notice) { notices <- n }
		change(&c)
		f, err := client.NewFleet(c, w.members)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range prepare {
			p(f)
		}
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		for !ended && ctx.Err() == nil {
			select {
			case n := <-notices:
				ended = last(n)
			case <-ctx.Done():
			}
		}
		if !ended {
			t.Error("there is no end of it")
		}
		cancel()
		if err := errors.Join(<-done, f.Close()); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return maps.Clone(w.requests) // its last requests may still be served
	}
	says := func(text string) func(client.Notice) bool {
		return func(n client.Notice) bool {
			return n.What == client.Declined && n.Err != nil && strings.Contains(n.Err.Error(), text)
		}
	}
	t.Run("many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var tasks []wire.Task
			for i := range 1100 {
				task := shuffleTask()
				task.Name, task.MinReports = fmt.Sprint(i), 1 // too small a crowd
				tasks = append(tasks, task)
			}
			if n := run(t, tasks, func(*client.JoinConfig) {}, says("1024 tasks were considered"))["GET task"]; n > 1024 {
				t.Errorf("%d tasks were fetched", n)
			}
		})
	})
	t.Run("costly", func(t *testing.T) {
		// Not in a bubble, whose time stands still while something is computed.
		var tasks []wire.Task
		for i := range 40 {
			tasks = append(tasks, costly(fmt.Sprint(i)))
		}
		run(t, tasks, func(c *client.JoinConfig) { c.Policy.MaxWork = 10 * time.Millisecond }, says("to refuse tasks has taken more than 100ms"))
	})
	t.Run("many messages", func(t *testing.T) {
		// Outside of a bubble, too: a thousand million values take longer than a tenth of a second on any machine.
		run(t, []wire.Task{manyMessages()}, func(c *client.JoinConfig) { c.Policy.MaxWork = 100 * time.Millisecond }, says("to make the 4096 messages of a report takes"))
	})
	t.Run("none left", func(t *testing.T) {
		// All members are in as many tasks as they may be: nothing is worth checking.
		synctest.Test(t, func(t *testing.T) {
			var tasks []wire.Task
			tasks = append(tasks, costly("another"))
			run(t, tasks, func(c *client.JoinConfig) { c.Policy.MaxWork = time.Hour }, says("max-tasks: 1"),
				func(f *client.Fleet) { f.Took([32]byte{9}) })
		})
	})
}

// taskList is a coordinator that lists tasks, and counts those that were fetched.
type taskList struct {
	sign    func(wire.Task) []byte
	tasks   map[string]wire.Task // by their digest
	mu      sync.Mutex
	listed  []string
	fetched int
}

func (l *taskList) Close() {}

func (l *taskList) Do(_ context.Context, r client.Request) (*client.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answer := func(status int, body []byte) (*client.Response, error) {
		return &client.Response{Status: status, Header: func(string) string { return "" }, Body: io.NopCloser(bytes.NewReader(body))}, nil
	}
	if strings.HasSuffix(r.URL, "/v1/tasks") {
		return answer(http.StatusOK, []byte(strings.Join(l.listed, "\n")))
	}
	l.fetched++
	return answer(http.StatusOK, l.sign(l.tasks[path.Base(r.URL)]))
}

// A client that runs for months looks at each new task: it forgets those that are listed no more. Before, it looked at
// 1024 in its life. A coordinator that lists others all the time still has it look at no more in a day.
func TestTasksThatLeftTheListAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, shuffleTask())
		list := &taskList{tasks: map[string]wire.Task{}, sign: func(task wire.Task) []byte { return wire.Sign(w.coordinator, wire.LabelTask, wire.Encode(task)) }}
		small := func(name string) string { // refused: too small a crowd
			task := shuffleTask()
			task.Name, task.MinReports = name, 1
			id := fmt.Sprintf("%x", wire.Digest(task))
			list.tasks[id] = task
			return id
		}
		c := w.config()
		c.Tasks, c.Roots, c.Dial, c.Transport = nil, nil, nil, list
		f, err := client.NewFleet(c, w.members)
		if err != nil {
			t.Fatal(err)
		}
		f.Remembered(24, 10*time.Minute) // of 1024 and a day
		// lists changes what is listed, and returns how many tasks were fetched after a while.
		lists := func(wait time.Duration, tasks ...string) int {
			list.mu.Lock()
			list.listed = tasks
			list.mu.Unlock()
			time.Sleep(wait)
			synctest.Wait()
			list.mu.Lock()
			defer list.mu.Unlock()
			return list.fetched
		}
		late, later := small("late"), small("later")
		var many []string
		for i := range 24 {
			many = append(many, small(fmt.Sprint(i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		for i, c := range []struct {
			wait  time.Duration
			tasks []string
			want  int
		}{
			{time.Minute, many[:20], 20},
			{time.Minute, many[20:], 24},
			{time.Minute, []string{many[0], late}, 24}, // too soon
			{10 * time.Minute, []string{many[0], late}, 25},
			{time.Minute, []string{many[0], many[1], later}, 27}, // many[1] was forgotten
			{time.Minute, []string{many[0]}, 27},
		} {
			if got := lists(c.wait, c.tasks...); got != c.want {
				t.Errorf("step %d: %d tasks were looked at, want %d", i, got, c.want)
			}
		}
		cancel()
		if err := errors.Join(<-done, f.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// A client cannot tell which of a sum's rounds were void and may report in all that
// are announced: it counts the tails of all of them.
func TestTailsOfAllAnnouncedRounds(t *testing.T) {
	task := wire.Task{Population: wire.ID{3}, Name: "tails", Trust: dp.Distributed, Participation: dp.All, MinReports: 3, Rounds: 4, Delta: 1e-5,
		Mechanism: sumTask(t, 4, 3)}
	terms, err := policy().Agree(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	// 18 rounds may be announced, and CheckSigma gives each a quarter of the share.
	if want := vecsum.TailShare * task.Delta * 18 / 4; !(terms.Tail >= want && terms.Tail < want*1.000001) {
		t.Errorf("a tail of %v, want %v", terms.Tail, want)
	}
}
