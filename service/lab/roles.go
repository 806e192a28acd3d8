package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/riffle-dp/riffle/internal/memnet"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/service/aggregator"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/registrar"
	"github.com/riffle-dp/riffle/service/relay"
	"github.com/riffle-dp/riffle/service/shuffler"
)

// fronts are the addresses, by name.
var fronts = map[string]front{
	"coordinator":               {Coordinator, ""},
	"shuffler":                  {Shuffler, ""},
	"shuffler for coordinator":  {Shuffler, shuffler.Coordinator},
	"shuffler for aggregator":   {Shuffler, shuffler.Aggregator},
	"shuffler for relay":        {Shuffler, shuffler.Relay},
	"aggregator":                {Aggregator, "coordinator"},
	"registrar":                 {Registrar, ""},
	"registrar for shuffler":    {Registrar, registrar.Shuffler},
	"registrar for coordinator": {Registrar, registrar.Coordinator},
	"relay":                     {Relay, ""},
}

// starts makes a role. What it returns runs until ctx ends.
var starts map[Role]func(l *Lab, ctx context.Context) (run func(context.Context) error, err error)

func init() { // because they start each other
	starts = map[Role]func(l *Lab, ctx context.Context) (func(context.Context) error, error){
		Coordinator: (*Lab).coordinator, Shuffler: (*Lab).shuffler, Aggregator: (*Lab).aggregator, Registrar: (*Lab).registrar, Relay: (*Lab).relay, Clients: (*Lab).clients}
}

// store is a process's view of a role's disk.
func (l *Lab) store(r Role) *memory.Store { return &memory.Store{Disk: l.Disks[r], Do: l.Do[r]} }

func (l *Lab) mark(r Role) mark.Keeper {
	return memory.Mark[mark.Mark]{At: l.Marks[r], Do: l.Do[r]}
}

// source is the shuffler, as a peer calls it.
func (l *Lab) source(door string) batch.Source {
	s := batch.Source{URL: l.doors[door].url, Key: public(l.keys[Shuffler]), Client: l.peer()}
	if l.c.Registrar {
		s.Registrar = public(l.keys[Registrar])
	}
	return s
}

// peer is a client for an address that is for one peer.
func (l *Lab) peer() *http.Client { return l.Net.Client(l.t) }

func wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (l *Lab) coordinator(ctx context.Context) (func(context.Context) error, error) {
	s := l.store(Coordinator)
	log, err := coordinator.OpenLog(ctx, s)
	if err != nil {
		return nil, err
	}
	journal, err := ledger.OpenJournal(ctx, log, memory.Mark[ledger.Mark]{At: l.Ledger, Do: l.Do[Coordinator]}, l.Task.Population, l.job.Budget)
	if err != nil {
		return nil, err
	}
	c := coordinator.Config{Key: l.keys[Coordinator], Keyring: l.rings[Coordinator], Shuffler: l.source("shuffler for coordinator"), Store: s, Journal: journal,
		Tasks: []coordinator.Job{l.job}, Promises: l.promises(), AnnounceLedger: true, Workers: 2,
		Aggregator: &coordinator.Aggregator{URL: l.doors["aggregator"].url, Client: l.peer(), Key: public(l.keys[Aggregator])}}
	if l.c.Serve != nil {
		l.c.Serve(&c)
	}
	if l.Service, err = coordinator.New(c); err != nil {
		return nil, err
	}
	l.let("coordinator", l.Service.Handler())
	return l.Service.Run, nil
}

func (l *Lab) shuffler(context.Context) (func(context.Context) error, error) {
	c := shuffler.Config{Population: l.Task.Population, Operator: l.keys[Shuffler], Keys: l.rings[Shuffler], Aggregator: l.rings[Aggregator].Keys, MinReports: 2,
		Store: l.store(Shuffler), CountReports: true, Relay: l.c.Relay}
	c.Coordinators = append(c.Coordinators, public(l.keys[Coordinator]))
	if l.c.Registrar {
		from, url := l.peer(), l.doors["registrar for shuffler"].url
		c.Registrar = &shuffler.Registrar{Key: public(l.keys[Registrar]), Fetch: func(ctx context.Context, have [32]byte) ([]byte, error) {
			b, code, err := endpoint.Do(ctx, from, http.MethodGet, fmt.Sprintf("%s/v1/roster?have=%x", url, have), nil, 1<<20)
			if code == http.StatusNoContent {
				return nil, err
			}
			return b, err
		}}
	} else {
		for _, m := range l.members {
			c.Roster = append(c.Roster, m.Credential.Public()...)
		}
	}
	s, err := shuffler.New(c)
	if err != nil {
		return nil, err
	}
	clients, peers := s.Handlers()
	l.let("shuffler", clients)
	l.let("shuffler for coordinator", peers)
	l.let("shuffler for aggregator", peers)
	gateway := http.NewServeMux()
	gateway.Handle("POST "+relay.Path, relay.Gateway(c.Keys, clients, 1<<20))
	gateway.Handle("GET "+relay.Path, peers)
	l.let("shuffler for relay", gateway)
	return s.Run, nil
}

