package client_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/token/tokentest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// registrar is one as clients see it. Every answer can be tampered with.
type registrar struct {
	t      *testing.T
	key    ed25519.PrivateKey
	issuer *token.Issuer
	keys   *token.Keys
	server *httptest.Server

	mu     sync.Mutex
	asked  map[wire.ID][][]byte // requests by client
	signed []byte               // served keys
	before func(w http.ResponseWriter, q *http.Request, client wire.ID) bool
}

var issuers sync.Map // by rounds and messages: keys are dear

func issuerOf(t *testing.T, task wire.Task) *token.Issuer {
	t.Helper()
	name := fmt.Sprint(task.LastRound(), task.PerClient())
	if i, ok := issuers.Load(name); ok {
		return i.(*token.Issuer)
	}
	i, err := tokentest.Issuer(task.Population, wire.ID{1}, task.LastRound(), task.PerClient())
	if err != nil {
		t.Fatal(err)
	}
	issuers.Store(name, i)
	return i
}

// withTokens is a world whose task asks for tokens.
func withTokens(t *testing.T, n int, change func(*wire.Task)) (*world, *registrar, client.JoinConfig) {
	t.Helper()
	task := shuffleTask()
	task.Rounds = 1 // which may be announced twelve times
	if change != nil {
		change(&task)
	}
	r := &registrar{t: t, key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32)), asked: map[wire.ID][][]byte{}}
	r.issuer = issuerOf(t, task)
	m := r.issuer.Keys()
	task.Tokens = wire.Tokens{Epoch: m.Epoch, Keys: wire.Digest(m)}
	r.signed = wire.Sign(r.key, wire.LabelTokenKeys, wire.Encode(m))
	var err error
	if r.keys, err = token.ForTask(m, task); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, max(n, 4), task)
	r.server = w.network.ServeTLS(t, http.HandlerFunc(r.serve))
	e := &w.enrolment
	e.Registrar = wire.Sign(r.key, wire.LabelRegistrar, wire.Encode(wire.Roster{Population: e.Population, Serial: 1, Clients: e.Clients, Digest: e.Roster, From: e.From, To: e.To}))
	w.members = w.members[:n]
	c := w.config()
	c.Roots.AddCert(r.server.Certificate())
	c.Registrar, c.RegistrarKey = r.server.URL, r.key.Public().(ed25519.PublicKey)
	return w, r, c
}

func (r *registrar) serve(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(q.URL.Path, "/v1/epochs/") {
		if epoch := r.issuer.Keys().Epoch; q.URL.Path != "/v1/epochs/"+hex.EncodeToString(epoch[:]) {
			r.t.Errorf("asked for %s", q.URL.Path)
		}
		_, _ = w.Write(r.signed)
		return
	}
	m, err := wire.Decode[wire.TokenRequest](body[64:wire.SignedTokenRequest])
	if err != nil {
		r.t.Error(err)
		return
	}
	r.asked[m.Client] = append(r.asked[m.Client], body)
	if r.before != nil && r.before(w, q, m.Client) {
		return
	}
	answer, err := r.issuer.Sign(q.Context(), m.First, body[wire.SignedTokenRequest:])
	if err != nil {
		r.t.Error(err)
	}
	_, _ = w.Write(answer)
}

// shown opens the tokens of the last round's reports.
func (w *world) shown(reports map[wire.ID]wire.Report) (out [][wire.TokenBytes]byte) {
	w.t.Helper()
	for _, r := range reports {
		for j := range w.open.PerClient() {
			part := r.Part[j*w.open.ReportBytes : (j+1)*w.open.ReportBytes]
			content, err := w.rings[envelope.Coordinator].OpenPart(envelope.Coordinator, w.digest, part)
			if err != nil {
				w.t.Fatal(err)
			}
			_, with, err := w.task.Attachments().Split(content)
			if err != nil {
				w.t.Fatal(err)
			}
			out = append(out, with.Token)
		}
	}
	return out
}

func purses(t *testing.T, dir string) (out [][]byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "tokens", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
		out = append(out, b)
	}
	return out
}

// Every client asks once for all its tokens, before the first round; its reports carry a token of
// their round, and what was spent is gone from its file.
func TestReportsCarryTheirTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, messages := range []int64{0, 2} {
			w, r, config := withTokens(t, 3, func(task *wire.Task) { task.Messages = messages })
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			theta := make([]float32, dim)
			_, end := w.run(ctx, config)
			seen := map[[wire.TokenBytes]byte]bool{}
			var last [][wire.TokenBytes]byte
			for _, round := range []int64{1, 2, 5} {
				w.publish(w.announcement(round, theta), theta, nil)
				last = w.shown(w.wait(ctx, 3))
				valid := r.keys.Round(wire.Digest(w.task), round)
				for i := range last {
					index := int64(i) % w.task.PerClient()
					if !valid.Valid(index, &last[i]) || !valid.Take(index, &last[i]) || seen[last[i]] {
						t.Errorf("round %d: token %d does not hold, or was used before", round, i)
					}
					seen[last[i]] = true
				}
				if len(last) != 3*int(w.task.PerClient()) {
					t.Errorf("round %d: %d tokens", round, len(last))
				}
			}
			end()
			if len(r.asked) != 3 {
				t.Errorf("%d clients asked", len(r.asked))
			}
			for _, q := range r.asked {
				if len(q) != 1 {
					t.Errorf("a client asked %d times", len(q))
				}
			}
			for _, b := range purses(t, config.Directory) {
				spent := len("riffle-client-tokens 1\nt") + 5*int(w.task.PerClient())*wire.TokenBytes
				if !bytes.Equal(b[24:spent], make([]byte, spent-24)) || bytes.Contains(b[spent:], make([]byte, 64)) {
					t.Error("spent tokens are there, or others are gone")
				}
				for t0 := range seen {
					if bytes.Contains(b, t0[:32]) {
						t.Error("a spent token is in a client's file")
					}
				}
			}
		}
	})
}

