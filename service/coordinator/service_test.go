package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, func(w *world) { w.task.Rounds = 1000; w.config.Pause = time.Second })
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		w.await(p, func(s wire.Status) bool { return s.Released > 1 })
		if err := p.Stop(context.Background(), wire.Digest(w.task), "it has converged"); err != nil {
			t.Fatal(err)
		}
		s := w.end(p)
		if s.State != Stopped || s.Released < 2 || s.Why != "stopped by the operator: it has converged" {
			t.Errorf("%+v", s)
		}
		if got := w.run(); got.State != Stopped || got.Why != s.Why || got.Model != s.Model {
			t.Errorf("started again: %+v", got)
		}
		if err := p.Stop(context.Background(), [32]byte{}, ""); !errors.Is(err, ErrNoTask) {
			t.Errorf("stop of no task: %v", err)
		}
	})
}

// Who watches is told of every change, may look late, and is told nothing after it
// has stopped.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, func(w *world) { w.config.Evaluate = func([]float32) any { return 1 } })
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		changed, stop := p.Watch()
		deaf, never := p.Watch() // holds nobody up
		defer never()
		for { // All rounds may have ended before the first look.
			s := p.List()[0]
			if s.State == Done {
				if s.Round != 3 || s.EvaluatedAt != 3 || s.Source != "" {
					t.Errorf("%+v", s)
				}
				break
			}
			<-changed
		}
		w.end(p)
		p.watchers.notify()
		p.watchers.notify()
		if len(deaf) != 1 {
			t.Errorf("%d values wait for who does not look", len(deaf))
		}
		stop()
		for len(changed) > 0 {
			<-changed
		}
		p.watchers.notify()
		if len(changed) != 0 {
			t.Error("told after the stop")
		}
	})
}

// get asks a handler.
func get(t testing.TB, h http.Handler, path string, header ...string) (int, []byte, http.Header) {
	t.Helper()
	q := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	r := httptest.NewRecorder()
	h.ServeHTTP(r, q)
	b, _ := io.ReadAll(r.Body)
	return r.Code, b, r.Result().Header
}

func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		hold, held := make(chan struct{}), make(chan struct{}, 10)
		w.sh.Word = func(*wire.RoundClosed) { held <- struct{}{}; <-hold }
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		h, task := p.Handler(), "/v1/tasks/"+hexTask(w)
		<-held // so that it leads
		code, b, _ := get(t, h, task+"/announcement?after=0&wait=10")
		if code != 200 {
			t.Fatalf("%d %s", code, b)
		}
		m, err := wire.Verify(w.key.Public().(publicKey), wire.LabelAnnouncement, b)
		if err != nil {
			t.Fatal(err)
		}
		a, err := wire.Decode[wire.Announcement](m)
		if err != nil || a.Round != 1 || a.Task != wire.Digest(w.task) || a.Population != w.n || a.Enrolment != wire.Digest(w.sh.Enrolment) {
			t.Errorf("announced %+v: %v", a, err)
		}
		if code, _, _ := get(t, h, task+"/announcement?after=1&wait=0"); code != 204 {
			t.Errorf("a round above 1: %d", code)
		}
		model := "/v1/models/" + hexOf(a.ModelDigest)
		code, b, header := get(t, h, model)
		if code != 200 || digestOf(b) != a.ModelDigest || !strings.Contains(header.Get("Cache-Control"), "immutable") {
			t.Errorf("model: %d, %d bytes, %v", code, len(b), header)
		}
		if code, b, _ := get(t, h, model, "If-None-Match", header.Get("ETag")); code != 304 || len(b) != 0 {
			t.Errorf("the same model again: %d", code)
		}
		code, b, _ = get(t, h, "/v1/tasks")
		if code != 200 || string(b) != hexTask(w)+"\n" {
			t.Errorf("tasks: %d %q", code, b)
		}
		if code, b, _ := get(t, h, task); code != 200 || string(b) != string(w.config.Signed) {
			t.Errorf("task: %d", code)
		}
		for path, want := range map[string]int{"/v1/tasks/xx": 400, "/v1/tasks/" + hexOf([32]byte{}): 404, "/v1/models/" + hexOf([32]byte{}): 404,
			"/v1/models/1": 400, task + "/announcement?after=-1": 400, task + "/announcement?wait=x": 400, "/v1/else": 404} {
			if code, _, _ := get(t, h, path); code != want {
				t.Errorf("%s: %d, want %d", path, code, want)
			}
		}
		close(hold)
		s := w.end(p)
		if code, _, _ := get(t, h, task+"/announcement?after=3&wait=1"); code != 410 {
			t.Errorf("after the end: %d", code)
		}
		code, b, header = get(t, h, "/v1/status")
		var status struct {
			Tasks []struct {
				State    string
				Epsilon  float64
				Accepted int64 `json:"reports_accepted"`
			}
		}
		if err := json.Unmarshal(b, &status); err != nil || code != 200 || header.Get("Content-Type") != "application/json" || len(status.Tasks) != 1 || status.Tasks[0].State != "done" ||
			status.Tasks[0].Epsilon != float64(s.Eps) || status.Tasks[0].Accepted != 24 {
			t.Errorf("status: %d %s %v", code, b, err)
		}
	})
}

