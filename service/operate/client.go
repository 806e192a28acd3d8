package operate

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
)

func serveClients(ctx context.Context, path string, o Options) error {
	c, err := config.Load[config.Client](path)
	if err != nil {
		return err
	}
	if o.Level != nil {
		o.Level.Set(c.Level)
	}
	replaceData(&c, o.Gradients, o.Answer)
	join, members, err := joinConfig(c, o.Log)
	if err != nil {
		return err
	}
	if c.Gradients != "" {
		// Before any request, so that no request can show how the program begins.
		p, err := openProgram(ctx, c, o.Log)
		if err != nil {
			return err
		}
		defer p.Close()
		for i := range members {
			members[i].Source = askedClient{programClient{p, c.First + int64(i)}, members[i].Source.(dataClient).rows}
		}
	}
	join.Prepare = o.Ready != nil || c.Ready != ""
	var agreed atomic.Int64
	logged := newCauses(o.Log)
	join.Watch = func(n client.Notice) {
		logged.told(n, time.Now())
		if n.What != client.Agreed {
			return
		}
		did := agreed.Add(1)
		if o.Ready != nil && did == int64(len(join.Tasks)) {
			o.Ready()
		}
		if c.Ready != "" && did == max(1, int64(len(join.Tasks))) {
			if err := config.WriteNew(c.Ready, nil, 0o600); err != nil {
				o.Log.Error("the file ready cannot be written", "error", err)
			}
		}
	}
	f, err := client.NewFleet(join, members)
	if err != nil {
		return err
	}
	if c.Ready != "" { // the ledger is locked: no other process has this file
		if err := removeReady(c.Ready); err != nil {
			return errors.Join(err, f.Close())
		}
		defer os.Remove(c.Ready) // it may not be there
	}
	o.Log.Info("taking part", "clients", len(members))
	err = f.Run(ctx)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	logged.end(time.Now())
	s := f.Snapshot()
	o.Log.Info("ended", "rounds", s.Rounds, "sent", s.Reports[client.Sent], "passed", s.Reports[client.Passed],
		"not_drawn", s.Reports[client.NotDrawn], "lost", s.Reports[client.Lost],
		"compared", s.Compared.Compared, "receipts_found", s.Compared.Found, "receipts_missing", s.Compared.Missing,
		"receipts_half", s.Compared.Half, "unfit", s.Compared.Unfit, "untold", s.Compared.Untold)
	for _, cause := range slices.Sorted(maps.Keys(s.Declined)) {
		o.Log.Info("declined", "cause", string(cause), "times", s.Declined[cause])
	}
	return err
}

// removeReady removes the file that a killed process left. It is empty; anything else there is
// named by mistake.
func removeReady(path string) error {
	info, err := os.Lstat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > 0) {
		return config.Errorf("ready: %s is there, and is no empty file", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return config.Errorf("ready: %w", err)
	}
	return nil
}

func joinConfig(c config.Client, log *slog.Logger) (client.JoinConfig, []client.Member, error) {
	coordinators := c.Coordinator.Addresses
	join := client.JoinConfig{Coordinator: coordinators[0], Coordinators: coordinators[1:], Shuffler: c.Shuffler.URL, Relay: c.Relay, Cache: c.Cache, Directory: c.Dir, Policy: c.Agreed,
		Accountant: new(account.Accountant), Spread: c.Spread, Answer: c.Answer, CoordinatorKey: c.Coordinator.Signer, ShufflerKey: c.Shuffler.Signer}
	if c.Registrar != nil {
		join.RegistrarKey, join.Registrar = c.Registrar.Signer, c.Registrar.URL
	}
	if c.Roots != "" {
		var err error
		if join.Roots, err = loadRoots(c.Roots); err != nil {
			return join, nil, config.Errorf("%w", err)
		}
	}
	for _, text := range c.Tasks {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != 32 {
			return join, nil, config.Errorf("task %q must be 64 hex digits", text)
		}
		join.Tasks = append(join.Tasks, [32]byte(b))
	}
	credentials, err := config.LoadCredentials(c.Credentials)
	if err != nil {
		return join, nil, config.Errorf("%w", err)
	}
	data := &train.Local{Data: c.Data}
	// This warning is for the owner of the data: it goes to this machine's log and nowhere
	// else.
	data.Warn = func(task [32]byte, what error) {
		log.Warn("rows do not fit a task", "task", fmt.Sprintf("%x", task[:8]), "error", what)
	}
	rows := &measure.Local{Data: cmp.Or(c.Rows, c.Data), Warn: data.Warn}
	var members []client.Member
	for i, credential := range credentials {
		members = append(members, client.Member{Credential: credential, Source: dataClient{train.LocalClient{Local: data, Client: c.First + int64(i)}, measure.LocalClient{Local: rows, Client: c.First + int64(i)}}})
	}
	return join, members, nil
}

// loadRoots reads certificates in PEM.
func loadRoots(file string) (*x509.CertPool, error) {
	b, err := durable.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("operate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("operate: %s holds no certificate", file)
	}
	return pool, nil
}
