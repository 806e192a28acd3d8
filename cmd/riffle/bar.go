package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Columns of a bar's line.
const (
	usualColumns = 80  // used if the terminal does not tell its width
	mostColumns  = 120 // a longer line is not easier to read, and wraps worse when a window shrinks
	leastBar     = 10  // a shorter bar is left out
	beforeBar    = 5   // number of parts that are more important: name, share, time, two facts
)

// redrawn is the shortest time between two drawings of a bar.
const redrawn = 200 * time.Millisecond

// bar shows the progress of work in the last line of a terminal. Every drawing asks for the
// terminal's width and leaves its last column free, so that no line wraps. The only control
// code is carriage return.
type bar struct {
	w       io.Writer
	columns func() int
	now     func() time.Time
	before  int64 // part of total that earlier processes did
	total   int64
	unit    string // the unit that is counted, such as "reports"

	mu         sync.Mutex
	name       string   // the current work
	facts      []string // further texts, the most important first
	done       int64
	begun, was time.Time // was: the time of the last drawing
	drawn      int       // columns of the last drawing; 0: there is none
}

// newBar returns the bar of a terminal, or nil if w is no terminal; all methods of a nil bar
// do nothing. before is the part of total that earlier processes did.
func newBar(w io.Writer, show output, name, unit string, before, total int64) *bar {
	f, ok := fileOf(w)
	if !ok || show.quiet || show.noProgress || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	b := &bar{w: f, columns: func() int { return columnsOf(f, usualColumns) }, now: time.Now, before: before, done: before, total: max(1, total), unit: unit, name: name}
	b.begun = b.now()
	b.draw()
	return b
}

// columnsOf returns the width of a terminal, or other if f is no terminal.
func columnsOf(f *os.File, other int) int {
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		return width
	}
	return other
}

// set changes the texts.
func (b *bar) set(name string, facts ...string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name, b.facts = name, facts
	b.draw()
}

// add counts n more; any goroutine may call it.
func (b *bar) add(n int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reach(b.done + n)
}

// reached sets the count.
func (b *bar) reached(done int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reach(done)
}

func (b *bar) reach(done int64) {
	b.done = done
	if b.now().Sub(b.was) >= redrawn {
		b.draw()
	}
}

// clear removes the bar from the terminal; the next change shows it again.
func (b *bar) clear() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn > 0 {
		b.write("\r" + strings.Repeat(" ", min(b.drawn, b.room())) + "\r")
		b.drawn = 0
	}
}

// room returns the number of columns that may be written.
func (b *bar) room() int { return max(0, min(b.columns(), mostColumns)-1) }

func (b *bar) draw() {
	room := b.room()
	line := visible(b.line(room))
	length := utf8.RuneCountInString(line)
	b.write("\r" + line + strings.Repeat(" ", max(0, min(b.drawn, room)-length)))
	b.drawn, b.was = length, b.now()
}

// write ignores errors: a bar that cannot be drawn must not stop the work.
func (b *bar) write(text string) { _, _ = io.WriteString(b.w, text) }

// line returns a line of at most room columns: the parts that fit, the most important first,
// and a bar in the remaining room.
func (b *bar) line(room int) string {
	share := min(1, float64(b.done)/float64(b.total))
	left, rate := "", ""
	if passed, done := b.now().Sub(b.begun).Seconds(), float64(b.done-b.before); done > 0 && passed > 0 {
		left = span(passed*max(0, float64(b.total-b.done))/done) + " left"
		rate = fmt.Sprintf("%s %s/s", short(done/passed), b.unit)
	}
	percent := fmt.Sprintf("%d %%", int(100*share))
	// The parts are in the order of display, but chosen by importance.
	shown := []string{b.name, "", percent, left}
	chosen := []int{0, 2, 3}
	for _, fact := range b.facts {
		chosen = append(chosen, len(shown))
		shown = append(shown, fact)
	}
	chosen = append(chosen, len(shown))
	shown = append(shown, rate)

	const gap = 2
	fits := make([]bool, len(shown))
	length, spare := 0, room
	for i, at := range chosen {
		if i == beforeBar {
			spare -= gap + leastBar
		}
		more := utf8.RuneCountInString(shown[at])
		if length > 0 {
			more += gap
		}
		if shown[at] != "" && length+more <= spare {
			fits[at] = true
			length += more
		}
	}
	if size := min(room-length-gap, 40); fits[0] && size >= leastBar {
		full := int(share * float64(size-2))
		shown[1], fits[1] = "["+strings.Repeat("=", full)+strings.Repeat(" ", size-2-full)+"]", true
	}
	var parts []string
	for i, text := range shown {
		if fits[i] {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 { // there is not even room for the name
		return string([]rune(b.name)[:min(room, utf8.RuneCountInString(b.name))])
	}
	return strings.Join(parts, strings.Repeat(" ", gap))
}

// span returns a length of time in a few letters.
func span(seconds float64) string {
	if !(seconds < 360000) {
		return "days"
	}
	s := int(math.Ceil(seconds))
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
}

// short returns a number in a few letters.
func short(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.1fM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.0fk", x/1e3)
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}
