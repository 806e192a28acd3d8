package config

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/loopback"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/opener"
)

// This file has each role's defaults and checks: what Load calls before and after it decodes a file.

// Default addresses of the roles' admin pages.
const (
	shufflerAdmin    = "127.0.0.1:8460"
	coordinatorAdmin = "127.0.0.1:8461"
	aggregatorAdmin  = "127.0.0.1:8462"
	registrarAdmin   = "127.0.0.1:8464"
	relayAdmin       = "127.0.0.1:8465"
	workerAdmin      = "127.0.0.1:8466"

	coordinatorDashboard = "127.0.0.1:8463"
)

func (c *Shuffler) defaults() {
	c.Process.defaults()
	c.Validity, c.Round.MaxReport, c.Round.MemoryBytes = 30*24*time.Hour, 1<<20, 64<<20
	c.Round.Shortest, c.Round.Longest, c.Round.Keep, c.Round.MostOpen = time.Second, 7*24*time.Hour, 7*24*time.Hour, 256
}

func (c *Shuffler) finish(path string) error {
	if err := c.resolve(path, "shuffler", shufflerAdmin); err != nil {
		return err
	}
	if err := checkOrigins(path, c.Origins); err != nil {
		return err
	}
	at(path, &c.SigningKey, &c.Roster)
	atAll(path, c.SealingKeys)
	switch {
	case c.Listen == "" || c.PeersListen == "":
		return Errorf("%s: listen and peers-listen are required", path)
	case c.SigningKey == "" || len(c.SealingKeys) == 0:
		return Errorf("%s: signing-key and sealing-keys are required", path)
	case c.Roster == "" && (c.Registrar == nil || c.Registrar.URL == ""):
		return Errorf("%s: roster is required, or a registrar with a url", path)
	case c.Roster != "" && c.Registrar != nil && c.Registrar.URL != "":
		return Errorf("%s: roster and the registrar's url: the roster comes from one of the two", path)
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
	if c.Workers != nil {
		if err := c.Workers.need("workers", false, true, false); err != nil {
			return err
		}
		for _, p := range c.Workers.Pinned {
			if slices.Contains(c.Coordinator.Pinned, p) || c.Aggregator != nil && slices.Contains(c.Aggregator.Pinned, p) {
				return Errorf("%s: workers: pin %s is another role's, too: a worker needs a certificate of its own", path, p)
			}
		}
	}
	if r := c.Registrar; r != nil && r.URL != "" {
		if err := r.needOne("registrar", true); err != nil {
			return err
		}
	} else if err := r.needKey(); err != nil {
		return err
	}
	if c.Relay != nil {
		if err := c.Relay.need("relay", false, true, false); err != nil {
			return err
		}
	}
	return c.Coordinator.need("coordinator", false, true, true)
}

func (c *Registrar) defaults() {
	c.Process.defaults()
	c.Validity = 30 * 24 * time.Hour
}

func (c *Registrar) finish(path string) error {
	if err := c.resolve(path, "registrar", registrarAdmin); err != nil {
		return err
	}
	if err := checkOrigins(path, c.Origins); err != nil {
		return err
	}
	at(path, &c.SigningKey, &c.Mark)
	switch {
	case c.SigningKey == "":
		return Errorf("%s: signing-key is required", path)
	case c.PeersListen == "" || c.Listen == "":
		return Errorf("%s: listen and peers-listen are required", path)
	case c.Validity < time.Minute:
		return Errorf("%s: validity = %v must be at least 1m", path, c.Validity)
	}
	if c.Coordinator != nil {
		if c.Mark == "" {
			return Errorf("%s: mark is required for a coordinator's tokens", path)
		}
		if err := c.Coordinator.need("coordinator", false, true, false); err != nil {
			return err
		}
	}
	return c.Shuffler.need("shuffler", false, true, false)
}

func (c *Relay) defaults() {
	c.MaxConnections, c.AddressShare, c.Log, c.MaxRequest, c.Admin = endpoint.DefaultMaxConns, endpoint.DefaultShare, "info", endpoint.DefaultMaxBody, relayAdmin
}

func (c *Relay) finish(path string) (err error) {
	at(path, &c.Certificate, &c.CertificateKey)
	switch {
	case c.Listen == "" || c.Certificate == "" || c.CertificateKey == "":
		return Errorf("%s: listen, certificate and certificate-key are required", path)
	case c.MaxConnections < 1 || !(c.Rate >= 0) || c.MaxRequest < 1<<12:
		return Errorf("%s: max-connections must be above 0, rate not negative, and max-request at least 4096", path)
	case !(c.AddressShare > 0 && c.AddressShare <= 1):
		return Errorf("%s: address-share = %v must be above 0 and at most 1", path, c.AddressShare)
	}
	for _, a := range []string{c.Listen, c.Admin} {
		if _, _, err := net.SplitHostPort(a); a != NoAddress && err != nil {
			return Errorf("%s: %q is not an address: %w", path, a, err)
		}
	}
	if c.Level, err = parseLevel(c.Log); err != nil {
		return Errorf("%s: %w", path, err)
	}
	if err := checkOrigins(path, c.Origins); err != nil {
		return err
	}
	return c.Shuffler.needOne("shuffler", false)
}

func (c *Coordinator) defaults() {
	c.Process.defaults()
	c.RoundLength, c.PauseAfter, c.PauseAfterVoid, c.Opening = time.Minute, 3, 20, openingHere
}

func (c *Coordinator) finish(path string) error {
	if err := c.resolve(path, "coordinator", coordinatorAdmin); err != nil {
		return err
	}
	if err := checkOrigins(path, c.Origins); err != nil {
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
	case c.Colluders < 0 || c.Workers < 0 || c.PauseAfter < 0 || c.PauseAfterVoid < 0:
		return Errorf("%s: colluders, workers, pause-after and pause-after-void must not be negative", path)
	}
	if err := c.workers(path); err != nil {
		return err
	}
	if c.Evaluate != "" {
		if err := ownersAlone(path); err != nil {
			return err
		}
	}
	if _, _, err := net.SplitHostPort(c.Dashboard); c.Dashboard != NoAddress && err != nil {
		return Errorf("%s: dashboard: %q is not an address: %w", path, c.Dashboard, err)
	} else if c.Dashboard != NoAddress && c.DashboardToken == "" && !loopback.Address(c.Dashboard) {
		return Errorf("%s: dashboard: %s can be reached by others, so dashboard-token is required", path, c.Dashboard)
	}
	if c.Aggregator != nil {
		if err := c.Aggregator.needOne("aggregator", c.Aggregator.Key != ""); err != nil {
			return err
		}
	}
	if c.Registrar != nil && c.Registrar.URL != "" {
		if err := c.Registrar.needOne("registrar", true); err != nil {
			return err
		}
	} else if err := c.Registrar.needKey(); err != nil {
		return err
	}
	return c.Shuffler.needOne("shuffler", true)
}

// Who opens batches: values of opening.
const (
	openingHere    = "here"
	openingWorkers = "workers"
)

// workers checks who opens batches.
func (c *Coordinator) workers(path string) error {
	c.WorkerSealing = nil
	switch {
	case c.Opening != "" && c.Opening != openingHere && c.Opening != openingWorkers:
		return Errorf("%s: opening: %q must be %s or %s", path, c.Opening, openingHere, openingWorkers)
	case c.Opening != openingWorkers && len(c.WorkerKeys) > 0:
		return Errorf("%s: worker-keys have a use with opening: %s only", path, openingWorkers)
	case c.Opening != openingWorkers:
		return nil
	case c.Store.URL == "":
		return Errorf("%s: opening: %s needs a store that workers can reach: a cluster (store: url)", path, openingWorkers)
	case c.Record != "":
		return Errorf("%s: opening: %s and record: reports are recorded where they are opened, so leave one of the two out", path, openingWorkers)
	}
	for _, text := range c.WorkerKeys {
		k, err := parseSealing(text)
		if err != nil {
			return Errorf("%s: worker-keys: %w", path, err)
		}
		c.WorkerSealing = append(c.WorkerSealing, k)
	}
	if err := opener.CheckWorkers(c.WorkerSealing); err != nil {
		return Errorf("%s: worker-keys: %w", path, err)
	}
	return nil
}

func (c *Worker) defaults() {
	c.Log, c.Admin, c.Drain, c.QueueAPI = "info", workerAdmin, 20*time.Second, "$JS.API"
}

func (c *Worker) finish(path string) (err error) {
	q := &c.Queue
	at(path, &c.Certificate, &c.CertificateKey, &q.Credentials, &q.TLSCA, &q.TLSCert, &q.TLSKey, &q.Password, &q.Token)
	atAll(path, c.SealingKeys)
	q.Domain, q.API = "coordinator", c.QueueAPI
	switch {
	case c.Certificate == "" || c.CertificateKey == "" || len(c.SealingKeys) == 0:
		return Errorf("%s: certificate, certificate-key and sealing-keys are required", path)
	case q.URL == "" || q.Dir != "" || q.Replicas != 0 || q.MaxBytes != 0:
		return Errorf("%s: queue needs a url, and has no use for dir, replicas and max-bytes", path)
	case c.Ranges < 0 || c.Drain <= 0:
		return Errorf("%s: ranges must not be negative, and drain above 0", path)
	}
	if _, _, err := net.SplitHostPort(c.Admin); c.Admin != NoAddress && err != nil {
		return Errorf("%s: %q is not an address: %w", path, c.Admin, err)
	}
	if c.Level, err = parseLevel(c.Log); err != nil {
		return Errorf("%s: %w", path, err)
	}
	if err := c.Coordinator.need("coordinator", false, false, true); err != nil {
		return err
	}
	return c.Shuffler.needOne("shuffler", false)
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
	at(path, &c.Mark, &c.SigningKey)
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
	if err := c.Registrar.needKey(); err != nil {
		return err
	}
	return c.Shuffler.needOne("shuffler", true)
}

func (c *All) defaults() {}

func (c *All) finish(path string) error {
	at(path, &c.Shuffler, &c.Coordinator, &c.Aggregator, &c.Registrar)
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
	at(path, &c.Credentials, &c.Dir, &c.Roots, &c.Ready, &c.Rows)
	if c.Data != "mnist" {
		at(path, &c.Data)
	}
	switch {
	case c.Credentials == "" || c.Dir == "" || c.Data == "" && c.Gradients == "" && c.Rows == "":
		return Errorf("%s: credentials, dir, and data, gradients or rows are required", path)
	case c.Data != "" && c.Gradients != "":
		return Errorf("%s: data and gradients: the program has the data, so give one of the two", path)
	case c.Answer < 0:
		return Errorf("%s: answer = %v must not be negative", path, c.Answer)
	case c.First < 0:
		return Errorf("%s: first = %d must not be negative", path, c.First)
	}
	if c.Gradients != "" {
		if err := ownersAlone(path); err != nil {
			return err
		}
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
	for key, text := range map[string]string{"relay": c.Relay, "cache": c.Cache} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			return Errorf("%s: %q must be https://HOST:PORT", key, text)
		}
	}
	if len(c.Shuffler.URLs) > 0 {
		return Errorf("%s: shuffler: urls are for coordinators", path)
	}
	if c.Registrar != nil && c.Registrar.URL != "" {
		if len(c.Registrar.Pins) > 0 {
			return Errorf("%s: registrar: has no use for pins: its certificate is checked like the other servers'", path)
		}
		if err := c.Registrar.need("registrar", true, false, true); err != nil {
			return err
		}
	} else if err := c.Registrar.needKey(); err != nil {
		return err
	}
	return c.Coordinator.need("coordinator", true, false, true)
}

