// Package aggregator is the program's second aggregator of vector sums, run by the operator
// of the shuffler. It opens the shares that are sealed to it, sums them, and releases the sum
// once: for one set of reports of a round, never fewer than the round's minimum. The
// coordinator has the other shares; either kind of share alone is uniform numbers.
//
// It answers signed requests only, and stores each answer before it sends it. After a crash
// it gives the same answers and refuses the same requests.
package aggregator

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// storage keeps the aggregator's promises and results; it is a *store.Store, except in tests.
// Writes are durable on return, and errors are those of package store.
type storage interface {
	Get(ctx context.Context, key string) (store.Entry, error)
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// PutObject stores data under a name, which never gets other data.
	PutObject(ctx context.Context, name string, data []byte) error
	GetObject(ctx context.Context, name string) ([]byte, error)
	Delete(ctx context.Context, k store.Kind, name string) error
	List(ctx context.Context, k store.Kind, prefix string) ([]string, error)
	mark.Log
}

// Config configures an aggregator. Coordinator, Keyring, Shuffler and Store are required.
type Config struct {
	Coordinator ed25519.PublicKey // key that signs tasks, announcements and exclusions
	Keyring     *envelope.Keyring // the keys that shares are sealed to
	Shuffler    batch.Source
	Store       storage
	// Mark is the high-water mark of the rounds that were summed; nil: a store that was restored
	// from an old copy is not noticed.
	Mark mark.Keeper
	// Key signs which reports a round with proofs is summed over. Such rounds need it and Mark.
	Key ed25519.PrivateKey
	// MinReports is the fewest reports that this aggregator sums, whatever a task says.
	// Default 2.
	MinReports int64
	// Workers is the number of goroutines that open shares. Default: one per CPU.
	Workers int
	// Log gets what happens, without anything about clients. Default: nowhere.
	Log *slog.Logger
}

// Service is an aggregator. Its methods may be called by several goroutines.
type Service struct {
	config Config
	// Work continues when the caller has gone: the caller asks again and then finds the
	// result. It ends with the context given to New.
	work    context.Context
	history *history // nil without a mark

	mu     sync.Mutex
	rounds map[[32]byte]*round // the rounds worked on last, no more than live of them
	order  [][32]byte
	counts Counts
	epochs map[[32]byte]wire.TokenKeys // by their digests; at most mostEpochs
}

// Counts are the totals of an aggregator since it started.
type Counts struct {
	Prepared int64                 // rounds whose shares were opened
	Summed   int64                 // partial sums that were released
	Reports  int64                 // reports in those partial sums
	Refused  map[wire.Reason]int64 // refused requests; shares that could not be summed count as out-of-range
	Seconds  float64               // time spent on opening and summing
}

// Snapshot returns the counts.
func (s *Service) Snapshot() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Refused = map[wire.Reason]int64{}
	for k, v := range s.counts.Refused {
		c.Refused[k] = v
	}
	return c
}