// Whoever does not report asks for tokens like all others.
func TestAskingSaysNothingAboutTakingPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r, config := withTokens(t, 2, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		config.Policy.MaxEps = 1e-9 // no round can be afforded
		running, stop := context.WithCancel(ctx)
		seen := newWatch()
		config.Watch = seen.tell
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		fleet, err := client.NewFleet(config, w.members)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- fleet.Run(running) }()
		seen.next(ctx, t, client.Declined)
		stop()
		if err := errors.Join(<-done, fleet.Close()); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.asked) != 2 || w.asked("POST report") != 0 {
			t.Errorf("%d of 2 clients asked, %d reports", len(r.asked), w.asked("POST report"))
		}
	})
}

// A process that ends while it asks, whatever was answered, asks for the same bytes again, and no
// report leaves without a token.
func TestCrashWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r, config := withTokens(t, 1, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		for process := range 4 {
			running, stop := context.WithCancel(ctx)
			r.mu.Lock()
			r.before = func(rw http.ResponseWriter, q *http.Request, _ wire.ID) bool {
				switch process {
				case 0: // it ends before the answer
					stop()
					rw.WriteHeader(http.StatusServiceUnavailable)
					return true
				case 1: // half an answer
					rw.Header().Set("Content-Length", "3072")
					_, _ = rw.Write(make([]byte, 100))
					stop()
					return true
				case 2: // signatures of something else: refused, and asked for again by the next process
					_, _ = rw.Write(make([]byte, 12*wire.TokenModulus))
					time.AfterFunc(200*time.Millisecond, stop)
					return true
				}
				return false
			}
			r.mu.Unlock()
			fleet, err := client.NewFleet(config, w.members)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- fleet.Run(running) }()
			if process == 3 {
				got := w.shown(w.wait(ctx, 1))
				if !r.keys.Verify(wire.Digest(w.task), 1, 0, &got[0]) {
					t.Error("the token does not hold")
				}
				stop()
			}
			<-running.Done()
			if err := errors.Join(<-done, fleet.Close()); err != nil {
				t.Fatal(err)
			}
			if process < 3 && w.asked("POST report") != 0 {
				t.Errorf("process %d reported without a token", process)
			}
			stop()
		}
		for _, q := range r.asked {
			if len(q) < 4 || slices.ContainsFunc(q, func(b []byte) bool { return !bytes.Equal(b, q[0]) }) {
				t.Errorf("%d requests, or they differ", len(q))
			}
		}
	})
}

