package endpoint

import (
	"net"
	"sync"
	"time"
)

// gateListener lets connections in through a gate.
type gateListener struct {
	net.Listener
	gate *gate
}

func (l *gateListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g := l.gate.arrive(c, time.Now()); g != nil {
			return &guestConn{Conn: c, guest: g, ended: make(chan struct{})}, nil
		}
		_ = c.Close()
	}
}

// guestConn is a connection through a gate. Whatever a stranger sends on it, pings as well as
// reports, is read no faster than its part of its address's bytes a second, because handling
// it costs time.
type guestConn struct {
	net.Conn
	guest *guest
	read  int // bytes read so far; used by the reader only, of which there is one at a time
	once  sync.Once
	ended chan struct{}
}

const (
	// firstRead is the number of bytes read from a connection without waiting: a handshake
	// and some requests.
	firstRead = 8 << 10
	// readAtOnce is the number of bytes that are then read from a stranger between waits.
	readAtOnce = 2 << 10
)

func (c *guestConn) Read(p []byte) (int, error) {
	g := c.guest
	if g.gate.ofBytes > 0 && !g.free.Load() {
		if c.read >= firstRead {
			p = p[:min(len(p), readAtOnce)]
		} else {
			p = p[:min(len(p), firstRead-c.read)]
		}
	}
	n, err := c.Conn.Read(p)
	slow := c.read >= firstRead
	c.read += n
	if slow && n > 0 && g.gate.ofBytes > 0 && !g.free.Load() {
		timer := time.NewTimer(g.wait(n))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ended:
		}
	}
	return n, err
}

// wait returns how long a stranger has to wait for n bytes.
func (me *guest) wait(n int) time.Duration {
	me.gate.mu.Lock()
	defer me.gate.mu.Unlock()
	return time.Duration(float64(n) * float64(me.party.unproven[connections]) / me.gate.ofBytes * float64(time.Second))
}

func (c *guestConn) Close() error {
	c.once.Do(func() { close(c.ended) })
	c.guest.leave()
	return c.Conn.Close()
}

// guestOf returns the guest of a connection, also through TLS.
func guestOf(c net.Conn) *guest {
	if outer, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = outer.NetConn()
	}
	if one, ok := c.(*guestConn); ok {
		return one.guest
	}
	return nil
}

// LimitListener bounds the connections of a listener on this machine: one more closes the one
// that has been idle longest.
func LimitListener(l net.Listener, most int) net.Listener {
	return &gateListener{l, newGate(amounts{int64(most), int64(most), 0}, 1)}
}
