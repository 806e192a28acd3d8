package endpoint

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/memnet"
)

// slowBody gives one byte, and the rest after a while.
type slowBody struct {
	pause time.Duration
	sent  bool
}

func (b *slowBody) Read(p []byte) (int, error) {
	if !b.sent {
		b.sent = true
		p[0] = 'a'
		return 1, nil
	}
	time.Sleep(b.pause)
	p[0] = 'b'
	return 1, io.EOF
}

// onlyHTTP1 makes a client speak HTTP/1.1.
func onlyHTTP1(c *http.Client) {
	t := c.Transport.(*http.Transport)
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
}

// afterBody reads a request's body, works for a time if it was sent to /slow, and tells the error.
func afterBody(work time.Duration, got chan<- error) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/slow" {
			select {
			case <-time.After(work):
			case <-r.Context().Done():
				err = r.Context().Err()
			}
		}
		got <- err
	})
}

// A body that does not arrive within its time is cut off, and a handler that takes
// long after it is there is not, over either protocol.
func TestSlowBodiesAndSlowHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		server, pin := certificate(t)
		got := make(chan error, 1)
		_, url, _ := start(t, network, ServerConfig{Certificate: server, Transfer: 700 * time.Millisecond, MaxWait: 10 * time.Second,
			Handler: afterBody(1100*time.Millisecond, got)})
		for _, two := range []bool{false, true} {
			c := newClient(t, network, ClientConfig{Pins: []Pin{pin}})
			if !two {
				onlyHTTP1(c)
			}
			post := func(path string, body io.Reader) error {
				req, err := http.NewRequestWithContext(t.Context(), "POST", url+path, body)
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = 2
				res, err := c.Do(req)
				if err == nil {
					if two != (res.ProtoMajor == 2) {
						t.Errorf("protocol %s", res.Proto)
					}
					res.Body.Close()
				}
				return <-got
			}
			if err := post("/", &slowBody{pause: 1500 * time.Millisecond}); err == nil {
				t.Errorf("HTTP/2 %t: a body that is too slow was read", two)
			}
			if err := post("/slow", strings.NewReader("ab")); err != nil {
				t.Errorf("HTTP/2 %t: a handler that waits: %v", two, err)
			}
		}
	})
}

// counted is a response writer that counts its deadlines.
type counted struct {
	*httptest.ResponseRecorder
	set int
}

func (c *counted) SetReadDeadline(time.Time) error  { c.set++; return nil }
func (c *counted) SetWriteDeadline(time.Time) error { c.set++; return nil }

// Over HTTP/2 each deadline is a message between goroutines: there is none beside what
// the server sets itself.
func TestDeadlinesAreSetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		s, _, _ := start(t, network, ServerConfig{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })})
		for major, most := range map[int]int{1: 0, 2: 0} {
			r := httptest.NewRequest("POST", "/", strings.NewReader("body"))
			r.ProtoMajor = major
			w := &counted{ResponseRecorder: httptest.NewRecorder()}
			s.http.Handler.ServeHTTP(w, r)
			if w.set > most {
				t.Errorf("HTTP/%d: %d deadlines set", major, w.set)
			}
		}
		if s.http.ReadTimeout <= 0 || s.http.WriteTimeout < s.http.ReadTimeout {
			t.Errorf("server's deadlines %v, %v", s.http.ReadTimeout, s.http.WriteTimeout)
		}
	})
}
