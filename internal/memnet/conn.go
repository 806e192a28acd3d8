package memnet

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// buffer is how many bytes a connection holds that were written and not read. A net.Pipe holds none:
// there, two ends of TLS that say goodbye at the same time wait for each other.
const buffer = 64 << 10

// stream is one direction of a connection.
type stream struct {
	mu              sync.Mutex
	bytes           bytes.Buffer
	ended           bool // the writer has closed
	gone            bool // the reader has closed
	readBy, writeBy time.Time
	changed         chan struct{} // is closed when anything above changes
}

// change changes a stream, and wakes who waits for it.
func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// attempt tries, until it is done or fails, each time that the stream has changed or the deadline is over.
func (s *stream) attempt(deadline *time.Time, try func() (done bool, err error)) error {
	for {
		s.mu.Lock()
		by, changed := *deadline, s.changed
		over := !by.IsZero() && !time.Now().Before(by)
		done, err := over, error(os.ErrDeadlineExceeded)
		if !over {
			done, err = try()
		}
		s.mu.Unlock()
		if done || err != nil {
			return err
		}
		var late <-chan time.Time
		if !by.IsZero() {
			timer := time.NewTimer(time.Until(by))
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-changed:
		case <-late:
		}
	}
}

func (s *stream) read(p []byte) (n int, err error) {
	err = s.attempt(&s.readBy, func() (bool, error) {
		switch {
		case s.gone:
			return false, net.ErrClosed
		case s.bytes.Len() == 0 && s.ended:
			return false, io.EOF
		}
		n, _ = s.bytes.Read(p)
		return n > 0 || len(p) == 0, nil
	})
	if n > 0 {
		s.change(func() {})
	}
	return n, err
}

func (s *stream) write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		err = s.attempt(&s.writeBy, func() (bool, error) {
			switch {
			case s.ended:
				return false, net.ErrClosed
			case s.gone:
				return false, syscall.EPIPE
			}
			more := min(len(p)-n, buffer-s.bytes.Len())
			s.bytes.Write(p[n : n+more])
			n += more
			return more > 0, nil
		})
		s.change(func() {})
	}
	return n, err
}

// conn is an end of a connection.
type conn struct {
	in, out       *stream
	local, remote *net.TCPAddr
}

// pipe returns the two ends of a connection.
func pipe(near, far *net.TCPAddr) (conn, conn) {
	a, b := &stream{changed: make(chan struct{})}, &stream{changed: make(chan struct{})}
	return conn{a, b, near, far}, conn{b, a, far, near}
}

// failed is an error as net makes it.
func (c conn) failed(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

func (c conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.failed("read", err)
}

func (c conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.failed("write", err)
}

// Close leaves the other end what was written.
func (c conn) Close() error {
	c.out.change(func() { c.out.ended = true })
	c.in.change(func() { c.in.gone, c.in.bytes = true, bytes.Buffer{} })
	return nil
}

func (c conn) LocalAddr() net.Addr  { return c.local }
func (c conn) RemoteAddr() net.Addr { return c.remote }

func (c conn) SetDeadline(by time.Time) error {
	_ = c.SetReadDeadline(by)
	return c.SetWriteDeadline(by)
}

func (c conn) SetReadDeadline(by time.Time) error {
	c.in.change(func() { c.in.readBy = by })
	return nil
}

func (c conn) SetWriteDeadline(by time.Time) error {
	c.out.change(func() { c.out.writeBy = by })
	return nil
}
