package endpoint

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// gate bounds connections, requests and bytes of bodies under way, both in total and for each
// address. A caller is *unproven* until it has shown who it is (Prove, ServerConfig.Known).
// The unproven callers of one address have a share of each bound. If the share is full and a
// newcomer arrives, the one of them that has been idle longest is closed. So nobody can take
// the room of others, whether from another address or from the same one behind a NAT: proven
// callers do not count against the share, and a newcomer keeps its place until a whole share
// of others has come after it.
//
// Questions (GET) are bounded apart from posts. A connection with a post under way is never closed
// for a question, and for another connection only if all of its address's that could be closed have one.
type gate struct {
	mu     sync.Mutex
	most   amounts // limits in total
	share  amounts // limits for the unproven callers of one address
	used   amounts
	rates  rates   // over all callers; nil: no limit
	ofRate float64 // the part of rates for the unproven callers of one address
	// ofBytes is the number of bytes a second that are read from an address's unproven
	// callers, divided equally among their connections; 0: no limit.
	ofBytes float64
	body    int64 // size of the largest body
	all     map[netip.Prefix]*party
	callers map[int]amounts // what the proven connections of each caller use
	closed  atomic.Int64    // connections closed to make room for others
	turned  atomic.Int64    // connections turned away because there was no room
}

// amounts counts connections, requests and bytes.
type amounts [4]int64

const (
	connections = iota
	posts       // requests under way, but questions
	bytesHeld
	questions // requests under way that ask only: GET, HEAD, OPTIONS
)

// party is all callers from one address.
type party struct {
	prefix           netip.Prefix
	used, unproven   amounts
	strangers, known list.List // lists of *guest, idle longest first
	rates            rates     // of strangers' requests
}

// guest is one connection.
type guest struct {
	gate   *gate
	conn   net.Conn
	party  *party
	place  *list.Element
	proven bool
	caller int         // number of the caller if the guest is proven; nobody for a peer
	free   atomic.Bool // whether it is proven, for readers without the lock
	gone   bool
	until  time.Time // until then it is not closed for a newcomer from its address
	asked  time.Time // when it began or ended a request
	spoke  bool
	used   amounts
}

// A new connection is not closed for another one from its address until the time welcome has
// passed. Once it has begun a handshake, it is not closed for another until the time spoken has
// passed, which is long enough for the handshake and a request.
const (
	welcome = 250 * time.Millisecond
	spoken  = time.Second
)

