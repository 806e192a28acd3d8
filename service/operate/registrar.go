package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/registrar"
)

func serveRegistrar(ctx context.Context, path string, o Options) error {
	c, err := config.Load[config.Registrar](path)
	if err != nil {
		return err
	}
	own := registrar.Config{Population: c.ID, Validity: c.Validity, Log: o.Log}
	if own.Key, err = config.LoadSigning(c.SigningKey); err != nil {
		return config.Errorf("%w", err)
	}
	s, err := openServer(ctx, c.Process, RoleRegistrar, o, roleStore(c.Process))
	if err != nil {
		return err
	}
	own.Store = s.store
	peersOf := map[string][]endpoint.Pin{registrar.Shuffler: c.Shuffler.Pinned}
	if c.Coordinator != nil {
		peersOf[registrar.Coordinator] = c.Coordinator.Pinned
	}
	if c.Mark != "" {
		own.Mark = mark.File(c.Mark)
	}
	service, err := registrar.New(own)
	if err == nil {
		clients, peers, operator := service.Handlers()
		s.operator = operator
		err = s.listenTo(c.Origins, c.Listen, c.Rate, maxSmallRequest, nil, clients)
		if err == nil {
			err = s.listen("peers", c.PeersListen, peersOf, maxSmallRequest, peers)
		}
	}
	if err != nil {
		return errors.Join(err, s.store.Close())
	}
	s.ready = service.Ready
	s.metrics = append(s.metrics, func() []endpoint.Metric { return registrarMetrics(service.Snapshot()) })
	return s.run(ctx, operatorAPI{}, service.Run)
}

// maxSmallRequest bounds the body of a request to a registrar, in bytes.
const maxSmallRequest = 64 << 10

func registrarMetrics(c registrar.Counts) []endpoint.Metric {
	one := func(name, help, kind string, v int64) endpoint.Metric {
		return endpoint.Metric{Name: name, Help: help, Kind: kind, Samples: []endpoint.Sample{{Value: float64(v)}}}
	}
	return []endpoint.Metric{
		one("riffle_roster_clients", "Clients that are enrolled.", endpoint.Gauge, c.Clients),
		one("riffle_roster_serial", "Serial of the signed roster.", endpoint.Gauge, c.Serial),
		one("riffle_roster_until_seconds", "When the signed roster ends, in Unix seconds.", endpoint.Gauge, c.Until),
		one("riffle_clients_added_total", "Clients that were enrolled.", endpoint.Counter, c.Added),
		one("riffle_clients_revoked_total", "Clients that were revoked.", endpoint.Counter, c.Revoked),
		one("riffle_rosters_signed_total", "Rosters that were signed.", endpoint.Counter, c.Signed),
		one("riffle_rosters_fetched_total", "How often the shuffler fetched a roster.", endpoint.Counter, c.Fetched),
		one("riffle_tokens_signed_total", "Tokens that were signed.", endpoint.Counter, c.Tokens),
		one("riffle_token_requests_refused_total", "Requests for tokens that were refused.", endpoint.Counter, c.Refused),
		one("riffle_token_grants", "Requests for tokens that were ever granted.", endpoint.Gauge, c.Grants),
	}
}

// RegistrarClient reaches a running registrar through its operator's socket.
type RegistrarClient struct{ http *http.Client }

// NewRegistrarClient returns a client of the registrar on a socket.
func NewRegistrarClient(socket string) RegistrarClient {
	c := newSocketClient(socket)
	c.Timeout = 2 * time.Minute
	return RegistrarClient{c}
}

// Change enrols and revokes clients.
func (c RegistrarClient) Change(ctx context.Context, q registrar.Request) (out registrar.Change, err error) {
	b, err := json.Marshal(q)
	if err != nil {
		return out, fmt.Errorf("operate: %w", err)
	}
	answer, err := c.do(ctx, http.MethodPost, "change", b)
	if err == nil {
		err = json.Unmarshal(answer, &out)
	}
	return out, err
}

// List returns the roster.
func (c RegistrarClient) List(ctx context.Context) (out registrar.Listing, err error) {
	answer, err := c.do(ctx, http.MethodGet, "roster", nil)
	if err == nil {
		err = json.Unmarshal(answer, &out)
	}
	return out, err
}

// Signed returns the signed roster with the clients' keys, as a shuffler reads it from a file.
func (c RegistrarClient) Signed(ctx context.Context) ([]byte, error) {
	return c.do(ctx, http.MethodGet, "signed", nil)
}

// maxRosterBytes bounds what a registrar may answer.
const maxRosterBytes = 1 << 30

func (c RegistrarClient) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, method, "http://registrar/registrar/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("operate: %w", err)
	}
	resp, err := c.http.Do(q)
	if err != nil {
		return nil, fmt.Errorf("operate: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRosterBytes))
	if err != nil {
		return nil, fmt.Errorf("operate: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return b, nil
	}
	var f registrar.Failure
	if json.Unmarshal(b, &f) != nil || f.Error == "" {
		return nil, fmt.Errorf("operate: the registrar answers %s", resp.Status)
	}
	if f.Wrong {
		return nil, config.Errorf("%s", f.Error)
	}
	return nil, errors.New(f.Error)
}