// The recorded reports give the model again, and come in the batch's order.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		type place struct{ round, place int64 }
		var order []place
		failed := false
		w.config.Record = func(_ [32]byte, round, at int64, r *randomizer.Report) error {
			if round == 2 && at == 5 && !failed {
				// The round is taken up again, and nothing of it is released twice.
				failed = true
				order = order[:8]
				return errors.New("no room")
			}
			order = append(order, place{round, at})
			a := w.sh.Opened[round-1]
			want := w.report(round, w.who(a)[at], a.ModelDigest, 0)
			for j, v := range want.Value {
				if r.Value[j] != v {
					t.Errorf("round %d, place %d: another report", round, at)
				}
			}
			return nil
		}
		w.config.Discard = func(round int64) error {
			t.Errorf("round %d is discarded", round)
			return nil
		}
		w.config.Evaluate = func(p []float32) any { return len(p) }
		s := w.run()
		w.check(s)
		if s.Evaluation != dim || len(order) != 24 {
			t.Errorf("evaluated %v, recorded %d", s.Evaluation, len(order))
		}
		for i, p := range order {
			if p != (place{int64(i/8) + 1, int64(i % 8)}) {
				t.Errorf("record %d is %+v", i, p)
			}
		}
	})
}

// A coordinator that is held shows its task and lets it be stopped, and announces
// nothing before it is let go.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		hold := make(chan struct{})
		p, err := w.start(nil, func(c *Config) { c.Hold = hold })
		if err != nil {
			t.Fatal(err)
		}
		w.await(p, func(s wire.Status) bool { return s.Phase == "waiting" })
		rec := httptest.NewRecorder()
		p.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/tasks/"+hexTask(w), nil))
		if rec.Code != http.StatusOK {
			t.Errorf("the task: status %d", rec.Code)
		}
		rec = httptest.NewRecorder()
		p.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/tasks/"+hexTask(w)+"/announcement", nil))
		if rec.Code != http.StatusNoContent {
			t.Errorf("an announcement: status %d", rec.Code)
		}
		time.Sleep(time.Minute)
		if s, _ := p.Show(wire.Digest(w.task)); s.Phase != "waiting" || s.Round != 0 {
			t.Errorf("%+v", s)
		}
		close(hold)
		w.check(w.end(p))

		w = newWorld(t, dp.Shuffle, dp.All)
		if p, err = w.start(nil, func(c *Config) { c.Hold = make(chan struct{}) }); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(t.Context(), wire.Digest(w.task), ""); err != nil {
			t.Error(err)
		}
		if s := w.end(p); s.State != Stopped || len(w.sh.Opened) != 0 {
			t.Errorf("%d rounds opened: %+v", len(w.sh.Opened), s)
		}
	})
}
