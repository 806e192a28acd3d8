package operate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// peer is another role that this one calls. ask makes a request that changes nothing and
// checks the answer.
type peer struct {
	role, url string
	ask       func(context.Context) error
}

func shufflerPeer(s batch.Source, p wire.ID) peer {
	return peer{RoleShuffler, s.URL, func(ctx context.Context) error {
		_, err := s.Enrolment(ctx, p, time.Now())
		return peerError(alert(ctx, s.Client, s.URL, err))
	}}
}

// coordinatorPeers returns the roles that a coordinator calls.
func coordinatorPeers(s batch.Source, a *coordinator.Aggregator, p wire.ID) []peer {
	list := []peer{shufflerPeer(s, p)}
	if a != nil {
		list = append(list, peer{RoleAggregator, a.URL, func(ctx context.Context) error {
			// There is no such round; any answer shows that the aggregator is there.
			_, _, err := endpoint.Do(ctx, a.Client, http.MethodGet, fmt.Sprintf("%s/v1/rounds/%064x/ids", strings.TrimSuffix(a.URL, "/"), 0), nil, 1<<20)
			if r := batch.IsRefused(err); r != nil {
				err = nil
			}
			return peerError(alert(ctx, a.Client, a.URL, err))
		}})
	}
	return list
}

// registrarPeer is the registrar, as shuffler and coordinator call it.
func registrarPeer(c *http.Client, r config.Party, p wire.ID) peer {
	return peer{RoleRegistrar, r.URL, func(ctx context.Context) error {
		b, _, err := endpoint.Do(ctx, c, http.MethodGet, strings.TrimSuffix(r.URL, "/")+"/v1/statement", nil, 1<<20)
		if err == nil {
			if _, err = wire.VerifyRoster(r.Signer, p, b); err != nil {
				return config.Errorf("key or population: %w", err)
			}
		}
		return peerError(alert(ctx, c, r.URL, err))
	}}
}

// alert finds out why a connection ended during a write: a server that does not know our
// certificate says so only when it is read from. err is the error of the write.
func alert(ctx context.Context, c *http.Client, address string, err error) error {
	var u *url.Error
	var op *net.OpError
	if !errors.As(err, &u) || errors.Is(err, endpoint.ErrNotPinned) || errors.As(err, &op) && op.Op == "dial" {
		return err // the peer has answered, or there was no connection
	}
	t, ok := c.Transport.(*http.Transport)
	to, bad := url.Parse(address)
	if !ok || bad != nil {
		return err
	}
	dialer := tls.Dialer{Config: t.TLSClientConfig.Clone()}
	dialer.Config.ClientSessionCache = nil
	conn, bad := dialer.DialContext(ctx, "tcp", to.Host)
	if bad != nil {
		return errors.Join(bad, err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // cannot fail
	if _, bad = conn.Read(make([]byte, 1)); bad != nil && strings.Contains(bad.Error(), "tls:") {
		return bad
	}
	return err
}

// peerError adds to an error what this operator and the peer's operator must agree on.
func peerError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, endpoint.ErrNotPinned):
		return config.Errorf("pins: %w", err)
	case errors.Is(err, batch.ErrLie):
		return config.Errorf("key or population, or the clocks: %w", err)
	case strings.Contains(err.Error(), "tls: bad certificate"), strings.Contains(err.Error(), "tls: certificate required"):
		return config.Errorf("it does not know our certificate: its operator must list the pin in %s: %w", config.PinFile, err)
	}
	return fmt.Errorf("it cannot be reached: %w", err)
}

// peers are the roles that this one calls. It asks them now and then, so that an operator sees
// which of them does not answer.
type peers struct {
	log  *slog.Logger
	list []peer

	mu   sync.Mutex
	last []error // each peer's last error; errNotAsked at first
}

var errNotAsked = errors.New("it was not asked yet")

func newPeers(log *slog.Logger, list ...peer) *peers {
	p := &peers{log: log, list: list, last: make([]error, len(list))}
	for i := range p.last {
		p.last[i] = errNotAsked
	}
	return p
}

// A peer is called every peerEvery, and sooner if it did not answer.
const (
	peerEvery = 15 * time.Second
	peerTime  = 10 * time.Second
)

// watch calls the peers until ctx ends.
func (p *peers) watch(ctx context.Context) error {
	pause := 250 * time.Millisecond
	for ctx.Err() == nil {
		if pause = min(2*pause, peerEvery); p.askAll(ctx) {
			pause = peerEvery
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// askAll asks all peers and says whether all answer. It logs what has changed, one line for
// each cause.
func (p *peers) askAll(ctx context.Context) (all bool) {
	var wg sync.WaitGroup
	now := make([]error, len(p.list))
	for i, x := range p.list {
		wg.Go(func() {
			one, done := context.WithTimeout(ctx, peerTime)
			defer done()
			now[i] = x.ask(one)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all = true
	for i, x := range p.list {
		before := p.last[i]
		p.last[i] = now[i]
		switch {
		case now[i] == nil && before != nil && before != errNotAsked:
			p.log.Info("a peer answers again", "peer", x.role)
		case now[i] != nil && (before == nil || endpoint.Cause(now[i]) != endpoint.Cause(before)):
			p.log.Warn("a peer does not answer", "peer", x.role, "url", x.url, "error", now[i])
		}
		all = all && now[i] == nil
	}
	return all
}

// trouble returns why peers do not answer; nil if all do.
func (p *peers) trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for i, x := range p.list {
		if p.last[i] != nil {
			all = append(all, fmt.Errorf("%s %s: %w", x.role, x.url, p.last[i]))
		}
	}
	return errors.Join(all...)
}

func (p *peers) status() (out []*operatorv1.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.list {
		one := &operatorv1.Peer{Role: x.role, Url: x.url}
		if p.last[i] != nil {
			one.Trouble = p.last[i].Error()
		}
		out = append(out, one)
	}
	return out
}

func (p *peers) metrics() []endpoint.Metric {
	m := endpoint.Metric{Name: "riffle_peer_answers", Help: "1 if the peer answered when it was last asked.", Kind: endpoint.Gauge}
	for _, x := range p.status() {
		v := 0.
		if x.Trouble == "" {
			v = 1
		}
		m.Samples = append(m.Samples, endpoint.Sample{Labels: []string{"peer", x.Role}, Value: v})
	}
	return []endpoint.Metric{m}
}
