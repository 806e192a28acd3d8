package operate

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// finding is the result of one check of a configuration.
type finding struct {
	Role  string `json:"role"`
	What  string `json:"what"`
	Error string `json:"error,omitempty"` // empty: nothing is wrong
	// Unreachable says that the configuration may be right, and a peer did not answer.
	Unreachable bool `json:"unreachable,omitempty"`
	// Note is what running clients have found, or what would keep some tasks waiting; Look says that somebody should look at it.
	Note string `json:"note,omitempty"`
	Look bool   `json:"look,omitempty"`
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

// rounds tells what clients have found in what is published of rounds, if they have compared any.
func (n *inspection) rounds(dir string) {
	found, err := client.ReadFindings(dir)
	if err != nil {
		n.wrong("rounds", err)
		return
	}
	if found.Format == 0 {
		return
	}
	f := finding{Role: n.role, What: "rounds", Note: fmt.Sprintf("%d compared, %d receipts found", found.Compared, found.Found)}
	for _, x := range []struct {
		times int64
		what  string
	}{{found.Missing, "receipts of reports missing"}, {found.Half, "receipts of half a report"}, {found.Unfit, "rounds do not fit"}, {found.Untold, "rounds not told of"}} {
		if x.times > 0 {
			f.Note, f.Look = fmt.Sprintf("%s, %d %s", f.Note, x.times, x.what), true
		}
	}
	if len(found.Last) > 0 {
		last := found.Last[len(found.Last)-1]
		f.Note = fmt.Sprintf("%s; last: round %d of task %.8s, %s: %s", f.Note, last.Round, last.Task, last.What, last.Detail)
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
	if b, err := durable.ReadFile(path); err == nil && strings.Contains(string(b), config.ExamplePopulation) {
		n.wrong("example", fmt.Errorf("%s: population: %s is the example's: the shuffler's operator draws one (openssl rand -hex 16)", path, config.ExamplePopulation))
	}
	switch role {
	case RoleShuffler:
		n.shuffler(ctx, path, len(left) == 0)
	case RoleCoordinator:
		n.coordinator(ctx, path, program, len(left) == 0)
	case RoleAggregator:
		n.aggregator(ctx, path, len(left) == 0)
	case RoleRegistrar:
		n.registrar(ctx, path)
	case RoleRelay:
		n.relay(ctx, path)
	case RoleWorker:
		n.worker(ctx, path, len(left) == 0)
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
	if sealing == nil {
		return
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

func (n *inspection) shuffler(ctx context.Context, path string, call bool) {
	c, err := config.Load[config.Shuffler](path)
	n.wrong("configuration", err)
	if err != nil {
		return
	}
	n.keys(c.Process, c.SigningKey, c.SealingKeys)
	switch {
	case c.Registrar == nil:
		roster, err := config.LoadRoster(c.Roster)
		if err == nil && int64(len(roster)/ed25519.PublicKeySize) < c.MinReports {
			err = fmt.Errorf("%s enrols %d clients, n-min is %d", c.Roster, len(roster)/ed25519.PublicKeySize, c.MinReports)
		}
		n.wrong("roster", err)
	case c.Registrar.URL == "":
		b, err := durable.ReadFile(c.Roster)
		if err == nil {
			_, _, _, err = wire.DecodeMembers(c.Registrar.Signer, c.ID, b)
		}
		n.wrong("roster", err)
	case call:
		client, err := (&server{process: c.Process}).peerClient(*c.Registrar)
		if err == nil {
			n.ask(ctx, []peer{registrarPeer(client, *c.Registrar, c.ID)})
			client.CloseIdleConnections()
		}
	}
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
	_, err = promisesOf(c).Load()
	n.wrong("promises", err)
	if c.Data != "" && c.Data != "mnist" {
		_, err := os.Stat(c.Data)
		n.wrong("data", err)
	}
	c.Evaluate = cmp.Or(program, c.Evaluate)
	n.evaluator(ctx, c)
	// While a coordinator runs its store cannot be read here, and it has compared the two itself.
	var behind error
	_, err = coordinator.MarkFile(c.Mark).Load()
	n.store(func() (*store.Store, error) {
		s, failed := openCoordinatorStore(ctx, c)
		if failed == nil && err == nil {
			var book *ledger.Book
			var marked ledger.Mark
			if book, marked, err = verifyLedger(ctx, c, s); err == nil {
				behind = lag(book, marked)
			}
		}
		return s, failed
	})
	if behind != nil { // the next start writes it, or fails
		n.list = append(n.list, finding{Role: n.role, What: "mark", Note: behind.Error(), Look: true})
	} else {
		n.wrong("mark", err)
	}
	s := &server{process: c.Process}
	source, err := s.source(c.Shuffler, c.Registrar)
	var aggregator *coordinator.Aggregator
	if err == nil && c.Aggregator != nil {
		aggregator = &coordinator.Aggregator{URL: c.Aggregator.URL}
		aggregator.Client, err = s.peerClient(*c.Aggregator)
	}
	if err != nil || !call {
		return // a finding above says so
	}
	peers := coordinatorPeers(source, aggregator, c.ID)
	if c.Registrar != nil && c.Registrar.URL != "" {
		client, err := s.peerClient(*c.Registrar)
		if err != nil {
			return // a finding above says so
		}
		peers = append(peers, registrarPeer(client, *c.Registrar, c.ID))
	}
	n.ask(ctx, peers)
	if aggregator != nil {
		aggregator.Key = c.Aggregator.Signer
		n.able(ctx, aggregator, source.Registrar)
	}
}

// able says which tasks the coordinator's aggregator cannot sum. It is no mistake if there are to be
// no such tasks.
func (n *inspection) able(ctx context.Context, a *coordinator.Aggregator, registrar ed25519.PublicKey) {
	note := func(of string, err error) {
		if errors.Is(err, coordinator.ErrUnable) {
			n.list = append(n.list, finding{Role: n.role, What: "aggregator, for sums with " + of, Note: fmt.Sprintf("tasks of sums with %s would wait: %v", of, err), Look: true})
		}
	}
	if a.Key != nil {
		note("proofs", coordinator.CheckAggregator(ctx, a, true, nil))
	}
	note("tokens", coordinator.CheckAggregator(ctx, a, false, registrar))
}

func (n *inspection) aggregator(ctx context.Context, path string, call bool) {
	c, err := config.Load[config.Aggregator](path)
	n.wrong("configuration", err)
	if err != nil {
		return
	}
	n.keys(c.Process, "", c.SealingKeys)
	if c.Mark != "" {
		_, err := mark.File(c.Mark).Load()
		n.wrong("mark", err)
	}
	n.store(func() (*store.Store, error) { return openAggregatorStore(ctx, c) })
	source, err := (&server{process: c.Process}).source(c.Shuffler, c.Registrar)
	if err == nil && call {
		n.ask(ctx, []peer{shufflerPeer(source, c.ID)})
	}
}

func (n *inspection) registrar(ctx context.Context, path string) {
	c, err := config.Load[config.Registrar](path)
	n.wrong("configuration", err)
	if err != nil {
		return
	}
	n.keys(c.Process, c.SigningKey, nil)
	if c.Mark != "" {
		_, err := mark.File(c.Mark).Load()
		n.wrong("mark", err)
	}
	n.store(func() (*store.Store, error) { return openStore(ctx, c.Store) })
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
	n.rounds(c.Dir)
	if replaceData(&c, program, 0); c.Gradients != "" {
		n.program(ctx, c)
	} else if c.Data != "mnist" && c.Data != "" {
		_, err := os.Stat(c.Data)
		n.wrong("data", err)
	}
	if c.Rows != "" {
		_, err := os.Stat(c.Rows)
		n.wrong("rows", err)
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
	source := batch.Source{URL: c.Shuffler.URL, Key: c.Shuffler.Signer, Client: client}
	if c.Registrar != nil {
		source.Registrar = c.Registrar.Signer
	}
	list := []peer{shufflerPeer(source, c.ID)}
	for _, address := range c.Coordinator.Addresses {
		list = append(list, peer{RoleCoordinator, address, func(ctx context.Context) error {
			_, _, err := endpoint.Do(ctx, client, http.MethodGet, strings.TrimSuffix(address, "/")+"/v1/tasks", nil, 1<<20)
			return peerError(err)
		}})
	}
	n.ask(ctx, list)
}
