package operate

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/envelope"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/relay"
	"github.com/riffle-dp/riffle/service/shuffler"
)

// maxRequest bounds a peer's request, in bytes.
const maxRequest = 4 << 20

func serveShuffler(ctx context.Context, path string, o Options) error {
	c, err := config.Load[config.Shuffler](path)
	if err != nil {
		return err
	}
	own := shuffler.Config{Population: c.ID, MinReports: c.MinReports, Validity: c.Validity, FrontendOnly: c.FrontendOnly, CountReports: c.CountReports, Relay: c.Relay != nil,
		Bucket: c.Round.MemoryBytes, Keep: c.Round.Keep, MostOpen: c.Round.MostOpen, Log: o.Log,
		Limits: pure.Limits{MinDuration: c.Round.Shortest, MaxDuration: c.Round.Longest, MaxReport: c.Round.MaxReport}}
	if own.Operator, err = config.LoadSigning(c.SigningKey); err != nil {
		return config.Errorf("%w", err)
	}
	if own.Keys, err = config.LoadKeyring(c.SealingKeys); err != nil {
		return config.Errorf("%w", err)
	}
	if c.Registrar == nil {
		if own.Roster, err = config.LoadRoster(c.Roster); err != nil {
			return config.Errorf("%w", err)
		}
	}
	own.Coordinators = []ed25519.PublicKey{c.Coordinator.Signer}
	peers := map[string][]endpoint.Pin{shuffler.Coordinator: c.Coordinator.Pinned}
	if c.Aggregator != nil {
		peers[shuffler.Aggregator], own.Aggregator = c.Aggregator.Pinned, c.AggregatorSealing
	}
	if c.Workers != nil {
		peers[shuffler.Worker] = c.Workers.Pinned
	}
	s, err := openServer(ctx, c.Process, RoleShuffler, o, roleStore(c.Process))
	if err != nil {
		return err
	}
	own.Store = s.store
	if c.Registrar != nil {
		if own.Registrar, err = s.registrar(c); err != nil {
			return errors.Join(err, s.store.Close())
		}
	}
	service, err := shuffler.New(own)
	var clients, coordinator http.Handler
	if err == nil {
		clients, coordinator = service.Handlers()
		// A sealed report has its parts and some hundred bytes, more with a hybrid key.
		err = s.listenTo(c.Origins, c.Listen, c.Rate, c.Round.MaxReport+8<<10, service.TicketKeys, clients)
	}
	if err == nil {
		most := int64(maxRequest)
		if c.Relay != nil {
			peers[shuffler.Relay] = c.Relay.Pinned
			coordinator = behindRelay(own.Keys, clients, coordinator, c.Round.MaxReport+8<<10)
			most = max(most, c.Round.MaxReport+8<<10+relay.Framing)
		}
		err = s.listen("peers", c.PeersListen, peers, most, coordinator)
	}
	if err != nil {
		s.store.Close()
		return err
	}
	s.ready = service.Ready
	s.metrics = append(s.metrics, func() []endpoint.Metric { return shufflerMetrics(service.Snapshot()) })
	return s.run(ctx, operatorAPI{}, service.Run)
}

// behindRelay lets the relay bring clients' requests to the address for peers, where it does not
// share the limits of callers with an address, and ask for what it has to know, and nothing else.
func behindRelay(keys *envelope.Keyring, clients, peers http.Handler, most int64) http.Handler {
	gateway := relay.Gateway(keys, clients, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		post, here, isRelay := r.Method == http.MethodPost, r.URL.Path == relay.Path, endpoint.Peer(r) == shuffler.Relay
		switch {
		case here && post && isRelay:
			gateway.ServeHTTP(w, r)
		case here && post, isRelay && !here:
			endpoint.Refuse(w, wire.NotEnrolled, "this peer may not ask that")
		default:
			peers.ServeHTTP(w, r)
		}
	})
}

