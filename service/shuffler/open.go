package shuffler

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/dp"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// maxAnnouncement bounds the size of a signed announcement.
const maxAnnouncement = 64 << 10

func (s *Service) serveOpen(w http.ResponseWriter, r *http.Request) {
	body, ok := endpoint.ReadBody(w, r, maxAnnouncement)
	if !ok {
		return
	}
	if err := s.open(r.Context(), body, time.Now()); err != nil {
		var refusal *pure.Refusal
		if errors.As(err, &refusal) {
			s.metrics.declined.add(refusal.Reason, 1)
		}
		s.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func keyLast(task [32]byte) string  { return "last." + hex.EncodeToString(task[:]) }
func keyEpoch(task [32]byte) string { return "epoch." + hex.EncodeToString(task[:]) }

// lastRound is the highest round of a task that was opened.
type lastRound struct {
	Round        int64  `json:"round"`
	Announcement string `json:"announcement"` // the announcement's name
}

// open makes an announced round durable. When it is called again with the same
// announcement it goes on where it was interrupted.
func (s *Service) open(ctx context.Context, signed []byte, now time.Time) error {
	if !s.running.Load() {
		return errNotRunning
	}
	ann, signer, err := s.announced(signed)
	if err != nil {
		return err
	}
	digest := wire.Digest(ann)
	name := encodeName(digest[:])
	switch _, err := s.loadRecord(ctx, name); {
	case err == nil:
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	var last lastRound
	revision, err := s.getJSON(ctx, keyLast(ann.Task), &last)
	if err != nil {
		return err
	}
	if last.Round == ann.Round {
		if last.Announcement != name {
			return pure.Refuse(wire.SecondReport, "another announcement has opened round %d", ann.Round)
		}
		last.Round-- // this round itself was begun and interrupted
	}
	if e := s.enrolment.Load(); e == nil || ann.Enrolment != e.digest {
		if err := s.enrol(ctx, now); err != nil { // another process may have renewed it
			return err
		}
	}
	enrolment := s.enrolment.Load()
	if enrolment == nil {
		return errUnavailable
	}
	if err := pure.CheckOpening(ann, enrolment.Enrolment, last.Round, now, s.config.Limits); err != nil {
		return err
	}
	if ann.Participation == dp.Once { // refuse before anything is stored
		if _, _, _, err := s.nextEpoch(ctx, ann, enrolment.Roster); err != nil {
			return err
		}
	}
	if last.Announcement != name { // else it was checked before the interruption
		if err := s.checkHead(ctx, signer, ann); err != nil {
			return err
		}
	}
	// The mark comes first: sweep destroys what no mark names.
	if err := s.markOpen(ctx, name, ann.Deadline, signer); err != nil {
		return err
	}
	if err := s.rosterStays(ctx, enrolment.Roster); err != nil {
		return err
	}
	if err := s.makeSecrets(ctx, name); err != nil {
		return err
	}
	if _, err := s.store.CreateStream(ctx, streamIn(name)); err != nil && !errors.Is(err, store.ErrExists) {
		return err
	}
	payer := ""
	if ann.Participation == dp.Once {
		if payer, err = s.makeEpoch(ctx, ann, name, signer, enrolment.Roster); err != nil {
			return err
		}
	}
	if last.Announcement != name {
		err := s.putJSON(ctx, keyLast(ann.Task), lastRound{ann.Round, name}, revision)
		if errors.Is(err, store.ErrConflict) {
			return errUnavailable // another round of the task was opened meanwhile
		}
		if err != nil {
			return err
		}
	}
	rec := &record{Format: recordFormat, Announcement: signed, State: Open, Roster: enrolment.Roster, Bits: s.dealt(ann), Payer: payer}
	if s.config.Registrar != nil {
		rec.Enrolment = enrolment.signed
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("shuffler: %v", err)
	}
	if _, err := s.store.Put(ctx, keyRecord(name), b, 0); err != nil && !errors.Is(err, store.ErrConflict) {
		return err
	}
	s.metrics.opened.Add(1)
	s.config.Log.Info("round opened", "task", hex.EncodeToString(ann.Task[:8]), "round", ann.Round)
	s.nudge()
	return nil
}

// rosterStays refuses to open a round, whose mark is stored, if a newer roster was taken
// meanwhile: its own could be deleted (dropRosters).
func (s *Service) rosterStays(ctx context.Context, digest [32]byte) error {
	if s.config.Registrar == nil {
		return nil
	}
	_, valid, err := s.takenRoster(ctx)
	if err == nil && valid.Digest != digest {
		err = pure.Refuse(wire.NotEnrolled, "the roster has changed")
	}
	return err
}

// markOpen marks a round as open, unless its coordinator has too many under way. Processes
// that share the store may each let one in at the same time.
func (s *Service) markOpen(ctx context.Context, name string, deadline int64, signer ed25519.PublicKey) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	who := fmt.Sprintf(" %x", signer[:8])
	marks, err := s.store.List(ctx, store.Values, keyOpen(""))
	if err != nil {
		return err
	}
	mine := 0
	for _, key := range marks {
		if len(marks) < s.config.MostOpen || slices.Contains(marks, keyOpen(name)) {
			break // there is room, or this round is marked already
		}
		e, err := s.store.Get(ctx, key)
		if gone(err) != nil {
			return err
		}
		if err == nil && strings.HasSuffix(string(e.Value), who) {
			mine++
		}
	}
	if mine >= s.config.MostOpen {
		return pure.Refuse(wire.TooMany, "%d rounds are under way: not released, and not void", mine)
	}
	_, err = s.store.Put(ctx, keyOpen(name), []byte(strconv.FormatInt(deadline, 10)+who), 0)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// epoch is the draw of a task's current epoch, for participation once. It is public who is
// in which block, and must not change while the epoch lasts.
type epoch struct {
	Epoch  int64    `json:"epoch"`
	Key    []byte   `json:"key"`
	Roster [32]byte `json:"roster"`
	Blocks int64    `json:"blocks"`
	// Payer names the round that the epoch is charged with: its first one that is not void, or the
	// last one while all are.
	Payer string `json:"payer"`
}

// nextEpoch returns the number of a round's epoch, whether its draw was made, and the
// revision of the stored draw. It refuses a round that does not fit the draw.
func (s *Service) nextEpoch(ctx context.Context, ann wire.Announcement, roster [32]byte) (number int64, made bool, revision uint64, err error) {
	if number, err = pure.Epoch(ann); err != nil {
		return 0, false, 0, pure.Refuse(wire.Malformed, "%d blocks of %d clients", ann.PerEpoch, ann.Population)
	}
	var have epoch
	if revision, err = s.getJSON(ctx, keyEpoch(ann.Task), &have); err != nil {
		return 0, false, 0, err
	}
	if revision != 0 && have.Epoch >= number {
		return number, true, revision, s.checkEpoch(have, number, ann, roster)
	}
	return number, false, revision, nil
}

// makeEpoch makes the draw of a round's epoch, unless it was made. It returns the name of the round
// that the epoch is charged with, this one unless another may be.
func (s *Service) makeEpoch(ctx context.Context, ann wire.Announcement, name string, signer ed25519.PublicKey, roster [32]byte) (payer string, err error) {
	number, made, revision, err := s.nextEpoch(ctx, ann, roster)
	if err != nil {
		return "", err
	}
	e := epoch{Epoch: number, Key: make([]byte, 16), Roster: roster, Blocks: ann.PerEpoch}
	if made {
		if revision, err = s.getJSON(ctx, keyEpoch(ann.Task), &e); err != nil {
			return "", err
		}
		if e.Epoch != number {
			return "", errUnavailable // another process has begun the next one meanwhile
		}
		payer = e.Payer
		pays, err := s.mayPay(ctx, payer, signer)
		if err != nil {
			return "", err
		}
		if !pays {
			payer = name
		}
		if e.Payer == payer {
			return payer, nil
		}
	} else {
		payer = name
		rand.Read(e.Key) // never fails
	}
	e.Payer = payer
	err = s.putJSON(ctx, keyEpoch(ann.Task), e, revision)
	if errors.Is(err, store.ErrConflict) {
		return "", errUnavailable // another process changed it at the same time: the next attempt finds it
	}
	return payer, err
}

// mayPay says whether a round was opened for a coordinator, and is not void. With trust local void
// rounds are charged too.
func (s *Service) mayPay(ctx context.Context, name string, signer ed25519.PublicKey) (bool, error) {
	rec, err := s.loadRecord(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ann, who, err := s.announced(rec.Announcement)
	if err != nil {
		return false, nil // of another coordinator, whose key is gone
	}
	return who.Equal(signer) && (rec.State != Void || ann.Trust.Is(dp.Alone)), nil
}

// checkEpoch refuses a change that would put a client into two blocks of an epoch. If the task says
// on how many clients it counts, the roster may change: the epoch's blocks stay those of its own
// roster.
func (s *Service) checkEpoch(e epoch, number int64, ann wire.Announcement, roster [32]byte) error {
	mayChange := s.config.Registrar != nil && ann.MinClients > 0
	if e.Epoch != number || e.Blocks != ann.PerEpoch || e.Roster != roster && !mayChange {
		return pure.Refuse(wire.NotEnrolled, "blocks or roster have changed within epoch %d: go on with epoch %d", e.Epoch, e.Epoch+1)
	}
	return nil
}

func (s *Service) epoch(ctx context.Context, ann wire.Announcement, roster [32]byte) (e epoch, err error) {
	number, err := pure.Epoch(ann)
	if err != nil {
		return e, err
	}
	revision, err := s.getJSON(ctx, keyEpoch(ann.Task), &e)
	if err != nil {
		return e, err
	}
	if revision == 0 {
		return e, errUnknown
	}
	return e, s.checkEpoch(e, number, ann, roster)
}

// getJSON returns revision 0 if the key has no value.
func (s *Service) getJSON(ctx context.Context, key string, v any) (uint64, error) {
	e, err := s.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(e.Value, v); err != nil {
		return 0, fmt.Errorf("shuffler: %s: %v", key, err)
	}
	return e.Revision, nil
}

func (s *Service) putJSON(ctx context.Context, key string, v any, revision uint64) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("shuffler: %v", err)
	}
	_, err = s.store.Put(ctx, key, b, revision)
	return err
}
