package operate

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/store"
)

// Problem is something that must not be.
type Problem struct {
	Where string `json:"where"`
	What  string `json:"what"`
}

// CheckReport is what a check of a store found.
type CheckReport struct {
	Role     string           `json:"role"`
	Clean    bool             `json:"clean"`
	Problems []Problem        `json:"problems"`
	Checked  map[string]int64 `json:"checked"` // how much was looked at, by kind
}

func (r *CheckReport) problem(where, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{where, fmt.Sprintf(format, args...)})
}

// Check opens a role's store, which must not be in use, reads all of it, and says
// what contradicts DATA_MODEL.md. It changes nothing.
func Check(ctx context.Context, role, path string) (*CheckReport, error) {
	r := &CheckReport{Role: role, Problems: []Problem{}, Checked: map[string]int64{}}
	var err error
	switch role {
	case RoleShuffler:
		err = r.shuffler(ctx, path)
	case RoleCoordinator:
		err = r.coordinator(ctx, path)
	case RoleAggregator:
		err = r.aggregator(ctx, path)
	default:
		return nil, config.Errorf("no role %q to be checked", role)
	}
	r.Clean = err == nil && len(r.Problems) == 0
	return r, err
}

// whole reads everything once, so that what cannot be read is known.
func (r *CheckReport) whole(ctx context.Context, s *store.Store) {
	v, err := s.Inventory(ctx)
	if err != nil {
		r.problem("store", "it cannot be read whole: %v", err)
	}
	for name, n := range map[string]uint64{"ledger entries": v.Ledger, "keys": v.Keys, "secrets": v.Secrets, "streams": v.Streams,
		"messages": v.Messages, "objects": v.Objects} {
		r.Checked[name] = int64(n)
	}
}

// storedTask and storedState are what DATA_MODEL.md says of a coordinator's keys,
// as far as they are checked here.
type storedTask struct {
	Signed []byte `json:"task"`
}

type storedState struct {
	Round  int64  `json:"round"`
	Model  string `json:"model"`
	Counts struct {
		Released int64            `json:"released"`
		Void     int64            `json:"void"`
		Failed   int64            `json:"failed"`
		Reports  int64            `json:"reports"`
		Rejected map[string]int64 `json:"rejected"`
	} `json:"counts"`
	Open *struct {
		Charged bool `json:"charged"`
	} `json:"open"`
}