// New checks the configuration and compares the store with its mark. When ctx ends, so does all
// work under way; later requests fail.
func New(ctx context.Context, c Config) (*Service, error) {
	if len(c.Coordinator) != ed25519.PublicKeySize || c.Keyring == nil || c.Store == nil {
		return nil, errors.New("aggregator: the coordinator's key, a keyring and a store are required")
	}
	if c.Key != nil && len(c.Key) != ed25519.PrivateKeySize {
		return nil, errors.New("aggregator: the signing key has the wrong size")
	}
	if c.MinReports < 0 || c.Workers < 0 {
		return nil, errors.New("aggregator: n-min and workers must not be negative")
	}
	if err := c.Shuffler.Check(); err != nil {
		return nil, err
	}
	if c.MinReports == 0 {
		c.MinReports = 2
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{config: c, work: ctx, rounds: map[[32]byte]*round{}, counts: Counts{Refused: map[wire.Reason]int64{}}}
	if c.Mark != nil {
		s.history = newHistory(c.Store, c.Mark)
		if err := s.history.Open(ctx); err != nil {
			return nil, err
		}
	}
	return s, errors.Join(s.sweep(ctx, hash{}, 0), s.sweepHeld(ctx, time.Now(), hash{}, 0))
}

// Ready returns why requests cannot be served now; nil if they can.
func (s *Service) Ready(ctx context.Context) error {
	if _, err := s.config.Store.Get(ctx, "ready"); err != nil && !errors.Is(err, store.ErrNotFound) {
		return errors.New("the store does not answer")
	}
	if s.history == nil {
		return nil
	}
	return s.history.Lag()
}

// no returns an error that refuses a request.
func no(reason wire.Reason, format string, args ...any) error {
	return &endpoint.Refusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// round is the state of one round's work.
type round struct {
	mu     sync.Mutex // serves one request at a time
	job    *job
	opened *vecsum.Aggregator // sum of all shares except those of exclusion; nil: they have to be opened again

	exchange *exchanged // of a round with proofs; nil: it begins with place 0
}

// job is a round, as described by its signed messages.
type job struct {
	task         wire.Task
	announcement wire.Announcement
	closed       wire.RoundClosed
	digest       [32]byte                 // digest of the announcement
	sum          *mechanism.VectorSum     // nil if the reports carry proofs
	proved       *mechanism.AggregatedSum // nil if they carry none
	key          proved.VerifyKey         // of their proofs
	minReports   int64
	tokens       *token.Keys // nil: reports have no tokens
}

// live is the number of rounds that are held in memory.
const live = 4

func (s *Service) round(announcement [32]byte) *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rounds[announcement]
	if r == nil {
		if len(s.order) == live {
			old := s.rounds[s.order[0]]
			go func() { old.mu.Lock(); defer old.mu.Unlock(); s.drop(old) }()
			delete(s.rounds, s.order[0])
			s.order = s.order[1:]
		}
		r = &round{}
		s.rounds[announcement] = r
	} else {
		at := slices.Index(s.order, announcement)
		s.order = slices.Delete(s.order, at, at+1)
	}
	s.order = append(s.order, announcement)
	return r
}

// split reads a length from b and then a part of that length. It returns the part and the rest.
func split(b []byte) (part, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, no(wire.Malformed, "a part is shorter than its length")
	}
	n := binary.LittleEndian.Uint32(b)
	return b[4 : 4+n], b[4+n:], nil
}

// parse checks a round's three signed messages and that they belong together.
func (s *Service) parse(body []byte) (*job, error) {
	signedTask, rest, err := split(body)
	if err != nil {
		return nil, err
	}
	signedAnnouncement, signedClosed, err := split(rest)
	if err != nil {
		return nil, err
	}
	j := &job{}
	var signedKey []byte
	message, err := wire.Verify(s.config.Coordinator, wire.LabelTask, signedTask)
	if err != nil {
		return nil, no(wire.BadSignature, "the task is not signed by the coordinator")
	}
	if j.task, err = wire.Decode[wire.Task](message); err != nil {
		return nil, no(wire.Malformed, "%v", err)
	}
	if j.task.Mechanism.Sum.Proved() {
		if signedClosed, signedKey, err = split(signedClosed); err != nil {
			return nil, err
		}
	}
	if message, err = wire.Verify(s.config.Coordinator, wire.LabelAnnouncement, signedAnnouncement); err != nil {
		return nil, no(wire.BadSignature, "the announcement is not signed by the coordinator")
	}
	if j.announcement, err = wire.Decode[wire.Announcement](message); err != nil {
		return nil, no(wire.Malformed, "%v", err)
	}
	if _, err := wire.Verify(s.config.Shuffler.Key, wire.LabelClosed, signedClosed); err != nil {
		return nil, no(wire.BadSignature, "the word on the round is not signed by the shuffler's operator")
	}
	if j.closed, err = s.config.Shuffler.CheckClosed(&j.announcement, signedClosed); err != nil {
		return nil, no(wire.Malformed, "%v", err)
	}
	j.digest = wire.Digest(j.announcement)
	if err := s.check(j); err != nil || j.proved == nil {
		return j, err
	}
	return j, s.proofKey(j, signedKey)
}

