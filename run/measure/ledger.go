package measure

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Ledger is a file in which several questions about the same people share a budget. Every question
// that is asked is charged, also one that was asked before. A charge is on disk before anything of its
// answer is computed, and nothing in the file is ever changed.
//
// Questions may be chosen upon earlier answers: the file counts as a population's ledger does,
// protocol/ledger/adaptive.md. While a Ledger is open no other process can open its file. Who can
// write to the file can forge it, and an older copy gives back what was spent since: the file has no
// mark elsewhere.
type Ledger struct {
	Budget Budget

	path    string
	unlock  func() error
	journal *ledger.Journal
	log     *fileLog
}

// Budget is what all questions of a ledger may cost together.
type Budget struct {
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
}

// fileTails is the share of δ that a ledger keeps for the tails of sums, and questionTail that of
// each question with one.
const (
	fileTails    = 1e-2
	questionTail = 1e-5
)

// ledgerHead is the first line of a ledger file.
type ledgerHead struct {
	Ledger  string `json:"ledger"` // ledgerKind
	Version int    `json:"version"`
	Salt    []byte `json:"salt"` // random
	Budget
}

const ledgerKind = "riffle measure"

// population names the people in entries. It depends on the budget, so a budget that was edited does
// not fit the entries.
func (h ledgerHead) population() (id wire.ID) {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s\n%x\n%x\n%x", ledgerKind, h.Salt, math.Float64bits(h.Epsilon), math.Float64bits(h.Delta)))
	copy(id[:], digest[:])
	return id
}

// ledgerLine is each further line: an entry, the budget of its question, and for people what was asked.
type ledgerLine struct {
	Question json.RawMessage `json:"question"`
	Trust    dp.Trust        `json:"trust"`
	Epsilon  float64         `json:"epsilon"`
	Tail     float64         `json:"tail"`
	Entry    []byte          `json:"entry"`
}

// OpenLedger opens a ledger file, or begins one if the file does not exist and a budget is given.
// An epsilon of 0 stands for the budget in the file; any other one must be the same, as must delta:
// nobody may raise a budget after answers.
func OpenLedger(ctx context.Context, path string, b Budget) (_ *Ledger, err error) {
	info, err := os.Stat(path)
	switch begun := err == nil; {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, inputError("ledger %v", err)
	case begun && !info.Mode().IsRegular():
		return nil, inputError("ledger %s: not a file", path)
	case begun && info.Size() == 0:
		return nil, inputError("ledger %s: empty, so nobody knows what was spent", path)
	case !begun && b.Epsilon == 0:
		return nil, inputError("ledger %s: no such file; a budget begins a new one", path)
	case !begun:
		if err := b.check(); err != nil {
			return nil, err
		}
	}
	if err := durable.Own(filepath.Dir(path)); err != nil {
		return nil, inputError("ledger %s: %v", path, err)
	}
	l := &Ledger{path: path}
	if l.unlock, err = durable.Lock(path); err != nil {
		return nil, fmt.Errorf("measure: ledger %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if info != nil { // an earlier process may have ended before its sync
		if err := errors.Join(durable.Sync(path), durable.SyncDir(filepath.Dir(path))); err != nil {
			return nil, fmt.Errorf("measure: ledger %w", err)
		}
	}
	raw, err := durable.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("measure: ledger %w", err)
	}
	if len(raw) == 0 { // the lock made it
		if raw, err = begin(path, b); err != nil {
			return nil, err
		}
	}
	head, lines, err := readLedger(path, raw)
	if err != nil {
		return nil, err
	}
	if b.Epsilon != 0 && b.Epsilon != head.Epsilon {
		return nil, inputError("budget = %v, but ledger %s has %v: a budget is fixed before its first answer", b.Epsilon, path, head.Epsilon)
	}
	if b.Delta != 0 && b.Delta != head.Delta {
		return nil, inputError("delta = %v, but ledger %s counts at %v", b.Delta, path, head.Delta)
	}
	l.Budget, l.log = head.Budget, &fileLog{path: path, lines: lines, limits: map[[32]byte]ledgerLine{}}
	for i, line := range lines {
		e, err := wire.Decode[wire.Entry](line.Entry)
		if err != nil {
			return nil, fmt.Errorf("measure: ledger %s: line %d: %w", path, i+2, err)
		}
		l.log.limits[e.Task] = line
	}
	limit := ledger.Config{Accountant: new(account.Accountant), Delta: head.Delta, Tail: fileTails, MaxEps: head.Epsilon}
	// The journal asks for the budgets of tasks when it reads the log again, so the log is read twice.
	if l.journal, err = ledger.OpenJournal(ctx, l.log, new(noMark), head.population(), limit); err != nil {
		return nil, fmt.Errorf("measure: ledger %s: %w", path, err)
	}
	l.journal.Lookup = func(_ context.Context, task [32]byte) (ledger.Config, bool, error) {
		line, ok := l.log.limits[task]
		return l.limit(line.Epsilon, line.Tail), ok, nil
	}
	if err := l.journal.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("measure: ledger %s: %w", path, err)
	}
	return l, nil
}

// limit is the budget of a question.
func (l *Ledger) limit(eps, tail float64) ledger.Config {
	return ledger.Config{Accountant: new(account.Accountant), Delta: l.Budget.Delta, Tail: tail, MaxEps: eps}
}

func (b Budget) check() error {
	if !(b.Epsilon > 0 && b.Epsilon <= math.MaxFloat64) {
		return inputError("budget = %v must be above 0 and finite", b.Epsilon)
	}
	if err := dp.CheckDelta(b.Delta); err != nil {
		return inputError("%v", err)
	}
	return nil
}

