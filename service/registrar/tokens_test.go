package registrar

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// tokenStore is a store in memory, whose writes can fail before or after they are done.
type tokenStore struct {
	*memory.Store
	writes int // number of writes so far
	failAt int // the write that fails, as all later ones do; 0: none
	after  bool
	lost   bool // the answer to the write that names an epoch's keys is lost
}

func newTokenStore() *tokenStore { return on(memory.NewDisk()) }

func on(d *memory.Disk) *tokenStore {
	s := &tokenStore{Store: &memory.Store{Disk: d}}
	s.Do = s.do
	return s
}

// clone is a backup.
func (s *tokenStore) clone() *tokenStore { return on(s.Copy()) }

var errCrash = errors.New("crash")

// do does an operation, or fails before or after a write.
func (s *tokenStore) do(op string, f func() error) error {
	if !memory.Writes(op) {
		return f()
	}
	s.Lock()
	s.writes++
	fails := s.failAt != 0 && s.writes >= s.failAt
	before := fails && (!s.after || s.writes > s.failAt)
	s.Unlock()
	if before {
		return errCrash
	}
	if err := f(); err != nil {
		return err
	}
	if fails {
		return errCrash
	}
	s.Lock()
	defer s.Unlock()
	record := s.Values[epochKey(tokenEpoch)]
	if s.lost && op == "put epoch" && bytes.Contains(record, []byte(`"keys":"`)) && !bytes.Contains(record, []byte(`"keys":""`)) {
		s.lost = false
		return store.ErrUnavailable
	}
	return nil
}

// office is a registrar that runs, with one enrolled client and an epoch of two rounds.
type office struct {
	t      *testing.T
	store  *tokenStore
	mark   mark.File
	key    ed25519.PrivateKey
	client ed25519.PrivateKey
	s      *Service
	stop   func() error
	http   http.Handler
	peers  http.Handler
	task   wire.Task
	keys   *token.Keys
	// What the registrar has in place of store, if it is not nil.
	slow    *slowStore
	failing *failing
}

var (
	tokenPopulation = wire.ID{1}
	tokenEpoch      = wire.ID{2}
)

func seedKey(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, 32))
}

// opened is the store of an office that has just been opened: an epoch's keys are dear.
var opened *tokenStore

