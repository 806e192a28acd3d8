package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/service/aggregator"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

func serveAggregator(ctx context.Context, path string, o Options) error {
	c, err := config.Load[config.Aggregator](path)
	if err != nil {
		return err
	}
	own := aggregator.Config{Coordinator: c.Coordinator.Signer, Workers: c.Workers, MinReports: c.MinReports, Log: o.Log}
	if own.Keyring, err = config.LoadKeyring(c.SealingKeys); err != nil {
		return config.Errorf("%w", err)
	}
	if c.SigningKey != "" {
		if own.Key, err = config.LoadSigning(c.SigningKey); err != nil {
			return config.Errorf("%w", err)
		}
	}
	if c.Mark != "" {
		own.Mark = mark.File(c.Mark)
	}
	s, err := openServer(ctx, c.Process, RoleAggregator, o, func(ctx context.Context) (*store.Store, error) { return openAggregatorStore(ctx, c) })
	if err != nil {
		return err
	}
	source, err := s.source(c.Shuffler, c.Registrar)
	if err != nil {
		return errors.Join(err, s.store.Close())
	}
	own.Shuffler, own.Store = source, s.store
	// Work under way goes on until the server has stopped.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	service, err := aggregator.New(work, own)
	if err == nil {
		err = s.listen("peers", c.PeersListen, map[string][]endpoint.Pin{RoleCoordinator: c.Coordinator.Pinned}, 16<<20, service.PeerHandler())
	}
	if err != nil {
		return errors.Join(err, s.store.Close())
	}
	s.ready = service.Ready
	s.peers = newPeers(o.Log, shufflerPeer(source, c.ID))
	s.metrics = append(s.metrics, func() []endpoint.Metric { return aggregatorMetrics(service.Snapshot()) })
	return s.run(ctx, operatorAPI{}, func(ctx context.Context) error {
		<-ctx.Done() // the aggregator works only when it is asked
		return nil
	})
}

// openAggregatorStore opens an aggregator's store. If there is none, and its mark counts rounds, the
// error says that the store is lost: with a new one a round could be summed twice.
func openAggregatorStore(ctx context.Context, c config.Aggregator) (*store.Store, error) {
	s, err := openStore(ctx, c.Store)
	if errors.Is(err, store.ErrNoStore) && c.Mark != "" {
		if m, bad := mark.File(c.Mark).Load(); bad == nil && m.Entries > 0 {
			return nil, fmt.Errorf("%w: %s knows of %d summed rounds: %w", mark.Err, c.Mark, m.Entries, err)
		}
	}
	return s, err
}

func aggregatorMetrics(c aggregator.Counts) []endpoint.Metric {
	one := func(name, help string, v float64) endpoint.Metric {
		return endpoint.Metric{Name: name, Help: help, Kind: endpoint.Counter, Samples: []endpoint.Sample{{Value: v}}}
	}
	return []endpoint.Metric{
		one("riffle_rounds_prepared_total", "Rounds whose shares were opened.", float64(c.Prepared)),
		one("riffle_partials_total", "Partial sums that were given away.", float64(c.Summed)),
		one("riffle_reports_summed_total", "Shares in them.", float64(c.Reports)),
		one("riffle_busy_seconds_total", "Time spent on opening and summing.", c.Seconds),
		{Name: "riffle_refused_total", Help: "Requests and shares that were refused, by reason.", Kind: endpoint.Counter, Samples: byReason(c.Refused)},
	}
}
