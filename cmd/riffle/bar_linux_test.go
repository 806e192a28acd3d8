package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// terminal is a pseudo-terminal: what a command writes to f arrives in seen.
type terminal struct {
	f    *os.File
	main *os.File
	mu   sync.Mutex
	seen bytes.Buffer
	done chan struct{}
}

func newTerminal(t *testing.T, columns int) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	main := os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &terminal{f: f, main: main, done: make(chan struct{})}
	p.resize(t, columns)
	go func() {
		defer close(p.done)
		piece := make([]byte, 4096)
		for {
			n, err := main.Read(piece)
			p.mu.Lock()
			p.seen.Write(piece[:n])
			p.mu.Unlock()
			if err != nil { // EIO: nobody has it open any more
				return
			}
		}
	}()
	return p
}

func (p *terminal) resize(t *testing.T, columns int) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(p.main.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
}

// finish closes the terminal and returns all that was written to it.
func (p *terminal) finish(t *testing.T) string {
	t.Helper()
	if err := p.f.Close(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	_ = p.main.Close()
	return p.seen.String()
}

// screen is a terminal's picture: lines of a fixed width that wrap.
type screen struct {
	columns  int
	lines    []string
	at       int // column
	wraps    int // lines that the terminal broke
	feeds    int // line feeds that were written
	returned int // carriage returns, each the start of a drawing
}

func (s *screen) write(text string) {
	if len(s.lines) == 0 {
		s.lines = []string{""}
	}
	for _, r := range text {
		last := &s.lines[len(s.lines)-1]
		switch r {
		case '\r':
			s.at = 0
			s.returned++
		case '\n':
			s.lines, s.at = append(s.lines, ""), 0
			s.feeds++
		default:
			if r < ' ' {
				panic(fmt.Sprintf("control code %q", r))
			}
			if s.at == s.columns {
				s.lines, s.at = append(s.lines, ""), 0
				s.wraps++
				last = &s.lines[len(s.lines)-1]
			}
			cells := []rune(*last)
			for len(cells) <= s.at {
				cells = append(cells, ' ')
			}
			cells[s.at] = r
			*last = string(cells)
			s.at++
		}
	}
}

func (s *screen) last() string { return strings.TrimRight(s.lines[len(s.lines)-1], " ") }

// peopleCSV writes a table that is trained on at once.
func peopleCSV(t *testing.T, rows int) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("age,height,ill\n")
	for i := range rows {
		fmt.Fprintf(&text, "%d,%d,%s\n", i%90, 150+i%50, []string{"no", "yes"}[i*7%3%2])
	}
	path := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// No drawing of a bar wraps, whatever the width, nothing of it stays, and what is
// fit to be told at a width is told.
func TestBarFitsTheTerminal(t *testing.T) {
	for columns, want := range map[int][]string{
		20:  {"round 1/40"},
		40:  {"round 40/40", "100 %"},
		80:  {"round 40/40", "100 %", "left", "accuracy", "epsilon", "[="},
		100: {"round 40/40", "100 %", "left", "accuracy", "epsilon", "[="},
		200: {"round 40/40", "100 %", "left", "accuracy", "epsilon", "[=", "loss"},
	} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			if columns != 40 && columns != 80 {
				longtest.Only(t, "a training for each width")
			}
			if testing.Short() && columns != 80 {
				t.Skip("one training has all goroutines")
			}
			t.Parallel()
			p := newTerminal(t, columns)
			out := filepath.Join(t.TempDir(), "run")
			code := run([]string{"train", "--data", peopleCSV(t, 300), "--label", "ill", "--range", "age=0..100,height=0..300",
				"--rounds", "40", "--eval-every", "1", "--eps0", "4", "--out", out}, io.Discard, p.f)
			text := p.finish(t)
			if code != exitDone {
				t.Fatalf("exit code %d\n%s", code, text)
			}
			// Notes are lines of their own; what lies between two of them is the bar's.
			bars := 0
			for chunk := range strings.SplitAfterSeq(text, "\n") {
				if strings.HasPrefix(chunk, "riffle: ") {
					continue
				}
				if note := strings.LastIndex(chunk, "\rriffle: "); note >= 0 { // it begins where the bar was
					chunk = chunk[:note]
				}
				s := screen{columns: columns}
				s.write(strings.TrimSuffix(strings.TrimSuffix(chunk, "\n"), "\r"))
				if s.wraps > 0 || s.feeds > 0 {
					t.Errorf("%d wraps and %d line feeds in %d drawings:\n%s", s.wraps, s.feeds, s.returned, strings.Join(s.lines, "\n"))
				}
				if s.last() != "" {
					t.Errorf("left on the terminal: %q", s.last())
				}
				bars += s.returned
			}
			if bars < 40 {
				t.Errorf("%d drawings, want one for each evaluation at least", bars)
			}
			drawings := strings.Split(text, "\r")
			for _, word := range want {
				found := false
				for _, d := range drawings {
					found = found || strings.Contains(d, word)
				}
				if !found {
					t.Errorf("%q is not shown:\n%s", word, strings.Join(drawings, "\n"))
				}
			}
		})
	}
}

// A bar follows its terminal: after a change of width no drawing is longer.
func TestBarFollowsTheWidth(t *testing.T) {
	p := newTerminal(t, 200)
	b := newBar(p.f, output{}, "round 1/160", "reports", 0, 1000)
	if b == nil {
		t.Fatal("no bar on a terminal")
	}
	facts := []string{"accuracy 98.38 %", "epsilon 0.8252", "loss 0.0513"}
	for i, columns := range []int{200, 60, 40, 100, 41, 120, 80, 10, 1, 40} {
		p.resize(t, columns)
		p.mu.Lock()
		p.seen.Reset()
		p.mu.Unlock()
		b.set(fmt.Sprintf("round %d/160", i+1), facts...)
		b.add(100)
		b.clear()
		b.set(fmt.Sprintf("round %d/160", i+1), facts...)
		// What was written is read by another goroutine; a mark says when it is there.
		const mark = "\x04"
		fmt.Fprint(p.f, mark)
		var text string
		for !strings.HasSuffix(text, mark) {
			p.mu.Lock()
			text = p.seen.String()
			p.mu.Unlock()
		}
		s := screen{columns: columns}
		s.write(strings.TrimSuffix(text, mark))
		if s.wraps > 0 || s.feeds > 0 {
			t.Errorf("%d columns: %d wraps, %d line feeds: %q", columns, s.wraps, s.feeds, text)
		}
		if columns >= 40 && !strings.HasPrefix(s.last(), fmt.Sprintf("round %d/160", i+1)) {
			t.Errorf("%d columns: shown is %q", columns, s.last())
		}
	}
	b.clear()
	p.finish(t)
}

// Where no terminal is, there is no bar: not in a file, and not in a pipe.
func TestNoBarWithoutTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := filepath.Join(t.TempDir(), "run")
	if code := run([]string{"train", "--data", peopleCSV(t, 300), "--label", "ill", "--rounds", "4", "--out", out}, io.Discard, file); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.ContainsAny(text, "\r\x1b") || bytes.Count(text, []byte("round 4/4")) != 1 {
		t.Errorf("%q", text)
	}
	var nothing *bar
	nothing.set("nothing", "to see")
	nothing.add(1)
	nothing.reached(2)
	nothing.clear()
	for _, show := range []output{{quiet: true}, {noProgress: true}} {
		p := newTerminal(t, 80)
		if newBar(p.f, show, "round", "reports", 0, 10) != nil {
			t.Errorf("a bar with %+v", show)
		}
		p.finish(t)
	}
}