func (r *CheckReport) coordinator(ctx context.Context, path string) error {
	c, err := config.LoadCoordinator(path)
	if err != nil {
		return err
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		return config.Errorf("%w", err)
	}
	s, err := openCoordinatorStore(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	r.whole(ctx, s)
	book, err := verifyLedger(ctx, c, s)
	if err != nil {
		r.problem("ledger", "%v", err)
	}
	last := map[string]wire.Entry{}
	charges := map[string]int64{}
	if book != nil {
		for _, e := range book.Entries() {
			id := hex.EncodeToString(e.Task[:])
			last[id] = e
			charges[id]++
		}
	}
	keys, err := s.Keys(ctx, "created.")
	if err != nil {
		return err
	}
	run := &running{config: c, store: s, own: coordinator.Config{Key: key}, tasks: map[[32]byte]*train.Task{}}
	run.config.Record = "" // nothing is made
	if c.Aggregator != nil {
		run.own.Aggregator = &coordinator.Aggregator{}
	}
	for _, k := range keys {
		r.Checked["tasks"]++
		id := strings.TrimPrefix(k, "created.")
		if w, ok := r.task(ctx, s, k, id, publicOf(key)); ok {
			removed, err := r.usable(ctx, run, k)
			if err != nil {
				return err
			}
			if removed {
				continue
			}
			e, charged := last[id]
			r.state(ctx, s, id, w, e, charged, charges[id])
			r.service(ctx, c, s, w.ID())
		}
		delete(last, id)
	}
	for id := range last {
		r.problem("ledger", "task %s is charged, and the store does not know it", id)
	}
	return nil
}

// usable tries to make a task that has not ended. It returns an error after ctx has
// ended; removed says that only the key is left of it.
func (r *CheckReport) usable(ctx context.Context, run *running, key string) (removed bool, err error) {
	e, err := run.store.Get(ctx, key)
	var made created
	if err == nil {
		made, err = decodeCreated(e.Value)
	}
	var t coordinator.Task
	if err == nil {
		t, err = run.openTask(ctx, made)
	}
	switch {
	case errors.Is(err, errRemoved):
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		r.problem(key, "%v", err)
	case t.Missing != nil:
		r.problem(key, "the task cannot be run with this configuration (riffle task stop or remove ends it): %v", t.Missing)
	}
	return false, nil
}

// service has the coordinator's own check look at a task that was begun.
func (r *CheckReport) service(ctx context.Context, c config.Coordinator, s *store.Store, id [32]byte) {
	key := fmt.Sprintf("task.%x", id)
	if _, err := s.Get(ctx, key); errors.Is(err, store.ErrNotFound) {
		return // it was created, and no process has led it yet
	}
	population, err := config.ParsePopulation(c.Population)
	if err != nil {
		return // it was read before
	}
	j, err := coordinator.OpenJournal(ctx, s, c.Mark, population, populationLimit(c))
	if err != nil {
		return // as was said of the ledger
	}
	if err := coordinator.Check(ctx, s, j, id); err != nil {
		for line := range strings.Lines(err.Error()) {
			r.problem(key, "%s", strings.TrimSpace(line))
		}
	}
}

// task checks what is stored of a task under a key.
func (r *CheckReport) task(ctx context.Context, s *store.Store, key, id string, public ed25519.PublicKey) (w wire.Task, ok bool) {
	e, err := s.Get(ctx, key)
	if err != nil {
		r.problem(key, "%v", err)
		return w, false
	}
	var t storedTask
	if err := json.Unmarshal(e.Value, &t); err != nil {
		r.problem(key, "no record: %v", err)
		return w, false
	}
	message, err := wire.Verify(public, wire.LabelTask, t.Signed)
	if err == nil {
		w, err = wire.DecodeTask(message)
	}
	if err != nil {
		r.problem(key, "%v", err)
		return w, false
	}
	if have := w.ID(); hex.EncodeToString(have[:]) != id {
		r.problem(key, "the task there is another, %x", have)
		return w, false
	}
	return w, true
}

// state checks a task's last release against its objects and the ledger.
func (r *CheckReport) state(ctx context.Context, s *store.Store, id string, w wire.Task, last wire.Entry, charged bool, charges int64) {
	key := "state." + id
	e, err := s.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		if charged {
			r.problem(key, "there is none, and the ledger has %d entries of the task", charges)
		}
		return
	}
	var state storedState
	if err == nil {
		err = json.Unmarshal(e.Value, &state)
	}
	if err != nil {
		r.problem(key, "%v", err)
		return
	}
	n := state.Counts
	if n.Released+n.Void+n.Failed != state.Round {
		r.problem(key, "%d rounds released, %d void, %d failed, which are not the %d that ended", n.Released, n.Void, n.Failed, state.Round)
	}
	if state.Round > w.LastRound() || n.Released+n.Failed > w.Rounds {
		r.problem(key, "round %d of at most %d, %d of them charged, and they may be %d", state.Round, w.LastRound(), n.Released+n.Failed, w.Rounds)
	}
	opened := state.Open != nil && state.Open.Charged
	switch {
	case opened && (!charged || last.Round < state.Round+1) && w.Participation != dp.Once:
		r.problem(key, "round %d was opened, and the ledger's last charge is of round %d", state.Round+1, last.Round)
	case w.Participation == dp.Once: // an epoch is charged once
		if n.Released+n.Failed > 0 && charges == 0 {
			r.problem(key, "%d rounds were opened, none is charged", n.Released+n.Failed)
		}
	case charges < n.Released+n.Failed:
		r.problem(key, "%d rounds were opened, %d are charged", n.Released+n.Failed, charges)
	}
}

func readJSON(ctx context.Context, s *store.Store, key string, v any) error {
	e, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(e.Value, v); err != nil {
		return fmt.Errorf("operate: %s: %w", key, err)
	}
	return nil
}

// storedRound is what DATA_MODEL.md says of a shuffler's rounds, as far as they
// are checked here.
type storedRound struct {
	Announcement []byte `json:"announcement"`
	State        string `json:"state"`
	Run          string `json:"run"`
	Closed       []byte `json:"closed"`
}

