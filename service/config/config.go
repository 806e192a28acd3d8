// Package config reads what operators write: the roles' configurations in YAML, strictly,
// and the files of keys, credentials and rosters that these name. The fields' comments
// are the reference manual. It is for the program.
package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/riffle-dp/riffle/dp"
)

// ErrInvalid is wrapped by everything that is wrong with a configuration.
var ErrInvalid = errors.New("configuration")

// Errorf is fmt.Errorf for what is wrong with a configuration.
func Errorf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// NoAddress says that something is not served.
const NoAddress = "none"

// Process is what all servers have. Paths are relative to the configuration's
// directory.
type Process struct {
	// Population is the id of the people behind all this, 32 hex digits, the same
	// at all parties. The shuffler's operator draws it. Required.
	Population string `yaml:"population"`
	// Listen is the address for clients. Required, but the aggregator has none.
	Listen string `yaml:"listen"`
	// PeersListen is the address for other roles, who show a pinned certificate.
	// Required, but the coordinator has none.
	PeersListen string `yaml:"peers-listen"`
	// Admin is the address of /healthz, /readyz and /metrics, plain HTTP. Default:
	// a loopback address of the role. none: no such address.
	Admin string `yaml:"admin"`
	// Operator is the socket that `riffle task` and `riffle ledger` reach the
	// process by. Who can open it operates the role. Default: the role and .sock,
	// beside the configuration.
	Operator string `yaml:"operator"`
	// Certificate and CertificateKey are files, made by riffle keygen tls. Required.
	Certificate    string `yaml:"certificate"`
	CertificateKey string `yaml:"certificate-key"`
	// MaxConnections at a time on each address. Default 10000.
	MaxConnections int `yaml:"max-connections"`
	// AddressShare is the part of all limits (connections, requests, bytes under way,
	// rate) that callers of one address, /24 of IPv4 or /56 of IPv6, may have together
	// before they have shown who they are. 1 where all callers come from one address,
	// as from a proxy's. Default 0.125.
	AddressShare float64 `yaml:"address-share"`
	// Rate limits clients' requests a second over all; 0: no limit.
	Rate float64 `yaml:"rate"`
	// Log is the least level that is logged: debug, info (default), warn or error.
	Log string `yaml:"log"`
	// Store is where the role keeps its state, outside of everyone else's.
	Store Store `yaml:"store"`
}

// Store is a role's store: a directory for an embedded one, or the URL of a NATS
// cluster of its own. Whoever can write to it can undo what the role promises.
type Store struct {
	Dir      string `yaml:"dir"`       // of an embedded store; one process at a time
	MaxBytes int64  `yaml:"max-bytes"` // of an embedded store; 0: three quarters of the free disk
	URL      string `yaml:"url"`       // of a cluster's servers, comma-separated
	Replicas int    `yaml:"replicas"`  // in a cluster, 1 to 5; default 3
	// Credentials, CA, Certificate and CertificateKey are files for the cluster.
	Credentials    string `yaml:"credentials"`
	CA             string `yaml:"ca"`
	Certificate    string `yaml:"certificate"`
	CertificateKey string `yaml:"certificate-key"`
	// User is a name in the cluster and Password the file of its password; or Token is
	// a file. Of credentials, user and token there is one at most.
	User     string        `yaml:"user"`
	Password string        `yaml:"password"`
	Token    string        `yaml:"token"`
	Timeout  time.Duration `yaml:"timeout"` // to get past a lost leader; default 30 s
}

// Party is another role, as this one knows it.
type Party struct {
	// URL is where it is reached; "" where it only calls.
	URL string `yaml:"url"`
	// URLs are several addresses in place of one: clients know those of all coordinators
	// that share a store, and ask the next where one does not answer or does not lead.
	URLs []string `yaml:"urls,omitempty"`
	// Pins are its certificate's keys: two while it changes them.
	Pins []string `yaml:"pins"`
	// Key is its operator's signing key.
	Key string `yaml:"key"`
}

// Shuffler is the configuration of riffle serve shuffler.
type Shuffler struct {
	Process `yaml:",inline"`
	// SigningKey is the operator's, for enrolments and words on rounds. Required.
	SigningKey string `yaml:"signing-key"`
	// SealingKeys are files; the one that expires last is announced, the others
	// still open what is under way. At least one.
	SealingKeys []string `yaml:"sealing-keys"`
	// Roster is a file of the enrolled clients' public keys, a line each. Required.
	Roster string `yaml:"roster"`
	// MinReports voids any round with fewer, whatever its task says. At least 2.
	MinReports int64 `yaml:"n-min"`
	// Validity of the signed enrolment, which is renewed when half of it is over.
	// Default 30 days.
	Validity time.Duration `yaml:"validity"`
	// Round bounds what a coordinator may ask for.
	Round struct {
		Shortest    time.Duration `yaml:"shortest"`     // default 1 s
		Longest     time.Duration `yaml:"longest"`      // default 7 days
		Keep        time.Duration `yaml:"keep"`         // of a batch that nobody takes, after its deadline; default 7 days
		MostOpen    int           `yaml:"most-open"`    // under way at a time, neither void nor released; default 256
		MaxReport   int64         `yaml:"max-report"`   // bytes of a report's parts; default 1 MiB
		MemoryBytes int64         `yaml:"memory-bytes"` // for the sort of a batch; default 64 MiB
	} `yaml:"round"`
	// FrontendOnly takes reports and leaves closing rounds to other processes that
	// share the store.
	FrontendOnly bool `yaml:"frontend-only"`
	// Coordinator needs pins and key, Aggregator pins; the latter is left out where
	// there is none.
	Coordinator Party  `yaml:"coordinator"`
	Aggregator  *Party `yaml:"aggregator"`
	// AggregatorKeys are the aggregator's public sealing keys.
	AggregatorKeys []string `yaml:"aggregator-sealing-keys"`
}

