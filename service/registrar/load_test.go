package registrar

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/store"
)

// slowStore counts how many objects of it are read, and how many at a time.
type slowStore struct {
	*tokenStore
	mu               sync.Mutex
	reads, now, most int
	takes            time.Duration                 // a read
	gate             atomic.Pointer[chan struct{}] // if there is one, a read ends when something is taken from it
}

// count is the number of reads.
func (s *slowStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *slowStore) GetObject(ctx context.Context, name string) ([]byte, error) {
	s.mu.Lock()
	s.reads++
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.now--; s.mu.Unlock() }()
	time.Sleep(s.takes)
	if gate := s.gate.Load(); gate != nil {
		select {
		case *gate <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.tokenStore.GetObject(ctx, name)
}

// withEpochs starts an office anew on a slow store that has so many epochs more.
func (o *office) withEpochs(n int) *slowStore {
	o.t.Helper()
	if err := o.stop(); err != nil {
		o.t.Fatal(err)
	}
	for i := range n {
		id := wire.ID{9, byte(i)}
		issuer, err := token.Generate(o.t.Context(), tokenPopulation, id, 1, 1, 2)
		if err != nil {
			o.t.Fatal(err)
		}
		secret := issuer.Secret()
		r := epochRecord{Format: epochFormat, Rounds: 1, Messages: 1, Keys: document.Hash(sha256.Sum256(secret))}
		value, err := json.Marshal(r)
		if err == nil {
			_, err = o.store.Put(o.t.Context(), epochKey(id), value, 0)
		}
		if err := errors.Join(err, o.store.PutObject(o.t.Context(), keysObject(r.Keys), secret)); err != nil {
			o.t.Fatal(err)
		}
	}
	o.slow = &slowStore{tokenStore: o.store}
	if err := o.start(); err != nil {
		o.t.Fatal(err)
	}
	o.slow.mu.Lock()
	o.slow.reads, o.slow.most = 0, 0
	o.slow.mu.Unlock()
	return o.slow
}

func (o *office) get(ctx context.Context, id wire.ID) int {
	w := httptest.NewRecorder()
	o.http.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", fmt.Sprintf("/v1/epochs/%x", id), nil))
	return w.Code
}

// Loading an epoch takes the time and the memory of all its keys. However many strangers ask for one
// after a restart, it is loaded once.
func TestStrangersLoadAnEpochOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		slow := o.withEpochs(1)
		gate := make(chan struct{})
		slow.gate.Store(&gate)
		const strangers = 200
		codes := make(chan int, strangers)
		for range strangers {
			go func() { codes <- o.get(t.Context(), wire.ID{9, 0}) }()
		}
		// Who gives up does not wait for the load.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if code := o.get(ctx, wire.ID{9, 0}); code != http.StatusServiceUnavailable {
			t.Errorf("a stranger who has gone: %d", code)
		}
		<-gate
		for range strangers {
			select {
			case code := <-codes:
				if code != http.StatusOK {
					t.Errorf("%d", code)
				}
			case <-gate:
				t.Fatal("it is loaded twice")
			}
		}
	})
}

// A stranger who asks for many epochs in turn cannot keep the registrar busy with loading, nor keep
// an enrolled client from its own.
func TestStrangersCannotHaveEpochsLoadedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		slow := o.withEpochs(mostLoaded + 2)
		slow.takes = 10 * time.Millisecond
		refused := 0
		for i := range 600 {
			time.Sleep(time.Millisecond)
			switch code := o.get(t.Context(), wire.ID{9, byte(i % (mostLoaded + 2))}); code {
			case http.StatusOK:
			case http.StatusServiceUnavailable:
				refused++
			default:
				t.Fatal(code)
			}
		}
		if n := slow.count(); n > 300 || refused == 0 {
			t.Errorf("600 questions: %d loads, %d refused", n, refused)
		}
		before := slow.count()
		for range 100 {
			if code := o.get(t.Context(), wire.ID{8}); code != http.StatusNotFound {
				t.Fatalf("an invented epoch: %d", code)
			}
		}
		if slow.count() != before {
			t.Error("invented epochs are loaded")
		}
		if code, b := o.post(bytes.NewReader(o.body(o.client, 1))); code != http.StatusOK {
			t.Errorf("an enrolled client: %d %s", code, b)
		}
	})
}

// failing fails the first writes of objects.
type failing struct {
	storage
	mu   sync.Mutex
	left int
}

func (s *failing) PutObject(ctx context.Context, name string, b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left >= 0 {
		return store.ErrConflict
	}
	return s.storage.PutObject(ctx, name, b)
}

// Keys that could not be stored are made again when the coordinator asks again.
func TestKeysAreMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		if err := o.stop(); err != nil {
			t.Fatal(err)
		}
		o.failing = &failing{storage: o.store, left: 1}
		if err := o.start(); err != nil {
			t.Fatal(err)
		}
		id := tokenEpoch
		defer func() { tokenEpoch = id }()
		tokenEpoch = wire.ID{7}
		o.agree()
	})
}

// Clients that have the same tokens signed over and over, which is dear, keep nobody from his first
// ones; another request for granted tokens is refused without waiting.
func TestRepeatedRequestsWaitForNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		good := o.body(o.client, 1)
		if code, b := o.post(bytes.NewReader(good)); code != http.StatusOK {
			t.Fatalf("%d %s", code, b)
		}
		o.s.tokens.repeat <- struct{}{} // as one who is being answered again
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		o.http.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/tokens", bytes.NewReader(good)))
		if w.Body.Len() != 0 {
			t.Error("two are answered again at a time")
		}
		if code, b := o.post(bytes.NewReader(o.body(seedKey(3), 2))); code != http.StatusOK {
			t.Errorf("a client's first request: %d %s", code, b)
		}
		for range cap(o.s.tokens.slots) {
			o.s.tokens.slots <- struct{}{}
		}
		late, end := context.WithTimeout(t.Context(), 2*time.Minute)
		defer end()
		w = httptest.NewRecorder()
		o.http.ServeHTTP(w, httptest.NewRequestWithContext(late, "POST", "/v1/tokens", bytes.NewReader(o.body(o.client, 2))))
		if w.Code != http.StatusConflict {
			t.Errorf("other tokens: %d", w.Code)
		}
	})
}
