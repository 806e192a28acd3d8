package shuffler

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const loadChild = "RIFFLE_LOAD_ADDRESS"

// loadMain is the clients' process: a file of reports over a few hundred
// connections, with as little work as can be, for it shares the processors. It prints the
// bytes that it sent and received over TCP.
func loadMain() {
	if err := load(os.Getenv(loadChild), os.Getenv("RIFFLE_LOAD_FILE"), os.Getenv("RIFFLE_LOAD_SIZE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func load(address, file, bytes string) error {
	size, err := strconv.Atoi(bytes)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	n := info.Size() / int64(size)
	var next atomic.Int64
	var wire traffic
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	for range 512 {
		wg.Go(func() {
			if err := connection(address, f, size, n, &next, &wire); err != nil {
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
		_, err := fmt.Println(wire.sent.Load(), wire.received.Load())
		return err
	}
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

func connection(address string, f *os.File, size int, n int64, next *atomic.Int64, wire *traffic) error {
	bare, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	c := tls.Client(meteredConn{bare, wire}, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	defer c.Close()
	head := fmt.Appendf(nil, "POST /v1/report HTTP/1.1\r\nHost: riffle\r\nContent-Length: %d\r\n\r\n", size)
	request := make([]byte, len(head)+size)
	copy(request, head)
	in := bufio.NewReader(c)
	for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
		if _, err := f.ReadAt(request[len(head):], i*int64(size)); err != nil {
			return err
		}
		if _, err := c.Write(request); err != nil {
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
				break
			}
		}
	}
	return nil
}
