package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/learn/external/externaltest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// asked is a source that asks a program for the gradients of client id, and notes its errors.
type asked struct {
	*external.Kept
	id int64
	*asks
}

// asks is what came of the questions.
type asks struct {
	mu    sync.Mutex
	wait  sync.WaitGroup     // for questions: a client does not wait longer than an answer's time
	errs  map[[2]int64]error // by client and round
	close map[[2]int64]bool  // answers that came about when the time ended, perhaps too late
}

func (a asked) Open(task wire.Task) (client.Gradient, error) {
	if d := a.Dim(); d != 0 && int64(d) != task.Mechanism.Dim {
		return nil, fmt.Errorf("%d parameters", d)
	}
	return nil, nil
}

func (a asked) Ask(ctx context.Context, task wire.Task, round int64, theta []float32) ([]float32, error) {
	a.wait.Add(1)
	defer a.wait.Done()
	row, _, err := a.Gradient(ctx, task.Name, round, theta, a.id)
	end, _ := ctx.Deadline()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errs[[2]int64{a.id, round}] = err
	a.close[[2]int64{a.id, round}] = time.Until(end) < 100*time.Millisecond
	return row, err
}

// traffic is what leaves a process in a run: the requests, with their sizes, in each round, and
// the reports' contents as the coordinator opens them.
type traffic struct {
	requests []map[string]int
	parts    [][][]byte // by round and client
	spoke    []time.Duration
}

const askedRounds = 2

// observe runs two clients for two rounds and watches the network.
func observe(t *testing.T, answer time.Duration, source func(i int64) client.Source) (out traffic) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	w := newWorld(t, 4, shuffleTask())
	w.members = w.members[:2]
	for i := range w.members {
		w.members[i].Source = source(int64(i))
	}
	var mu sync.Mutex
	now := map[string]int{}
	var published time.Time
	_, asks := w.members[0].Source.(interface {
		Ask(context.Context, wire.Task, int64, []float32) ([]float32, error)
	})
	w.before = func(rw http.ResponseWriter, r *http.Request) bool {
		path := r.URL.Path
		if i := strings.Index(path, "/v1/tasks/"); i >= 0 {
			path = "/v1/tasks/…" + path[min(len(path), len("/v1/tasks/")+64):] + "?" + r.URL.RawQuery
		} else if strings.HasPrefix(path, "/v1/models/") {
			path = "/v1/models/…"
		} else if strings.HasPrefix(path, "/v1/rounds/") {
			path = "/v1/rounds/…" + path[min(len(path), len("/v1/rounds/")+64):]
		}
		var names []string
		for name, values := range r.Header {
			names = append(names, fmt.Sprint(name, len(strings.Join(values, ""))))
		}
		slices.Sort(names)
		mu.Lock()
		defer mu.Unlock()
		now[fmt.Sprint(r.Method, " ", path, " ", r.ContentLength, " ", names)]++
		if path == "/v1/report" {
			out.spoke = append(out.spoke, time.Since(published))
		}
		return false
	}
	c := w.config()
	c.Answer = answer
	f, err := client.NewFleet(c, w.members)
	if err != nil {
		t.Fatal(err)
	}
	f.Replay(w.coins, func(id wire.ID, round int64) rng.Source {
		mu.Lock()
		defer mu.Unlock()
		if since := time.Since(published); since < answer && asks {
			t.Errorf("a report is made after %v", since)
		}
		return w.noise(id, round)
	})
	f.Planned(func(begun, by, _, at time.Time) {
		if by.Sub(begun) != answer || !at.Equal(by) {
			t.Errorf("an answer has %v, and the report leaves %v after that", by.Sub(begun), at.Sub(by))
		}
	})
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	for round := range int64(askedRounds) {
		theta := []float32{30, -2, 3, float32(round), 20}
		mu.Lock()
		published = time.Now()
		mu.Unlock()
		w.publish(w.announcement(round+1, theta), theta, nil)
		reports := w.wait(ctx, 2)
		w.until(ctx, func() bool { // the clients wait for the next one, and have compared the last
			return w.requests["GET announcement"] >= int(round)+2 && w.requests["GET closed"] >= int(round)
		})
		parts := make([][]byte, 2)
		w.mu.Lock()
		for id, r := range reports {
			if parts[w.at[id]], err = w.rings[envelope.Coordinator].OpenPart(envelope.Coordinator, w.digest, r.Part); err != nil {
				t.Error(err)
			}
		}
		w.mu.Unlock()
		mu.Lock()
		out.parts, out.requests = append(out.parts, parts), append(out.requests, now)
		now = map[string]int{}
		mu.Unlock()
	}
	w.end()
	if err := errors.Join(<-done, f.Close()); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	out.requests = append(out.requests, now)
	return out
}