// newOffice opens an office in a bubble. All bubbles begin at the same time.
func newOffice(t *testing.T, changes ...func(*office)) *office {
	t.Helper()
	o := &office{t: t, store: newTokenStore(), mark: mark.File(filepath.Join(t.TempDir(), "mark")), key: seedKey(1), client: seedKey(2)}
	again := opened != nil && changes == nil
	if again {
		o.store = opened.clone()
	}
	for _, f := range changes {
		f(o)
	}
	if err := o.mark.Save(mark.Mark{}); err != nil {
		t.Fatal(err)
	}
	if err := o.start(); err != nil {
		t.Fatal(err)
	}
	if !again {
		if _, err := o.s.change(t.Context(), time.Now(), 0, []ed25519.PublicKey{o.client.Public().(ed25519.PublicKey), seedKey(3).Public().(ed25519.PublicKey)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if o.agree(); changes == nil {
		opened = o.store.clone()
	}
	return o
}

// start starts a registrar on the store; an error is Run's own.
func (o *office) start() error {
	c := Config{Population: tokenPopulation, Key: o.key, Store: o.store, Mark: o.mark}
	if o.slow != nil {
		c.Store = o.slow
	}
	if o.failing != nil {
		c.Store = o.failing
	}
	s, err := New(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	o.s, o.stop = s, sync.OnceValue(func() error { cancel(); return <-done })
	o.t.Cleanup(func() { _ = o.stop() })
	o.http, o.peers, _ = s.Handlers()
	if synctest.Wait(); s.running.Load() {
		return nil
	}
	err = <-done
	done <- err
	return err
}

// agree asks for the epoch's keys until they are made.
func (o *office) agree() {
	o.t.Helper()
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		o.peers.ServeHTTP(w, endpoint.WithPeer(httptest.NewRequest("PUT", fmt.Sprintf("/v1/epochs/%x?rounds=2&messages=1", tokenEpoch), nil), Coordinator))
		return w
	}
	w := ask()
	for range 3 { // the first keys may fail to be stored
		if synctest.Wait(); w.Code == http.StatusServiceUnavailable {
			w = ask()
		}
	}
	message, err := wire.Verify(o.key.Public().(ed25519.PublicKey), wire.LabelTokenKeys, w.Body.Bytes())
	if err != nil {
		o.t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	m, err := wire.Decode[wire.TokenKeys](message)
	if err != nil {
		o.t.Fatal(err)
	}
	o.task = wire.Task{Population: tokenPopulation, Participation: dp.Once, Rounds: 2, Tokens: wire.Tokens{Epoch: tokenEpoch, Keys: wire.Digest(m)}}
	if o.keys, err = token.ForTask(m, o.task); err != nil {
		o.t.Fatal(err)
	}
}

// body is a client's request from a seed.
func (o *office) body(client ed25519.PrivateKey, seed byte) []byte {
	o.t.Helper()
	q, blinded, err := token.NewPending(o.keys, wire.Digest(o.task), [32]byte{seed}).Request(wire.ClientID(client.Public().(ed25519.PublicKey)), 0)
	if err != nil {
		o.t.Fatal(err)
	}
	return append(wire.Sign(client, wire.LabelTokens, wire.Encode(q)), blinded...)
}

func (o *office) post(body io.Reader) (int, []byte) {
	w := httptest.NewRecorder()
	o.http.ServeHTTP(w, httptest.NewRequest("POST", "/v1/tokens", body))
	return w.Code, w.Body.Bytes()
}

// A client gets tokens once: the same request is answered again in the same way, another one is
// refused, also after a restart.
func TestTokensAreGrantedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		code, answer := o.post(bytes.NewReader(o.body(o.client, 1)))
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
		flat, err := token.NewPending(o.keys, wire.Digest(o.task), [32]byte{1}).Finish(nil, 0, answer)
		if err != nil {
			t.Fatal(err)
		}
		one := [wire.TokenBytes]byte(flat)
		if !o.keys.Verify(wire.Digest(o.task), 1, 0, &one) {
			t.Error("the token does not hold")
		}
		for _, restart := range []bool{false, true} {
			if restart {
				if err := o.stop(); err != nil {
					t.Fatal(err)
				}
				if err := o.start(); err != nil {
					t.Fatal(err)
				}
			}
			if code, again := o.post(bytes.NewReader(o.body(o.client, 1))); code != http.StatusOK || !bytes.Equal(again, answer) {
				t.Errorf("the same request again (restart %t): %d", restart, code)
			}
			if code, b := o.post(bytes.NewReader(o.body(o.client, 2))); code != http.StatusConflict {
				t.Errorf("tokens bought twice (restart %t): %d %s", restart, code, b)
			}
		}
		if code, _ := o.post(bytes.NewReader(o.body(seedKey(3), 2))); code != http.StatusOK {
			t.Errorf("another client: %d", code)
		}
		if n := o.s.Snapshot(); n.Grants != 2 || n.Tokens != 4 {
			t.Errorf("%+v", n)
		}
	})
}

// Whoever is not enrolled is refused by the first bytes, before anything is signed or read.
func TestStrangersAreRefusedCheaply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		good := o.body(o.client, 1)
		endless := func(head []byte) io.Reader { return io.MultiReader(bytes.NewReader(head), &zeros{}) }
		changed := func(at int) []byte { b := bytes.Clone(good); b[at] ^= 1; return b }
		for name, c := range map[string]struct {
			body io.Reader
			want int
		}{
			"not enrolled":           {bytes.NewReader(o.body(seedKey(9), 1)), 403},
			"not enrolled, endless":  {endless(o.body(seedKey(9), 1)[:wire.SignedTokenRequest]), 403},
			"another's signature":    {bytes.NewReader(append(bytes.Clone(o.body(seedKey(9), 1)[:64]), good[64:]...)), 401},
			"a changed request":      {bytes.NewReader(changed(wire.SignedTokenRequest - 1)), 401},
			"nothing":                {bytes.NewReader(nil), 400},
			"half a request":         {bytes.NewReader(good[:100]), 400},
			"other blinded messages": {bytes.NewReader(changed(len(good) - 1)), 400},
			"fewer":                  {bytes.NewReader(good[:len(good)-1]), 400},
			"endless":                {endless(good), 413},
			"garbage":                {endless(nil), 400},
		} {
			if code, b := o.post(c.body); code != c.want {
				t.Errorf("%s: %d %s, want %d", name, code, b, c.want)
			}
		}
		if n := o.s.Snapshot(); n.Grants != 0 || n.Tokens != 0 {
			t.Errorf("something was granted: %+v", n)
		}
		// Another epoch, and a part of the tokens.
		q, blinded, err := token.NewPending(o.keys, wire.Digest(o.task), [32]byte{1}).Request(wire.ClientID(o.client.Public().(ed25519.PublicKey)), 0)
		if err != nil {
			t.Fatal(err)
		}
		other, part := q, q
		other.Epoch[0]++
		part.Count = 1
		for want, q := range map[int]wire.TokenRequest{404: other, 400: part} {
			if code, b := o.post(bytes.NewReader(append(wire.Sign(o.client, wire.LabelTokens, wire.Encode(q)), blinded...))); code != want {
				t.Errorf("%+v: %d %s, want %d", q, code, b, want)
			}
		}
		// A revoked client gets nothing.
		if _, err := o.s.change(t.Context(), time.Now(), 0, nil, []wire.ID{wire.ClientID(o.client.Public().(ed25519.PublicKey))}); err != nil {
			t.Fatal(err)
		}
		if code, b := o.post(bytes.NewReader(good)); code != 403 {
			t.Errorf("a revoked client: %d %s", code, b)
		}
		// Only the coordinator may ask for keys, and for so many.
		for want, q := range map[int]*http.Request{
			403: endpoint.WithPeer(httptest.NewRequest("PUT", fmt.Sprintf("/v1/epochs/%x?rounds=2&messages=1", wire.ID{5}), nil), Shuffler),
			400: endpoint.WithPeer(httptest.NewRequest("PUT", fmt.Sprintf("/v1/epochs/%x?rounds=20000&messages=1", wire.ID{5}), nil), Coordinator),
			409: endpoint.WithPeer(httptest.NewRequest("PUT", fmt.Sprintf("/v1/epochs/%x?rounds=3&messages=1", tokenEpoch), nil), Coordinator),
		} {
			w := httptest.NewRecorder()
			if o.peers.ServeHTTP(w, q); w.Code != want {
				t.Errorf("%s: %d, want %d", q.URL, w.Code, want)
			}
		}
	})
}