// begin writes the first line.
func begin(path string, b Budget) ([]byte, error) {
	head := ledgerHead{Ledger: ledgerKind, Version: 1, Salt: make([]byte, len(wire.ID{})), Budget: b}
	rand.Read(head.Salt) // never fails
	raw, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	raw = append(raw, '\n')
	if err := durable.Append(path, raw); err != nil {
		// Nothing was charged: without the file the next question can begin it again.
		return nil, fmt.Errorf("measure: ledger %w", errors.Join(err, os.Remove(path)))
	}
	return raw, nil
}

// readLedger reads a file. It cuts off a half of a last line: the process that wrote it ended before
// its charge counted, and released nothing. A last line that lacks only its end counts.
func readLedger(path string, raw []byte) (head ledgerHead, lines []ledgerLine, err error) {
	fail := func(n int, err error) (ledgerHead, []ledgerLine, error) {
		return head, nil, fmt.Errorf("measure: ledger %s: line %d: %w", path, n, err)
	}
	size := len(raw)
	rest := raw
	raw = durable.Text(raw)
	rest = rest[len(raw):]
	whole := bytes.LastIndexByte(raw, '\n') + 1
	if _, later, _ := bytes.Cut(rest, []byte("\n")); len(later) > 0 { // each line is synced before the next is written
		for text := range bytes.SplitSeq(later, []byte("\n")) {
			var line ledgerLine
			if strictly(text, &line) == nil && len(line.Entry) > 0 {
				return fail(bytes.Count(raw, []byte("\n"))+1, errors.New("zeros, and a question after them that was stored"))
			}
		}
	}
	if whole == 0 {
		return fail(1, errors.New("not a ledger of riffle measure"))
	}
	for n, text := range bytes.Split(raw[:whole-1], []byte("\n")) {
		if n == 0 {
			if err := strictly(text, &head); err != nil || head.Ledger != ledgerKind || len(head.Salt) != len(wire.ID{}) {
				return fail(1, errors.New("not a ledger of riffle measure"))
			}
			if head.Version != 1 {
				return fail(1, fmt.Errorf("version %d, this program knows 1", head.Version))
			}
			if err := head.Budget.check(); err != nil {
				return fail(1, err)
			}
			continue
		}
		var line ledgerLine
		if err := strictly(text, &line); err != nil {
			return fail(n+1, err)
		}
		lines = append(lines, line)
	}
	if whole < size {
		var line ledgerLine
		if size == len(raw) && strictly(raw[whole:], &line) == nil { // an editor may have taken its end; its answer may be known
			lines, err = append(lines, line), durable.Append(path, []byte("\n"))
		} else {
			err = durable.Truncate(path, int64(whole))
		}
		if err != nil {
			return head, nil, fmt.Errorf("measure: ledger %w", err)
		}
	}
	return head, lines, nil
}

// strictly reads one JSON value without unknown keys.
func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// Close gives the file back to other processes.
func (l *Ledger) Close() error {
	if l.unlock == nil {
		return nil
	}
	unlock := l.unlock
	l.unlock = nil
	return unlock()
}

// Questions is the number of charged questions.
func (l *Ledger) Questions() (n int64) {
	l.journal.View(func(b *ledger.Book) { n = b.Head().Entries })
	return n
}

// spent bounds what all questions of the file cost together.
func (l *Ledger) spent() (b dp.Bound, err error) {
	l.journal.View(func(k *ledger.Book) { b, err = k.Spent() })
	return b, err
}

// open returns the ledger of one more question.
func (l *Ledger) open(task [32]byte, line ledgerLine) (*ledger.TaskLedger, error) {
	l.log.limits[task] = line
	return l.journal.Task(task, l.limit(line.Epsilon, line.Tail))
}

// fileLog is a ledger file behind its first line.
type fileLog struct {
	path   string
	lines  []ledgerLine
	broken bool                    // a write failed, and may be half done
	limits map[[32]byte]ledgerLine // by task, without entries for those to come
}

// Append implements ledger.Log. Nobody else writes: the file is locked.
func (f *fileLog) Append(_ context.Context, after int64, data []byte) error {
	if after != int64(len(f.lines)) {
		return fmt.Errorf("measure: ledger %s has %d entries, not %d: %w", f.path, len(f.lines), after, ledger.ErrConflict)
	}
	e, err := wire.Decode[wire.Entry](data)
	if err != nil {
		return err
	}
	line, ok := f.limits[e.Task]
	if !ok {
		return fmt.Errorf("measure: ledger %s: a charge of no question", f.path)
	}
	if f.broken {
		return fmt.Errorf("measure: ledger %s: an earlier charge could not be written", f.path)
	}
	line.Entry = data
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if err := durable.Append(f.path, append(text, '\n')); err != nil {
		f.broken = true
		return fmt.Errorf("measure: ledger %w", err)
	}
	f.lines = append(f.lines, line)
	return nil
}

// Read implements ledger.Log.
func (f *fileLog) Read(context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, line := range f.lines {
			if !yield(line.Entry, nil) {
				return
			}
		}
	}
}

// noMark keeps the high-water mark of a file in memory.
type noMark struct{ mark ledger.Mark }

func (m *noMark) Load() (ledger.Mark, error)  { return m.mark, nil }
func (m *noMark) Save(mark ledger.Mark) error { m.mark = mark; return nil }
