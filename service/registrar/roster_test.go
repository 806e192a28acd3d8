package registrar

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// registry is a registrar on a store in memory, whose operator is the test.
type registry struct {
	t     *testing.T
	key   ed25519.PrivateKey
	store *tokenStore
}

var people = wire.ID{5}

func (g *registry) service() *Service {
	g.t.Helper()
	s, err := New(Config{Population: people, Key: g.key, Store: g.store, Validity: time.Hour})
	if err != nil {
		g.t.Fatal(err)
	}
	s.running.Store(true)
	return s
}

func clientKey(n byte) ed25519.PublicKey {
	return seedKey(100 + n).Public().(ed25519.PublicKey)
}

func clientID(n byte) wire.ID { return wire.ClientID(clientKey(n)) }

// roster checks what the shuffler gets: signed, of the right clients; it returns its serial.
func (g *registry) roster(s *Service, want ...byte) int64 {
	g.t.Helper()
	_, peers, _ := s.Handlers()
	w := httptest.NewRecorder()
	peers.ServeHTTP(w, endpoint.WithPeer(httptest.NewRequest("GET", "/v1/roster", nil), Shuffler))
	r, _, keys, err := wire.DecodeMembers(g.key.Public().(ed25519.PublicKey), people, w.Body.Bytes())
	if err != nil {
		g.t.Fatalf("%d %v", w.Code, err)
	}
	found := map[wire.ID]bool{}
	for _, k := range keys {
		found[wire.ClientID(k)] = true
	}
	for _, n := range want {
		if !found[clientID(n)] {
			g.t.Errorf("client %d is missing in roster %d", n, r.Serial)
		}
	}
	if len(found) != len(want) || r.Clients != int64(len(want)) {
		g.t.Errorf("roster %d has %d clients, want %d", r.Serial, len(found), len(want))
	}
	return r.Serial
}

func newRegistry(t *testing.T) *registry {
	return &registry{t, seedKey(77), newTokenStore()}
}

func TestChangesOfTheRoster(t *testing.T) {
	g := newRegistry(t)
	s := g.service()
	ctx, now := t.Context(), time.Now()
	change := func(add []ed25519.PublicKey, revoke ...wire.ID) (Change, error) {
		return s.change(ctx, now, 0, add, revoke)
	}
	if _, err := change(nil); !errors.Is(err, errEmpty) {
		t.Errorf("an empty roster: %v", err)
	}
	if c, err := change([]ed25519.PublicKey{clientKey(1), clientKey(2), clientKey(1)}); err != nil || c != (Change{2, 0, 2, 1}) {
		t.Errorf("%+v, %v", c, err)
	}
	g.roster(s, 1, 2)
	// A client that joins twice is enrolled once, and nothing is signed anew.
	if c, err := change([]ed25519.PublicKey{clientKey(1)}); err != nil || c != (Change{0, 0, 2, 1}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := change([]ed25519.PublicKey{clientKey(3)}, clientID(1)); err != nil || c != (Change{1, 1, 2, 2}) {
		t.Errorf("%+v, %v", c, err)
	}
	g.roster(s, 2, 3)
	// All of a change or nothing of it.
	for name, f := range map[string]func() (Change, error){
		"a revoked key comes back": func() (Change, error) { return change([]ed25519.PublicKey{clientKey(4), clientKey(1)}) },
		"somebody unknown leaves":  func() (Change, error) { return change([]ed25519.PublicKey{clientKey(4)}, clientID(9)) },
		"all leave":                func() (Change, error) { return change(nil, clientID(2), clientID(3)) },
		"a short key":              func() (Change, error) { return change([]ed25519.PublicKey{clientKey(4), clientKey(5)[:31]}) },
	} {
		if c, err := f(); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
		if serial := g.roster(s, 2, 3); serial != 2 {
			t.Errorf("%s: roster %d", name, serial)
		}
	}
	if c, err := change(nil, clientID(1)); err != nil || c.Revoked != 0 {
		t.Errorf("revoked twice: %+v, %v", c, err)
	}
	// After a restart all is as before, and a serial above one that others have seen can be asked for.
	s = g.service()
	if err := s.refresh(ctx); err != nil {
		t.Fatal(err)
	}
	g.roster(s, 2, 3)
	if c, err := s.change(ctx, now, 41, nil, nil); err != nil || c.Serial != 42 {
		t.Errorf("%+v, %v", c, err)
	}
	// Serials never run out, nor begin below 0 again.
	for _, above := range []int64{MostSerial + 1, math.MaxInt64} {
		if c, err := s.change(ctx, now, above, nil, nil); !errors.Is(err, errAbove) {
			t.Errorf("above %d: %+v, %v", above, c, err)
		}
	}
	if serial := g.roster(s, 2, 3); serial != 42 {
		t.Errorf("roster %d", serial)
	}
	// Another key does not take over the store, nor does another population.
	for name, c := range map[string]Config{"key": {Population: people, Key: seedKey(78), Store: g.store}, "population": {Population: wire.ID{6}, Key: g.key, Store: g.store}} {
		other, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Run(ctx); err == nil {
			t.Errorf("another %s runs on the store", name)
		}
	}
}

// The statement is renewed at half of its time, with a new serial.
func TestRosterIsRenewed(t *testing.T) {
	g := newRegistry(t)
	s := g.service()
	now := time.Now()
	if _, err := s.change(t.Context(), now, 0, []ed25519.PublicKey{clientKey(1)}, nil); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		after  time.Duration
		serial int64
	}{{29 * time.Minute, 1}, {31 * time.Minute, 2}, {59 * time.Minute, 2}, {62 * time.Minute, 3}} {
		if err := s.renew(t.Context(), now.Add(at.after)); err != nil {
			t.Fatal(err)
		}
		if serial := g.roster(s, 1); serial != at.serial {
			t.Errorf("after %v: roster %d, want %d", at.after, serial, at.serial)
		}
	}
}