type zeros struct{}

func (*zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A registrar whose store was restored from a backup has forgotten a grant: it does not start.
func TestRestoredRegistrarIssuesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		backup := o.store.clone()
		if code, b := o.post(bytes.NewReader(o.body(o.client, 1))); code != http.StatusOK {
			t.Fatalf("%d %s", code, b)
		}
		if err := o.stop(); err != nil {
			t.Fatal(err)
		}
		now := o.store
		o.store = backup
		if err := o.start(); !errors.Is(err, mark.Err) {
			t.Fatalf("it starts with a store that has forgotten a grant: %v", err)
		}
		// Changed entries are noticed, too.
		o.store = now.clone()
		o.store.Log[0] = bytes.Replace(o.store.Log[0], []byte(`"first":0`), []byte(`"first":128`), 1)
		if err := o.start(); !errors.Is(err, mark.Err) {
			t.Fatalf("it starts with another grant: %v", err)
		}
		o.store = now
		if err := o.start(); err != nil {
			t.Fatal(err)
		}
		if code, _ := o.post(bytes.NewReader(o.body(o.client, 2))); code != http.StatusConflict {
			t.Errorf("another request: %d", code)
		}
	})
}

// Whichever write fails, before or after it was done: the client asks again with the same bytes and
// gets its tokens, and never gets those of other bytes as well.
func TestCrashesGrantOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []bool{false, true} {
			for at := 1; ; at++ {
				o := newOffice(t)
				o.store.Lock()
				o.store.writes, o.store.failAt, o.store.after = 0, at, after
				o.store.Unlock()
				code, first := o.post(bytes.NewReader(o.body(o.client, 1)))
				_ = o.stop()
				o.store.Lock()
				hit := o.store.writes >= at
				o.store.failAt = 0
				o.store.Unlock()
				if err := o.start(); err != nil {
					t.Fatalf("write %d (after %t): %v", at, after, err)
				}
				code2, again := o.post(bytes.NewReader(o.body(o.client, 1)))
				if code2 != http.StatusOK || code == http.StatusOK && !bytes.Equal(first, again) {
					t.Errorf("write %d (after %t): %d, then %d", at, after, code, code2)
				}
				if code, _ := o.post(bytes.NewReader(o.body(o.client, 2))); code != http.StatusConflict {
					t.Errorf("write %d (after %t): other tokens: %d", at, after, code)
				}
				if len(o.store.Log) != 1 {
					t.Errorf("write %d (after %t): %d grants", at, after, len(o.store.Log))
				}
				if !hit {
					if at == 1 {
						t.Error("no write failed")
					}
					break
				}
			}
		}
	})
}

