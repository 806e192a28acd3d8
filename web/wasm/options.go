//go:build js && wasm

package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// options are those of join in index.d.ts, without what cannot be written as JSON.
type options struct {
	Coordinator []string `json:"coordinator"`
	Shuffler    string   `json:"shuffler"`
	Registrar   string   `json:"registrar"`
	Relay       string   `json:"relay"`
	Cache       string   `json:"cache"`
	Keys        struct {
		Coordinator string `json:"coordinator"`
		Shuffler    string `json:"shuffler"`
		Registrar   string `json:"registrar"`
	} `json:"keys"`
	Credential string `json:"credential"` // empty: the store's
	New        bool   `json:"new"`        // whether the credential has never been used
	Policy     policy `json:"policy"`
	// Row is the client's cells by column, with which it answers questions; nil: it answers none.
	Row map[string]cell `json:"row"`
	// Data are examples of a model whose gradients are computed here; nil: there are none.
	Data   *examples `json:"data"`
	Tasks  []string  `json:"tasks"`
	Spread seconds   `json:"spread"`
	Answer seconds   `json:"answer"`
}

// cell is a text or a number of a row.
type cell string

// UnmarshalJSON takes a string, a number as JavaScript writes it, or null for an empty cell.
func (c *cell) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(c))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return errors.New("a cell is a string or a finite number")
	}
	*c = cell(n)
	return nil
}

// seconds is a time.
type seconds float64

func (s seconds) duration() time.Duration {
	return time.Duration(float64(s) * float64(time.Second))
}

// policy is client.Policy; its comments say what each field promises.
type policy struct {
	MaxEps0       float64  `json:"maxEps0"`
	MaxEps        float64  `json:"maxEpsilon"`
	MaxTaskEps    float64  `json:"maxTaskEpsilon"`
	Delta         float64  `json:"delta"`
	MaxTasks      int64    `json:"maxTasks"`
	MaxLocalEps   float64  `json:"maxLocalEpsilon"`
	MinReports    int64    `json:"minReports"`
	Colluders     int64    `json:"colluders"`
	Trusts        []string `json:"trusts"`
	Randomizers   []string `json:"randomizers"`
	Suite         string   `json:"suite"`
	NoiseBy       []string `json:"noiseBy"`
	RequireProofs bool     `json:"requireProofs"`
	RequireTokens bool     `json:"requireTokens"`
	Receipts      bool     `json:"requireReceipts"`
	Measure       []string `json:"measure"`
	// Count is true unless the page says otherwise: a browser's profile is easily restored from a copy.
	Count         *bool   `json:"count"`
	MaxModelBytes int64   `json:"maxModelBytes"`
	MaxRound      seconds `json:"maxRound"`
	MinRound      seconds `json:"minRound"`
	Skew          seconds `json:"skew"`
	MaxWork       seconds `json:"maxWork"`
}

func parseOptions(text string) (o options, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return o, fmt.Errorf("client: options: %v", err)
	}
	if len(o.Coordinator) == 0 {
		return o, errors.New("client: options: the coordinator's address is required")
	}
	return o, nil
}

// config returns the settings, without store and transport.
func (o options) config() (c client.JoinConfig, err error) {
	c = client.JoinConfig{Coordinator: o.Coordinator[0], Coordinators: o.Coordinator[1:], Shuffler: o.Shuffler, Registrar: o.Registrar,
		Relay: o.Relay, Cache: o.Cache, Accountant: new(account.Accountant), Spread: o.Spread.duration(), Answer: o.Answer.duration()}
	if c.CoordinatorKey, err = parseKey("coordinator", o.Keys.Coordinator); err != nil {
		return c, err
	}
	if c.ShufflerKey, err = parseKey("shuffler", o.Keys.Shuffler); err != nil {
		return c, err
	}
	if o.Keys.Registrar != "" {
		if c.RegistrarKey, err = parseKey("registrar", o.Keys.Registrar); err != nil {
			return c, err
		}
	}
	for _, text := range o.Tasks {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != 32 {
			return c, fmt.Errorf("client: options: task %.80q must be 64 hex digits", text)
		}
		c.Tasks = append(c.Tasks, [32]byte(b))
	}
	if c.Policy, err = o.Policy.parse(); err != nil {
		return c, err
	}
	c.Policy, err = c.Policy.Check()
	return c, err
}

// parseKey reads a public signing key, as riffle keygen signing prints it.
func parseKey(whose, text string) (ed25519.PublicKey, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "ed25519:")
	b, err := base64.StdEncoding.DecodeString(rest)
	if !ok || err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("client: options: keys: %s: want \"ed25519:\" and 32 bytes in base64", whose)
	}
	return b, nil
}

func (p policy) parse() (out pure.Policy, err error) {
	out = pure.Policy{MaxEps0: p.MaxEps0, MaxEps: p.MaxEps, MaxTaskEps: p.MaxTaskEps, Delta: p.Delta, MaxTasks: p.MaxTasks, MaxLocalEps: p.MaxLocalEps,
		MinReports: p.MinReports, Colluders: p.Colluders, Randomizers: p.Randomizers, RequireProofs: p.RequireProofs, RequireTokens: p.RequireTokens, RequireReceipts: p.Receipts, Measure: p.Measure,
		Count: p.Count == nil || *p.Count, MaxModelBytes: p.MaxModelBytes, MaxRound: p.MaxRound.duration(), MinRound: p.MinRound.duration(), Skew: p.Skew.duration(), MaxWork: p.MaxWork.duration()}
	switch p.Suite {
	case "":
	case "x25519":
		out.Suite = wire.X25519
	case "mlkem768x25519":
		out.Suite = wire.X25519MLKEM768
	default:
		return out, fmt.Errorf("client: options: policy: suite %.40q must be x25519 or mlkem768x25519", p.Suite)
	}
	for _, t := range p.Trusts {
		out.Trusts = append(out.Trusts, dp.Trust(t).Recorded())
	}
	for _, by := range p.NoiseBy {
		out.NoiseBy = append(out.NoiseBy, vecsum.NoiseBy(by))
	}
	return out, nil
}

// credential returns the client's: the store's, or a new one given from outside. A credential that
// comes without its ledger is refused unless it is said to be new: the ledger was lost, and nobody
// knows what the credential has spent.
func (o options) credential(d database) (*client.Credential, error) {
	var given *client.Credential
	if o.Credential != "" {
		var err error
		if given, err = client.ParseCredential([]byte(o.Credential)); err != nil {
			return nil, err
		}
	}
	have, err := stored(d)
	switch {
	case err != nil:
		return nil, err
	case have != nil && given != nil && !have.Public().Equal(given.Public()):
		return nil, refusal{"client-exists", "client: this store has another client: " + publicLine(have)}
	case have != nil:
		return have, nil
	case given == nil:
		return nil, refusal{"no-client", "client: this store has no client, or was cleared and its client is lost: make one with newCredential, and have it enrolled"}
	case !o.New:
		return nil, refusal{"no-ledger", "client: this store has no ledger of the credential: if it was cleared, the credential is lost with it, for nobody knows what it has spent. Only a credential that was never used may be given as new"}
	}
	if err := keep(d, given); err != nil {
		return nil, err
	}
	return given, nil
}
