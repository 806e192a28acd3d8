package operate

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/registrar"
	"github.com/riffle-dp/riffle/service/store"
)

// Loopback is a deployment of all roles on this machine, each with keys, certificate,
// configuration and store of its own, as separate operators would have them. It is for
// demonstrations and tests: one directory holds all keys, so the shuffle protects nobody
// from a person who can read it.
type Loopback struct {
	Dir        string
	Clients    int // number of enrolled clients
	Processes  int // number of processes that run them
	External   int // number of further clients, each with a directory, that somebody else runs
	Aggregator bool
	Registrar  bool // a registrar enrols the clients and issues tokens: see EnrolAll
	Relay      bool // clients reach the shuffler through a relay
	Kept       bool // shuffler and clients keep how far the ledger was written, and how much clients sent
	MinReports int64
	Suite      wire.Suite // suite of the sealing keys
	Epsilon    float64    // the population's budget
	Delta      float64
	Data       string        // the data set of clients and coordinator
	Rows       string        // a CSV file whose rows answer questions; "": Data, if that is one
	Gradients  string        // a program that has the clients' data, in place of Data; "": none
	Policy     config.Policy // the policy of the clients
	Origins    []string      // of web pages whose visitors may be clients
	Spread     time.Duration
	Answer     time.Duration // the clients' time for a gradient; 0: as without a setting, and 5 s for programs
}

// Config returns the path of a process's configuration. process is a role, or clients-0,
// clients-1 and so on for the processes that run clients, or external-0 and so on for clients
// that somebody else runs.
func (l Loopback) Config(process string) string {
	file := process
	if strings.HasPrefix(process, "clients-") || strings.HasPrefix(process, "external-") {
		file = RoleClient
	}
	return filepath.Join(l.Dir, process, file+".yaml")
}