// registrar returns how the shuffler gets its roster: from the registrar's address, or from a file.
func (s *server) registrar(c config.Shuffler) (*shuffler.Registrar, error) {
	if c.Registrar.URL == "" {
		return &shuffler.Registrar{Key: c.Registrar.Signer, Every: time.Second, Fetch: rosterFile(c.Roster)}, nil
	}
	client, err := s.peerClient(*c.Registrar)
	if err != nil {
		return nil, err
	}
	s.peers = newPeers(s.options.Log, registrarPeer(client, *c.Registrar, c.ID))
	return &shuffler.Registrar{Key: c.Registrar.Signer, Fetch: func(ctx context.Context, have [32]byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, rosterTime)
		defer cancel()
		b, _, err := endpoint.Do(ctx, client, http.MethodGet, fmt.Sprintf("%s/v1/roster?have=%x", strings.TrimSuffix(c.Registrar.URL, "/"), have), nil, maxRosterBytes)
		if err != nil {
			return nil, fmt.Errorf("registrar: %w", err)
		}
		if len(b) == 0 {
			return nil, nil
		}
		return b, nil
	}}, nil
}

// rosterTime is the longest that the transfer of a roster may take.
const rosterTime = 2 * time.Minute

// rosterFile returns a function that reads the file of riffle registrar export when it has changed.
func rosterFile(path string) func(context.Context, [32]byte) ([]byte, error) {
	var read time.Time
	return func(_ context.Context, have [32]byte) ([]byte, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("registrar: %w", err)
		}
		if have != ([32]byte{}) && info.ModTime().Equal(read) {
			return nil, nil
		}
		b, err := durable.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("registrar: %w", err)
		}
		read = info.ModTime()
		return b, nil
	}
}

// byReason makes samples of counts for all reasons, so that each series exists before the
// first refusal.
func byReason(counts map[wire.Reason]int64) (out []endpoint.Sample) {
	for _, r := range wire.Reasons() {
		out = append(out, endpoint.Sample{Labels: []string{"reason", string(r)}, Value: float64(counts[r])})
	}
	return out
}

func shufflerMetrics(s shuffler.Snapshot) []endpoint.Metric {
	var rounds, stages, passes []endpoint.Sample
	for _, state := range slices.Sorted(maps.Keys(s.Rounds)) {
		rounds = append(rounds, endpoint.Sample{Labels: []string{"state", string(state)}, Value: float64(s.Rounds[state])})
	}
	for _, stage := range slices.Sorted(maps.Keys(s.Stages)) {
		label := []string{"stage", stage}
		stages = append(stages, endpoint.Sample{Labels: label, Value: s.Stages[stage].Seconds})
		passes = append(passes, endpoint.Sample{Labels: label, Value: float64(s.Stages[stage].Count)})
	}
	return []endpoint.Metric{
		{Name: "riffle_reports_accepted_total", Help: "Reports that were made durable.", Kind: endpoint.Counter, Samples: []endpoint.Sample{{Value: float64(s.Accepted)}}},
		{Name: "riffle_reports_refused_total", Help: "Reports that were refused, by reason.", Kind: endpoint.Counter, Samples: byReason(s.Refused)},
		{Name: "riffle_rounds_total", Help: "Rounds that this process brought into a state.", Kind: endpoint.Counter, Samples: rounds},
		{Name: "riffle_rounds_refused_total", Help: "Rounds that were not opened, by reason.", Kind: endpoint.Counter, Samples: byReason(s.Declined)},
		{Name: "riffle_rounds_open", Help: "Rounds that take reports now.", Kind: endpoint.Gauge, Samples: []endpoint.Sample{{Value: float64(s.Open)}}},
		{Name: "riffle_stage_seconds_total", Help: "Time spent in a stage.", Kind: endpoint.Counter, Samples: stages},
		{Name: "riffle_stage_passes_total", Help: "How often a stage was passed.", Kind: endpoint.Counter, Samples: passes},
	}
}
