package external

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/internal/localsocket"
)

// Times at the end of a program: for it to end by itself, then for it to end when it is told to,
// and for what it has written to arrive.
const graceful, terminating, lingering = 5 * time.Second, time.Second, time.Second

// peer is the other side: a program that was started, or a connection to one.
type peer struct {
	in  io.WriteCloser
	out io.ReadCloser
	// cmd is nil for a connection.
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	failed error         // how it ended; valid when exited is closed
	last   *tail
	killed sync.Once
}

// dial connects to a program or starts it.
func dial(c Config) (*peer, error) {
	if path, ok := strings.CutPrefix(c.Program, "unix:"); ok {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		conn, err := localsocket.Dial(ctx, path)
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			return nil, fmt.Errorf("nothing answers there: %v", op.Err)
		}
		if err != nil {
			return nil, err
		}
		if c.Purpose == Client {
			if err := trusted(path); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
		}
		return &peer{in: conn, out: conn}, nil
	}
	words, err := split(c.Program)
	if err != nil {
		return nil, err
	}
	p := &peer{exited: make(chan struct{}), last: &tail{show: c.Stderr}}
	p.cmd = exec.Command(words[0], words[1:]...)
	apart(p.cmd) // Ctrl-C is for riffle, which ends the program
	p.cmd.Stderr, p.cmd.WaitDelay = p.last, lingering
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inRead.Close(), inWrite.Close())
	}
	widen(outRead)
	p.cmd.Stdin, p.cmd.Stdout, p.in, p.out = inRead, outWrite, inWrite, outRead
	err = p.cmd.Start()
	inRead.Close() // the program's ends
	outWrite.Close()
	if err != nil {
		inWrite.Close()
		outRead.Close()
		var e *exec.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, fmt.Errorf("it cannot be started: %v", err)
	}
	go func() {
		p.failed = p.cmd.Wait()
		p.last.flush()
		close(p.exited)
	}()
	return p, nil
}

// close ends the input of the program, and waits for its end.
func (p *peer) close() {
	p.in.Close()
	if p.cmd == nil {
		return // in and out are one connection
	}
	if !p.ends(graceful) {
		p.signal(false)
		p.ends(terminating)
	}
	p.abort()
}

// abort ends the program or the connection at once; reads and writes under way fail.
func (p *peer) abort() {
	p.killed.Do(func() {
		if p.cmd != nil {
			p.signal(true) // also what the program has started and left behind
			p.ends(lingering * 2)
		}
		p.in.Close()
		p.out.Close()
	})
}

// ends waits for the program's end.
func (p *peer) ends(within time.Duration) bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(within):
		return false
	}
}

// fate describes how the program ended, if it has, and its last lines.
func (p *peer) fate() (how, lines string) {
	if p.cmd == nil {
		return "has closed the connection", ""
	}
	if !p.ends(lingering) {
		return "has closed its standard output", p.last.text()
	}
	var e *exec.ExitError
	switch {
	case errors.As(p.failed, &e):
		return "has ended with " + e.Error(), p.last.text()
	case p.failed != nil:
		return "has ended: " + p.failed.Error(), p.last.text()
	}
	return "has ended", p.last.text()
}

// tail keeps the last lines of a program's standard error, and shows all of them.
type tail struct {
	show io.Writer // nil: nowhere

	mu    sync.Mutex
	lines []string
	line  []byte // the line that has no end yet
	again bool   // the last byte was a carriage return
}

// keptLines and longestLine limit what is kept of standard error.
const keptLines, longestLine = 12, 400

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range b {
		if c == '\n' {
			t.add()
			continue
		}
		if t.again { // a progress bar draws its line again
			t.line = t.line[:0]
		}
		if t.again = c == '\r'; !t.again && len(t.line) < longestLine {
			t.line = append(t.line, c)
		}
	}
	return len(b), nil
}

func (t *tail) add() {
	line := strings.ToValidUTF8(string(t.line), "?")
	if len(t.line) == longestLine {
		line += "…"
	}
	t.line, t.again = t.line[:0], false
	if len(t.lines) == keptLines {
		copy(t.lines, t.lines[1:])
		t.lines = t.lines[:keptLines-1]
	}
	t.lines = append(t.lines, line)
	if t.show != nil {
		_, _ = io.WriteString(t.show, line+"\n") // showing is a courtesy
	}
}

// flush ends the last line.
func (t *tail) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) > 0 {
		t.add()
	}
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