// Two processes on one store never sign two statements of one serial, and lose no change.
func TestTwoRegistrars(t *testing.T) {
	g := newRegistry(t)
	a, b := g.service(), g.service()
	for n := byte(1); n <= 20; n++ {
		done := make(chan error, 2)
		for i, s := range []*Service{a, b} {
			go func() {
				_, err := s.change(context.Background(), time.Now(), 0, []ed25519.PublicKey{clientKey(2*n + byte(i))}, nil)
				done <- err
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				// The members of a record that was read may have been replaced meanwhile.
				t.Logf("try again: %v", err)
			}
		}
		for i, s := range []*Service{a, b} {
			if _, err := s.change(t.Context(), time.Now(), 0, []ed25519.PublicKey{clientKey(2*n + byte(i))}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := g.service()
	if err := c.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if serial, n := c.current.Load().statement.Serial, len(c.current.Load().enrolled); n != 40 || serial > 40 {
		t.Errorf("%d clients, roster %d", n, serial)
	}
}

// The store fails before or after each write of a change. Whoever asked gets an error or the change
// is there for good; after a start the roster is whole, and the same change can be made again.
func TestChangesSurviveCrashes(t *testing.T) {
	failed := 0
	for at := 1; ; at++ {
		finished := false
		for _, after := range []bool{false, true} {
			g := newRegistry(t)
			s := g.service()
			if _, err := s.change(t.Context(), time.Now(), 0, []ed25519.PublicKey{clientKey(1), clientKey(2)}, nil); err != nil {
				t.Fatal(err)
			}
			g.store.failAt, g.store.after = g.store.writes+at, after
			add, revoke := []ed25519.PublicKey{clientKey(3)}, []wire.ID{clientID(1)}
			_, err := s.change(t.Context(), time.Now(), 0, add, revoke)
			answered := s.current.Load().statement.Serial
			if err != nil && answered != 1 {
				t.Errorf("write %d: a roster that is not stored is given away", at)
			}
			g.store.failAt = 0
			s = g.service() // the next process
			if e := s.refresh(t.Context()); e != nil {
				t.Fatalf("write %d, after %v: %v", at, after, e)
			}
			if serial := s.current.Load().statement.Serial; err == nil && serial != 2 || serial > 2 {
				t.Errorf("write %d: roster %d, the change gave %v", at, serial, err)
			}
			if _, err := s.change(t.Context(), time.Now(), 0, add, revoke); err != nil {
				t.Fatal(err)
			}
			if serial := g.roster(s, 2, 3); serial != 2 {
				t.Errorf("write %d: roster %d", at, serial)
			}
			if err != nil {
				failed++
			}
			finished = g.store.writes < at
		}
		if at > 6 || finished {
			break
		}
	}
	if failed < 4 {
		t.Errorf("%d crashes", failed)
	}
}

// Who may ask what: the keys of the clients are for the shuffler alone.
func TestWhoSeesTheRoster(t *testing.T) {
	g := newRegistry(t)
	s := g.service()
	clients, peers, operator := s.Handlers()
	get := func(path, peer string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		q := httptest.NewRequest("GET", path, nil)
		if peer == "" {
			clients.ServeHTTP(w, q)
		} else {
			peers.ServeHTTP(w, endpoint.WithPeer(q, peer))
		}
		return w
	}
	if w := get("/v1/roster", Shuffler); w.Code != 503 {
		t.Errorf("nobody is enrolled: %d", w.Code)
	}
	post := func(q any) *httptest.ResponseRecorder {
		b, _ := json.Marshal(q)
		w := httptest.NewRecorder()
		operator.ServeHTTP(w, httptest.NewRequest("POST", "/registrar/change", bytes.NewReader(b)))
		return w
	}
	if w := post(Request{Add: [][]byte{clientKey(1), clientKey(2)}}); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/v1/roster", "/registrar/roster", "/registrar/change"} {
		for _, peer := range []string{"", "coordinator", "aggregator"} {
			if w := get(path, peer); w.Code < 400 || bytes.Contains(w.Body.Bytes(), clientKey(1)) {
				t.Errorf("%s for %q: %d", path, peer, w.Code)
			}
		}
	}
	w := get("/v1/statement", "")
	r, err := wire.VerifyRoster(g.key.Public().(ed25519.PublicKey), people, w.Body.Bytes())
	if err != nil || r.Clients != 2 || bytes.Contains(w.Body.Bytes(), clientKey(1)) {
		t.Errorf("%+v, %v", r, err)
	}
	digest := wire.Digest(r)
	if w := get("/v1/roster?have="+hex.EncodeToString(digest[:]), Shuffler); w.Code != 204 {
		t.Errorf("the same roster again: %d", w.Code)
	}
	id := clientID(1)
	for name, q := range map[string]any{"no id": Request{Revoke: []string{"00"}}, "unknown": Request{Revoke: []string{fmt.Sprintf("%x", clientID(9))}},
		"unknown key": map[string]any{"ad": 1}, "no JSON": "x", "short": Request{Add: [][]byte{{1}}}, "all": Request{Revoke: []string{hex.EncodeToString(id[:]), fmt.Sprintf("%x", clientID(2))}}} {
		w := post(q)
		var f Failure
		if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || w.Code < 400 || f.Error == "" || !f.Wrong {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// What is stored is refused if it is not what was stored.
func TestStoredMembersAreChecked(t *testing.T) {
	m := &members{}
	m, _, _, err := m.change([]ed25519.PublicKey{clientKey(1), clientKey(2), clientKey(3)}, nil)
	if err == nil {
		m, _, _, err = m.change(nil, []wire.ID{clientID(2)})
	}
	if err != nil {
		t.Fatal(err)
	}
	b := m.encode()
	again, err := decodeMembers(b)
	if err != nil || again.digest() != m.digest() || !again.wasRevoked(clientID(2)) {
		t.Fatal(err)
	}
	for at := range b {
		if _, err := decodeMembers(b[:at]); err == nil && at != len(b)-16 { // less one revoked id it is whole
			t.Errorf("%d bytes of %d are taken", at, len(b))
		}
	}
	swapped := append(append(append(bytes.Clone(b[:8]), b[40:72]...), b[8:40]...), b[72:]...)
	if _, err := decodeMembers(swapped); err == nil {
		t.Error("members out of order are taken")
	}
}
