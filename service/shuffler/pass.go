package shuffler

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// passes holds the passes that clients with known sessions show in a round. Bytes that come
// with a pass are from its client. Passes are in memory only. A client is a stranger until its
// report is opened if it shows another pass, or if this process has not seen its session, as after
// a restart or at another frontend.
//
// They are a table of places in the roster, open to all clients from the start: with millions of them
// a map would take four times the memory, and twice that while it grows.
type passes struct {
	mu    sync.Mutex
	busy  map[int32]int // number of reports being received, by place
	of    []uint64      // a pass's first 8 bytes by place; 0: none. A stranger cannot guess one of them.
	slots []uint32      // a place plus 1, or 0, in the first free slot from that which the pass's leading bits name
	shift int
}

// room makes the table for n clients. The caller holds the lock.
func (p *passes) room(n int) {
	width := bits.Len(uint(max(1, n+n/2)))
	p.of, p.slots, p.shift = make([]uint64, n), make([]uint32, 1<<width), 64-width
}

// at returns the slot of a pass, or the free one where it belongs.
func (p *passes) at(pass uint64) int {
	for i := int(pass >> p.shift); ; i = (i + 1) & (len(p.slots) - 1) {
		if place := p.slots[i]; place == 0 || p.of[place-1] == pass {
			return i
		}
	}
}

// remove frees a slot, and moves those behind it that belong further ahead.
func (p *passes) remove(free int) {
	last := len(p.slots) - 1
	for i := (free + 1) & last; p.slots[i] != 0; i = (i + 1) & last {
		if home := int(p.of[p.slots[i]-1] >> p.shift); (i-home)&last >= (i-free)&last {
			p.slots[free], free = p.slots[i], i
		}
	}
	p.slots[free] = 0
}

func short(pass wire.ID) uint64 { return binary.BigEndian.Uint64(pass[:]) }

// mostAtOnce is how many of a client's reports of a round are received at a time: the
// report, and its repetition if the client has had no answer.
const mostAtOnce = 2

var errBusy = pure.Refuse(wire.TooMany, "the client's report is being received")

// admit returns the place in the roster of the client whose pass a header shows, and
// counts its report until leave.
func (p *passes) admit(header []byte) (place int32, ok bool, err error) {
	h, _, err := wire.DecodeHeader(header)
	if err != nil {
		return 0, false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || short(h.Pass) == 0 {
		return 0, false, nil
	}
	found := p.slots[p.at(short(h.Pass))]
	if found == 0 {
		return 0, false, nil
	}
	place = int32(found - 1)
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

// add notes the pass of the client at a place, of n clients, in place of an earlier one.
func (p *passes) add(pass wire.ID, place int32, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.room(n)
	}
	next, before := short(pass), p.of[place]
	if next == before || next == 0 || p.slots[p.at(next)] != 0 {
		return // known, or, once in 2^64, another client's: then this one is taken for a stranger
	}
	if before != 0 {
		p.remove(p.at(before))
	}
	p.of[place] = next
	p.slots[p.at(next)] = uint32(place) + 1
}

// noteSession notes when a client's session ends, and adds its pass to the open rounds.
func (s *Service) noteSession(id wire.ID, end int64) {
	now := s.members()
	if now == nil {
		return
	}
	place, _, ok := now.find(id)
	if !ok || now.sessionEnds[place].Swap(end) == end {
		return
	}
	for _, r := range s.live() {
		s.learnPass(r, now, place)
	}
}

// learnPasses adds to a round the passes of all known sessions.
func (s *Service) learnPasses(r *round) {
	now := s.members()
	if r.seen == nil || now == nil {
		return
	}
	for place := range now.ids {
		s.learnPass(r, now, place)
	}
}

// learnPass adds to a round the pass of the session that is known of the client at a place in the roster.
// If another session becomes known meanwhile, that one's stays.
func (s *Service) learnPass(r *round, now *roster, place int) {
	for last := int64(0); ; {
		end := now.sessionEnds[place].Load()
		if end == last {
			return
		}
		s.addPass(r, now.ids[place], end)
		last = end
	}
}

func (s *Service) addPass(r *round, id wire.ID, end int64) {
	one := s.masters.get(end)
	if one == nil || time.Unix(end, 0).Before(r.deadline) {
		return // the session ends before the round does
	}
	if place, _, ok := r.roster.find(id); ok {
		r.passes.add(one.key(s.config.Population, id, end).Pass(r.digest), int32(place), len(r.roster.ids))
	}
}
