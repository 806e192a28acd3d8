package config

import (
	"bytes"
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
)

// Load reads a configuration: a Shuffler, Coordinator, Aggregator, All or Client. Unknown keys
// and keys given twice are refused. Fields without a YAML key are filled in from those that
// have one.
func Load[C any, P interface {
	*C
	defaults()
	finish(path string) error
}](path string) (c C, err error) {
	P(&c).defaults()
	if err := decode(path, &c); err != nil {
		return c, err
	}
	return c, P(&c).finish(path)
}

// decode decodes a file into v, which has the defaults.
func decode(path string, v any) error {
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

func (p *Process) resolve(config, role, admin string) (err error) {
	p.Store.Domain = role
	if p.Operator == "" {
		p.Operator = role + ".sock"
	}
	if p.Admin == "" {
		p.Admin = admin
	}
	at(config, &p.Operator, &p.Certificate, &p.CertificateKey, &p.Store.Dir, &p.Store.Credentials, &p.Store.TLSCA,
		&p.Store.TLSCert, &p.Store.TLSKey, &p.Store.Password, &p.Store.Token)
	if p.ID, err = parsePopulation(p.Population); err != nil {
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
	if p.Level, err = parseLevel(p.Log); err != nil {
		return Errorf("%s: %w", config, err)
	}
	return nil
}

// parseLevel reads the lowest level that is logged.
func parseLevel(text string) (l slog.Level, err error) {
	if err := l.UnmarshalText([]byte(text)); err != nil {
		return l, fmt.Errorf("log: %q must be debug, info, warn or error", text)
	}
	return l, nil
}

// parsePopulation reads 32 hex digits.
func parsePopulation(text string) (p wire.ID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(p) {
		return wire.ID{}, fmt.Errorf("%q must be %d hex digits", text, 2*len(p))
	}
	copy(p[:], b)
	if p == (wire.ID{}) {
		return p, errors.New("all zeros are not a population")
	}
	return p, nil
}

// need returns an error unless the party has the given parts, and reads them.
func (p *Party) need(name string, address, pins, key bool) (err error) {
	if len(p.URLs) > 0 && p.URL != "" {
		return Errorf("%s: give url or urls, not both", name)
	}
	p.Addresses, p.Pinned = p.URLs, nil
	if len(p.URLs) == 0 {
		p.Addresses = []string{p.URL}
	}
	if address {
		for _, a := range p.Addresses {
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
	for _, text := range p.Pins {
		pin, err := endpoint.ParsePin(text)
		if err != nil {
			return Errorf("%s: %w", name, err)
		}
		p.Pinned = append(p.Pinned, pin)
	}
	if key {
		if p.Signer, err = parseVerifying(p.Key); err != nil {
			return Errorf("%s: key: %w", name, err)
		}
	} else if p.Key != "" {
		return Errorf("%s: has no use for a key here", name)
	}
	return nil
}

// needOne is need for a peer that is called at one address.
func (p *Party) needOne(name string, key bool) error {
	if len(p.URLs) > 0 {
		return Errorf("%s: urls are for clients; give its url", name)
	}
	return p.need(name, true, true, key)
}

func (c *Shuffler) defaults() {
	c.Process.defaults()
	c.Validity, c.Round.MaxReport, c.Round.MemoryBytes = 30*24*time.Hour, 1<<20, 64<<20
	c.Round.Shortest, c.Round.Longest, c.Round.Keep, c.Round.MostOpen = time.Second, 7*24*time.Hour, 7*24*time.Hour, 256
}

func (c *Shuffler) finish(path string) error {
	if err := c.resolve(path, "shuffler", shufflerAdmin); err != nil {
		return err
	}
	at(path, &c.SigningKey, &c.Roster)
	atAll(path, c.SealingKeys)
	switch {
	case c.Listen == "" || c.PeersListen == "":
		return Errorf("%s: listen and peers-listen are required", path)
	case c.SigningKey == "" || len(c.SealingKeys) == 0 || c.Roster == "":
		return Errorf("%s: signing-key, sealing-keys and roster are required", path)
	case c.MinReports < 2:
		return Errorf("%s: n-min = %d must be at least 2", path, c.MinReports)
	case c.Validity < time.Minute || c.Round.MaxReport < 1 || c.Round.MemoryBytes < 1 || c.Round.MostOpen < 1:
		return Errorf("%s: validity must be at least 1m, and the limits of a round above 0", path)
	case c.Round.Shortest <= 0 || c.Round.Longest < c.Round.Shortest:
		return Errorf("%s: round: shortest %v and longest %v", path, c.Round.Shortest, c.Round.Longest)
	case c.Round.Keep < time.Minute:
		return Errorf("%s: round: keep = %v must be at least 1m", path, c.Round.Keep)
	case (c.Aggregator == nil) != (len(c.AggregatorKeys) == 0):
		return Errorf("%s: aggregator and aggregator-sealing-keys go together", path)
	}
	c.AggregatorSealing = nil
	for _, text := range c.AggregatorKeys {
		k, err := parseSealing(text)
		if err != nil {
			return Errorf("%s: %w", path, err)
		}
		c.AggregatorSealing = append(c.AggregatorSealing, k)
	}
	if c.Aggregator != nil {
		if err := c.Aggregator.need("aggregator", false, true, false); err != nil {
			return err
		}
	}
	return c.Coordinator.need("coordinator", false, true, true)
}

func (c *Coordinator) defaults() {
	c.Process.defaults()
	c.RoundLength, c.PauseAfter = time.Minute, 3
}

func (c *Coordinator) finish(path string) error {
	if err := c.resolve(path, "coordinator", coordinatorAdmin); err != nil {
		return err
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
		return Errorf("%s: listen is required, and peers-listen has no use", path)
	case c.SigningKey == "" || len(c.SealingKeys) == 0 || c.Mark == "":
		return Errorf("%s: signing-key, sealing-keys and mark are required", path)
	case !(c.Budget.Epsilon > 0) || dp.CheckDelta(c.Budget.Delta) != nil:
		return Errorf("%s: budget needs epsilon above 0 and delta between 0 and 1", path)
	case c.RoundLength < time.Second:
		return Errorf("%s: round-length = %v must be at least 1s", path, c.RoundLength)
	case c.Answer < 0:
		return Errorf("%s: answer = %v must not be negative", path, c.Answer)
	case c.Colluders < 0 || c.Workers < 0 || c.PauseAfter < 0:
		return Errorf("%s: colluders, workers and pause-after must not be negative", path)
	}
	if _, _, err := net.SplitHostPort(c.Dashboard); c.Dashboard != NoAddress && err != nil {
		return Errorf("%s: dashboard: %q is not an address: %w", path, c.Dashboard, err)
	} else if c.Dashboard != NoAddress && c.DashboardToken == "" && !loopback.Address(c.Dashboard) {
		return Errorf("%s: dashboard: %s can be reached by others, so dashboard-token is required", path, c.Dashboard)
	}
	if c.Aggregator != nil {
		if err := c.Aggregator.needOne("aggregator", false); err != nil {
			return err
		}
	}
	return c.Shuffler.needOne("shuffler", true)
}

func (c *Aggregator) defaults() {
	c.Process.defaults()
	c.MinReports = 2
}

func (c *Aggregator) finish(path string) error {
	if err := c.resolve(path, "aggregator", aggregatorAdmin); err != nil {
		return err
	}
	atAll(path, c.SealingKeys)
	switch {
	case c.PeersListen == "" || c.Listen != "":
		return Errorf("%s: peers-listen is required, and listen has no use", path)
	case len(c.SealingKeys) == 0:
		return Errorf("%s: sealing-keys are required", path)
	case c.Workers < 0 || c.MinReports < 2:
		return Errorf("%s: workers must not be negative, and n-min at least 2", path)
	}
	if err := c.Coordinator.need("coordinator", false, true, true); err != nil {
		return err
	}
	return c.Shuffler.needOne("shuffler", true)
}

func (c *All) defaults() {}

func (c *All) finish(path string) error {
	at(path, &c.Shuffler, &c.Coordinator, &c.Aggregator)
	if c.Shuffler == "" || c.Coordinator == "" {
		return Errorf("%s: shuffler and coordinator are required", path)
	}
	return nil
}

func (c *Client) defaults() {
	c.Log = "info"
	c.Policy = Policy{MaxTasks: 1, MaxModelBytes: 64 << 20, MaxRound: 24 * time.Hour, Skew: 2 * time.Minute, MaxWork: 30 * time.Second}
}

func (c *Client) finish(path string) (err error) {
	at(path, &c.Credentials, &c.Dir, &c.Roots, &c.Ready)
	if c.Data != "mnist" {
		at(path, &c.Data)
	}
	switch {
	case c.Credentials == "" || c.Dir == "" || c.Data == "" && c.Gradients == "":
		return Errorf("%s: credentials, dir, and data or gradients are required", path)
	case c.Data != "" && c.Gradients != "":
		return Errorf("%s: data and gradients: the program has the data, so give one of the two", path)
	case c.Answer < 0:
		return Errorf("%s: answer = %v must not be negative", path, c.Answer)
	case c.First < 0:
		return Errorf("%s: first = %d must not be negative", path, c.First)
	}
	if c.ID, err = parsePopulation(c.Population); err != nil {
		return Errorf("%s: population: %w", path, err)
	}
	if c.Level, err = parseLevel(c.Log); err != nil {
		return Errorf("%s: %w", path, err)
	}
	if c.Policy.MaxTaskEps == 0 && c.Policy.MaxTasks <= 1 { // for more tasks see client.Policy
		c.Policy.MaxTaskEps = c.Policy.MaxEps
	}
	if c.Agreed, err = c.Policy.parse(); err != nil {
		return err
	}
	if len(c.Shuffler.Pins)+len(c.Coordinator.Pins) > 0 {
		return Errorf("%s: clients check certificates by roots, not by pins", path)
	}
	if err := c.Shuffler.need("shuffler", true, false, true); err != nil {
		return err
	}
	if len(c.Shuffler.URLs) > 0 {
		return Errorf("%s: shuffler: urls are for coordinators", path)
	}
	return c.Coordinator.need("coordinator", true, false, true)
}

// parse returns the policy after checking it.
func (p Policy) parse() (client.Policy, error) {
	out := client.Policy{MaxEps0: p.MaxEps0, MaxEps: p.MaxEps, MaxTaskEps: p.MaxTaskEps, Delta: p.Delta, MaxTasks: p.MaxTasks,
		MaxLocalEps: p.MaxLocalEps, MinReports: p.MinReports, Colluders: p.Colluders, Randomizers: p.Randomizers,
		MaxModelBytes: p.MaxModelBytes, MaxRound: p.MaxRound, Skew: p.Skew, MaxWork: p.MaxWork}
	for _, t := range p.Trusts {
		out.Trusts = append(out.Trusts, t.Recorded())
	}
	if _, err := out.Check(); err != nil {
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
