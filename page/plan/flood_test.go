package plan

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Many streams of one connection, of which some leave and some send half a question, have one process started,
// and leave nothing behind.
func TestFloodOfStreams(t *testing.T) {
	before := runtime.NumGoroutine()
	starts := 0
	d := newTestDesk(t, counting("", &starts))
	server := httptest.NewUnstartedServer(d)
	server.EnableHTTP2 = true
	server.StartTLS()
	client := server.Client()
	resp, err := client.Get(server.URL) // opens the connection
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	var wg sync.WaitGroup
	var answered, busy atomic.Int64
	for n := range 150 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var body io.Reader = strings.NewReader(asked(1000+n, "nothing"))
			switch n % 10 {
			case 0: // leaves before it has sent all
				half, rest := io.Pipe()
				body = half
				go func() {
					_, _ = io.WriteString(rest, `{"query":`)
					cancel()
				}()
			case 1: // asks for what was answered
				body = strings.NewReader(asked(1001, "nothing"))
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, body)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(r)
			switch {
			case err != nil && n%10 == 0:
				return
			case err != nil:
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			switch {
			case resp.ProtoMajor != 2 || err != nil:
				t.Errorf("%s, %v", resp.Proto, err)
			case resp.StatusCode == 200 && strings.Contains(string(text), "unknown method"):
				answered.Add(1)
			case resp.StatusCode == 503:
				busy.Add(1)
			default:
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	wg.Wait()
	if answered.Load()+busy.Load() != 135 || answered.Load() == 0 || starts != 1 {
		t.Errorf("%d were answered, %d told to ask again, by %d processes", answered.Load(), busy.Load(), starts)
	}
	client.CloseIdleConnections()
	server.Close()
	until(t, fmt.Sprintf("more than the %d goroutines before", before), func() bool { return runtime.NumGoroutine() <= before })
}

// until looks again and again: a process gives no sign when it waits or has ended.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}
