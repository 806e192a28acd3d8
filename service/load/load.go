// Package load loads a running deployment with virtual clients, and measures how long the
// servers take to answer. It is for the program.
//
// The clients are a fleet of riffle/service/client: they check tasks and announcements, have
// sessions, and make whole reports, of gradients of 0. Their ledger is in memory and ends with
// the process, so their credentials must be of nobody's. Every report counts in the task's
// rounds like any other.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// Ways in which virtual clients connect.
const (
	Kept    = "kept"    // connections are kept, and carry requests of many clients
	Each    = "each"    // a client's visit has a connection to each server, with a whole handshake
	Resumed = "resumed" // the same, but connections to the shuffler are resumed
)

// Config describes a load.
type Config struct {
	// Join has servers, keys, policy, accountant and one task; Run sets Store, Transport, Spread,
	// Prepare, Watch and Announced. Required.
	Join client.JoinConfig
	// Credentials are the virtual clients'. Required.
	Credentials []*client.Credential
	Connections string   // Kept, Each or Resumed. Required.
	From        []net.IP // local addresses of connections, in turn; empty: any
	HTTP1       bool     // HTTP/1.1 in place of HTTP/2
	AtOnce      int      // largest number of requests under way. Required.
	Rate        float64  // reports begun a second; 0: no limit
	Repeat      int      // how often a report that was taken is sent again
	Fetch       bool     // each client fetches announcement and model itself, as a process of its own would
	Reports     int64    // ends after as many were taken; 0: no limit
	Rounds      int64    // ends with as many; 0: no limit
	// Progress is called from time to time with what was measured so far; nil: not called.
	Progress func(*Result)
}

// source has a gradient of 0 for every task.
type source struct{}

// Open returns the gradient.
func (source) Open(wire.Task) (client.Gradient, error) {
	return func(_, grad []float32) { clear(grad) }, nil
}

func (c Config) check() error {
	switch {
	case len(c.Credentials) == 0:
		return errors.New("load: no virtual clients")
	case len(c.Join.Tasks) != 1:
		return fmt.Errorf("load: %d tasks named, want one", len(c.Join.Tasks))
	case c.Join.Relay != "":
		return errors.New("load: behind a relay the shuffler's connections are the relay's")
	case c.Connections != Kept && c.Connections != Each && c.Connections != Resumed:
		return fmt.Errorf("load: connections = %q, want %s, %s or %s", c.Connections, Kept, Each, Resumed)
	case c.AtOnce < 1:
		return fmt.Errorf("load: %d requests at once, want at least 1", c.AtOnce)
	case !(c.Rate >= 0), c.Repeat < 0, c.Reports < 0, c.Rounds < 0:
		return fmt.Errorf("load: rate = %v, repeat = %d, reports = %d and rounds = %d must not be negative", c.Rate, c.Repeat, c.Reports, c.Rounds)
	}
	return nil
}

// Run loads the deployment until ctx ends, the task ends, or what the configuration asks for was
// done. It returns what was measured, also with an error. An error is one of the
// configuration, or says why the clients refused the task.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newMeter(ctx, c, cancel)
	j, files := c.Join, newMemory()
	if err := client.CreateLedgerIn(files); err != nil {
		return nil, err
	}
	j.Directory, j.Store, j.Transport, j.Roots = "", files, m, nil
	j.Spread, j.Prepare, j.Connections = -1, true, c.AtOnce
	j.Announced = m.announced
	j.Watch = m.watch
	members := make([]client.Member, len(c.Credentials))
	for i, one := range c.Credentials {
		members[i] = client.Member{Credential: one, Source: source{}}
	}
	f, err := client.NewFleet(j, members)
	if err != nil {
		return nil, err
	}
	var tick <-chan time.Time
	if c.Progress != nil {
		t := time.NewTicker(time.Second / 2)
		defer t.Stop()
		tick = t.C
	}
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	for {
		select {
		case <-tick:
			c.Progress(m.result())
		case err := <-done:
			return m.result(), errors.Join(err, f.Close())
		}
	}
}
