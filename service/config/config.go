// Package config reads the configuration files of the program's roles: YAML, decoded
// strictly, and the files of keys, credentials and rosters that it names. The fields'
// comments are the reference manual.
package config

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// ErrInvalid is wrapped by every error in a configuration.
var ErrInvalid = errors.New("configuration")

// Errorf is fmt.Errorf for errors in a configuration.
func Errorf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// NoAddress, in place of an address, means that something is not served.
const NoAddress = "none"

// Process is the common part of all servers' configurations. Paths are relative to the
// configuration's directory.
type Process struct {
	// Population is the id of the clients' population, 32 hex digits, the same at all
	// parties. The shuffler's operator draws it. Required.
	Population string  `yaml:"population"`
	ID         wire.ID `yaml:"-"` // Population, as Load reads it
	// Listen is the address for clients. Required, except for the aggregator, which has none.
	Listen string `yaml:"listen"`
	// PeersListen is the address for other roles, which show a pinned certificate. Required,
	// except for the coordinator, which has none.
	PeersListen string `yaml:"peers-listen"`
	// Admin is the address of /healthz, /readyz and /metrics, plain HTTP. Default:
	// a loopback address of the role. none: no such address.
	Admin string `yaml:"admin"`
	// Operator is the socket by which `riffle task` and `riffle ledger` reach the process.
	// Permission to open it is permission to operate the role. Default: the role and .sock,
	// beside the configuration.
	Operator string `yaml:"operator"`
	// Certificate and CertificateKey are files, made by riffle keygen tls. Required.
	Certificate    string `yaml:"certificate"`
	CertificateKey string `yaml:"certificate-key"`
	// MaxConnections is the number of connections at a time on each address. Default 10000.
	MaxConnections int `yaml:"max-connections"`
	// AddressShare is the part of all limits (connections, requests, bytes under way, rate)
	// for all callers from one address (/24 of IPv4, /56 of IPv6) who have not shown who they
	// are. Set it to 1 if all callers come from one address, such as a proxy's. Default
	// 0.125.
	AddressShare float64 `yaml:"address-share"`
	// Rate limits the posts a second of all clients together, and their questions (GET) likewise; 0: no limit.
	Rate float64 `yaml:"rate"`
	// Log is the lowest level that is logged: debug, info (default), warn or error.
	Log   string     `yaml:"log"`
	Level slog.Level `yaml:"-"` // Log, as Load reads it
	// Store is where the role keeps its state: a directory for an embedded store, or the URL
	// of a NATS cluster of its own. Nobody else may have access to it: whoever can write to it
	// can break the role's promises.
	Store store.Config `yaml:"store"`
}

// Party describes another role.
type Party struct {
	// URL is the other role's address; "" if it only calls this one.
	URL string `yaml:"url"`
	// URLs are several addresses in place of one: the addresses of all coordinators that
	// share a store. Clients ask the next one if one does not answer or does not lead.
	URLs []string `yaml:"urls,omitempty"`
	// Pins are the pins of its certificates' keys; two while a key is being changed.
	Pins []string `yaml:"pins"`
	// Key is its operator's signing key.
	Key string `yaml:"key"`

	// What Load reads from the above.
	Addresses []string          `yaml:"-"` // URLs, or URL
	Pinned    []endpoint.Pin    `yaml:"-"` // Pins
	Signer    ed25519.PublicKey `yaml:"-"` // Key; nil where none is needed
}