// check compares a round with its task and this aggregator's rules.
func (s *Service) check(j *job) error {
	t, a, c := &j.task, &j.announcement, &j.closed
	m, err := mechanism.New(t.Mechanism)
	if err != nil {
		return no(wire.Malformed, "%v", err)
	}
	switch m := m.(type) {
	case *mechanism.VectorSum:
		j.sum = m
	case *mechanism.AggregatedSum:
		j.proved = m
	}
	switch {
	case j.sum == nil && j.proved == nil || !t.Trust.Is(dp.SumsOnly):
		return no(wire.Malformed, "the task is not a vector sum")
	case a.Task != wire.Digest(*t):
		return no(wire.UnknownRound, "the announcement is of another task")
	case a.Trust != t.Trust || a.PerClient() != 1 || t.PerClient() != 1 || a.Participation != t.Participation || a.MinReports != t.MinReports || a.Round > t.LastRound() ||
		a.Randomizer != m.Facts().Name || a.Sigma != m.Event().Sigma || a.Eps0 != 0 || a.Clip != t.Mechanism.Clip:
		return no(wire.Malformed, "the announcement is not what the task says")
	case (len(t.Mechanism.Weights) > 0) != (t.Every > 0) || t.Every > 0 && t.Participation != dp.CheckIn:
		return no(wire.Malformed, "correlated noise of a task whose clients do not count rounds")
	case j.proved != nil && j.proved.MinUsers > t.MinReports:
		return no(wire.Malformed, "the noise of %d clients is relied on, rounds are summed with %d", j.proved.MinUsers, t.MinReports)
	case c.Void:
		return no(wire.Closed, "the round is void")
	}
	j.minReports = max(s.config.MinReports, t.MinReports)
	if c.Reports < j.minReports {
		return no(wire.Excluded, "%d reports are fewer than the %d that this aggregator sums", c.Reports, j.minReports)
	}
	if j.proved != nil {
		if err := s.checkProved(j); err != nil {
			return err
		}
	}
	_, vector, err := mechanism.ContentSizes(m)
	if err != nil {
		return no(wire.Malformed, "%v", err)
	}
	if size, err := envelope.PartSize(a.Aggregator.Suite, t.Attachments().Size(vector)); err != nil || size != a.ShareBytes {
		return no(wire.WrongSize, "shares of %d bytes, want %d", a.ShareBytes, size)
	}
	j.tokens, err = s.tokenKeys(t)
	return err
}