func (r *CheckReport) shuffler(ctx context.Context, path string) error {
	c, err := config.LoadShuffler(path)
	if err != nil {
		return err
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		return config.Errorf("%w", err)
	}
	s, err := openStore(ctx, c.StoreConfig(RoleShuffler))
	if err != nil {
		return err
	}
	defer s.Close()
	r.whole(ctx, s)
	switch e, err := s.Get(ctx, "enrolment"); {
	case errors.Is(err, store.ErrNotFound): // it was never started
	case err != nil:
		r.problem("enrolment", "%v", err)
	default:
		message, err := wire.Verify(publicOf(key), wire.LabelEnrolment, e.Value)
		if err == nil {
			_, err = wire.DecodeEnrolment(message)
		}
		if err != nil {
			r.problem("enrolment", "%v", err)
		}
	}
	streams, err := s.ListStreams(ctx, "")
	if err != nil {
		return err
	}
	secrets, err := s.Secrets(ctx, "")
	if err != nil {
		return err
	}
	marks, err := s.Keys(ctx, "open.")
	if err != nil {
		return err
	}
	alive := map[string]bool{} // rounds that may have something besides their record
	for _, m := range marks {
		alive[strings.TrimPrefix(m, "open.")] = true
	}
	keys, err := s.Keys(ctx, "round.")
	if err != nil {
		return err
	}
	for _, k := range keys {
		r.Checked["rounds"]++
		name := strings.TrimPrefix(k, "round.")
		e, err := s.Get(ctx, k)
		var round storedRound
		if err == nil {
			err = json.Unmarshal(e.Value, &round)
		}
		if err != nil {
			r.problem(k, "%v", err)
			continue
		}
		switch round.State {
		case "open", "closing":
			if !alive[name] || !slices.Contains(secrets, name) {
				r.problem(k, "the round is %s, and has no mark or no keys", round.State)
			}
		case "closed":
			if !alive[name] || !slices.Contains(secrets, name) || !slices.Contains(streams, "o-"+name+"-"+round.Run) {
				r.problem(k, "the round is closed, and its batch or its keys are not there")
			}
			if slices.Contains(secrets, "links-"+name) {
				r.problem(k, "the batch is offered, and the keys of its order are still there")
			}
			r.word(k, round, publicOf(key))
		case "void", "released", "abandoned":
			r.word(k, round, publicOf(key))
			if !alive[name] { // else its destruction is finished at the next start
				r.gone(k, name, streams, secrets)
			}
		default:
			r.problem(k, "state %q", round.State)
		}
	}
	for _, name := range roundsOf(streams, secrets) {
		if !alive[name] && !slices.Contains(keys, "round."+name) {
			r.problem("round."+name, "there is no such round, but streams or keys of one")
		}
	}
	return nil
}

// word checks the signed word on a closed round.
func (r *CheckReport) word(where string, round storedRound, key ed25519.PublicKey) {
	message, err := wire.Verify(key, wire.LabelClosed, round.Closed)
	if err != nil {
		r.problem(where, "%v", err)
		return
	}
	word, err := wire.DecodeRoundClosed(message)
	if err != nil {
		r.problem(where, "%v", err)
		return
	}
	if len(round.Announcement) < ed25519.SignatureSize {
		r.problem(where, "no announcement")
		return
	}
	a, err := wire.DecodeAnnouncement(round.Announcement[ed25519.SignatureSize:])
	if err != nil || a.Digest() != word.Announcement || word.Void != (round.State == "void") {
		r.problem(where, "the signed word is not on this round")
	}
}

// gone makes sure that nothing is left of a round but its record.
func (r *CheckReport) gone(where, name string, streams, secrets []string) {
	if slices.Contains(secrets, name) || slices.Contains(secrets, "links-"+name) {
		r.problem(where, "the round has ended, and its keys are still there")
	}
	for _, stream := range streams {
		if nameOf(stream) == name {
			r.problem(where, "the round has ended, and stream %s is still there", stream)
		}
	}
}

// nameOf returns the round that a stream belongs to: in-NAME, b-NAME-…, o-NAME-….
func nameOf(stream string) string {
	if f := strings.Split(stream, "-"); len(f) > 1 {
		return f[1]
	}
	return ""
}

func roundsOf(streams, secrets []string) []string {
	var names []string
	for _, s := range secrets {
		if !strings.HasPrefix(s, "session-") { // those of sessions live by themselves
			names = append(names, strings.TrimPrefix(s, "links-"))
		}
	}
	for _, s := range streams {
		names = append(names, nameOf(s))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *CheckReport) aggregator(ctx context.Context, path string) error {
	c, err := config.LoadAggregator(path)
	if err != nil {
		return err
	}
	s, err := openStore(ctx, c.StoreConfig(RoleAggregator))
	if err != nil {
		return err
	}
	defer s.Close()
	r.whole(ctx, s)
	keys, err := s.Keys(ctx, "sum.")
	if err != nil {
		return err
	}
	for _, k := range keys {
		r.Checked["rounds"]++
		e, err := s.Get(ctx, k)
		if err == nil && !json.Valid(e.Value) {
			err = errors.New("no record")
		}
		if err != nil {
			r.problem(k, "%v", err)
		}
	}
	return nil
}

// verifyLedger compares a coordinator's ledger with its mark.
func verifyLedger(ctx context.Context, c config.Coordinator, s *store.Store) (*ledger.Book, error) {
	population, err := config.ParsePopulation(c.Population)
	if err != nil {
		return nil, config.Errorf("%w", err)
	}
	l, err := s.OpenLedger(ctx)
	if err != nil {
		return nil, err
	}
	mark, err := coordinator.MarkFile(c.Mark).Load()
	if err != nil {
		return nil, fmt.Errorf("high-water mark: %w", err)
	}
	return ledger.Verify(ctx, coordinator.OnLedger(l), mark, population)
}
