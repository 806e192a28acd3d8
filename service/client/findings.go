package client

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// findingsFile holds what comparing rounds has found.
const findingsFile = "rounds.json"

// Findings is what the comparison of ended rounds has found, over all processes of a directory.
// Rounds of tasks without receipts are stored only if something is wrong in them.
type Findings struct {
	Format int `json:"format"`
	// Compared is the number of rounds whose word fits, Listed that of the lists of receipts that
	// were read and fit, and Found that of own receipts in them.
	Compared int64 `json:"compared"`
	Listed   int64 `json:"listed"`
	Found    int64 `json:"found"`
	// Missing counts receipts of reports that the shuffler said it has, and that are in no list.
	Missing int64 `json:"missing"`
	// Half counts receipts of sums' reports of which only the coordinator opened its part.
	Half int64 `json:"half"`
	// Unfit counts rounds whose word or list does not fit, Untold those of which the coordinator
	// told nothing.
	Unfit  int64 `json:"unfit"`
	Untold int64 `json:"untold"`
	// Last lists what was wrong last, no more than mostFindings.
	Last []finding `json:"last,omitempty"`
	// Done lists the announcements of rounds that are compared and whose file may still be there.
	Done []string `json:"done,omitempty"`
}

// finding is one round in which something was wrong.
type finding struct {
	Task   string `json:"task"` // hex
	Round  int64  `json:"round"`
	What   string `json:"what"` // Missing, Half, Unfit or Untold
	Detail string `json:"detail"`
}

const (
	findingsFormat = 1
	mostFindings   = 20
)

// ReadFindings returns what clients of a directory have found; nothing if they have compared no
// rounds. They may be running.
func ReadFindings(dir string) (Findings, error) { return readFindings(directory(dir)) }

func readFindings(s Store) (Findings, error) {
	var f Findings
	b, err := s.Read(findingsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err == nil && f.Format != findingsFormat {
		err = fmt.Errorf("format %d, want %d", f.Format, findingsFormat)
	}
	if err != nil {
		return Findings{}, fmt.Errorf("client: %s: %v", findingsFile, err)
	}
	return f, nil
}

// add counts other, and keeps what it found last.
func (f *Findings) add(other Findings) {
	f.Format = findingsFormat
	f.Compared += other.Compared
	f.Listed += other.Listed
	f.Found += other.Found
	f.Missing += other.Missing
	f.Half += other.Half
	f.Unfit += other.Unfit
	f.Untold += other.Untold
	f.Last = append(slices.Clone(f.Last), other.Last...)
	if n := len(f.Last) - mostFindings; n > 0 {
		f.Last = f.Last[n:]
	}
}

// conclude stores what a round's comparison has found, once, and then removes the round's file, if
// it has one. A crash between the two leaves a file that the next process removes.
func (b *book) conclude(digest [32]byte, found Findings, file bool) error {
	if !file && len(found.Last) == 0 {
		return nil // a round without receipts in which nothing is wrong
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name := hex.EncodeToString(digest[:])
	next := b.findings
	next.add(found)
	next.Done = nil // what was listed is removed
	if file {
		next.Done = []string{name}
	}
	text, err := json.Marshal(next)
	if err == nil {
		err = b.store.Write(findingsFile, text)
	}
	if err != nil {
		return fmt.Errorf("client: %w: %v", errStore, err)
	}
	b.findings = next
	if !file {
		return nil
	}
	return b.forgetReceipts(name)
}

func (b *book) forgetReceipts(name string) error {
	err := b.store.Remove(receiptsDir + "/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("client: %w: %v", errStore, err)
	}
	return nil
}

// openFindings reads what was found so far, and removes the files of rounds that are compared.
func (b *book) openFindings() (err error) {
	if b.findings, err = readFindings(b.store); err != nil {
		return err
	}
	for _, name := range b.findings.Done {
		if filepath.Base(name) != name {
			return fmt.Errorf("client: %s names no round: %q", findingsFile, name)
		}
		if err := b.forgetReceipts(name); err != nil {
			return err
		}
	}
	return nil
}
