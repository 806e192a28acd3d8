package config

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/loopback"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// load decodes a file into v, which has the defaults. Unknown keys and keys given
// twice are refused.
func load(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Errorf("%s: no such file", path)
	}
	if err != nil {
		return Errorf("%w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return Errorf("%s: %s", path, oneLine(err))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Errorf("%s: more than one document", path)
	}
	return nil
}

var notFound = regexp.MustCompile(`field (\S+) not found in type \S+`)

// oneLine puts a decoder's errors into one line and in the command line's words.
func oneLine(err error) string {
	text := err.Error()
	if all := new(yaml.TypeError); errors.As(err, &all) {
		text = strings.Join(all.Errors, "; ")
	}
	return notFound.ReplaceAllString(strings.ReplaceAll(text, "\n", " "), `unknown key "$1"`)
}

// at resolves paths relative to a configuration's directory.
func at(config string, paths ...*string) {
	dir := filepath.Dir(config)
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

func atAll(config string, paths []string) {
	for i := range paths {
		at(config, &paths[i])
	}
}

// Default addresses of the roles' admin pages.
const (
	shufflerAdmin    = "127.0.0.1:8460"
	coordinatorAdmin = "127.0.0.1:8461"
	aggregatorAdmin  = "127.0.0.1:8462"

	coordinatorDashboard = "127.0.0.1:8463"
)

func (p *Process) defaults() {
	p.MaxConnections, p.AddressShare, p.Log = endpoint.DefaultMaxConns, endpoint.DefaultShare, "info"
}

func (p *Process) resolve(config, role, admin string) error {
	if p.Operator == "" {
		p.Operator = role + ".sock"
	}
	if p.Admin == "" {
		p.Admin = admin
	}
	at(config, &p.Operator, &p.Certificate, &p.CertificateKey, &p.Store.Dir, &p.Store.Credentials, &p.Store.CA,
		&p.Store.Certificate, &p.Store.CertificateKey, &p.Store.Password, &p.Store.Token)
	if _, err := ParsePopulation(p.Population); err != nil {
		return Errorf("%s: population: %w", config, err)
	}
	if p.Certificate == "" || p.CertificateKey == "" {
		return Errorf("%s: certificate and certificate-key are required", config)
	}
	for _, a := range []string{p.Listen, p.PeersListen, p.Admin} {
		if _, _, err := net.SplitHostPort(a); a != "" && a != NoAddress && err != nil {
			return Errorf("%s: %q is not an address: %w", config, a, err)
		}
	}
	if (p.Store.Dir == "") == (p.Store.URL == "") {
		return Errorf("%s: store needs dir or url, and not both", config)
	}
	if p.MaxConnections < 1 || !(p.Rate >= 0) {
		return Errorf("%s: max-connections must be above 0, and rate not negative", config)
	}
	if !(p.AddressShare > 0 && p.AddressShare <= 1) {
		return Errorf("%s: address-share = %v must be above 0 and at most 1", config, p.AddressShare)
	}
	if _, err := ParseLevel(p.Log); err != nil {
		return Errorf("%s: %w", config, err)
	}
	return nil
}

// ParseLevel reads the lowest level that is logged.
func ParseLevel(text string) (l slog.Level, err error) {
	if err := l.UnmarshalText([]byte(text)); err != nil {
		return l, fmt.Errorf("log: %q must be debug, info, warn or error", text)
	}
	return l, nil
}

// StoreConfig returns the configuration with which package store opens a role's store.
func (p Process) StoreConfig(role string) store.Config {
	s := p.Store
	return store.Config{Domain: role, Dir: s.Dir, MaxBytes: s.MaxBytes, URL: s.URL, Replicas: s.Replicas, Credentials: s.Credentials,
		TLSCA: s.CA, TLSCert: s.Certificate, TLSKey: s.CertificateKey, User: s.User, Password: s.Password, Token: s.Token, Timeout: s.Timeout}
}

// ParsePopulation reads 32 hex digits.
func ParsePopulation(text string) (p wire.Population, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(p) {
		return wire.Population{}, fmt.Errorf("%q must be %d hex digits", text, 2*len(p))
	}
	copy(p[:], b)
	if p == (wire.Population{}) {
		return p, errors.New("all zeros are not a population")
	}
	return p, nil
}

// ParsePins reads a party's pins.
func (p Party) ParsePins(name string) (pins []endpoint.Pin, err error) {
	for _, text := range p.Pins {
		pin, err := endpoint.ParsePin(text)
		if err != nil {
			return nil, Errorf("%s: %w", name, err)
		}
		pins = append(pins, pin)
	}
	return pins, nil
}

// Addresses returns all addresses of a party.
func (p Party) Addresses() []string {
	if len(p.URLs) > 0 {
		return p.URLs
	}
	return []string{p.URL}
}

// need returns an error unless the party has the given parts.
func (p Party) need(name string, address, pins, key bool) error {
	if len(p.URLs) > 0 && p.URL != "" {
		return Errorf("%s: give url or urls, not both", name)
	}
	if address {
		for _, a := range p.Addresses() {
			u, err := url.Parse(a)
			if err != nil || u.Scheme != "https" || u.Host == "" {
				return Errorf("%s: url %q must be https://HOST:PORT", name, a)
			}
		}
	} else if p.URL != "" || len(p.URLs) > 0 {
		return Errorf("%s: has no use for a url here", name)
	}
	if pins && len(p.Pins) == 0 {
		return Errorf("%s: pins are required", name)
	}
	if _, err := p.ParsePins(name); err != nil {
		return err
	}
	if key {
		if _, err := p.Signer(name); err != nil {
			return err
		}
	} else if p.Key != "" {
		return Errorf("%s: has no use for a key here", name)
	}
	return nil
}

// needOne is need for a peer that is called at one address.
func (p Party) needOne(name string, key bool) error {
	if len(p.URLs) > 0 {
		return Errorf("%s: urls are for clients; give its url", name)
	}
	return p.need(name, true, true, key)
}

// Signer reads the public key of a party's operator.
func (p Party) Signer(name string) (ed25519.PublicKey, error) {
	k, err := parseVerifying(p.Key)
	if err != nil {
		return nil, Errorf("%s: key: %w", name, err)
	}
	return k, nil
}

// LoadShuffler reads a shuffler's configuration.
func LoadShuffler(path string) (c Shuffler, err error) {
	c.Process.defaults()
	c.Validity, c.Round.MaxReport, c.Round.MemoryBytes = 30*24*time.Hour, 1<<20, 64<<20
	c.Round.Shortest, c.Round.Longest, c.Round.Keep, c.Round.MostOpen = time.Second, 7*24*time.Hour, 7*24*time.Hour, 256
	if err := load(path, &c); err != nil {
		return c, err
	}
	if err := c.resolve(path, "shuffler", shufflerAdmin); err != nil {
		return c, err
	}
	at(path, &c.SigningKey, &c.Roster)
	atAll(path, c.SealingKeys)
	switch {
	case c.Listen == "" || c.PeersListen == "":
		return c, Errorf("%s: listen and peers-listen are required", path)
	case c.SigningKey == "" || len(c.SealingKeys) == 0 || c.Roster == "":
		return c, Errorf("%s: signing-key, sealing-keys and roster are required", path)
	case c.MinReports < 2:
		return c, Errorf("%s: n-min = %d must be at least 2", path, c.MinReports)
	case c.Validity < time.Minute || c.Round.MaxReport < 1 || c.Round.MemoryBytes < 1 || c.Round.MostOpen < 1:
		return c, Errorf("%s: validity must be at least 1m, and the limits of a round above 0", path)
	case c.Round.Shortest <= 0 || c.Round.Longest < c.Round.Shortest:
		return c, Errorf("%s: round: shortest %v and longest %v", path, c.Round.Shortest, c.Round.Longest)
	case c.Round.Keep < time.Minute:
		return c, Errorf("%s: round: keep = %v must be at least 1m", path, c.Round.Keep)
	case (c.Aggregator == nil) != (len(c.AggregatorKeys) == 0):
		return c, Errorf("%s: aggregator and aggregator-sealing-keys go together", path)
	}
	for _, text := range c.AggregatorKeys {
		if _, err := ParseSealing(text); err != nil {
			return c, Errorf("%s: %w", path, err)
		}
	}
	if c.Aggregator != nil {
		if err := c.Aggregator.need("aggregator", false, true, false); err != nil {
			return c, err
		}
	}
	return c, c.Coordinator.need("coordinator", false, true, true)
}

// LoadCoordinator reads a coordinator's configuration.
func LoadCoordinator(path string) (c Coordinator, err error) {
	c.Process.defaults()
	c.RoundLength, c.PauseAfter = time.Minute, 3
	if err := load(path, &c); err != nil {
		return c, err
	}
	if err := c.resolve(path, "coordinator", coordinatorAdmin); err != nil {
		return c, err
	}
	at(path, &c.SigningKey, &c.Mark, &c.Record, &c.DashboardToken)
	if c.Dashboard == "" {
		c.Dashboard = coordinatorDashboard
	}
	if c.Data != "mnist" {
		at(path, &c.Data)
	}
	atAll(path, c.SealingKeys)
	if c.Holder == "" {
		host, _ := os.Hostname() // a name for people to read
		c.Holder = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	switch {
	case c.Listen == "" || c.PeersListen != "":
		return c, Errorf("%s: listen is required, and peers-listen has no use", path)
	case c.SigningKey == "" || len(c.SealingKeys) == 0 || c.Mark == "":
		return c, Errorf("%s: signing-key, sealing-keys and mark are required", path)
	case !(c.Budget.Epsilon > 0) || dp.CheckDelta(c.Budget.Delta) != nil:
		return c, Errorf("%s: budget needs epsilon above 0 and delta between 0 and 1", path)
	case c.RoundLength < time.Second:
		return c, Errorf("%s: round-length = %v must be at least 1s", path, c.RoundLength)
	case c.Colluders < 0 || c.Workers < 0 || c.PauseAfter < 0:
		return c, Errorf("%s: colluders, workers and pause-after must not be negative", path)
	}
	if _, _, err := net.SplitHostPort(c.Dashboard); c.Dashboard != NoAddress && err != nil {
		return c, Errorf("%s: dashboard: %q is not an address: %w", path, c.Dashboard, err)
	} else if c.Dashboard != NoAddress && c.DashboardToken == "" && !loopback.Address(c.Dashboard) {
		return c, Errorf("%s: dashboard: %s can be reached by others, so dashboard-token is required", path, c.Dashboard)
	}
	if c.Aggregator != nil {
		if err := c.Aggregator.needOne("aggregator", false); err != nil {
			return c, err
		}
	}
	return c, c.Shuffler.needOne("shuffler", true)
}

// LoadAggregator reads an aggregator's configuration.
func LoadAggregator(path string) (c Aggregator, err error) {
	c.Process.defaults()
	c.MinReports = 2
	if err := load(path, &c); err != nil {
		return c, err
	}
	if err := c.resolve(path, "aggregator", aggregatorAdmin); err != nil {
		return c, err
	}
	atAll(path, c.SealingKeys)
	switch {
	case c.PeersListen == "" || c.Listen != "":
		return c, Errorf("%s: peers-listen is required, and listen has no use", path)
	case len(c.SealingKeys) == 0:
		return c, Errorf("%s: sealing-keys are required", path)
	case c.Workers < 0 || c.MinReports < 2:
		return c, Errorf("%s: workers must not be negative, and n-min at least 2", path)
	}
	if err := c.Coordinator.need("coordinator", false, true, true); err != nil {
		return c, err
	}
	return c, c.Shuffler.needOne("shuffler", true)
}

// LoadAll reads the configuration of a single operator's process.
func LoadAll(path string) (c All, err error) {
	if err := load(path, &c); err != nil {
		return c, err
	}
	at(path, &c.Shuffler, &c.Coordinator, &c.Aggregator)
	if c.Shuffler == "" || c.Coordinator == "" {
		return c, Errorf("%s: shuffler and coordinator are required", path)
	}
	return c, nil
}

// LoadClient reads the configuration of clients.
func LoadClient(path string) (c Client, err error) {
	c.Log = "info"
	c.Policy = Policy{MaxTasks: 1, MaxModelBytes: 64 << 20, MaxRound: 24 * time.Hour, Skew: 2 * time.Minute, MaxWork: 30 * time.Second}
	if err := load(path, &c); err != nil {
		return c, err
	}
	at(path, &c.Credentials, &c.Dir, &c.Roots)
	if c.Data != "mnist" {
		at(path, &c.Data)
	}
	switch {
	case c.Credentials == "" || c.Dir == "" || c.Data == "":
		return c, Errorf("%s: credentials, dir and data are required", path)
	case c.First < 0:
		return c, Errorf("%s: first = %d must not be negative", path, c.First)
	}
	if _, err := ParsePopulation(c.Population); err != nil {
		return c, Errorf("%s: population: %w", path, err)
	}
	if _, err := ParseLevel(c.Log); err != nil {
		return c, Errorf("%s: %w", path, err)
	}
	if c.Policy.MaxTaskEps == 0 && c.Policy.MaxTasks <= 1 { // for more tasks see client.Policy
		c.Policy.MaxTaskEps = c.Policy.MaxEps
	}
	if _, err := c.Policy.Parse(); err != nil {
		return c, err
	}
	if len(c.Shuffler.Pins)+len(c.Coordinator.Pins) > 0 {
		return c, Errorf("%s: clients check certificates by roots, not by pins", path)
	}
	if err := c.Shuffler.need("shuffler", true, false, true); err != nil {
		return c, err
	}
	if len(c.Shuffler.URLs) > 0 {
		return c, Errorf("%s: shuffler: urls are for coordinators", path)
	}
	return c, c.Coordinator.need("coordinator", true, false, true)
}

// Parse returns the policy after checking it.
func (p Policy) Parse() (client.Policy, error) {
	out := client.Policy{MaxEps0: p.MaxEps0, MaxEps: p.MaxEps, MaxTaskEps: p.MaxTaskEps, Delta: p.Delta, MaxTasks: p.MaxTasks,
		MaxLocalEps: p.MaxLocalEps, MinReports: p.MinReports, Colluders: p.Colluders, Randomizers: p.Randomizers,
		MaxModelBytes: p.MaxModelBytes, MaxRound: p.MaxRound, Skew: p.Skew, MaxWork: p.MaxWork}
	for _, t := range p.Trusts {
		out.Trusts = append(out.Trusts, t.Recorded())
	}
	if err := out.Check(); err != nil {
		return client.Policy{}, Errorf("policy: %w", err)
	}
	return out, nil
}

// LoadToken reads the dashboard's token; "" if there is no file.
func (c Coordinator) LoadToken() (string, error) {
	if c.DashboardToken == "" {
		return "", nil
	}
	if err := endpoint.CheckSecret(c.DashboardToken); err != nil {
		return "", Errorf("dashboard-token: %w", err)
	}
	b, err := os.ReadFile(c.DashboardToken)
	if err != nil {
		return "", Errorf("dashboard-token: %w", err)
	}
	token := string(bytes.TrimSpace(b))
	if token == "" {
		return "", Errorf("dashboard-token: %s is empty", c.DashboardToken)
	}
	return token, nil
}
