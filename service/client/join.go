// Package client joins the tasks of a coordinator with clients of one's own: [Join] runs one,
// [Fleet] those of a process. It is the package for Go programs that embed a client.
//
// A client fetches what every client fetches, whatever it then decides. It checks that
// against its policy (riffle/protocol/client), stores a report before it sends it, and sends
// it until it is answered. All randomness is from crypto/rand.
//
// A client that is asked for more than its policy allows sends nothing, and tells only
// JoinConfig.Watch. Others see that it asks for tasks, announcements, enrolment and models,
// as all clients do, and the shuffler sees when a sealed report of the round's one size
// arrives.
package client

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Source is a client's data. It leaves the client only as randomized reports.
type Source interface {
	// Open prepares for a task that the client agreed to; it is called once for each task. It
	// returns the client's gradient, whose argument theta has the task's Parameters and grad its
	// Mechanism.Dim elements. theta is shared and must not be changed. One goroutine at a time calls a
	// client's gradient; it may call other clients' gradients before and after.
	//
	// An error means that this client has no part in the task. It may depend on the kind
	// of the data, and must not depend on their values.
	Open(task wire.Task) (Gradient, error)
}

// Gradient overwrites grad with a client's gradient at theta. It cannot fail, because whether
// a client reports must not reveal anything about the data. NaN counts as 0.
type Gradient = func(theta, grad []float32)

// closer is a Source that holds data for the tasks that it has opened. Close is called
// once for each client when a task has ended, and is the last call for the task.
type closer interface {
	Source
	Close(task wire.Task)
}

// asker is a Source whose gradients come from elsewhere, such as another program, which may fail
// or take any time. If Open returns no gradient, Ask is called once for each round that the client
// takes part in, and returns the gradient at theta, or why there is none: the client then reports
// a gradient of 0. The answer is the client's memory then. After JoinConfig.Answer ctx ends and an
// answer does not count any more. The report is made then, not sooner, so that its time shows
// nothing of the answer. One client at a time is asked, different clients at the same time.
type asker interface {
	Source
	Ask(ctx context.Context, task wire.Task, round int64, theta []float32) ([]float32, error)
}

// Func returns a Source for all tasks of dim parameters with gradients of as many.
func Func(dim int, g Gradient) Source { return function{dim, g} }

type function struct {
	dim int
	g   Gradient
}

func (f function) Open(task wire.Task) (Gradient, error) {
	if task.Mechanism.Dim != int64(f.dim) || task.Parameters() != int64(f.dim) {
		return nil, fmt.Errorf("client: gradients of %d parameters, the task has %d and reports of %d", f.dim, task.Parameters(), task.Mechanism.Dim)
	}
	return f.g, nil
}

// JoinConfig says to which servers clients report, which keys they trust, and to what they
// agree.
type JoinConfig struct {
	Coordinator string // https address. Required.
	Shuffler    string // https address. Required.
	// Relay is the https address of a relay, through which all requests to the shuffler go, sealed to
	// the shuffler: the shuffler does not see the clients' addresses then. Empty: none.
	Relay string
	// Coordinators are the addresses of further coordinators on the same store. If one
	// does not answer or does not lead a task, the next is asked.
	Coordinators []string
	// Cache is the https address of a CDN, or another cache of the coordinators' answers, that is
	// asked first for tasks, announcements, models and lists of receipts. What it says is checked
	// like what a coordinator says; if it fails, lies or is out of date, Watch is told and the
	// coordinators are asked. It sees the clients' addresses. Empty: none.
	Cache string
	// CoordinatorKey verifies tasks and announcements. ShufflerKey is the key of the
	// shuffler's operator; it verifies the enrolment. Both are required. Clients must get
	// them from a source other than these servers.
	CoordinatorKey ed25519.PublicKey
	ShufflerKey    ed25519.PublicKey
	// RegistrarKey, if not nil, verifies who is enrolled: an enrolment counts only if the registrar
	// signed its clients, and never after a newer one was seen.
	RegistrarKey ed25519.PublicKey
	// Registrar is the registrar's https address, where clients get the tokens of tasks that ask for
	// some. Empty: such tasks are refused.
	Registrar string
	// Roots are the certificates that are trusted; nil: the system's. A browser has its own.
	Roots *certificates
	// Dial makes the connections; nil: TCP. A browser makes its own.
	Dial dial
	// Transport carries all requests; nil: HTTP of this process, which a browser does not have.
	Transport Transport
	// Credential is the credential of Join's client; a fleet's members have their own.
	Credential *Credential
	// Directory holds the ledger, which CreateLedger makes once. Required without a Store.
	Directory string
	// Store holds the ledger in place of a directory; CreateLedgerIn makes it once.
	Store  Store
	Policy client.Policy // Required.
	// Accountant computes the cost of the reports sent; account.Accountant has the tightest bounds.
	// Required.
	Accountant dp.Accountant
	// Tasks are the tasks to take part in; Run ends with the last of them. Empty: all tasks
	// of the coordinator, now and later, that the policy allows.
	Tasks [][32]byte
	// Spread is the longest that a report is held back. It leaves at a uniform time, so
	// that its time does not reveal how long it took to make. 0: a tenth of the time to
	// the deadline, at most a minute; negative: reports leave at once. At most a quarter of that time.
	Spread time.Duration
	// Answer is the time for a gradient, which depends on the data. Reports are made when it is over, and
	// leave within Spread after they must all be made; a gradient that is late is reported as 0. Where
	// reports leave at once it is for gradients only that a source asks for elsewhere (a source with a
	// method Ask(ctx, task, round, theta)). It is at most half of the time to the deadline. 0: a quarter of that
	// time, at most two minutes, or 10 s for gradients that are computed here.
	Answer time.Duration
	// Prepare asks for all sessions at once when a task is agreed to, instead of spreading the
	// requests over the first round. The shuffler then sees which clients agreed, including
	// those that never report. A session reveals nothing else.
	Prepare bool
	// Workers is the number of reports that are made at the same time; 0: one per CPU.
	// Connections is the largest number of requests under way; 0: 32.
	Workers, Connections int
	// Watch is called for each event, from any goroutine; nil: not called. A Notice must stay
	// with the client.
	Watch func(Notice)
	// Announced is called for each round that was checked and whose model is there, before any client
	// decides on it; nil: not called.
	Announced func(task [32]byte, round int64, opens, deadline time.Time)
}