// Coordinator is the configuration of riffle serve coordinator.
type Coordinator struct {
	Process     `yaml:",inline"`
	SigningKey  string   `yaml:"signing-key"`  // for tasks and announcements. Required.
	SealingKeys []string `yaml:"sealing-keys"` // At least one.
	// Mark is the ledger's high-water mark, a file outside of the store, best on
	// another disk. Required.
	Mark string `yaml:"mark"`
	// Budget is what all tasks together may cost. Required.
	Budget struct {
		Epsilon float64 `yaml:"epsilon"`
		Delta   float64 `yaml:"delta"`
	} `yaml:"budget"`
	// RoundLength is how long a round is open. Only rounds of all clients, or of a
	// public block of them, end before: when all have reported. Default 1 min.
	RoundLength time.Duration `yaml:"round-length"`
	// Data is what models are evaluated on, and the shape of models is taken from,
	// where tasks name another path. Default: as the task says.
	Data string `yaml:"data"`
	// Record is a directory that every opened report is kept in: for audits and
	// demonstrations. Default: none, and none is kept.
	Record string `yaml:"record"`
	// Colluders is how many clients are taken to be in league with an observer.
	Colluders int64 `yaml:"colluders"`
	// PauseAfter is how many charged rounds in a row may give no step before a task
	// pauses, until `riffle task resume`. 0: it never does. Default 3.
	PauseAfter int64 `yaml:"pause-after"`
	Workers    int   `yaml:"workers"` // that open reports; default one per CPU
	// Dashboard is the address of the page that shows tasks, rounds, budget and
	// ledger, for looking only. On loopback it is plain HTTP for anyone on this
	// machine; elsewhere it is HTTPS with Certificate and needs a token. Default:
	// a loopback address. none: no such page.
	Dashboard string `yaml:"dashboard"`
	// DashboardToken is a file that holds the token, of mode 0600 and at least 16
	// characters. Required if Dashboard is not loopback.
	DashboardToken string `yaml:"dashboard-token"`
	// Holder names this process among those that share the store, for the lease.
	// Default: host name and process id.
	Holder     string `yaml:"holder"`
	Shuffler   Party  `yaml:"shuffler"`   // URL (its peers' address), pins and key. Required.
	Aggregator *Party `yaml:"aggregator"` // URL and pins, if there is one
}

// Aggregator is the configuration of riffle serve aggregator.
type Aggregator struct {
	Process     `yaml:",inline"`
	SealingKeys []string `yaml:"sealing-keys"` // At least one.
	// MinReports is the fewest that are summed, whatever a task says. Default 2.
	MinReports  int64 `yaml:"n-min"`
	Workers     int   `yaml:"workers"`     // default one per CPU
	Shuffler    Party `yaml:"shuffler"`    // URL (its peers' address), pins and key. Required.
	Coordinator Party `yaml:"coordinator"` // Pins and key. Required.
}

// All is the configuration of riffle serve all: files of the roles in it.
type All struct {
	Shuffler    string `yaml:"shuffler"`
	Coordinator string `yaml:"coordinator"`
	Aggregator  string `yaml:"aggregator"` // "": none
}

// Client is the configuration of riffle client: one or many clients with their
// data in one process.
type Client struct {
	Population string `yaml:"population"` // Required.
	// Credentials is a file made by riffle keygen client. Required.
	Credentials string `yaml:"credentials"`
	// Dir keeps each client's own ledger and what it has sent. Required.
	Dir string `yaml:"dir"`
	// Shuffler needs a URL (its clients' address) and key, Coordinator as well, or
	// several URLs.
	Shuffler    Party `yaml:"shuffler"`
	Coordinator Party `yaml:"coordinator"`
	// Roots is a file of certificates that the servers' are checked against, names
	// and dates included; the servers' own if they signed them themselves. Default:
	// those of the system.
	Roots string `yaml:"roots"`
	// Data is what the clients learn from: mnist, a folder or a CSV file.
	// Credential i has example First+i.
	Data  string `yaml:"data"`
	First int64  `yaml:"first"`
	// Spread is how long a report may be held back, so that how long it took to make
	// does not show; 0: a tenth of the time to the deadline, at most a minute.
	Spread time.Duration `yaml:"spread"`
	// Tasks are those to take part in, by digest; none: every task that the policy allows.
	Tasks []string `yaml:"tasks"`
	// Policy is what these clients agree to. Required.
	Policy Policy `yaml:"policy"`
	Log    string `yaml:"log"`
}

// Policy is client.Policy in a file; see there for what each key promises.
type Policy struct {
	MaxEps0       float64       `yaml:"max-eps0"`
	MaxEps        float64       `yaml:"max-epsilon"`
	MaxTaskEps    float64       `yaml:"max-task-epsilon"`
	Delta         float64       `yaml:"delta"`
	MaxTasks      int64         `yaml:"max-tasks"`
	MaxLocalEps   float64       `yaml:"max-local-epsilon"`
	MinReports    int64         `yaml:"n-min"`
	Colluders     int64         `yaml:"colluders"`
	Trusts        []dp.Trust    `yaml:"trusts"`
	Randomizers   []string      `yaml:"randomizers"`
	MaxModelBytes int64         `yaml:"max-model-bytes"`
	MaxRound      time.Duration `yaml:"max-round"`
	Skew          time.Duration `yaml:"skew"`
	MaxWork       time.Duration `yaml:"max-work"`
}