// parse returns the policy after checking it.
func (p Policy) parse() (client.Policy, error) {
	out := client.Policy{MaxEps0: p.MaxEps0, MaxEps: p.MaxEps, MaxTaskEps: p.MaxTaskEps, Delta: p.Delta, MaxTasks: p.MaxTasks,
		MaxLocalEps: p.MaxLocalEps, MinReports: p.MinReports, Colluders: p.Colluders, Randomizers: p.Randomizers, Measure: p.Measure, NoiseBy: p.NoiseBy,
		Count: p.Count, MaxModelBytes: p.MaxModelBytes, MaxRound: p.MaxRound, MinRound: p.MinRound, Skew: p.Skew, MaxWork: p.MaxWork}
	if p.Suite != "" {
		var err error
		if out.Suite, err = ParseSuite(p.Suite); err != nil {
			return client.Policy{}, Errorf("policy: %w", err)
		}
	}
	for _, r := range []struct {
		key, value string
		required   *bool
	}{{"proofs", p.Proofs, &out.RequireProofs}, {"tokens", p.Tokens, &out.RequireTokens}, {"receipts", p.Receipts, &out.RequireReceipts}} {
		if *r.required = r.value == "required"; r.value != "" && !*r.required {
			return client.Policy{}, Errorf("policy: %s: %q must be required, or left out", r.key, r.value)
		}
	}
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
	b, err := durable.ReadFile(c.DashboardToken)
	if err != nil {
		return "", Errorf("dashboard-token: %w", err)
	}
	token := string(bytes.TrimSpace(b))
	if token == "" {
		return "", Errorf("dashboard-token: %s is empty", c.DashboardToken)
	}
	return token, nil
}