// own is a source with the gradients of a good program, zero one of zeros.
func own(i int64) client.Source {
	return client.Func(dim, func(theta, grad []float32) {
		for j := range grad {
			grad[j] = externaltest.Gradient(theta, i, j)
		}
	})
}

func zero(int64) client.Source { return client.Func(dim, func(_, grad []float32) { clear(grad) }) }

// check holds that a run shows no more than another one, and that each of its reports is of the
// client's own gradient, or of 0 if it came to nothing.
func (got traffic) check(t *testing.T, healthy, own, zero traffic, answer time.Duration, failed func(client, round int64) bool) {
	t.Helper()
	if a, b := fmt.Sprint(got.requests), fmt.Sprint(healthy.requests); a != b {
		t.Errorf("what leaves the process:\n%s\nwant\n%s", a, b)
	}
	for _, at := range got.spoke {
		if at < answer {
			t.Errorf("a report leaves after %v, an answer has %v", at, answer)
		}
	}
	for round := range int64(askedRounds) {
		for i := range int64(2) {
			want := own
			if failed(i, round+1) {
				want = zero
			}
			if !bytes.Equal(got.parts[round][i], want.parts[round][i]) {
				t.Errorf("client %d, round %d: its report is of another gradient", i, round+1)
			}
		}
	}
}

// answering is a source that answers for client id in some way.
type answering struct {
	id  int64
	how func(ctx context.Context, row []float32) ([]float32, error)
}

func (answering) Open(wire.Task) (client.Gradient, error) { return nil, nil }

func (a answering) Ask(ctx context.Context, _ wire.Task, _ int64, theta []float32) ([]float32, error) {
	row := make([]float32, dim)
	for j := range row {
		row[j] = externaltest.Gradient(theta, a.id, j)
	}
	return a.how(ctx, row)
}

// However a source answers, the same requests of the same sizes leave the process, at times that do not
// depend on it, and a report without an answer is one of a gradient of 0.
func TestAnswersDoNotShow(t *testing.T) {
	const answer = 17 * time.Second // after which no poll ends
	after := func(d time.Duration) func(context.Context, []float32) ([]float32, error) {
		return func(_ context.Context, row []float32) ([]float32, error) {
			time.Sleep(d)
			return row, nil
		}
	}
	see := func(t *testing.T, how func(context.Context, []float32) ([]float32, error)) (got traffic) {
		synctest.Test(t, func(t *testing.T) {
			got = observe(t, answer, func(i int64) client.Source { return answering{i, how} })
			time.Sleep(2 * time.Hour) // the last answer
		})
		return got
	}
	var wantOwn, wantZero traffic
	synctest.Test(t, func(t *testing.T) { wantOwn = observe(t, answer, own) })
	synctest.Test(t, func(t *testing.T) { wantZero = observe(t, answer, zero) })
	if fmt.Sprint(wantOwn.parts) == fmt.Sprint(wantZero.parts) {
		t.Fatal("the reports do not depend on the gradients: this test sees nothing")
	}
	healthy := see(t, after(0))
	for name, c := range map[string]struct {
		how   func(context.Context, []float32) ([]float32, error)
		fails bool
	}{
		"slowly":         {after(answer * 9 / 10), false},
		"too late":       {after(answer * 11 / 10), true},
		"rounds later":   {after(time.Hour), true},
		"never":          {func(ctx context.Context, _ []float32) ([]float32, error) { <-ctx.Done(); return nil, ctx.Err() }, true},
		"with an error":  {func(context.Context, []float32) ([]float32, error) { return nil, errors.New("no") }, true},
		"with a row too": {func(_ context.Context, row []float32) ([]float32, error) { return row, errors.New("no") }, true},
		"too few values": {func(_ context.Context, row []float32) ([]float32, error) { return row[1:], nil }, true},
		"nothing":        {func(context.Context, []float32) ([]float32, error) { return nil, nil }, true},
		"NaN": {func(_ context.Context, row []float32) ([]float32, error) {
			for j := range row {
				row[j] = float32(math.NaN())
			}
			return row, nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			see(t, c.how).check(t, healthy, wantOwn, wantZero, answer, func(int64, int64) bool { return c.fails })
		})
	}
}

