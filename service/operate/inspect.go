package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// finding is the result of one check of a configuration.
type finding struct {
	Role  string `json:"role"`
	What  string `json:"what"`
	Error string `json:"error,omitempty"` // empty: nothing is wrong
	// Unreachable says that the configuration may be right, and a peer did not answer.
	Unreachable bool `json:"unreachable,omitempty"`
}

// inspection collects the findings about a role.
type inspection struct {
	role string
	list []finding
}

func (n *inspection) add(what string, err error) {
	f := finding{Role: n.role, What: what}
	if err != nil {
		f.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
		f.Unreachable = !errors.Is(err, config.ErrInvalid)
	}
	n.list = append(n.list, f)
}

// wrong is add for a mistake in the configuration or in a file that it names.
func (n *inspection) wrong(what string, err error) {
	if err != nil && !errors.Is(err, config.ErrInvalid) {
		err = config.Errorf("%w", err)
	}
	n.add(what, err)
}

// Inspect checks everything that a role, or clients, need before they run: the configuration
// is complete and has none of the example's values; keys exist, are valid and readable by
// their owner only; the store has been made; and peers answer with the pinned keys. It
// changes nothing. program is a client's program in place of the configuration's data, or
// the coordinator's in place of its evaluate; "": none.
func Inspect(ctx context.Context, role, path, program string) ([]finding, error) {
	if role == RoleAll {
		c, err := config.Load[config.All](path)
		if err != nil {
			return nil, err
		}
		var all []finding
		for _, r := range rolesOf(c) {
			found, err := Inspect(ctx, r.role, r.path, program) // only the coordinator takes it
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	}
	n := &inspection{role: role}
	left := config.Placeholders(path)
	for _, line := range left {
		n.wrong("example", errors.New(line))
	}
	if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), config.ExamplePopulation) {
		n.wrong("example", fmt.Errorf("%s: population: %s is the example's: the shuffler's operator draws one (openssl rand -hex 16)", path, config.ExamplePopulation))
	}
	switch role {
	case RoleShuffler:
		n.shuffler(ctx, path)
	case RoleCoordinator:
		n.coordinator(ctx, path, program, len(left) == 0)
	case RoleAggregator:
		n.aggregator(ctx, path, len(left) == 0)
	case RoleClient:
		n.client(ctx, path, program, len(left) == 0)
	default:
		return nil, config.Errorf("no role %q to be checked", role)
	}
	return n.list, ctx.Err()
}

// keys checks the keys that every server has.
func (n *inspection) keys(p config.Process, signing string, sealing []string) {
	cert, _, err := endpoint.LoadCertificate(p.Certificate, p.CertificateKey)
	if err == nil && !time.Now().Before(cert.Leaf.NotAfter) {
		err = fmt.Errorf("%s has expired on %s: clients do not accept it", p.Certificate, cert.Leaf.NotAfter.Format(time.DateOnly))
	}
	n.wrong("certificate", err)
	if signing != "" {
		_, err := config.LoadSigning(signing)
		n.wrong("signing key", err)
	}
	ring, err := config.LoadKeyring(sealing)
	if err == nil {
		err = ring.Keys[0].Valid(time.Now().Add(time.Hour))
	}
	n.wrong("sealing keys", err)
}

// store tries to open a store. A store that is in use counts as correct.
func (n *inspection) store(open func() (*store.Store, error)) {
	s, err := open()
	if err == nil {
		err = s.Close()
	} else if errors.Is(err, store.ErrLocked) {
		err = nil
	}
	if errors.Is(err, store.ErrUnavailable) {
		n.add("store", err)
		return
	}
	n.wrong("store", err)
}

func (n *inspection) ask(ctx context.Context, list []peer) {
	for _, p := range list {
		one, done := context.WithTimeout(ctx, peerTime)
		n.add(p.role+" "+p.url, p.ask(one))
		done()
	}
}