// FreeAddresses returns loopback addresses that nobody listens on now. Their ports are below
// those that systems give to outgoing connections; an outgoing connection could otherwise take
// a port before its process listens on it.
func FreeAddresses(n int) (out []string, err error) {
	const low, high, tries = 10_000, 32_768, 1000
	var open []net.Listener
	defer func() {
		for _, l := range open {
			err = errors.Join(err, l.Close())
		}
	}()
	for range tries {
		if len(out) == n {
			return out, nil
		}
		port, err := rand.Int(rand.Reader, big.NewInt(high-low))
		if err != nil {
			return nil, fmt.Errorf("operate: %w", err)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", low+port.Int64()))
		if err != nil {
			continue // the port is in use
		}
		open = append(open, l)
		out = append(out, l.Addr().String())
	}
	return nil, fmt.Errorf("operate: %d ports are free between %d and %d, %d are needed", len(out), low, high, n)
}

// roleKeys are the parts of a role's keys that the other roles need.
type roleKeys struct{ signing, sealing, sealingFile, pin string }

func (l Loopback) keys(role string, now time.Time) (k roleKeys, err error) {
	dir := filepath.Join(l.Dir, role, "keys")
	public, err := config.GenerateSigning(dir)
	if err != nil {
		return k, err
	}
	k.signing = config.FormatVerifying(public)
	sealing, file, err := config.GenerateSealing(dir, l.Suite, now.Add(30*24*time.Hour))
	if err != nil {
		return k, err
	}
	k.sealing, k.sealingFile = config.FormatSealing(sealing), filepath.Join("keys", file)
	pin, err := config.GenerateTLS(dir, []string{"127.0.0.1", "localhost"}, now.Add(-time.Hour), now.Add(365*24*time.Hour))
	k.pin = pin.String()
	return k, err
}

// Create makes keys, configurations and empty stores in Dir, which must be new or
// empty.
func (l Loopback) Create(ctx context.Context) error {
	now := time.Now()
	address, err := FreeAddresses(13)
	if err != nil {
		return err
	}
	var id [16]byte
	rand.Read(id[:]) // never fails
	population := hex.EncodeToString(id[:])
	roles := []string{RoleShuffler, RoleCoordinator}
	if l.Aggregator {
		roles = append(roles, RoleAggregator)
	}
	if l.Registrar {
		roles = append(roles, RoleRegistrar)
	}
	keys := map[string]roleKeys{}
	for _, role := range roles {
		if keys[role], err = l.keys(role, now); err != nil {
			return err
		}
	}
	process := func(i int) config.Process {
		return config.Process{Population: population, Admin: address[i], Certificate: "keys/" + config.CertificateFile, CertificateKey: "keys/" + config.CertificateKey,
			MaxConnections: endpoint.DefaultMaxConns, AddressShare: endpoint.DefaultShare, Log: "info", Store: store.Config{Dir: "data"}}
	}
	var shuffler config.Shuffler
	shuffler.Process = process(0)
	shuffler.Listen, shuffler.PeersListen = address[1], address[2]
	shuffler.SigningKey, shuffler.SealingKeys, shuffler.Roster = "keys/"+config.SigningFile, []string{keys[RoleShuffler].sealingFile}, config.RosterFile
	shuffler.MinReports, shuffler.Validity, shuffler.Origins = l.MinReports, 30*24*time.Hour, l.Origins
	shuffler.Round.Shortest, shuffler.Round.Longest, shuffler.Round.MaxReport, shuffler.Round.MemoryBytes = time.Second, 24*time.Hour, 1<<22, 64<<20
	shuffler.Round.Keep, shuffler.Round.MostOpen = 7*24*time.Hour, 256
	shuffler.Coordinator = config.Party{Pins: []string{keys[RoleCoordinator].pin}, Key: keys[RoleCoordinator].signing}

	var coordinator config.Coordinator
	coordinator.Process = process(3)
	coordinator.Listen, coordinator.Origins = address[4], l.Origins
	coordinator.SigningKey, coordinator.SealingKeys = "keys/"+config.SigningFile, []string{keys[RoleCoordinator].sealingFile}
	coordinator.Mark, coordinator.Record, coordinator.Data = "ledger.json", "record", l.Data
	coordinator.Budget.Epsilon, coordinator.Budget.Delta, coordinator.RoundLength = l.Epsilon, l.Delta, time.Minute
	coordinator.Holder, coordinator.Dashboard = "demo", address[7]
	toShuffler := config.Party{URL: "https://" + address[2], Pins: []string{keys[RoleShuffler].pin}, Key: keys[RoleShuffler].signing}
	coordinator.Shuffler = toShuffler

	coordinator.AnnounceLedger, shuffler.CountReports = l.Kept, l.Kept

	configs := map[string]any{RoleShuffler: &shuffler, RoleCoordinator: &coordinator}
	if l.Aggregator {
		shuffler.Aggregator = &config.Party{Pins: []string{keys[RoleAggregator].pin}}
		shuffler.AggregatorKeys = []string{keys[RoleAggregator].sealing}
		coordinator.Aggregator = &config.Party{URL: "https://" + address[6], Pins: []string{keys[RoleAggregator].pin}, Key: keys[RoleAggregator].signing}
		configs[RoleAggregator] = &config.Aggregator{Process: func() config.Process { p := process(5); p.PeersListen = address[6]; return p }(),
			SigningKey: "keys/" + config.SigningFile, SealingKeys: []string{keys[RoleAggregator].sealingFile}, Mark: "rounds.json", MinReports: 2, Shuffler: toShuffler,
			Coordinator: config.Party{Pins: []string{keys[RoleCoordinator].pin}, Key: keys[RoleCoordinator].signing}}
	}
	to := toClients{shuffler: "https://" + address[1], coordinator: "https://" + address[4], shufflerKey: keys[RoleShuffler].signing, coordinatorKey: keys[RoleCoordinator].signing}
	if l.Registrar {
		key := keys[RoleRegistrar].signing
		to.registrar = &config.Party{URL: "https://" + address[9], Key: key}
		peer := &config.Party{URL: "https://" + address[10], Pins: []string{keys[RoleRegistrar].pin}, Key: key}
		shuffler.Roster, shuffler.Registrar, coordinator.Registrar = "", peer, peer
		if a, ok := configs[RoleAggregator].(*config.Aggregator); ok {
			a.Registrar = &config.Party{Key: key}
		}
		issuer := &config.Registrar{Process: process(8), SigningKey: "keys/" + config.SigningFile, Validity: 30 * 24 * time.Hour, Mark: "tokens.json",
			Shuffler: config.Party{Pins: []string{keys[RoleShuffler].pin}}, Coordinator: &config.Party{Pins: []string{keys[RoleCoordinator].pin}}}
		issuer.Listen, issuer.PeersListen, issuer.Origins = address[9], address[10], l.Origins
		configs[RoleRegistrar] = issuer
	}
	if l.Relay {
		to.relay = "https://" + address[12]
		pin, err := config.GenerateTLS(filepath.Join(l.Dir, RoleRelay, "keys"), []string{"127.0.0.1", "localhost"}, now.Add(-time.Hour), now.Add(365*24*time.Hour))
		if err != nil {
			return err
		}
		shuffler.Relay = &config.Party{Pins: []string{pin.String()}}
		err = writeYAML(l.Config(RoleRelay), &config.Relay{Listen: address[12], Admin: address[11], Certificate: "keys/" + config.CertificateFile, CertificateKey: "keys/" + config.CertificateKey,
			MaxConnections: endpoint.DefaultMaxConns, AddressShare: 1, Log: "info", MaxRequest: 1<<22 + 1<<16, Origins: l.Origins, Shuffler: config.Party{URL: toShuffler.URL, Pins: toShuffler.Pins}})
		if err != nil {
			return err
		}
	}
	if err := l.enrol(population, to); err != nil {
		return err
	}
	for _, role := range roles {
		if err := writeYAML(l.Config(role), configs[role]); err != nil {
			return err
		}
		if err := Init(ctx, role, l.Config(role)); err != nil {
			return err
		}
	}
	return nil
}

type toClients struct {
	shuffler, coordinator, shufflerKey, coordinatorKey string
	relay                                              string // "": none
	registrar                                          *config.Party
}

// group is the clients of one process.
type group struct {
	name     string
	n, first int
	external bool
}

func (l Loopback) groups() (out []group) {
	first := 0
	for i := range l.Processes {
		n := l.Clients*(i+1)/l.Processes - first
		out = append(out, group{fmt.Sprint("clients-", i), n, first, false})
		first += n
	}
	for i := range l.External {
		out = append(out, group{fmt.Sprint("external-", i), 1, first + i, true})
	}
	return out
}

// externalAnswer is the time that programs of others have for a gradient.
const externalAnswer = 5 * time.Second

// enrol makes the clients' credentials, the roster and their configurations.
func (l Loopback) enrol(population string, to toClients) error {
	var roster, roots []byte
	servers := []string{RoleShuffler, RoleCoordinator}
	if l.Registrar {
		servers = append(servers, RoleRegistrar)
	}
	if l.Relay {
		servers = append(servers, RoleRelay)
	}
	for _, role := range servers {
		b, err := durable.ReadFile(filepath.Join(l.Dir, role, "keys", config.CertificateFile))
		if err != nil {
			return fmt.Errorf("operate: %w", err)
		}
		roots = append(roots, b...)
	}
	for _, g := range l.groups() {
		dir := filepath.Dir(l.Config(g.name))
		if _, err := config.GenerateCredentials(dir, g.n); err != nil {
			return err
		}
		b, err := durable.ReadFile(filepath.Join(dir, config.RosterFile))
		if err != nil {
			return fmt.Errorf("operate: %w", err)
		}
		roster = append(roster, b...)
		if err := config.WriteNew(filepath.Join(dir, "servers.crt"), roots, 0o644); err != nil {
			return err
		}
		c := config.Client{Population: population, Credentials: config.CredentialsFile, Dir: "ledger", Roots: "servers.crt", Data: l.Data, Rows: l.Rows, First: int64(g.first),
			Shuffler: config.Party{URL: to.shuffler, Key: to.shufflerKey}, Coordinator: config.Party{URL: to.coordinator, Key: to.coordinatorKey},
			Registrar: to.registrar, Relay: to.relay, Policy: l.Policy, Spread: l.Spread, Answer: l.Answer, Log: "info"}
		if l.Gradients != "" {
			c.Data, c.Gradients, c.Answer = "", l.Gradients, cmp.Or(l.Answer, externalAnswer)
		}
		if g.external {
			c.Ready = "ready"
		}
		if err := writeYAML(l.Config(g.name), c); err != nil {
			return err
		}
		if err := client.CreateLedger(filepath.Join(dir, "ledger")); err != nil {
			return err
		}
	}
	keeper := RoleShuffler
	if l.Registrar {
		keeper = RoleRegistrar
	}
	return config.WriteNew(filepath.Join(l.Dir, keeper, config.RosterFile), roster, 0o644)
}

// EnrolAll has the running registrar enrol all clients.
func (l Loopback) EnrolAll(ctx context.Context) error {
	c, err := config.Load[config.Registrar](l.Config(RoleRegistrar))
	if err != nil {
		return err
	}
	keys, err := config.LoadRoster(filepath.Join(filepath.Dir(l.Config(RoleRegistrar)), config.RosterFile))
	if err != nil {
		return err
	}
	var q registrar.Request
	for k := range slices.Chunk(keys, ed25519.PublicKeySize) {
		q.Add = append(q.Add, k)
	}
	_, err = NewRegistrarClient(c.Operator).Change(ctx, q)
	return err
}

// SetTasks has the client processes take part in these tasks only, and end with them.
func (l Loopback) SetTasks(ids ...string) error {
	for _, g := range l.groups() {
		b, err := durable.ReadFile(l.Config(g.name))
		if err != nil {
			return fmt.Errorf("operate: %w", err)
		}
		var c config.Client
		if err := yaml.Unmarshal(b, &c); err != nil {
			return fmt.Errorf("operate: %w", err)
		}
		c.Tasks = ids
		if err := writeYAML(l.Config(g.name), c); err != nil {
			return err
		}
	}
	return nil
}

func writeYAML(path string, v any) error {
	b, err := yaml.Marshal(v)
	if err == nil {
		err = durable.WriteFile(path, b)
	}
	if err != nil {
		return fmt.Errorf("operate: %w", err)
	}
	return nil
}
