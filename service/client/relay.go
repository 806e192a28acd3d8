package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/riffle-dp/riffle/protocol/bhttp"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// relayPath is where a relay takes sealed requests; relayRoom is what the request around a body
// takes at most; maxRelayed bounds a sealed answer.
const (
	relayPath  = "/v1/relay"
	relayRoom  = 1 << 10
	maxRelayed = 1 << 17
)

// passHeader has a pass for the relay.
const passHeader = "Riffle-Pass"

// passes are those of the newest session of any member, the first of which is for the day first.
type passes struct {
	first int64
	all   []wire.ID
}

// pass returns the header's value for the relay. Without a pass of the day it is random, so that all requests
// have one size.
func (f *Fleet) pass(now time.Time) string {
	var pass wire.ID
	p := f.passes.Load()
	if day := now.Unix() / wire.PassDay; p != nil && day >= p.first && day-p.first < int64(len(p.all)) {
		pass = p.all[day-p.first]
	} else {
		rand.Read(pass[:]) // never fails
	}
	return base64.RawURLEncoding.EncodeToString(pass[:])
}

// toShuffler is the address of what the shuffler tells everyone: the relay's, if there is one.
func (f *Fleet) toShuffler() string {
	if f.config.Relay != "" {
		return f.config.Relay
	}
	return f.config.Shuffler
}

// widen notes a round's size of reports: what is sent through a relay is padded to the largest.
func (f *Fleet) widen(ann wire.Announcement, e wire.Enrolment) {
	key, err := f.config.Policy.ShufflerKey(e, time.Now())
	if err != nil {
		return
	}
	size, err := envelope.ReportSize(key.Suite, ann.PartBytes(), ann.ShareBytes)
	if err != nil {
		return
	}
	for old := f.widest.Load(); old < size && !f.widest.CompareAndSwap(old, size); old = f.widest.Load() {
	}
}

// known returns the last enrolment, or fetches one if there is none whose keys the gateway knows.
func (f *Fleet) known(ctx context.Context) (wire.Enrolment, error) {
	e := &f.enrolled
	if err := e.lock(ctx); err != nil {
		return wire.Enrolment{}, err
	}
	defer e.unlock()
	if e.some && !e.stale {
		return e.last, nil
	}
	return f.latestEnrolment(ctx)
}

// relayed posts to the shuffler through the relay. The request is sealed to the shuffler's key, which
// its operator has signed, and all requests have one size, so the relay can neither read nor change
// them, nor tell a report from a request for a session by more than their number.
func (f *Fleet) relayed(ctx context.Context, path string, body []byte) (answer, error) {
	enrolment, err := f.known(ctx)
	if err != nil {
		return answer{}, fmt.Errorf("client: relay: %w", err)
	}
	key, err := f.config.Policy.ShufflerKey(enrolment, time.Now())
	if err != nil {
		return answer{}, client.Refuse(client.CauseKey, "%v", err)
	}
	u, err := url.Parse(f.config.Shuffler)
	if err != nil {
		return answer{}, fmt.Errorf("client: %v", err)
	}
	q := bhttp.Request{Method: methodPost, Scheme: "https", Authority: u.Host, Path: path, Body: body}
	sealed, open, err := envelope.SealRequest(key, q.Append(nil, relayRoom+max(len(body), int(f.widest.Load()))))
	if err != nil {
		return answer{}, fmt.Errorf("client: relay: %v", err)
	}
	a, err := f.web.doWith(ctx, methodPost, f.config.Relay+relayPath, map[string]string{"Content-Type": "message/ohttp-req", passHeader: f.pass(time.Now())}, sealed, "", maxRelayed, 0)
	if err != nil {
		return answer{}, err
	}
	if a.status != statusOK {
		if a.reason() == wire.WrongKey { // the shuffler has other keys by now
			if err := f.enrolled.lock(ctx); err != nil {
				return answer{}, err
			}
			f.enrolled.stale = true
			f.enrolled.unlock()
		}
		// Whatever the relay says, it does not speak for the shuffler: the same bytes are sent again.
		return answer{}, a.unexpected("relay")
	}
	inside, err := open(a.body)
	if err != nil {
		return answer{}, errors.New("client: relay: an answer that is not the shuffler's")
	}
	m, err := bhttp.DecodeResponse(inside)
	if err != nil {
		return answer{}, fmt.Errorf("client: relay: %v", err)
	}
	if len(m.Body) > maxRefusal {
		return answer{}, fmt.Errorf("client: relay: answer %w (%d bytes)", errTooLong, maxRefusal)
	}
	return answer{status: m.Status, body: m.Body}, nil
}