// Keys that a record names stay, also if nobody knows that the record was written.
func TestKeysOfAnUnansweredWriteStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, func(o *office) { o.store.lost = true })
		if o.store.lost {
			t.Fatal("no write of keys was seen")
		}
		if code, b := o.post(bytes.NewReader(o.body(o.client, 1))); code != http.StatusOK {
			t.Errorf("%d %s", code, b)
		}
	})
}

// A request that cannot be signed leaves no trace: the client may still ask for its tokens.
func TestBadRequestsAreNotGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		modulus := o.keys.Epoch().Moduli[1] // the least number that is refused
		for _, bad := range [][]byte{bytes.Repeat([]byte{0xff}, wire.TokenModulus), modulus[:]} {
			body := o.body(o.client, 1)
			q, err := wire.Decode[wire.TokenRequest](body[64:wire.SignedTokenRequest])
			if err != nil {
				t.Fatal(err)
			}
			blinded := body[wire.SignedTokenRequest:]
			copy(blinded[wire.TokenModulus:], bad)
			q.Blinded = sha256.Sum256(blinded)
			signed := append(wire.Sign(o.client, wire.LabelTokens, wire.Encode(q)), blinded...)
			if code, b := o.post(bytes.NewReader(signed)); code != http.StatusBadRequest {
				t.Errorf("a blinded message out of range: %d %s", code, b)
			}
		}
		if n := len(o.store.Log); n != 0 {
			t.Errorf("%d grants are stored", n)
		}
		if code, b := o.post(bytes.NewReader(o.body(o.client, 1))); code != http.StatusOK {
			t.Errorf("then the true request: %d %s", code, b)
		}
	})
}

// A mark that cannot be written keeps the answer back.
func TestNoAnswerBeforeTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		good := o.s.tokens.grants.Mark
		o.s.tokens.grants.Mark = brokenMark{good}
		if code, _ := o.post(bytes.NewReader(o.body(o.client, 1))); code != http.StatusServiceUnavailable {
			t.Errorf("answered without a mark: %d", code)
		}
		o.s.tokens.grants.Mark = good
		if code, _ := o.post(bytes.NewReader(o.body(o.client, 1))); code != http.StatusOK {
			t.Errorf("the same request: %d", code)
		}
		if m, err := good.Load(); err != nil || m.Entries != 1 {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

type brokenMark struct{ mark.Keeper }

func (brokenMark) Save(mark.Mark) error { return errCrash }

func TestEpochsAreNamedInHex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		w := httptest.NewRecorder()
		o.http.ServeHTTP(w, httptest.NewRequest("GET", "/v1/epochs/"+hex.EncodeToString(tokenEpoch[:]), nil))
		if w.Code != http.StatusOK || w.Body.Len() < 2*wire.TokenModulus {
			t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
		}
		for path, want := range map[string]int{"zz": 404, hex.EncodeToString(make([]byte, 16)): 404} {
			w := httptest.NewRecorder()
			if o.http.ServeHTTP(w, httptest.NewRequest("GET", "/v1/epochs/"+path, nil)); w.Code != want {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
	})
}

// What is stored is checked: grants, and the keys of epochs.
func TestStoredTokensAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		for _, client := range []ed25519.PrivateKey{o.client, seedKey(3)} {
			if code, b := o.post(bytes.NewReader(o.body(client, 1))); code != http.StatusOK {
				t.Fatalf("%d %s", code, b)
			}
		}
		if err := o.stop(); err != nil {
			t.Fatal(err)
		}
		found := func(s *tokenStore) (out []string) {
			if err := checkTokens(t.Context(), s, o.mark, tokenPopulation, func(where, format string, args ...any) {
				out = append(out, where+": "+fmt.Sprintf(format, args...))
			}); err != nil {
				t.Fatal(err)
			}
			return out
		}
		if p := found(o.store); len(p) != 0 {
			t.Errorf("%v", p)
		}
		for name, harm := range map[string]func(s *tokenStore){
			"grants":       func(s *tokenStore) { s.Log = s.Log[1:] },
			"fewer grants": func(s *tokenStore) { s.Log = s.Log[:1] },
			"keys": func(s *tokenStore) {
				for n := range s.Objects {
					if strings.HasPrefix(n, "tokens/") {
						s.Objects[n] = append(bytes.Clone(s.Objects[n]), 0)
					}
				}
			},
			"no keys": func(s *tokenStore) {
				for n := range s.Objects {
					if strings.HasPrefix(n, "tokens/") {
						delete(s.Objects, n)
					}
				}
			},
		} {
			s := o.store.clone()
			if harm(s); len(found(s)) != 1 {
				t.Errorf("%s: %v", name, found(s))
			}
		}
	})
}