func (n *inspection) shuffler(ctx context.Context, path string) {
	c, err := config.Load[config.Shuffler](path)
	n.wrong("configuration", err)
	if err != nil {
		return
	}
	n.keys(c.Process, c.SigningKey, c.SealingKeys)
	roster, err := config.LoadRoster(c.Roster)
	if err == nil && int64(len(roster)) < c.MinReports {
		err = fmt.Errorf("%s enrols %d clients, n-min is %d", c.Roster, len(roster), c.MinReports)
	}
	n.wrong("roster", err)
	for _, k := range c.AggregatorSealing {
		n.wrong("aggregator's sealing key", k.Valid(time.Now().Add(time.Hour)))
	}
	n.store(func() (*store.Store, error) { return openStore(ctx, c.Store) })
}

func (n *inspection) coordinator(ctx context.Context, path, program string, call bool) {
	c, err := config.Load[config.Coordinator](path)
	n.wrong("configuration", err)
	if err != nil {
		return
	}
	n.keys(c.Process, c.SigningKey, c.SealingKeys)
	if c.DashboardToken != "" {
		_, err := c.LoadToken()
		n.wrong("dashboard-token", err)
	}
	_, err = coordinator.MarkFile(c.Mark).Load()
	n.wrong("mark", err)
	if c.Data != "" && c.Data != "mnist" {
		_, err := os.Stat(c.Data)
		n.wrong("data", err)
	}
	c.Evaluate = cmp.Or(program, c.Evaluate)
	n.evaluator(ctx, c)
	n.store(func() (*store.Store, error) { return openCoordinatorStore(ctx, c) })
	s := &server{process: c.Process}
	source, err := s.source(c.Shuffler)
	var aggregator *coordinator.Aggregator
	if err == nil && c.Aggregator != nil {
		aggregator = &coordinator.Aggregator{URL: c.Aggregator.URL}
		aggregator.Client, err = s.peerClient(*c.Aggregator)
	}
	if err != nil || !call {
		return // a finding above says so
	}
	n.ask(ctx, coordinatorPeers(source, aggregator, c.ID))
}

func (n *inspection) aggregator(ctx context.Context, path string, call bool) {
	c, err := config.Load[config.Aggregator](path)
	n.wrong("configuration", err)
	if err != nil {
		return
	}
	n.keys(c.Process, "", c.SealingKeys)
	n.store(func() (*store.Store, error) { return openStore(ctx, c.Store) })
	source, err := (&server{process: c.Process}).source(c.Shuffler)
	if err == nil && call {
		n.ask(ctx, []peer{shufflerPeer(source, c.ID)})
	}
}

func (n *inspection) client(ctx context.Context, path, program string, call bool) {
	c, err := config.Load[config.Client](path)
	n.wrong("configuration", err)
	if err != nil {
		return
	}
	_, err = config.LoadCredentials(c.Credentials)
	n.wrong("credentials", err)
	if _, err = os.Stat(filepath.Join(c.Dir, "ledger")); errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("no ledger in %s: only `riffle init client` makes one, and never where there was one", c.Dir)
	}
	n.wrong("ledger", err)
	if err := replaceData(&c, path, program, 0); err != nil {
		n.wrong("data", err)
	} else if c.Gradients != "" {
		n.program(ctx, c)
	} else if c.Data != "mnist" {
		_, err := os.Stat(c.Data)
		n.wrong("data", err)
	}
	web := endpoint.ClientConfig{}
	if c.Roots != "" {
		web.Roots, err = loadRoots(c.Roots)
		n.wrong("roots", err)
		if err != nil {
			return
		}
	}
	client, err := endpoint.NewClient(web)
	if err != nil || !call {
		return
	}
	defer client.CloseIdleConnections()
	list := []peer{shufflerPeer(batch.Source{URL: c.Shuffler.URL, Key: c.Shuffler.Signer, Client: client}, c.ID)}
	for _, address := range c.Coordinator.Addresses {
		list = append(list, peer{RoleCoordinator, address, func(ctx context.Context) error {
			_, _, err := endpoint.Do(ctx, client, http.MethodGet, strings.TrimSuffix(address, "/")+"/v1/tasks", nil, 1<<20)
			return peerError(err)
		}})
	}
	n.ask(ctx, list)
}