// TestProgramsDoNotShow holds the same of programs, whatever they do.
func TestProgramsDoNotShow(t *testing.T) {
	longtest.Only(t, "programs, and the time that they take")
	const answer = 400 * time.Millisecond
	wantOwn, wantZero := observe(t, answer, own), observe(t, answer, zero)
	run := func(t *testing.T, mode string, change func(*external.Config)) (traffic, *asks, []error) {
		var mu sync.Mutex
		var told []error
		questions := &asks{errs: map[[2]int64]error{}, close: map[[2]int64]bool{}}
		c := external.Config{Program: externaltest.Program(mode), Purpose: external.Client, Timeout: 600 * time.Millisecond}
		if change != nil {
			change(&c)
		}
		k, err := external.Keep(t.Context(), c, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		got := observe(t, answer, func(i int64) client.Source { return asked{k, i, questions} })
		questions.wait.Wait()
		mu.Lock()
		defer mu.Unlock()
		return got, questions, slices.Clone(told)
	}
	healthy, good, _ := run(t, "good", func(c *external.Config) { c.Timeout = 20 * time.Second })
	for at, err := range good.errs {
		if err != nil {
			t.Skipf("client %d, round %d: %v: this machine is too slow", at[0], at[1], err)
		}
	}
	for mode, fails := range map[string]bool{
		"slow": false, "delta": false, "parameters": false, "no-clients": false, "other-clients": false, "no-loss": false, "stays": false, "fast=5": false, "nan": false,
		"dies-open": true, "quiet-end": true, "deaf": true, "newline": true, "prints": true, "prints-short": true, "prints-unended": true,
		"other-op": true, "says": true, "steers": true, "old": true, "no-dim": true, "large": true, "misspelt": true, "other-update": true,
		"parameters-few": true, "nan-initial": true, "short-initial": true, "other-tensor": true, "huge-frame": true, "huge-header": true,
		"wrong-dim": true, "wrong-type": true, "wrong-name": true, "more-words": true, "too-much": true, "wrong-rows": true, "flat": true,
		"nothing": true, "dies": true, "killed": true, "dies-inside": true, "hangs": true, "prints-later": true,
		"late": true, "floods": true, "forks": true,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			got, questions, told := run(t, mode, nil)
			failed := len(told)
			for _, err := range questions.errs {
				if err != nil {
					failed++
				}
			}
			if fails && failed == 0 {
				t.Error("nobody was told that the program fails")
			}
			for at, err := range questions.errs {
				i, round := at[0], at[1]-1
				if err == nil && (mode == "nan" && i == 0 || mode == "fast=5" || mode == "delta" || // other gradients
					questions.close[at] && bytes.Equal(got.parts[round][i], wantZero.parts[round][i])) { // too late
					got.parts[round][i] = wantOwn.parts[round][i]
				}
			}
			got.check(t, healthy, wantOwn, wantZero, answer, func(i, round int64) bool { return questions.errs[[2]int64{i, round}] != nil })
		})
	}
}

