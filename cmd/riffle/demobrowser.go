package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/wasmbuild"
	"github.com/riffle-dp/riffle/page/draw"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/operate"
	"github.com/riffle-dp/riffle/service/registrar"
	"github.com/riffle-dp/riffle/web"
)

// This file has demonstrations in which tabs of the user's browser take part.

// mostTabs bounds the number of tabs of a demonstration.
const mostTabs = 20

// choosePage chooses the address of the page, which services must know before they start.
func (d *demo) choosePage() error {
	if d.Browser == 0 {
		return nil
	}
	free, err := operate.FreeAddresses(1)
	if err != nil {
		return err
	}
	d.Page = "http://" + free[0]
	return nil
}

// loadClient gets the client for tabs, before anything is started.
func (d *demo) loadClient(cmd *cobra.Command, show output) (err error) {
	if d.Browser > 0 {
		d.client, err = loadProgram(cmd.Context(), wasmbuild.Client, show, cmd.ErrOrStderr())
	}
	return err
}

func (d *demo) origins() []string {
	if d.Page == "" {
		return nil
	}
	return []string{d.Page}
}

// tabs are the demonstration's clients in a browser, and the server of their page. nil: there are none.
type tabs struct {
	d      *demo
	ctx    context.Context
	server *http.Server
	ended  chan struct{}
	to     map[string]any // the arguments of join in the page
	public []string       // what a browser can ask each service

	mu    sync.Mutex
	keys  map[string]ed25519.PublicKey // those enrolled, by their line
	ready map[string]bool
	left  int // number of tabs that have heard of the end
	task  string
}

// openPage serves the page, says how to open it, and waits until all tabs are enrolled.
func (d *demo) openPage(ctx context.Context, c *children, show output, stderr io.Writer) (*tabs, error) {
	if d.Browser == 0 {
		return nil, nil
	}
	t := &tabs{d: d, ctx: ctx, ended: make(chan struct{}), keys: map[string]ed25519.PublicKey{}, ready: map[string]bool{}, task: d.Task}
	pins, err := t.describe()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", strings.TrimPrefix(d.Page, "http://"))
	if err != nil {
		return nil, fmt.Errorf("the page for tabs: %w", err)
	}
	t.server = &http.Server{Handler: draw.Handler(d.Page, web.Files(d.client), t), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	go func() {
		defer close(t.ended)
		_ = t.server.Serve(endpoint.LimitListener(l, 256)) // ErrServerClosed
	}()
	show.note(stderr, "page for %s: %s/", counted(d.Browser, "tab"), d.Page)
	show.note(stderr, "with Chromium or Chrome, in another terminal:\n  chromium --user-data-dir='%s' --no-first-run --ignore-certificate-errors-spki-list=%s %s/",
		d.dir+"-browser", strings.Join(pins, ","), d.Page)
	show.note(stderr, "with any other browser, or your own profile: open the page; it tells how to let the browser know the services' certificates")
	if d.Task != "" { // a resumed demo: tabs come back when they are opened
		return t, nil
	}
	shown := -1
	for {
		if n := t.enrolled(); n != shown {
			shown = n
			show.note(stderr, "%d of %s enrolled", n, counted(d.Browser, "tab"))
		}
		if int64(shown) >= d.Browser {
			return t, t.counted(ctx)
		}
		if err := t.pause(ctx, c); err != nil {
			t.close()
			return nil, err
		}
	}
}

// pause waits a little.
func (t *tabs) pause(ctx context.Context, c *children) error {
	if err := c.failed(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// describe fills in what the page has to know, and returns the pins of the services' keys.
func (t *tabs) describe() (pins []string, err error) {
	l := t.d.loopback()
	registrar, err := config.Load[config.Registrar](l.Config(operate.RoleRegistrar))
	if err != nil {
		return nil, err
	}
	shuffler, err := config.Load[config.Shuffler](l.Config(operate.RoleShuffler))
	if err != nil {
		return nil, err
	}
	coordinator, err := config.Load[config.Coordinator](l.Config(operate.RoleCoordinator))
	if err != nil {
		return nil, err
	}
	keys := map[string]string{"registrar": shuffler.Registrar.Key, "shuffler": coordinator.Shuffler.Key, "coordinator": shuffler.Coordinator.Key}
	at := map[string]string{"registrar": "https://" + registrar.Listen, "shuffler": "https://" + shuffler.Listen, "coordinator": "https://" + coordinator.Listen}
	t.public = []string{at["coordinator"] + "/v1/tasks", at["shuffler"] + "/v1/enrolment", at["registrar"] + "/v1/statement"}
	certificates := []string{registrar.Certificate, shuffler.Certificate, coordinator.Certificate}
	p := l.Policy
	policy := map[string]any{"maxEps0": p.MaxEps0, "maxEpsilon": p.MaxEps, "delta": p.Delta, "minReports": p.MinReports, "maxTasks": p.MaxTasks, "trusts": []dp.Trust{t.d.Trust},
		"requireProofs": p.Proofs != "", "requireTokens": t.d.Config.Tokens}
	t.to = map[string]any{"coordinator": at["coordinator"], "shuffler": at["shuffler"], "registrar": at["registrar"], "keys": keys, "policy": policy, "spread": -1, "answer": 1}
	if l.Relay {
		relay, err := config.Load[config.Relay](l.Config(operate.RoleRelay))
		if err != nil {
			return nil, err
		}
		t.to["relay"] = "https://" + relay.Listen
		t.public = append(t.public, "https://"+relay.Listen+"/v1/enrolment")
		certificates = append(certificates, relay.Certificate)
	}
	for _, file := range certificates {
		_, pin, err := endpoint.LoadCertificate(file, filepath.Join(filepath.Dir(file), config.CertificateKey))
		if err != nil {
			return nil, err
		}
		pins = append(pins, strings.TrimPrefix(pin.String(), "sha256:"))
	}
	return pins, nil
}

// Demo tells the page what it needs.
func (t *tabs) Demo() any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return map[string]any{"clients": t.d.population() - 1, "waiting": max(0, t.d.Browser-int64(len(t.keys))), "task": t.task, "services": t.public, "join": t.to}
}

// Enrol has the registrar enrol a tab's key, until there are enough.
func (t *tabs) Enrol(line string) error {
	key, err := client.ParsePublic([]byte(line))
	if err != nil {
		return errors.New("that is no client's key")
	}
	line = string(client.MarshalPublic(key))
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.keys[line] != nil:
		return nil
	case t.task != "":
		return t.known(key)
	case int64(len(t.keys)) >= t.d.Browser:
		return fmt.Errorf("the demo has room for %s, and all are taken: start it with --browser=%d", counted(t.d.Browser, "tab"), t.d.Browser+1)
	}
	r, err := config.Load[config.Registrar](t.d.loopback().Config(operate.RoleRegistrar))
	if err != nil {
		return err
	}
	if _, err := operate.NewRegistrarClient(r.Operator).Change(t.ctx, registrar.Request{Add: [][]byte{key}}); err != nil {
		return err
	}
	t.keys[line] = key
	return nil
}

// known returns nil if a key was enrolled before the task began, by an earlier process too.
func (t *tabs) known(key ed25519.PublicKey) error {
	r, err := config.Load[config.Registrar](t.d.loopback().Config(operate.RoleRegistrar))
	if err != nil {
		return err
	}
	list, err := operate.NewRegistrarClient(r.Operator).List(t.ctx)
	if err != nil {
		return err
	}
	for _, k := range list.Keys {
		if key.Equal(ed25519.PublicKey(k)) {
			return nil
		}
	}
	return errors.New("the demo has begun: its clients are enrolled. If this browser's storage was cleared, its client is lost")
}

// Ready says that a tab has agreed to the task.
func (t *tabs) Ready(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if key, err := client.ParsePublic([]byte(line)); err == nil && t.keys[string(client.MarshalPublic(key))] != nil {
		t.ready[line] = true
	}
}

// Ended says that a tab has ended.
func (t *tabs) Ended() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left++
}