// Shuffler is the configuration of riffle serve shuffler.
type Shuffler struct {
	Process `yaml:",inline"`
	// Origins are those of the web pages whose visitors may be clients, such as https://shop.example, each
	// written as browsers send it; http is for loopback only. Pages of other origins are refused.
	// Default: none; no page of another site can read an answer.
	Origins []string `yaml:"origins,omitempty"`
	// SigningKey is the operator's key for enrolments and statements on closed rounds.
	// Required.
	SigningKey string `yaml:"signing-key"`
	// SealingKeys are files. The key that expires last is announced; the others still open
	// reports that are under way. At least one.
	SealingKeys []string `yaml:"sealing-keys"`
	// Roster is a file of the enrolled clients' public keys, one a line; with a registrar that has
	// no url here, the file that riffle registrar export wrote. Required, unless the registrar has
	// a url.
	Roster string `yaml:"roster,omitempty"`
	// MinReports is the fewest reports of any round, whatever its task says; a round with
	// fewer is void. At least 2.
	MinReports int64 `yaml:"n-min"`
	// Validity is the time for which the signed enrolment is valid; it is renewed after half
	// of that time. Default 30 days.
	Validity time.Duration `yaml:"validity"`
	// Round limits the rounds that a coordinator may open.
	Round struct {
		Shortest    time.Duration `yaml:"shortest"`     // shortest time from now to a deadline; default 1 s
		Longest     time.Duration `yaml:"longest"`      // longest time from now to a deadline; default 7 days
		Keep        time.Duration `yaml:"keep"`         // how long after its deadline a batch waits to be taken; default 7 days
		MostOpen    int           `yaml:"most-open"`    // rounds under way at a time, neither void nor released; default 256
		MaxReport   int64         `yaml:"max-report"`   // bytes of a report's parts; default 1 MiB
		MemoryBytes int64         `yaml:"memory-bytes"` // memory for sorting a batch; default 64 MiB
	} `yaml:"round"`
	// Relay needs pins. It brings the requests of clients that do not show their addresses. Leave it
	// out if there is none.
	Relay *Party `yaml:"relay,omitempty"`
	// CountReports counts how many messages were taken from each client, and tells the client, which
	// stops if it has charged fewer: its own ledger was cut, or restored from a copy. The store
	// then holds a number for each client, which grows when the client has reported. Default:
	// false.
	CountReports bool `yaml:"count-reports,omitempty"`
	// FrontendOnly makes the process take reports only; other processes that share the store
	// close rounds.
	FrontendOnly bool `yaml:"frontend-only"`
	// Coordinator needs pins and key. Aggregator needs pins; leave it out if there is none.
	Coordinator Party  `yaml:"coordinator"`
	Aggregator  *Party `yaml:"aggregator"`
	// AggregatorKeys are the aggregator's public sealing keys.
	AggregatorKeys    []string   `yaml:"aggregator-sealing-keys"`
	AggregatorSealing []wire.Key `yaml:"-"` // AggregatorKeys, as Load reads them
	// Workers needs pins, of the coordinator's workers: other ones than the coordinator's. They may fetch
	// the chunks of closed rounds and nothing else. Leave it out if there are none.
	Workers *Party `yaml:"workers,omitempty"`
	// Registrar enrols the clients, in place of this role's operator. It needs a key, and either
	// url and pins, or its signed roster as the file Roster. Leave it out if there is none.
	Registrar *Party `yaml:"registrar,omitempty"`
}

// Registrar is the configuration of riffle serve registrar.
type Registrar struct {
	Process    `yaml:",inline"`
	Origins    []string `yaml:"origins,omitempty"` // as in Shuffler
	SigningKey string   `yaml:"signing-key"`       // key for rosters. Required.
	// Validity is the time for which a signed roster is valid; it is renewed after half of that
	// time. If the registrar is away for longer, no round is announced. Default 30 days.
	Validity time.Duration `yaml:"validity"`
	// Mark is the high-water mark of the tokens that were granted, a file outside of the store, best
	// on another disk. Default: none; no tokens are issued.
	Mark string `yaml:"mark,omitempty"`
	// Shuffler needs pins. It alone may fetch the clients' keys.
	Shuffler Party `yaml:"shuffler"`
	// Coordinator needs pins. It alone may ask for the keys of tokens. Leave it out if there are no
	// tokens.
	Coordinator *Party `yaml:"coordinator,omitempty"`
}

// Relay is the configuration of riffle serve relay. A relay has no store: it keeps nothing.
type Relay struct {
	Listen         string     `yaml:"listen"`            // address for clients. Required.
	Admin          string     `yaml:"admin"`             // as in Process
	Certificate    string     `yaml:"certificate"`       // made by riffle keygen tls; the shuffler knows its pin. Required.
	CertificateKey string     `yaml:"certificate-key"`   // Required.
	MaxConnections int        `yaml:"max-connections"`   // as in Process
	AddressShare   float64    `yaml:"address-share"`     // as in Process
	Rate           float64    `yaml:"rate"`              // as in Process
	Origins        []string   `yaml:"origins,omitempty"` // as in Shuffler
	Log            string     `yaml:"log"`
	Level          slog.Level `yaml:"-"` // Log, as Load reads it
	// MaxRequest is the size in bytes of the largest sealed request: a round's report and some
	// kilobytes. Default 1 MiB.
	MaxRequest int64 `yaml:"max-request"`
	// Shuffler is where all requests go: URL (its address for peers) and pins. Required.
	Shuffler Party `yaml:"shuffler"`
}

