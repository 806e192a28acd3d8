package shuffler

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

const keyEnrolment = "enrolment"

type signedEnrolment struct {
	wire.Enrolment
	digest [32]byte
	signed []byte
	etag   string
}

// enrol makes sure that the store holds an enrolment that agrees with the configuration and
// stays valid for some time. Only a change of content takes a new serial.
func (s *Service) enrol(ctx context.Context, now time.Time) error {
	for range 100 {
		// If its clients are not there, the roster is fetched again.
		if err := s.readRoster(ctx); err != nil && !lost(err) {
			return err
		}
		members := s.members()
		if members == nil {
			return nil // there is no roster yet
		}
		next := wire.Enrolment{Population: s.config.Population, Clients: int64(len(members.ids)), Roster: members.digest, Registrar: members.signed,
			MinReports: s.config.MinReports, Shuffler: s.config.Keys.Keys, Aggregator: s.config.Aggregator,
			From: now.Unix(), To: now.Add(s.config.Validity).Unix()}
		if s.config.Registrar != nil {
			next.To = min(next.To, members.statement.To)
			if next.To <= next.From {
				return fmt.Errorf("shuffler: the registrar's roster %d has ended", members.statement.Serial)
			}
		}
		entry, err := s.store.Get(ctx, keyEnrolment)
		switch {
		case errors.Is(err, store.ErrNotFound):
			next.Serial = 1
		case err != nil:
			return err
		default:
			have := s.enrolment.Load()
			if have == nil || !bytes.Equal(have.signed, entry.Value) {
				if have, err = readEnrolment(s.operatorKey(), entry.Value); err != nil {
					return err
				}
			}
			as := have.Enrolment
			as.Serial, as.From, as.To = next.Serial, next.From, next.To
			fresh := have.To-now.Unix() > int64(s.config.Validity/time.Second)/2 || have.To == next.To
			if wire.Digest(as) == wire.Digest(next) && have.From <= now.Unix() && fresh {
				s.enrolment.Store(have)
				return nil
			}
			if s.newer(have) {
				return nil // another process has taken a newer roster, which this one reads next time
			}
			next.Serial = have.Serial + 1
		}
		signed := wire.Sign(s.config.Operator, wire.LabelEnrolment, wire.Encode(next))
		if _, err := s.store.Put(ctx, keyEnrolment, signed, entry.Revision); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return errors.New("shuffler: processes with different enrolments share a store")
}

// newer says whether an enrolment counts on a newer roster than this process knows.
func (s *Service) newer(e *signedEnrolment) bool {
	if s.config.Registrar == nil {
		return false
	}
	r, err := e.CheckRoster(s.config.Registrar.Key)
	return err == nil && r.Serial > s.members().statement.Serial
}

func readEnrolment(operator ed25519.PublicKey, signed []byte) (*signedEnrolment, error) {
	message, err := wire.Verify(operator, wire.LabelEnrolment, signed)
	if err != nil {
		return nil, fmt.Errorf("shuffler: the stored enrolment: %w", err)
	}
	e, err := wire.Decode[wire.Enrolment](message)
	if err != nil {
		return nil, fmt.Errorf("shuffler: the stored enrolment: %w", err)
	}
	d := wire.Digest(e)
	return &signedEnrolment{e, d, signed, strconv.Quote(hex.EncodeToString(d[:16]))}, nil
}

func (s *Service) serveEnrolment(w http.ResponseWriter, r *http.Request) {
	if name := r.URL.Query().Get("round"); name != "" {
		s.serveCounted(w, r, name)
		return
	}
	e := s.enrolment.Load()
	if e == nil {
		s.refuse(w, errNotRunning)
		return
	}
	w.Header().Set("ETag", e.etag)
	w.Header().Set("Cache-Control", "max-age=60")
	if r.Header.Get("If-None-Match") == e.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeBytes(w, e.signed)
}

// serveCounted answers with the enrolment that an open round counts on, which may not be the
// newest any more.
func (s *Service) serveCounted(w http.ResponseWriter, r *http.Request, name string) {
	b, err := hex.DecodeString(name)
	if err != nil || len(b) != 32 {
		endpoint.Refuse(w, wire.Malformed, "a round is named by 64 hexadecimal digits")
		return
	}
	round, err := s.roundForStranger(r.Context(), [32]byte(b))
	switch {
	case !s.running.Load():
		err = errNotRunning
	case err == nil && round.enrolment == nil:
		err = errClosed
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	writeBytes(w, round.enrolment)
}

func writeBytes(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // fails if the caller has gone
}
