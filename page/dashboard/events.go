package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxStreams bounds the number of pages that get news at a time, and maxStreams/2 that of one address.
const maxStreams = 64

// streams are those that are open.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by address
}

// open counts a stream of an address until close. It returns false if there are too many.
func (s *streams) open(address string) (close func(), ok bool) {
	host, _, _ := net.SplitHostPort(address) // of what is no address, such as a test's, ""
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.of[host] >= maxStreams/2 {
		return nil, false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[host]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.of[host]--; s.of[host] == 0 {
			delete(s.of, host)
		}
	}, true
}

// serveEvents sends a page news as server-sent events:
//
//	about    what the page shows, and all tasks; first
//	history  the curves of the task that the page asked for, and additions to them
//	task     a task that has changed
//	end      the process stops: there will be no more news
//
// A page that does not take a message in time is dropped. It connects again by itself and
// then gets everything anew, so the server keeps nothing for it.
func (d *dashboard) serveEvents(w http.ResponseWriter, r *http.Request) {
	leave, ok := d.streams.open(r.RemoteAddr)
	if !ok {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d pages are open already, or %d of your address", maxStreams, maxStreams/2))
		return
	}
	defer leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // asks a proxy not to buffer
	if r.Method == http.MethodHead {
		return
	}
	board, id := d.config.Board, r.URL.Query().Get("task")
	watcher := board.watch()
	defer board.leave(watcher)
	s := stream{w: w, control: http.NewResponseController(w), patience: writeTime}

	if id == "" {
		id = board.pick()
	}
	version, tasks, history, have := board.news(0, id, seen{})
	s.event("about", d.about(tasks))
	if history != nil {
		s.event("history", history)
	}
	if !s.send() {
		return
	}
	board.told(watcher, version)
	beat, gap := time.NewTimer(beatTime), time.NewTimer(0)
	defer beat.Stop()
	defer gap.Stop()
	for ended := false; !ended; {
		select {
		case <-watcher.changed:
		case <-beat.C:
			s.text.WriteString(": still here\n\n")
		case <-r.Context().Done(): // the process stops, or the page has disconnected
			ended = true
		}
		before := version
		version, tasks, history, have = board.news(version, id, have)
		for _, id := range board.gone(before) {
			s.event("removed", id)
		}
		for _, t := range tasks {
			s.event("task", t)
		}
		if history != nil && history.news() {
			s.event("history", history)
		}
		if ended {
			s.event("end", struct{}{})
		}
		if !s.send() {
			return
		}
		board.told(watcher, version)
		beat.Reset(beatTime)
		gap.Reset(gapTime)
		select {
		case <-gap.C: // so that a fast run does not flood pages
		case <-r.Context().Done():
		}
	}
}

// news says whether there is anything to send.
func (c *columns) news() bool { return len(c.Measures.Round) > 0 || len(c.Rounds.Round) > 0 }

// stream writes messages. patience is the longest time that one may take.
type stream struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	text     bytes.Buffer
	err      error
}

func (s *stream) event(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.err = err
		return
	}
	fmt.Fprintf(&s.text, "event: %s\ndata: %s\n\n", name, b)
}

// send writes the collected messages. It returns false if the page is gone or too slow.
func (s *stream) send() bool {
	if s.err != nil {
		return false
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(s.patience)); err != nil {
		return false
	}
	if s.text.Len() > 0 {
		if _, err := s.text.WriteTo(s.w); err != nil {
			return false
		}
	}
	return s.control.Flush() == nil
}