// Coordinator is the configuration of riffle serve coordinator.
type Coordinator struct {
	Process     `yaml:",inline"`
	Origins     []string `yaml:"origins,omitempty"` // as in Shuffler
	SigningKey  string   `yaml:"signing-key"`       // key for tasks and announcements. Required.
	SealingKeys []string `yaml:"sealing-keys"`      // At least one.
	// Mark is the ledger's high-water mark, a file outside of the store, best on
	// another disk. Required.
	Mark string `yaml:"mark"`
	// AnnounceLedger tells the shuffler and the clients how far the ledger was written. They keep
	// it, so that a coordinator whose store and mark were restored from old copies does not
	// start again. It cannot be taken back. Default: false.
	AnnounceLedger bool `yaml:"announce-ledger,omitempty"`
	// Budget limits the cost of all tasks together. Required.
	Budget struct {
		Epsilon float64 `yaml:"epsilon"`
		Delta   float64 `yaml:"delta"`
	} `yaml:"budget"`
	// RoundLength is the time for which a round is open. Rounds of all clients, or of a
	// public block of them, end earlier if all have reported; other rounds do not. Default 1
	// min.
	RoundLength time.Duration `yaml:"round-length"`
	// Data is the data set on which models are evaluated and from which their shape is taken,
	// if tasks name a path that is not valid here. Default: as the task says.
	Data string `yaml:"data"`
	// Evaluate is a program that evaluates the models of tasks with model external, beside their
	// rounds: a command, or unix: and the path of a socket. Answer is the longest that it may take
	// for an answer. A configuration with a program may be written by its owner alone. Default: none, and two minutes.
	Evaluate string        `yaml:"evaluate,omitempty"`
	Answer   time.Duration `yaml:"answer,omitempty"`
	// Record is a directory in which every opened report is stored, for audits and
	// demonstrations. Default: none; nothing is stored.
	Record string `yaml:"record"`
	// Colluders is the number of clients that are assumed to collude with an observer.
	Colluders int64 `yaml:"colluders"`
	// PauseAfter is the number of charged rounds in a row without a step after which a task
	// pauses until `riffle task resume`. 0: it never pauses. Default 3.
	PauseAfter int64 `yaml:"pause-after"`
	// PauseAfterVoid is the number of void rounds in a row after which a task pauses; 0: never.
	// Default 20.
	PauseAfterVoid int64 `yaml:"pause-after-void"`
	Workers        int   `yaml:"workers"` // goroutines that open reports; default one per CPU
	// Opening says who opens batches: here (default), this process; workers, the processes of riffle serve
	// worker with these keys, over a queue in the store, which must be a cluster (url). What workers cannot
	// open is opened here: sums, and messages with tokens.
	Opening string `yaml:"opening,omitempty"`
	// WorkerKeys are the workers' public sealing keys, up to 16. Required with opening: workers.
	WorkerKeys    []string   `yaml:"worker-keys,omitempty"`
	WorkerSealing []wire.Key `yaml:"-"` // WorkerKeys, as Load reads them
	// Dashboard is the address of the page that shows tasks, rounds, budget and ledger; it is
	// read-only. On loopback it is plain HTTP for anyone on this machine. Elsewhere it is
	// HTTPS with Certificate and needs a token. Default: a loopback address. none: no such
	// page.
	Dashboard string `yaml:"dashboard"`
	// DashboardToken is a file with the token, of mode 0600; the token has at least 16
	// characters. Required if Dashboard is not loopback.
	DashboardToken string `yaml:"dashboard-token"`
	// Holder names this process, in leases, among those that share the store. Default: host
	// name and process id.
	Holder   string `yaml:"holder"`
	Shuffler Party  `yaml:"shuffler"` // URL (its address for peers), pins and key. Required.
	// Aggregator needs URL and pins, and a key for sums with proofs. Leave it out if there is none.
	Aggregator *Party `yaml:"aggregator"`
	// Registrar needs a key: no enrolment counts whose clients it has not signed. For tasks with
	// tokens it also needs url (its address for peers) and pins. Leave it out if there is none.
	Registrar *Party `yaml:"registrar,omitempty"`
}