func (t *tabs) enrolled() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.keys)
}

// counted waits until the shuffler has enrolled all clients.
func (t *tabs) counted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := config.Load[config.Coordinator](t.d.loopback().Config(operate.RoleCoordinator))
	if err != nil {
		return err
	}
	own, _, err := endpoint.LoadCertificate(c.Certificate, c.CertificateKey)
	if err != nil {
		return err
	}
	h, err := endpoint.NewClient(endpoint.ClientConfig{Pins: c.Shuffler.Pinned, Certificate: &own})
	if err != nil {
		return err
	}
	defer h.CloseIdleConnections()
	for {
		b, _, err := endpoint.Do(ctx, h, http.MethodGet, c.Shuffler.URL+"/v1/enrolment", nil, 4<<20)
		var message []byte
		if err == nil {
			message, err = wire.Verify(c.Shuffler.Signer, wire.LabelEnrolment, b)
		}
		if err == nil {
			e, err := wire.Decode[wire.Enrolment](message)
			if err == nil && e.Clients == t.d.population() {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the shuffler has not heard of the tabs: %w", errors.Join(err, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// begin tells the tabs of the task.
func (t *tabs) begin(task string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.task = task
}

// agreed waits until all tabs have agreed to the task.
func (t *tabs) agreed(ctx context.Context, c *children) error {
	for t != nil {
		t.mu.Lock()
		n := len(t.ready)
		t.mu.Unlock()
		if int64(n) >= t.d.Browser {
			return nil
		}
		if err := t.pause(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// farewell waits, not for ever, until the tabs have heard that the task has ended.
func (t *tabs) farewell(ctx context.Context) {
	for deadline := time.Now().Add(30 * time.Second); t != nil && time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		t.mu.Lock()
		n := t.left
		t.mu.Unlock()
		if int64(n) >= t.d.Browser {
			return
		}
	}
}

func (t *tabs) close() {
	if t == nil {
		return
	}
	_ = t.server.Close()
	<-t.ended
}