func (l *Lab) aggregator(ctx context.Context) (func(context.Context) error, error) {
	s, err := aggregator.New(ctx, aggregator.Config{Coordinator: public(l.keys[Coordinator]), Keyring: l.rings[Aggregator], Shuffler: l.source("shuffler for aggregator"),
		Store: l.store(Aggregator), Mark: l.mark(Aggregator), Key: l.keys[Aggregator], Workers: 2})
	if err != nil {
		return nil, err
	}
	l.let("aggregator", s.PeerHandler())
	return wait, nil
}

func (l *Lab) registrar(context.Context) (func(context.Context) error, error) {
	s, err := registrar.New(registrar.Config{Population: population, Key: l.keys[Registrar], Store: l.store(Registrar), Mark: l.mark(Registrar)})
	if err != nil {
		return nil, err
	}
	clients, peers, operator := s.Handlers()
	l.let("registrar", clients)
	l.let("registrar for shuffler", peers)
	l.let("registrar for coordinator", peers)
	l.doors["operator"] = &door{}
	l.let("operator", operator)
	return s.Run, nil
}

// enrol has a registrar that starts for the first time enrol the clients.
func (l *Lab) enrol() {
	l.t.Helper()
	if l.enrolled {
		return
	}
	l.enrolled = true
	var all registrar.Request
	for _, m := range l.members {
		all.Add = append(all.Add, m.Credential.Public())
	}
	b, err := json.Marshal(all)
	l.must(err)
	l.Until(func() bool {
		w := httptest.NewRecorder()
		(*l.doors["operator"].now.Load()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/registrar/change", bytes.NewReader(b)))
		if w.Code != 200 && w.Code != 503 {
			l.t.Fatalf("%d %s", w.Code, w.Body)
		}
		return w.Code == 200
	})
}

func (l *Lab) relay(context.Context) (func(context.Context) error, error) {
	s, err := relay.New(relay.Config{Gateway: l.doors["shuffler for relay"].url, Client: l.peer()})
	if err != nil {
		return nil, err
	}
	if l.c.Front == nil {
		l.let("relay", s.Handler())
		return s.Run, nil
	}
	own, err := memnet.Certificate()
	if err != nil {
		return nil, err
	}
	c := endpoint.ServerConfig{Name: "clients", Certificate: own, Handler: s.Handler(), Known: s.Known, Log: slog.New(slog.DiscardHandler)}
	if l.front == nil {
		c.Listener = l.Net.Listen()
		l.front = c.Listener.Addr()
	} else if c.Listener, err = l.Net.ListenAt(l.front); err != nil {
		return nil, err
	}
	l.c.Front(&c)
	front, err := endpoint.NewServer(c)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		looks := make(chan error, 1)
		go func() { looks <- s.Run(ctx) }()
		return errors.Join(front.Run(ctx), <-looks)
	}, nil
}

// RelayURL is the address of the relay, which has been started.
func (l *Lab) RelayURL() string {
	if l.front != nil {
		return "https://" + l.front.String()
	}
	return l.doors["relay"].url
}

func (l *Lab) clients(context.Context) (func(context.Context) error, error) {
	c := client.JoinConfig{Coordinator: l.doors["coordinator"].url, Shuffler: l.doors["shuffler"].url, CoordinatorKey: public(l.keys[Coordinator]),
		ShufflerKey: public(l.keys[Shuffler]), Roots: l.roots, Dial: l.Net.DialContext, Directory: l.ledger(), Accountant: accountant, Tasks: [][32]byte{l.ID}, Workers: 2,
		Policy: pure.Policy{MaxEps0: 8, MaxEps: 1e3, Delta: 1e-3, MinReports: 2, Count: true}}
	if l.c.Relay {
		c.Relay = l.RelayURL()
	}
	if l.c.Registrar {
		c.RegistrarKey, c.Registrar = public(l.keys[Registrar]), l.doors["registrar"].url
	}
	if l.c.Join != nil {
		l.c.Join(&c)
	}
	f, err := client.NewFleet(c, l.members)
	if err != nil {
		return nil, err
	}
	l.Fleet = f
	return func(ctx context.Context) error { return errors.Join(f.Run(ctx), f.Close()) }, nil
}