// Things that happen: what a Notice says.
const (
	Agreed   = "agreed"    // agreed to a task; its data are ready
	Ended    = "ended"     // a task has ended
	Declined = "declined"  // declined a task or a round; Err is a *client.Refused
	Retrying = "retrying"  // a request failed and is repeated; Err says why
	Passed   = "passed"    // the coin said no
	NotDrawn = "not-drawn" // the shuffler said no or, with Err, did not answer
	Sent     = "sent"      // the shuffler has the report
	Lost     = "lost"      // charged, but not accepted by the shuffler; Err says why
	Compared = "compared"  // what is published of a round fits what this process knows
	Missing  = "missing"   // receipts that must be in a round's list are not; Err says how many
	Half     = "half"      // receipts of which only the coordinator has its half; Err says how many
	Unfit    = "unfit"     // what is published of a round does not fit; Err says what
	Untold   = "untold"    // the coordinator publishes nothing of a round with receipts
)

// Notice is something that happened to a client.
type Notice struct {
	What   string
	Task   [32]byte
	Round  int64
	Client wire.ID // zero if it concerns the whole process
	Err    error
}

// snapshot counts what happened since the start.
type snapshot struct {
	Rounds   int64 // rounds that were not refused as a whole
	Reports  map[string]int64
	Declined map[client.Cause]int64 // rounds of one client or of all, by cause
	Refusals map[wire.Reason]int64  // refusals by the shuffler
	Compared Findings               // of rounds that were compared since the start
}

// Member is one of a fleet's clients.
type Member struct {
	Credential *Credential
	Source     Source
}

// Join takes part with one client until ctx or the last task ends. It returns nil, or the
// errors of the tasks that it could not take part in.
//
// All randomness comes from rng.Secure.
func Join(ctx context.Context, c JoinConfig, s Source) error {
	if c.Credential == nil {
		return errors.New("client: a credential is required")
	}
	f, err := NewFleet(c, []Member{{c.Credential, s}})
	if err != nil {
		return err
	}
	return errors.Join(f.Run(ctx), f.Close())
}

// check returns c with its addresses in one form. Its error names the first field that is missing
// or wrong.
func (c JoinConfig) check() (JoinConfig, error) {
	var err error
	if c.Coordinator, err = checkBase("coordinator", c.Coordinator); err != nil {
		return c, err
	}
	c.Coordinators = slices.Clone(c.Coordinators)
	for i := range c.Coordinators {
		if c.Coordinators[i], err = checkBase("coordinator", c.Coordinators[i]); err != nil {
			return c, err
		}
	}
	if c.Shuffler, err = checkBase("shuffler", c.Shuffler); err != nil {
		return c, err
	}
	if c.Cache != "" {
		if c.Cache, err = checkBase("cache", c.Cache); err != nil {
			return c, err
		}
	}
	if c.Registrar != "" {
		if c.Registrar, err = checkBase("registrar", c.Registrar); err != nil {
			return c, err
		}
	}
	if c.Relay != "" {
		if c.Relay, err = checkBase("relay", c.Relay); err != nil {
			return c, err
		}
	}
	switch {
	case len(c.CoordinatorKey) != ed25519.PublicKeySize:
		return c, errors.New("client: the coordinator's verification key is required")
	case len(c.ShufflerKey) != ed25519.PublicKeySize:
		return c, errors.New("client: the verification key of the shuffler's operator is required")
	case slices.Equal(c.CoordinatorKey, c.ShufflerKey):
		return c, errors.New("client: coordinator and shuffler's operator have the same key: they must not be the same")
	case c.Registrar != "" && c.RegistrarKey == nil:
		return c, errors.New("client: a registrar's address needs its key")
	case c.RegistrarKey != nil && len(c.RegistrarKey) != ed25519.PublicKeySize:
		return c, errors.New("client: the registrar's key has another length")
	case slices.Equal(c.RegistrarKey, c.ShufflerKey):
		return c, errors.New("client: registrar and shuffler's operator have the same key: that operator could enrol anybody")
	case c.Directory == "" && c.Store == nil:
		return c, errors.New("client: a directory for the ledger is required")
	case c.Directory != "" && c.Store != nil:
		return c, errors.New("client: a directory and a store for the ledger contradict each other")
	case c.Transport != nil && c.Roots != nil:
		return c, errors.New("client: a transport trusts roots of its own")
	case c.Accountant == nil:
		return c, errors.New("client: an accountant is required")
	case c.Answer < 0:
		return c, fmt.Errorf("client: answer = %v must not be negative", c.Answer)
	case c.Workers < 0 || c.Connections < 0:
		return c, fmt.Errorf("client: %d workers, %d connections must not be negative", c.Workers, c.Connections)
	}
	if c.Store == nil {
		c.Store = directory(c.Directory)
	}
	c.Policy, err = c.Policy.Check()
	return c, err
}