// prefixOf returns the network that one share is for: /24 of IPv4, /56 of IPv6. All callers
// without an IP address, such as a pipe, are one network.
func prefixOf(a net.Addr) netip.Prefix {
	if a == nil {
		return netip.Prefix{}
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := ap.Addr().Unmap().WithZone(""), 56
	if ip.Is4() {
		bits = 24
	}
	p, _ := ip.Prefix(bits) // cannot fail: both lengths fit
	return p
}

func newGate(most amounts, share float64) *gate {
	g := &gate{most: most, ofRate: share, all: map[netip.Prefix]*party{}, callers: map[int]amounts{}}
	for i, n := range most {
		g.share[i] = max(1, int64(share*float64(n)))
	}
	return g
}

// arrive lets a connection in; it returns nil if there is no room.
func (g *gate) arrive(c net.Conn, now time.Time) *guest {
	g.mu.Lock()
	prefix := prefixOf(c.RemoteAddr())
	p := g.all[prefix]
	if p == nil {
		if int64(len(g.all)) > 2*g.most[connections] {
			g.forget()
		}
		p = &party{prefix: prefix}
		g.all[prefix] = p
	}
	me := &guest{gate: g, conn: c, party: p, until: now.Add(welcome)}
	closing, ok := g.take(me, connections, 1, now)
	if ok {
		me.place = p.strangers.PushBack(me)
	} else {
		g.tidy(p)
	}
	g.mu.Unlock()
	g.close(closing)
	if !ok {
		g.turned.Add(1)
		return nil
	}
	return me
}

// leave forgets a connection that has ended.
func (me *guest) leave() {
	me.gate.mu.Lock()
	defer me.gate.mu.Unlock()
	me.gate.remove(me)
}

// take adds n to a guest's count. It returns the guests that have to give way, for the caller
// to close. The caller holds the lock.
func (g *gate) take(me *guest, what int, n int64, now time.Time) (closing []*guest, ok bool) {
	for {
		var out *guest
		switch p := me.party; {
		case me.gone:
			return closing, false
		case !me.proven && p.unproven[what]+n > g.share[what]:
			out = oldest(&p.strangers, me, what, now)
		case me.proven && what == bytesHeld && g.held(me)+n > mostBodies*g.body:
			return closing, false
		case g.used[what]+n > g.most[what]:
			out = g.crowded(me, what, now)
		default:
			g.add(me, what, n)
			return closing, true
		}
		if out == nil {
			return closing, false
		}
		g.remove(out)
		closing = append(closing, out)
	}
}

// held returns the bytes that a proven guest's caller holds.
func (g *gate) held(me *guest) int64 {
	if me.caller == nobody {
		return me.used[bytesHeld]
	}
	return g.callers[me.caller][bytesHeld]
}

// mostLooked bounds the number of addresses that are compared for one caller.
const mostLooked = 1024

// first returns the time from which the stranger that has been idle longest may be closed, if it has no post
// under way; else now is too early.
func (p *party) first(now time.Time) time.Time {
	one := p.strangers.Front().Value.(*guest)
	if one.used[posts] > 0 {
		return now.Add(spoken)
	}
	return one.until
}

// crowded returns who gives way when all room is taken. That is an unproven guest of the
// address with the most unproven guests, and among them the one idle longest. If there are no
// unproven guests it is a proven one of the address with the most. An address gives way only
// to an address that has less than itself.
func (g *gate) crowded(me *guest, what int, now time.Time) *guest {
	var strangers, known *party
	looked := 0
	for _, p := range g.all { // in random order
		if looked++; looked > mostLooked {
			break
		}
		if p.unproven[what] > 0 && (strangers == nil || p.unproven[what] > strangers.unproven[what] ||
			p.unproven[what] == strangers.unproven[what] && p.first(now).Before(strangers.first(now))) {
			strangers = p
		}
		if p.used[what] > 0 && (known == nil || p.used[what] > known.used[what]) {
			known = p
		}
	}
	if strangers != nil {
		if me.proven || strangers.unproven[what] > me.party.unproven[what]+1 {
			now = time.Time{} // new arrivals, too, give way to a proven caller or to a less crowded address
		}
		if out := oldest(&strangers.strangers, me, what, now); out != nil {
			return out
		}
	}
	if known != nil && known.used[what] > me.party.used[what]+1 {
		return oldest(&known.known, me, what, time.Time{})
	}
	return nil
}

// oldest returns the guest of l that has been idle longest, of those that use some of the limit
// what. It skips me, and guests that may not be closed yet at now; if now is the zero time it
// skips only me. A guest with a post under way comes after all others, and is not closed for a question. For a
// request no guest is closed that asked a moment ago: callers who ask much would close each other's connections all
// the time, which costs handshakes, where one of them can be told to come again.
func oldest(l *list.List, me *guest, what int, now time.Time) (posting *guest) {
	for e := l.Front(); e != nil; e = e.Next() {
		one := e.Value.(*guest)
		switch {
		case one == me || one.used[what] == 0 || !now.IsZero() && now.Before(one.until):
		case !now.IsZero() && (what == posts || what == questions) && now.Sub(one.asked) < spoken:
		case one.used[posts] == 0:
			return one
		case posting == nil && what != questions:
			posting = one
		}
	}
	return posting
}

func (g *gate) add(me *guest, what int, n int64) {
	g.used[what] += n
	me.used[what] += n
	me.party.used[what] += n
	if !me.proven {
		me.party.unproven[what] += n
	} else if me.caller != nobody {
		all := g.callers[me.caller]
		if all[what] += n; all == (amounts{}) {
			delete(g.callers, me.caller)
		} else {
			g.callers[me.caller] = all
		}
	}
}

// give subtracts n from a count.
func (g *gate) give(me *guest, what int, n int64) {
	if !me.gone {
		g.add(me, what, -n)
	}
}

func (g *gate) remove(me *guest) {
	if me.gone {
		return
	}
	for what, n := range me.used {
		g.add(me, what, -n)
	}
	me.gone = true
	me.list().Remove(me.place)
	g.tidy(me.party)
}

func (me *guest) list() *list.List {
	if me.proven {
		return &me.party.known
	}
	return &me.party.strangers
}

// tidy forgets an address without callers, but not before its rate is full again.
func (g *gate) tidy(p *party) {
	if now := time.Now(); p.used == (amounts{}) && p.rates[0].full(now) && p.rates[1].full(now) {
		delete(g.all, p.prefix)
	}
}

// forget forgets all addresses without callers, even if their rate is used up. It keeps the
// number of addresses in memory bounded.
func (g *gate) forget() {
	for prefix, p := range g.all {
		if p.used == (amounts{}) {
			delete(g.all, prefix)
		}
	}
}

func (g *gate) close(out []*guest) {
	for _, one := range out {
		g.closed.Add(1)
		_ = one.conn.Close() // closing frees what its handlers hold
	}
}

// busy moves a guest to the end of the queue of those that give way.
func (me *guest) busy() {
	if !me.gone {
		me.list().MoveToBack(me.place)
	}
}

// speak records that a handshake has begun.
func (me *guest) speak(now time.Time) {
	me.gate.mu.Lock()
	defer me.gate.mu.Unlock()
	if !me.spoke {
		me.spoke, me.until = true, now.Add(spoken)
		me.busy()
	}
}

// mostOfOne is the number of a caller's connections that do not count as connections of
// strangers.
const mostOfOne = 16

// mostBodies limits the bytes held for a proven caller, in bodies of the largest size: half of
// maxHeld if that is 1 MiB.
const mostBodies = 32

// nobody stands for callers whose connections are not counted, which are peers.
const nobody = -1

// prove stops counting a guest among strangers, unless its caller has mostOfOne proven
// connections already.
func (me *guest) prove(caller int) {
	g := me.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if me.gone || me.proven {
		me.busy()
		return
	}
	if caller != nobody && g.callers[caller][connections] >= mostOfOne {
		return
	}
	me.party.strangers.Remove(me.place)
	used := me.used
	for what, n := range used {
		g.add(me, what, -n)
	}
	me.caller = caller
	me.proven = true
	me.free.Store(true)
	for what, n := range used {
		g.add(me, what, n)
	}
	me.place = me.party.known.PushBack(me)
}
