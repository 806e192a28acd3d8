package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"

	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/opener"
	"github.com/riffle-dp/riffle/service/store"
)

// serveWorker opens batches for a coordinator. A worker has neither store nor operator's socket.
func serveWorker(ctx context.Context, path string, o Options) error {
	c, err := config.Load[config.Worker](path)
	if err != nil {
		return err
	}
	if o.Level != nil {
		o.Level.Set(c.Level)
	}
	w, err := newWorker(c)
	if err != nil {
		return err
	}
	w.Log = o.Log
	defer w.Client.CloseIdleConnections()
	queue, err := store.DialQueue(ctx, c.Queue, opener.Queue)
	if err != nil {
		return err
	}
	shuffler := newPeers(o.Log, workerPeer(w))
	fronts := []func(context.Context) error{shuffler.watch}
	if c.Admin != config.NoAddress {
		ready := func(ctx context.Context) error { return errors.Join(w.Ready(ctx), shuffler.trouble()) }
		admin, err := newAdmin(c.Admin, ready, func() []endpoint.Metric { return append(workerMetrics(w.Counts()), shuffler.metrics()...) }, o.Log)
		if err != nil {
			return errors.Join(err, queue.Close())
		}
		fronts = append(fronts, admin.run)
	}
	o.Log.Info("started")
	err = together(ctx, append(fronts, func(ctx context.Context) error { return w.Run(ctx, queue) })...)
	o.Log.Info("ended")
	return errors.Join(err, queue.Close())
}

// newWorker makes the worker of a configuration.
func newWorker(c config.Worker) (*opener.Worker, error) {
	ring, err := config.LoadKeyring(c.SealingKeys)
	if err != nil {
		return nil, config.Errorf("%w", err)
	}
	cert, _, err := endpoint.LoadCertificate(c.Certificate, c.CertificateKey)
	if err != nil {
		return nil, config.Errorf("%w", err)
	}
	client, err := endpoint.NewClient(endpoint.ClientConfig{Pins: c.Shuffler.Pinned, Certificate: &cert})
	if err != nil {
		return nil, err
	}
	return &opener.Worker{Keyring: ring, Coordinator: c.Coordinator.Signer, Shuffler: c.Shuffler.URL, Client: client,
		Ranges: cmp.Or(c.Ranges, runtime.GOMAXPROCS(0)), Drain: c.Drain}, nil
}

// workerPeer is the shuffler, as a worker calls it.
func workerPeer(w *opener.Worker) peer {
	return peer{RoleShuffler, w.Shuffler, func(ctx context.Context) error {
		// There is no such round; the answer shows that the shuffler is there and knows the worker.
		_, _, err := endpoint.Do(ctx, w.Client, http.MethodGet, fmt.Sprintf("%s/v1/rounds/%064x/chunks/0", strings.TrimSuffix(w.Shuffler, "/"), 0), nil, 1<<10)
		if r := batch.IsRefused(err); r != nil && r.Code == http.StatusNotFound {
			return nil
		} else if r != nil {
			return config.Errorf("it does not take this certificate for a worker's (workers: pins: in its configuration): %w", err)
		}
		return peerError(alert(ctx, w.Client, w.Shuffler, err))
	}}
}

func workerMetrics(n opener.Counts) []endpoint.Metric {
	count := func(name, help string, v int64) endpoint.Metric {
		return endpoint.Metric{Name: name, Help: help, Kind: endpoint.Counter, Samples: []endpoint.Sample{{Value: float64(v)}}}
	}
	return []endpoint.Metric{
		count("riffle_worker_ranges_total", "Ranges of batches that were opened.", n.Ranges),
		count("riffle_worker_messages_total", "Messages in those ranges.", n.Messages),
		count("riffle_worker_returned_total", "Ranges that were left to another worker.", n.Returned),
		count("riffle_worker_failed_total", "Ranges that no worker can open.", n.Failed),
	}
}

// worker checks a worker's configuration, its queue, and whether the shuffler knows it.
func (n *inspection) worker(ctx context.Context, path string, call bool) {
	c, err := config.Load[config.Worker](path)
	if n.wrong("configuration", err); err != nil {
		return
	}
	n.keys(config.Process{Certificate: c.Certificate, CertificateKey: c.CertificateKey}, "", c.SealingKeys)
	if !call {
		return
	}
	one, done := context.WithTimeout(ctx, peerTime)
	defer done()
	queue, err := store.DialQueue(one, c.Queue, opener.Queue)
	if err == nil {
		_, err = queue.There(one)
		err = errors.Join(err, queue.Close())
	}
	n.add("queue", err)
	if w, err := newWorker(c); err == nil {
		n.ask(ctx, []peer{workerPeer(w)})
		w.Client.CloseIdleConnections()
	}
}