// Worker is the configuration of riffle serve worker, a process of the coordinator's operator that opens
// batches for the coordinator. It keeps nothing.
type Worker struct {
	Admin string `yaml:"admin"` // as in Process
	// Certificate and CertificateKey are files, made by riffle keygen tls; the shuffler knows the pin
	// (workers: pins:). Required.
	Certificate    string `yaml:"certificate"`
	CertificateKey string `yaml:"certificate-key"`
	// SealingKeys are files made by riffle keygen worker; the coordinator lists the public halves
	// (worker-keys). At least one.
	SealingKeys []string `yaml:"sealing-keys"`
	// Queue is the cluster in which the coordinator's store is: url and credentials, best of a user of its
	// own who may do nothing but take items and send results (docs/deploy/GUIDE.md). Required.
	Queue store.Config `yaml:"queue"`
	// QueueAPI is where the account of the queue's user has JetStream's API of the coordinator's account:
	// "riffle.api" in docs/deploy/GUIDE.md. Default "$JS.API", which is right in the coordinator's own account only.
	QueueAPI string `yaml:"queue-api"`
	// Ranges is the number of ranges that are opened at a time. Each needs memory for a sum as large as two
	// models. Default: one per CPU.
	Ranges int `yaml:"ranges"`
	// Drain is how long a range that is being opened may go on after SIGTERM. Default 20 s.
	Drain       time.Duration `yaml:"drain"`
	Log         string        `yaml:"log"`         // as in Process
	Level       slog.Level    `yaml:"-"`           // Log, as Load reads it
	Coordinator Party         `yaml:"coordinator"` // Key. Required.
	Shuffler    Party         `yaml:"shuffler"`    // URL (its address for peers) and pins. Required.
}

// Aggregator is the configuration of riffle serve aggregator.
type Aggregator struct {
	Process     `yaml:",inline"`
	SealingKeys []string `yaml:"sealing-keys"` // At least one.
	// SigningKey signs its word on which reports of a round it sums. Sums with proofs need it.
	// Default: none.
	SigningKey string `yaml:"signing-key,omitempty"`
	// Mark is the high-water mark of the rounds that were summed, a file outside of the store, best
	// on another disk. Default: none; a store that was restored from an old copy is not noticed.
	Mark string `yaml:"mark,omitempty"`
	// MinReports is the fewest reports that are summed, whatever a task says. Default 2.
	MinReports  int64 `yaml:"n-min"`
	Workers     int   `yaml:"workers"`     // default one per CPU
	Shuffler    Party `yaml:"shuffler"`    // URL (its address for peers), pins and key. Required.
	Coordinator Party `yaml:"coordinator"` // Pins and key. Required.
	// Registrar needs a key, as at the coordinator.
	Registrar *Party `yaml:"registrar,omitempty"`
}

// All is the configuration of riffle serve all: the configuration files of the roles in one
// process.
type All struct {
	Shuffler    string `yaml:"shuffler"`
	Coordinator string `yaml:"coordinator"`
	Aggregator  string `yaml:"aggregator"`          // "": none
	Registrar   string `yaml:"registrar,omitempty"` // "": none
}