// prepare opens a closed round's shares and returns its exclusion: the shares that it cannot
// sum. body holds length and signed task, length and signed announcement, and the shuffler's
// signed statement on the closed round. If the reports carry proofs, the statement has its length
// too, and the signed key of the proofs follows; nothing is opened then, and the exclusion has no places.
func (s *Service) prepare(body []byte) (wire.Exclusion, error) {
	ctx := s.work
	j, err := s.parse(body)
	if err != nil {
		return wire.Exclusion{}, err
	}
	r := s.round(j.digest)
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, _, err := s.load(ctx, j.digest)
	if err == nil {
		if rec.Closed != hash(wire.Digest(j.closed)) {
			return wire.Exclusion{}, no(wire.SecondReport, "the round was closed otherwise")
		}
		if j.proved != nil {
			if err := s.sameKey(j, rec); err != nil {
				return wire.Exclusion{}, err
			}
			r.job = j
			return wire.Exclusion{Announcement: j.digest, Reports: j.closed.Reports}, nil
		}
		e, err := s.exclusion(ctx, rec)
		if err != nil {
			return wire.Exclusion{}, err
		}
		r.job = j
		return e, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return wire.Exclusion{}, err
	}
	// The statement must be the shuffler's current one, not just one that it signed.
	word, err := s.config.Shuffler.Closed(ctx, &j.announcement, 0)
	if err != nil {
		return wire.Exclusion{}, fmt.Errorf("aggregator: %w", err)
	}
	if word == nil {
		return wire.Exclusion{}, no(wire.Unavailable, "the shuffler has the round open")
	}
	if own, err := s.config.Shuffler.CheckClosed(&j.announcement, word); err != nil || own.Digest != j.closed.Digest ||
		own.Shares != j.closed.Shares || own.Reports != j.closed.Reports || own.Chunks != j.closed.Chunks {
		return wire.Exclusion{}, no(wire.SecondReport, "the round was closed otherwise")
	}
	if j.proved != nil {
		if err := s.createProved(ctx, j); err != nil {
			return wire.Exclusion{}, err
		}
		r.job = j
		s.count(func(c *Counts) { c.Prepared++ })
		return wire.Exclusion{Announcement: j.digest, Reports: j.closed.Reports}, nil
	}
	var receipts *batch.Receipts
	if j.task.Receipts {
		receipts = new(batch.Receipts)
	}
	sum, err := s.open(ctx, j, nil, receipts)
	if err != nil {
		return wire.Exclusion{}, err
	}
	e := wire.Exclusion{Announcement: j.digest, Reports: j.closed.Reports, Places: sum.Failed}
	if err := s.create(ctx, j, &e, &wire.ShareIDs{Announcement: j.digest, IDs: sum.IDs}, receipts); err != nil {
		return wire.Exclusion{}, err
	}
	r.job, r.opened = j, sum.Aggregator
	s.count(func(c *Counts) { c.Prepared++ })
	s.config.Log.Info("round is prepared", "round", j.closed.Round, "reports", j.closed.Reports, "excluded", len(sum.Failed))
	return e, nil
}

func (s *Service) count(f func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.counts)
}

// open sums all shares except those at the places in out, which ascend. It collects the receipts of
// all shares unless receipts is nil.
func (s *Service) open(ctx context.Context, j *job, out []int64, receipts *batch.Receipts) (*exchange.Sum, error) {
	begin := time.Now()
	defer func() { s.count(func(c *Counts) { c.Seconds += time.Since(begin).Seconds() }) }()
	shares, err := j.sum.Shares(j.digest)
	if err != nil {
		return nil, err
	}
	reader := batch.Reader{Source: s.config.Shuffler, Announcement: j.digest, Reports: j.closed.Reports,
		// Chunks stays 0: the signed statement counts the coordinator's chunks only, and chunks
		// of shares have another size.
		Digest: j.closed.Shares, Size: j.announcement.ShareBytes, Workers: s.config.Workers}
	attached := j.task.Attachments()
	sum, err := exchange.Shares{Reader: reader, Of: shares, Index: 1, Tokens: j.tokenRound(), Open: func(sealed []byte) ([]byte, wire.Attached, error) {
		content, err := s.config.Keyring.OpenPart(envelope.Aggregator, j.digest, sealed)
		if err != nil {
			return nil, wire.Attached{}, err
		}
		content, with, err := attached.Split(content)
		if err == nil && receipts != nil {
			receipts.Add(with.Receipt)
		}
		return content, with, err
	}}.Sum(ctx, out)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	if out == nil { // a share is counted once
		s.count(func(c *Counts) {
			for why, n := range sum.Refused {
				c.Refused[why] += n
			}
		})
	}
	return sum, nil
}

// recordPrefix begins the keys of rounds.
const recordPrefix = "sum."

func key(announcement [32]byte) string { return recordPrefix + hex.EncodeToString(announcement[:]) }
