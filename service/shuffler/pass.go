package shuffler

import (
	"sync"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// passes are the values that the clients of known sessions show in a round; bytes with a
// known pass are a client's. They are a cache. A client whose session this process has not
// seen, as after a restart or at another frontend, is a stranger until its report is opened.
// So is a client that shows no pass.
type passes struct {
	mu     sync.Mutex
	places map[wire.Pass]int32
	busy   map[int32]int // number of reports being received, by place
}

// mostAtOnce is the number of a client's reports in a round that are received at a time: a
// client sends one, and the same again if it gets no answer.
const mostAtOnce = 2

var errBusy = pure.Refuse(wire.TooMany, "the client's report is being received")

// admit returns the client whose pass a header shows, and counts its report until leave.
func (p *passes) admit(header []byte) (place int32, ok bool, err error) {
	pass, ok := wire.DecodePass(header)
	if !ok {
		return 0, false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if place, ok = p.places[pass]; !ok {
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

func (p *passes) add(pass wire.Pass, place int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil {
		p.places = map[wire.Pass]int32{}
	}
	p.places[pass] = place
}

// known records the end of a client's session, and its passes in the open rounds.
func (s *Service) known(place int, end int64) {
	if s.ends[place].Swap(end) == end {
		return
	}
	for _, r := range s.live() {
		s.learnPass(r, place, end)
	}
}

// learnPasses adds the passes of all known sessions to a round.
func (s *Service) learnPasses(r *round) {
	if r.seen == nil {
		return
	}
	for place := range s.ends {
		if end := s.ends[place].Load(); end != 0 {
			s.learnPass(r, place, end)
		}
	}
}

func (s *Service) learnPass(r *round, place int, end int64) {
	one := s.masters.get(end)
	if one == nil || time.Unix(end, 0).Before(r.deadline) {
		return // a report of this round cannot be made with it
	}
	r.passes.add(one.key(s.config.Population, s.roster.ids[place], end).Pass(r.digest), int32(place))
}
