package netlab

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Weather is what happens to packets on their way.
type Weather struct {
	Loss          float64       // the chance that a packet is lost
	Delay, Jitter time.Duration // of each packet: Delay, and up to Jitter more
	Rate          int           // bytes a second that a machine sends; 0: no limit
}

// Network passes packets between machines.
type Network struct {
	work    sync.WaitGroup
	mu      sync.Mutex
	hosts   []*Host
	weather Weather
	random  *rand.Rand
	free    map[int]time.Time // when a machine has sent what it had, if there is a Rate
	cut     map[pair]bool
	pairs   map[pair]*traffic
	epoch   int
}

// pair is a direction between two machines.
type pair struct{ from, to int }

// traffic is what a direction has seen.
type traffic struct {
	passed, lost int64
	flows        map[uint32]int // by both ports: the epoch that the connection began in
	forgotten    int            // connections of older epochs are dead
}

func newNetwork() *Network {
	return &Network{random: rand.New(rand.NewPCG(1, 2)), free: map[int]time.Time{}, cut: map[pair]bool{}, pairs: map[pair]*traffic{}}
}

func (n *Network) close() {
	n.mu.Lock()
	hosts := n.hosts
	n.mu.Unlock()
	for _, h := range hosts {
		h.link.Close()
	}
	n.work.Wait()
	for _, h := range hosts {
		unix.Close(h.space)
	}
}

// Set changes the weather everywhere.
func (n *Network) Set(w Weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = w
}

// Cut drops all packets from one machine to another, silently, until Heal.
func (n *Network) Cut(from, to *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[pair{from.id, to.id}] = true
}

// Heal ends all cuts.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// Forget drops, for good and silently, all packets of the connections that there are now between
// two machines, as a firewall does that was restarted. New connections pass.
func (n *Network) Forget(a, b *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.epoch++
	n.between(pair{a.id, b.id}).forgotten = n.epoch
	n.between(pair{b.id, a.id}).forgotten = n.epoch
}

// Packets says how many packets passed from one machine to another and how many were dropped.
func (n *Network) Packets(from, to *Host) (passed, dropped int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.between(pair{from.id, to.id})
	return t.passed, t.lost
}

func (n *Network) between(p pair) *traffic {
	t := n.pairs[p]
	if t == nil {
		t = &traffic{flows: map[uint32]int{}}
		n.pairs[p] = t
	}
	return t
}

// read passes on what a machine sends, until its link is closed.
func (n *Network) read(from *Host) {
	b := make([]byte, 1<<16)
	for {
		size, err := from.link.Read(b)
		if err != nil {
			return
		}
		to, wait, ok := n.route(from, b[:size], time.Now())
		switch {
		case !ok:
		case wait == 0:
			_, _ = to.link.Write(b[:size]) // a packet that a machine does not take is lost
		default:
			packet := append([]byte(nil), b[:size]...)
			time.AfterFunc(wait, func() { _, _ = to.link.Write(packet) })
		}
	}
}

// route says which machine gets a packet, and after which time.
func (n *Network) route(from *Host, packet []byte, now time.Time) (to *Host, wait time.Duration, ok bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return nil, 0, false // IPv6 looks for neighbours
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	id := int(packet[19]) - 1
	if packet[16] != 10 || packet[17] != 77 || packet[18] != 0 || id < 0 || id >= len(n.hosts) {
		return nil, 0, false
	}
	to = n.hosts[id]
	t := n.between(pair{from.id, to.id})
	if n.cut[pair{from.id, to.id}] || n.dead(t, pair{from.id, to.id}, packet) || n.random.Float64() < n.weather.Loss {
		t.lost++
		return nil, 0, false
	}
	wait = n.weather.Delay
	if n.weather.Jitter > 0 {
		wait += time.Duration(n.random.Int64N(int64(n.weather.Jitter)))
	}
	if n.weather.Rate > 0 {
		free := n.free[from.id]
		if free.Before(now) {
			free = now
		}
		if free.Sub(now) > time.Second { // the queue is full
			t.lost++
			return nil, 0, false
		}
		free = free.Add(time.Duration(len(packet)) * time.Second / time.Duration(n.weather.Rate))
		n.free[from.id] = free
		wait += free.Sub(now)
	}
	t.passed++
	return to, wait, true
}

// dead says whether a TCP packet belongs to a connection that was forgotten. It notes those that
// begin.
func (n *Network) dead(t *traffic, p pair, packet []byte) bool {
	header := int(packet[0]&15) * 4
	if packet[9] != unix.IPPROTO_TCP || len(packet) < header+20 {
		return false
	}
	tcp := packet[header:]
	from, to := binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	const syn, ack = 2, 16
	if tcp[13]&(syn|ack) == syn {
		t.flows[uint32(from)<<16|uint32(to)] = n.epoch
		n.between(pair{p.to, p.from}).flows[uint32(to)<<16|uint32(from)] = n.epoch
	}
	return t.flows[uint32(from)<<16|uint32(to)] < t.forgotten
}
