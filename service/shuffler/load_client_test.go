package shuffler

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const loadChild = "RIFFLE_LOAD_ADDRESS"

// How the clients' process connects.
const (
	kept    = "kept"    // a connection carries many reports
	each    = "each"    // a connection for each, with a whole handshake
	resumed = "resumed" // a connection for each, with the ticket of an earlier one
)

// loadMain is the clients' process: a file of reports over a few hundred
// connections, with as little work as can be, for it shares the processors. It prints the
// bytes that it sent and received over TCP. Without a file it sends as many single bytes as
// RIFFLE_LOAD_SIZE says.
func loadMain() {
	if err := load(os.Getenv(loadChild), os.Getenv("RIFFLE_LOAD_MODE"), os.Getenv("RIFFLE_LOAD_FILE"), os.Getenv("RIFFLE_LOAD_SIZE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func load(address, mode, file, bytes string) error {
	size, err := strconv.Atoi(bytes)
	if err != nil {
		return err
	}
	l := &loader{address: address, mode: mode, n: int64(size)}
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		l.size, l.n = size, info.Size()/int64(size)
		l.report = func(i int64, body []byte) error {
			_, err := f.ReadAt(body, i*int64(size))
			return err
		}
	}
	if err := l.run(512); err != nil {
		return err
	}
	_, err = fmt.Println(l.sent.Load(), l.received.Load())
	return err
}

// run sends all over so many connections at a time.
func (l *loader) run(connections int) error {
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			if err := l.work(i); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// loader sends reports, or bytes.
type loader struct {
	address, mode string                           // addresses are separated by commas
	report        func(i int64, body []byte) error // writes report i; nil: single bytes are sent
	size          int
	n             int64
	next          atomic.Int64
	traffic
}

// traffic counts the bytes of connections.
type traffic struct{ sent, received atomic.Int64 }

type meteredConn struct {
	net.Conn
	*traffic
}

func (c meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// sources is the number of addresses, in networks of their own, that connections come from: one has ports
// for some 28,000 connections a minute.
const sources = 16

// dial connects from the address of worker i.
func (l *loader) dial(i int, c *tls.Config) (*tls.Conn, error) {
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(i%sources), 1)}}
	to := strings.Split(l.address, ",")
	bare, err := from.Dial("tcp", to[i%len(to)])
	if err != nil {
		return nil, err
	}
	return tls.Client(meteredConn{bare, &l.traffic}, c), nil
}

func (l *loader) work(i int) error {
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, ServerName: "localhost"}
	if l.mode == resumed {
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	request := []byte{1}
	var body []byte
	if l.report != nil {
		request = fmt.Appendf(nil, "POST /v1/report HTTP/1.1\r\nHost: riffle\r\nContent-Length: %d\r\n\r\n", l.size)
		head := len(request)
		request = append(request, make([]byte, l.size)...)
		body = request[head:]
	}
	var c *tls.Conn
	var in *bufio.Reader
	first := true
	for i64 := l.next.Add(1) - 1; i64 < l.n; i64 = l.next.Add(1) - 1 {
		if c == nil {
			var err error
			if c, err = l.dial(i, config); err != nil {
				return err
			}
			in = bufio.NewReader(c)
		}
		if body != nil {
			if err := l.report(i64, body); err != nil {
				return err
			}
		}
		if _, err := c.Write(request); err != nil {
			return err
		}
		if err := answered(in, body != nil); err != nil {
			return err
		}
		if l.mode == resumed && !first && !c.ConnectionState().DidResume {
			return errors.New("a handshake was not resumed")
		}
		first = false
		if l.mode != kept {
			if err := c.Close(); err != nil {
				return err
			}
			c = nil
		}
	}
	if c != nil {
		return c.Close()
	}
	return nil
}

// answered reads the answer to a report, or a byte.
func answered(in *bufio.Reader, report bool) error {
	if !report {
		_, err := io.ReadFull(in, make([]byte, 1))
		return err
	}
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !strings.HasPrefix(string(line), "HTTP/1.1 204 ") {
			return fmt.Errorf("answer %s", line)
		}
		if len(line) <= 2 {
			return nil
		}
	}
}