// Client is the configuration of riffle client: one or many clients with their
// data in one process.
type Client struct {
	Population string  `yaml:"population"` // Required.
	ID         wire.ID `yaml:"-"`          // Population, as Load reads it
	// Credentials is a file made by riffle keygen client. Required.
	Credentials string `yaml:"credentials"`
	// Dir holds each client's own ledger and the reports it has sent. Required.
	Dir string `yaml:"dir"`
	// Shuffler needs a URL (its address for clients) and a key; Coordinator needs a key and
	// one or several URLs.
	Shuffler    Party `yaml:"shuffler"`
	Coordinator Party `yaml:"coordinator"`
	// Registrar needs a key: no enrolment counts whose clients it has not signed. For tasks with
	// tokens it also needs a url (its address for clients). Leave it out if there is none.
	Registrar *Party `yaml:"registrar,omitempty"`
	// Relay is the https address of a relay: all requests to the shuffler go through it, so that the
	// shuffler does not see these clients' addresses. Default: none.
	Relay string `yaml:"relay,omitempty"`
	// Cache is the https address of a CDN, or another cache, in front of the coordinator: tasks,
	// announcements, models and lists of receipts are asked for there first. All are checked; if it
	// fails, lies or is out of date the coordinator is asked. Default: none.
	Cache string `yaml:"cache,omitempty"`
	// Roots is a file of certificates against which the servers' certificates are checked,
	// including names and dates. It may hold the servers' own certificates, if they are
	// self-signed. Default: the system's certificates.
	Roots string `yaml:"roots"`
	// Data is the data set that the clients learn from: mnist, a folder or a CSV file.
	// Credential i has example First+i.
	Data  string `yaml:"data"`
	First int64  `yaml:"first"`
	// Rows is a CSV file whose rows answer questions: credential i has row First+i, from 0. Default:
	// Data, if that is a CSV file. A client without a row, or whose row does not fit a question,
	// reports as if the row were empty.
	Rows string `yaml:"rows,omitempty"`
	// Gradients is a program that computes the clients' gradients, in place of Data: a command,
	// or unix: and the path of a socket. Credential i is client First+i to it. A configuration with
	// a program may be written by its owner alone.
	Gradients string `yaml:"gradients,omitempty"`
	// Answer is the time for a gradient in a round. Reports leave after it, whenever the program
	// answers or the model is done. 0: a quarter of the time to the deadline, at most two
	// minutes, or 10 s without a program; never more than half of it.
	Answer time.Duration `yaml:"answer,omitempty"`
	// Spread is the longest time for which a report is held back, so that nobody sees how
	// long it took to make. 0: a tenth of the time to the deadline, at most a minute.
	Spread time.Duration `yaml:"spread"`
	// Tasks are the digests of the tasks to take part in; none: every task that the policy
	// allows.
	Tasks []string `yaml:"tasks"`
	// Ready is a file that exists while the process runs and its clients are ready for rounds of
	// all named tasks, or of one if none is named. They ask for their sessions at once then.
	// Default: none.
	Ready string `yaml:"ready,omitempty"`
	// Policy is what these clients agree to. Required.
	Policy Policy        `yaml:"policy"`
	Agreed client.Policy `yaml:"-"` // Policy, as Load reads it
	Log    string        `yaml:"log"`
	Level  slog.Level    `yaml:"-"` // Log, as Load reads it
}

// Policy is client.Policy in a file; its comments say what each key promises.
type Policy struct {
	MaxEps0       float64          `yaml:"max-eps0"`
	MaxEps        float64          `yaml:"max-epsilon"`
	MaxTaskEps    float64          `yaml:"max-task-epsilon"`
	Delta         float64          `yaml:"delta"`
	MaxTasks      int64            `yaml:"max-tasks"`
	MaxLocalEps   float64          `yaml:"max-local-epsilon"`
	MinReports    int64            `yaml:"n-min"`
	Colluders     int64            `yaml:"colluders"`
	Trusts        []dp.Trust       `yaml:"trusts"`
	Randomizers   []string         `yaml:"randomizers"`
	Measure       []string         `yaml:"measure,omitempty"`  // kinds of questions that are answered; none: all, [nothing]: no question
	Suite         string           `yaml:"suite,omitempty"`    // of all keys that are sealed to: x25519 or mlkem768x25519; "": any
	NoiseBy       []vecsum.NoiseBy `yaml:"noise-by,omitempty"` // clients, aggregators; none: both
	Proofs        string           `yaml:"proofs,omitempty"`   // required, or ""
	Tokens        string           `yaml:"tokens,omitempty"`   // required, or ""
	Receipts      string           `yaml:"receipts,omitempty"` // required, or ""
	Count         bool             `yaml:"count,omitempty"`    // demand that the shuffler tells how many messages it has taken of the client
	MaxModelBytes int64            `yaml:"max-model-bytes"`
	MaxRound      time.Duration    `yaml:"max-round"`
	MinRound      time.Duration    `yaml:"min-round,omitempty"` // 0: none
	Skew          time.Duration    `yaml:"skew"`
	MaxWork       time.Duration    `yaml:"max-work"`
}
