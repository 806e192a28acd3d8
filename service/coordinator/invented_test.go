package coordinator

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// looked counts models that are asked of a store, which takes its time.
type looked struct {
	storage
	times *atomic.Int64
}

func (s looked) GetObject(ctx context.Context, name string) ([]byte, error) {
	s.times.Add(1)
	time.Sleep(time.Millisecond)
	return s.storage.GetObject(ctx, name)
}

// Digests of models that never were cost a part of the time, and keep nobody from the
// open round's.
func TestInventedModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times atomic.Int64
		w := newWorld(t, dp.Shuffle, dp.All)
		hold, held := make(chan struct{}), make(chan struct{}, 10)
		w.sh.Word = func(*wire.RoundClosed) { held <- struct{}{}; <-hold }
		p, err := w.start(nil, func(c *Config) { c.Store = looked{c.Store, &times} })
		if err != nil {
			t.Fatal(err)
		}
		<-held // a round is open
		h := p.Handler()
		task := "/v1/tasks/" + hexOf(wire.Digest(w.task))
		code, b, _ := get(t, h, task+"/announcement?wait=20")
		if code != 200 {
			t.Fatalf("%d %s", code, b)
		}
		a, err := wire.Decode[wire.Announcement](b[64:])
		if err != nil {
			t.Fatal(err)
		}
		model := "/v1/models/" + hexOf(a.ModelDigest)
		times.Store(0)
		begun := time.Now()
		var wg sync.WaitGroup
		var missing, busy atomic.Int64
		for range 20 {
			wg.Go(func() {
				for range 20 {
					var d [32]byte
					rand.Read(d[:])
					switch code, _, _ := get(t, h, "/v1/models/"+hexOf(d)); code {
					case 404:
						missing.Add(1)
					case 503:
						busy.Add(1)
					default:
						t.Errorf("an invented model: %d", code)
					}
					if code, _, _ := get(t, h, model); code != 200 {
						t.Errorf("the open round's model: %d", code)
					}
				}
			})
		}
		wg.Wait()
		// One look takes a millisecond, and the next is lookShare of them later.
		if most := 1 + int64(time.Since(begun)/(lookShare*time.Millisecond)); times.Load() > most+1 || missing.Load() == 0 || busy.Load() == 0 {
			t.Errorf("%d looks in %v, at most %d; %d not there, %d to come again", times.Load(), time.Since(begun), most, missing.Load(), busy.Load())
		}
		close(hold)
		w.end(p)
	})
}

// copying gives every reader memory of its own, as a store does.
type copying struct{ storage }

func (s copying) GetObject(ctx context.Context, name string) ([]byte, error) {
	b, err := s.storage.GetObject(ctx, name)
	return bytes.Clone(b), err
}

// taker takes an answer in when it is let.
type taker struct {
	*httptest.ResponseRecorder
	began chan *byte // where the answer lies
	let   chan struct{}
}

func (r taker) Write(b []byte) (int, error) {
	if r.Header().Get("ETag") != "" { // a model
		r.began <- &b[0]
		<-r.let
	}
	return r.ResponseRecorder.Write(b)
}

// Who fetches old models and takes them in slowly holds one copy of each, of no more
// than some.
func TestOldModelsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		p, err := w.start(nil, func(c *Config) { c.Store = copying{c.Store} })
		if err != nil {
			t.Fatal(err)
		}
		var models [cached + 1]hash
		for i := range models {
			b := []byte{1, 2, byte(i)}
			models[i] = digestOf(b)
			if err := p.config.Store.PutObject(t.Context(), modelName(wire.Digest(w.task), models[i]), b); err != nil {
				t.Fatal(err)
			}
		}
		h, let, began := p.Handler(), make(chan struct{}), make(chan *byte)
		var wg sync.WaitGroup
		ask := func(d hash) (at *byte, code int) {
			for range 5000 {
				r, done := httptest.NewRecorder(), make(chan struct{})
				wg.Go(func() {
					defer close(done)
					h.ServeHTTP(taker{r, began, let}, httptest.NewRequest("GET", "/v1/models/"+hexOf(d), nil))
				})
				select {
				case at = <-began:
					return at, 200
				case <-done:
				}
				if code = r.Code; code != 503 {
					t.Fatalf("a model: %d", code)
				}
				time.Sleep(time.Millisecond) // another is looked for
			}
			return nil, code
		}
		for _, d := range models[:cached] {
			first, code := ask(d)
			if again, _ := ask(d); code != 200 || again != first {
				t.Errorf("%d, and a second copy of a model", code)
			}
		}
		p.looking.Lock()
		p.lookAgain = time.Time{}
		p.looking.Unlock()
		if _, err := p.oldModel(t.Context(), models[cached]); err == nil {
			t.Errorf("a model more than %d is held", cached)
		}
		close(let)
		wg.Wait()
		if len(p.old.by) != 0 {
			t.Errorf("%d models are held for nobody", len(p.old.by))
		}
		w.end(p)
	})
}
