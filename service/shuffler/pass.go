package shuffler

import (
	"sync"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// passes holds the passes that clients with known sessions show in a round. Bytes that come
// with a pass are from its client. Passes are in memory only. A client is a stranger until its
// report is opened if it shows no pass, or if this process has not seen its session, as after
// a restart or at another frontend.
type passes struct {
	mu     sync.Mutex
	places map[wire.ID]int32
	busy   map[int32]int // number of reports being received, by place
}

// mostAtOnce is how many of a client's reports of a round are received at a time: the
// report, and its repetition if the client has had no answer.
const mostAtOnce = 2

var errBusy = pure.Refuse(wire.TooMany, "the client's report is being received")

// admit returns the place in the roster of the client whose pass a header shows, and
// counts its report until leave.
func (p *passes) admit(header []byte) (place int32, ok bool, err error) {
	h, _, err := wire.DecodeHeader(header)
	if err != nil || h.Pass == nil {
		return 0, false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if place, ok = p.places[*h.Pass]; !ok {
		return 0, false, nil
	}
	if p.busy[place] >= mostAtOnce {
		return 0, false, errBusy
	}
	if p.busy == nil {
		p.busy = map[int32]int{}
	}
	p.busy[place]++
	return place, true, nil
}

func (p *passes) leave(place int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[place]--; p.busy[place] == 0 {
		delete(p.busy, place)
	}
}

func (p *passes) add(pass wire.ID, place int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil {
		p.places = map[wire.ID]int32{}
	}
	p.places[pass] = place
}

// noteSession notes when a client's session ends, and adds its pass to the open rounds.
func (s *Service) noteSession(id wire.ID, end int64) {
	now := s.members()
	if now == nil {
		return
	}
	if place, _, ok := now.find(id); !ok || now.sessionEnds[place].Swap(end) == end {
		return
	}
	for _, r := range s.live() {
		s.learnPass(r, id, end)
	}
}

// learnPasses adds to a round the passes of all known sessions.
func (s *Service) learnPasses(r *round) {
	now := s.members()
	if r.seen == nil || now == nil {
		return
	}
	for place, id := range now.ids {
		if end := now.sessionEnds[place].Load(); end != 0 {
			s.learnPass(r, id, end)
		}
	}
}

func (s *Service) learnPass(r *round, id wire.ID, end int64) {
	one := s.masters.get(end)
	if one == nil || time.Unix(end, 0).Before(r.deadline) {
		return // the session ends before the round does
	}
	if place, _, ok := r.roster.find(id); ok {
		r.passes.add(one.key(s.config.Population, id, end).Pass(r.digest), int32(place))
	}
}