// TestAnswerTime holds that reports wait for the end of the answer's time however soon the answer
// is there, and leave within the spread after that.
func TestAnswerTime(t *testing.T) {
	for name, c := range map[string]struct {
		answer, spread, want time.Duration
	}{
		"given":      {3 * time.Second, 2 * time.Second, 3 * time.Second},
		"half":       {time.Minute, -1, 10 * time.Second},
		"by default": {0, -1, 5 * time.Second},
		"too long":   {time.Minute, time.Minute, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				w := newWorld(t, 4, shuffleTask())
				w.members = w.members[:1]
				w.members[0].Source = instant{}
				config := w.config()
				config.Answer, config.Spread = c.answer, c.spread
				f, err := client.NewFleet(config, w.members)
				if err != nil {
					t.Fatal(err)
				}
				planned := make(chan [4]time.Time, 1)
				f.Planned(func(begun, by, from, at time.Time) { planned <- [4]time.Time{begun, by, from, at} })
				done := make(chan error, 1)
				go func() { done <- f.Run(ctx) }()
				theta := make([]float32, dim)
				before := time.Now()
				ann := w.announcement(1, theta)
				ann.Deadline = before.Add(20 * time.Second).UnixMilli()
				w.publish(ann, theta, nil)
				got := <-planned
				cancel()
				if err := errors.Join(<-done, f.Close()); err != nil {
					t.Error(err)
				}
				spread := min(max(0, c.spread), 5*time.Second)
				if end := before.Add(20 * time.Second); got[3].After(end) {
					t.Errorf("the report leaves %v after the deadline", got[3].Sub(end))
				}
				// The deadline is 20 s after before, and what is planned begins some time later.
				if took := got[1].Sub(got[0]); math.Abs(float64(took-c.want)) > float64(6*time.Second) || took > c.want || name == "given" && took != c.want {
					t.Errorf("the answer has %v, want %v", took, c.want)
				}
				if begun := got[0].Sub(before); begun < spread/2 {
					t.Errorf("the time begins %v after the round, sessions are asked for in %v", begun, spread/2)
				}
				if made := got[2].Sub(got[1]); made != 0 { // no time passes in a bubble that computes
					t.Errorf("%v to make reports", made)
				}
				if late := got[3].Sub(got[2]); late < 0 || late > spread {
					t.Errorf("the report leaves %v later, want within %v", late, spread)
				}
				if most := before.Add(20*time.Second - 1500*time.Millisecond); got[3].After(most) {
					t.Errorf("the report leaves %v after the latest", got[3].Sub(most))
				}
				if n := w.asked("POST report"); n != 0 {
					t.Errorf("%d reports were sent at once", n)
				}
			})
		})
	}
}

// instant answers at once.
type instant struct{}

func (instant) Open(wire.Task) (client.Gradient, error) { return nil, nil }

func (instant) Ask(_ context.Context, _ wire.Task, _ int64, theta []float32) ([]float32, error) {
	return make([]float32, len(theta)), nil
}

// A process that ends after it has charged a report leaves that report to the next one, which
// asks the source for no other.
func TestCrashAfterAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		w := newWorld(t, 4, shuffleTask())
		w.members = w.members[:1]
		asks := 0
		w.members[0].Source = counted{&asks}
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		p := &posts{answer: func(int) int { return 503 }}
		w.set(p.before)
		config := w.config()
		config.Answer = 50 * time.Millisecond
		for process := range 3 {
			_, stop := w.process(ctx, config)
			await(t, func() bool { return len(p.all()) > process }) // sent, and not taken
			time.Sleep(time.Second)                                 // time for another question
			stop()
		}
		bodies := p.all()
		for _, b := range bodies {
			if !bytes.Equal(b, bodies[0]) {
				t.Error("two reports of one round")
			}
		}
		if asks != 1 || len(bodies) < 3 {
			t.Errorf("the source was asked %d times, %d posts", asks, len(bodies))
		}
	})
}

// counted counts how often it is asked.
type counted struct{ asks *int }

func (counted) Open(wire.Task) (client.Gradient, error) { return nil, nil }

func (c counted) Ask(_ context.Context, _ wire.Task, _ int64, theta []float32) ([]float32, error) {
	*c.asks++
	return make([]float32, len(theta)), nil
}

// A task of another dimension than the source's is declined before its first round, and before
// anybody could see who declines: nothing but the task was asked for.
func TestOtherDimensionsAreDeclined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		w := newWorld(t, 4, shuffleTask())
		w.members = w.members[:1]
		w.members[0].Source = client.Func(4, nil)
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		f, err := client.NewFleet(w.config(), w.members)
		if err != nil {
			t.Fatal(err)
		}
		refused := (*pure.Refused)(nil)
		if err := f.Run(ctx); !errors.As(err, &refused) || refused.Cause != pure.CauseSource || !strings.Contains(err.Error(), "4 parameters") {
			t.Errorf("error %v", err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(w.requests); got != "map[GET task:1]" {
			t.Errorf("requests %s", got)
		}
	})
}