// A process that ends between the charge and the sending sends the same bytes, with the same token,
// although the token is wiped from the file.
func TestCrashAfterATokenIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r, config := withTokens(t, 1, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		fleet, err := client.NewFleet(config, w.members)
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(ctx)
		fleet.BeforeSend(stop)
		if err := errors.Join(fleet.Run(running), fleet.Close()); err != nil {
			t.Fatal(err)
		}
		if b := purses(t, config.Directory); len(b) != 1 || !bytes.Equal(b[0][24:24+wire.TokenBytes], make([]byte, wire.TokenBytes)) {
			t.Error("the token was not spent before it was sent")
		}
		if fleet, err = client.NewFleet(config, w.members); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- fleet.Run(ctx) }()
		got := w.shown(w.wait(ctx, 1))
		if !r.keys.Verify(wire.Digest(w.task), 1, 0, &got[0]) {
			t.Error("the token does not hold")
		}
		w.end()
		if err := errors.Join(<-done, fleet.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// A power failure may keep the later sectors of a wipe and lose the earlier ones. The next process wipes
// them all.
func TestATornWipeIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, config := withTokens(t, 1, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		theta := make([]float32, dim)
		round := int64(0)
		report := func(rounds int) {
			fleet, stop := w.process(ctx, config)
			for n := range rounds {
				round++
				w.publish(w.announcement(round, theta), theta, nil)
				w.wait(ctx, 1)
				await(t, func() bool { return fleet.Snapshot().Reports[client.Sent] == int64(n)+1 })
			}
			stop()
		}
		report(2)
		files, err := filepath.Glob(filepath.Join(config.Directory, "tokens", "*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		wiped := b[24 : 24+2*wire.TokenBytes]
		if len(bytes.Trim(wiped, "\x00")) > 0 {
			t.Fatal("two tokens were spent and not wiped")
		}
		copy(wiped[10:], "PINEAPPLE")
		if err := os.WriteFile(files[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		report(1)
		if b := purses(t, config.Directory); len(bytes.Trim(b[0][24:24+3*wire.TokenBytes], "\x00")) > 0 {
			t.Error("a spent token is still there")
		}
	})
}

// Keys for one client, or that the registrar has not signed, are refused before anything is asked
// for; a client to which the registrar gives nothing stays silent, and the others report.
func TestTokensThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, r *registrar, c *client.JoinConfig)
		cause  pure.Cause
	}{
		"a key for one client": {func(w *world, r *registrar, _ *client.JoinConfig) {
			m := r.issuer.Keys()
			two := w.task
			two.Messages = 2
			other := issuerOf(w.t, two).Keys()
			m.Moduli = slices.Clone(m.Moduli)
			m.Moduli[0] = other.Moduli[len(m.Moduli)] // the first are the same
			r.signed = wire.Sign(r.key, wire.LabelTokenKeys, wire.Encode(m))
		}, pure.CauseTokens},
		"another epoch": {func(w *world, r *registrar, _ *client.JoinConfig) {
			m := r.issuer.Keys()
			m.Epoch = wire.ID{2}
			r.signed = wire.Sign(r.key, wire.LabelTokenKeys, wire.Encode(m))
		}, pure.CauseTokens},
		"the coordinator's own keys": {func(w *world, r *registrar, _ *client.JoinConfig) {
			r.signed = wire.Sign(w.coordinator, wire.LabelTokenKeys, r.signed[64:])
		}, pure.CauseSignature},
		"garbage": {func(_ *world, r *registrar, _ *client.JoinConfig) {
			r.signed = wire.Sign(r.key, wire.LabelTokenKeys, []byte("x"))
		}, pure.CauseMessage},
		"no registrar": {func(_ *world, _ *registrar, c *client.JoinConfig) { c.Registrar = "" }, pure.CausePolicy},
		"bought before": {func(_ *world, r *registrar, _ *client.JoinConfig) {
			r.before = func(rw http.ResponseWriter, _ *http.Request, _ wire.ID) bool {
				rw.WriteHeader(http.StatusConflict)
				return true
			}
		}, pure.CauseTokens},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, r, config := withTokens(t, 1, nil)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				c.change(w, r, &config)
				theta := make([]float32, dim)
				w.publish(w.announcement(1, theta), theta, nil)
				seen := newWatch()
				config.Watch = seen.tell
				fleet, err := client.NewFleet(config, w.members)
				if err != nil {
					t.Fatal(err)
				}
				running, stop := context.WithCancel(ctx)
				done := make(chan error, 1)
				go func() { done <- fleet.Run(running) }()
				n := seen.next(ctx, t, client.Declined)
				refused := (*pure.Refused)(nil)
				if !errors.As(n.Err, &refused) || refused.Cause != c.cause {
					t.Errorf("%v, want cause %s", n.Err, c.cause)
				}
				stop()
				<-done
				if err := fleet.Close(); err != nil {
					t.Fatal(err)
				}
				if w.asked("POST report") != 0 {
					t.Error("a report without a token")
				}
			})
		})
	}
}

// Clients that demand tokens take part in no task without them.
func TestTokensAreDemanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy()
		p.RequireTokens = true
		task := shuffleTask()
		if _, err := p.Agree(t.Context(), task); err == nil || !strings.Contains(err.Error(), "no tokens") {
			t.Errorf("agreed to a task without tokens: %v", err)
		}
		task.Tokens = wire.Tokens{Epoch: wire.ID{1}, Keys: [32]byte{2}}
		if _, err := p.Agree(t.Context(), task); err != nil {
			t.Error(err)
		}
		task.Tokens, task.Trust = wire.Tokens{}, dp.Local // its promise needs no crowd
		if _, err := p.Agree(t.Context(), task); err != nil {
			t.Error(err)
		}
	})
}

// Clients that demand receipts take part in no task without them.
func TestReceiptsAreDemanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy()
		p.RequireReceipts = true
		task := shuffleTask()
		if _, err := p.Agree(t.Context(), task); err == nil || !strings.Contains(err.Error(), "no receipts") {
			t.Errorf("agreed to a task without receipts: %v", err)
		}
		task.Receipts = true
		if _, err := p.Agree(t.Context(), task); err != nil {
			t.Error(err)
		}
	})
}

// One client without tokens keeps no other from reporting. A damaged file is not replaced: the
// registrar gives no other tokens.
func TestOneClientWithoutTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r, config := withTokens(t, 3, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		loser := wire.ClientID(w.members[1].Credential.Public())
		r.before = func(rw http.ResponseWriter, _ *http.Request, id wire.ID) bool {
			if id == loser {
				rw.WriteHeader(http.StatusConflict)
			}
			return id == loser
		}
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		_, stop := w.process(ctx, config)
		if got := w.wait(ctx, 2); len(w.shown(got)) != 2 {
			t.Error("the others do not report")
		}
		stop()
	})
}
