package relay

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// told is a shuffler that tells its relay a view.
type told struct {
	mu    sync.Mutex
	view  *wire.RelayView // nil: it is away
	asked atomic.Int64
}

func (g *told) set(v *wire.RelayView) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.view = v
}

func (g *told) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	v := g.view
	g.mu.Unlock()
	g.asked.Add(1)
	if v == nil || r.Method != http.MethodGet || r.URL.Path != Path {
		endpoint.Refuse(w, wire.Unavailable, "")
		return
	}
	_, _ = w.Write(wire.Encode(*v))
}

// ask asks a relay for an enrolment.
func ask(h http.Handler, round string) (int, string) {
	path := "/v1/enrolment"
	if round != "" {
		path += "?round=" + round
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	b, _ := io.ReadAll(w.Body)
	return w.Code, string(b)
}

func named(n int) (d [32]byte, name string) {
	d = [32]byte{byte(n), byte(n >> 8), 1}
	return d, hex.EncodeToString(d[:])
}

// However many rounds are asked for that nobody opened, the shuffler is asked four times a second. What an open
// round counts on is answered without a question to the shuffler, and a new round is known at once.
func TestRelayAnswersForEnrolments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, name := named(1)
		g := &told{view: &wire.RelayView{Enrolments: [][]byte{[]byte("new"), []byte("old")}, Rounds: []wire.RelayRound{{Announcement: open, Enrolment: 1}}}}
		network := memnet.New()
		s, err := New(Config{Gateway: network.Serve(t, g).URL, Client: network.Client(t)})
		if err != nil {
			t.Fatal(err)
		}
		h := s.Handler()
		var all sync.WaitGroup
		var unknown atomic.Int64
		begun := time.Now()
		for i := range 2000 {
			all.Go(func() {
				_, invented := named(1000 + i)
				for range 4 {
					if code, _ := ask(h, invented); code == http.StatusNotFound {
						unknown.Add(1)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(begun); unknown.Load() != 8000 || g.asked.Load() > 4*int64(took/viewPause+2) || g.asked.Load() > 8 {
			t.Errorf("%d answers in %v by %d questions", unknown.Load(), took, g.asked.Load())
		}
		before := g.asked.Load()
		for range 100 {
			if code, body := ask(h, name); code != http.StatusOK || body != "old" {
				t.Fatalf("%d %q", code, body)
			}
		}
		if g.asked.Load() != before {
			t.Error("the shuffler is asked again for what never changes")
		}
		// A round and an enrolment of which the relay has not heard.
		next, nextName := named(2)
		g.set(&wire.RelayView{Enrolments: [][]byte{[]byte("newest"), []byte("new")}, Rounds: []wire.RelayRound{{Announcement: next}}})
		if code, body := ask(h, nextName); code != http.StatusOK || body != "newest" {
			t.Errorf("a new round: %d %q", code, body)
		}
		if code, body := ask(h, ""); code != http.StatusOK || body != "newest" {
			t.Errorf("a new enrolment: %d %q", code, body)
		}
		g.set(nil)
		if code, _ := ask(h, name); code != http.StatusServiceUnavailable {
			t.Errorf("the shuffler is away: %d", code)
		}
		if code, body := ask(h, nextName); code != http.StatusOK || body != "newest" {
			t.Errorf("what is known while the shuffler is away: %d %q", code, body)
		}
	})
}

// A relay knows the passes of its shuffler on their day, gives each of them one number, and takes no other.
func TestRelayKnowsPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour) // noon
		key, other := wire.SessionKey{1}, wire.SessionKey{2}
		g := &told{view: &wire.RelayView{Keys: []wire.SessionKey{{9}, key}, Enrolments: [][]byte{[]byte("new")}}}
		network := memnet.New()
		s, err := New(Config{Gateway: network.Serve(t, g).URL, Client: network.Client(t)})
		if err != nil {
			t.Fatal(err)
		}
		today := time.Now().Unix() / wire.PassDay
		show := func(header string) (int, bool) {
			r := httptest.NewRequest("POST", Path, nil)
			r.Header.Set(PassHeader, header)
			return s.Known(r)
		}
		text := func(k wire.SessionKey, day int64, nonce byte) string {
			pass := k.RelayPass(day, [8]byte{nonce})
			return base64.RawURLEncoding.EncodeToString(pass[:])
		}
		if _, ok := show(text(key, today, 1)); ok {
			t.Error("known before the shuffler has told its keys")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		one, ok := show(text(key, today, 1))
		if again, okAgain := show(text(key, today, 1)); !ok || !okAgain || one != again || one < 0 {
			t.Errorf("numbers %d and %d, %t %t", one, again, ok, okAgain)
		}
		if two, ok := show(text(key, today, 2)); !ok || two == one {
			t.Errorf("another pass: %d, %t", two, ok)
		}
		for what, header := range map[string]string{"none": "", "rubbish": "x", "of another key": text(other, today, 1), "yesterday's": text(key, today-1, 1),
			"tomorrow's": text(key, today+1, 1), "longer": text(key, today, 1) + "AA", "padded": text(key, today, 1) + "=="} {
			if _, ok := show(header); ok {
				t.Errorf("a pass that is %s", what)
			}
		}
		// Where the day begins, clocks may differ.
		time.Sleep(12*time.Hour - time.Minute)
		if _, ok := show(text(key, today+1, 1)); !ok {
			t.Error("tomorrow's, a minute before midnight")
		}
		time.Sleep(2 * time.Minute)
		if _, ok := show(text(key, today, 1)); !ok {
			t.Error("yesterday's, a minute after midnight")
		}
		// New keys are known within a minute, also after the shuffler was away.
		g.set(nil)
		time.Sleep(2 * time.Minute)
		g.set(&wire.RelayView{Keys: []wire.SessionKey{other}, Enrolments: [][]byte{[]byte("new")}})
		time.Sleep(looksAgain + time.Second)
		if _, ok := show(text(other, today+1, 1)); !ok {
			t.Error("a new key is not known")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
