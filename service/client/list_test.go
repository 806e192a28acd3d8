package client_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// manyReceipts is a sorted list that nobody holds: receipt i starts with i.
type manyReceipts struct{ at, n int64 }

func (m *manyReceipts) Read(b []byte) (n int, err error) {
	for n < len(b) && m.at < 16*m.n {
		var one [16]byte
		binary.BigEndian.PutUint64(one[:], uint64(m.at/16))
		more := copy(b[n:], one[m.at%16:])
		n, m.at = n+more, m.at+int64(more)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// A client reads a list of any length in a small memory, and a head that announces more than comes
// makes it hold nothing.
func TestLongListsAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := longtest.Pick[int64](1<<18, 10_000_000)
		w := newWorld(t, 2, receiptTask())
		w.enrolment.Clients = 1 << 40
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		fleet, err := client.NewFleet(w.config(), w.members)
		if err != nil {
			t.Fatal(err)
		}
		defer fleet.Close()
		closed := wire.RoundClosed{Announcement: w.digest, Round: 1, Reports: n, Digest: [32]byte{1}, Chunks: 1}
		sum := sha256.New()
		if _, err := io.Copy(sum, &manyReceipts{n: n}); err != nil {
			t.Fatal(err)
		}
		head := func(h wire.Receipts) []byte { return wire.Sign(w.coordinator, wire.LabelReceipts, wire.Encode(h)) }
		whole := wire.Receipts{Announcement: w.digest, Closed: wire.Digest(closed), Whole: n, List: [32]byte(sum.Sum(nil))}
		own := map[wire.ID]bool{{7: 5}: true, {7: 5, 15: 1}: true}
		huge := closed
		huge.Reports = 1 << 40
		announced := whole
		announced.Whole, announced.Closed = 1<<40, wire.Digest(huge)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		found, err := fleet.ReadList(io.MultiReader(bytes.NewReader(head(whole)), &manyReceipts{n: n}), w.open, closed, own)
		if err != nil || found != 1 {
			t.Errorf("%d own receipts, %v", found, err)
		}
		if _, err := fleet.ReadList(io.MultiReader(bytes.NewReader(head(announced)), &manyReceipts{n: 10}), w.open, huge, own); err == nil {
			t.Error("a list of 10 receipts instead of 2^40 was taken")
		}
		runtime.ReadMemStats(&after)
		if held := after.TotalAlloc - before.TotalAlloc; held > 1<<20 {
			t.Errorf("%d bytes were allocated for lists of %d bytes", held, 16*n)
		}
	})
}

// Where no receipts can be stored, nothing is sent.
func TestNothingIsSentWithoutReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8, receiptTask())
		w.members = w.members[:1]
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		config := w.config()
		if err := os.WriteFile(filepath.Join(config.Directory, "receipts"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		// It is no directory, which is found at the start.
		if _, err := client.NewFleet(config, w.members); err == nil {
			t.Fatal("a file in place of the directory was taken")
		}
		if err := os.Remove(filepath.Join(config.Directory, "receipts")); err != nil {
			t.Fatal(err)
		}
		fleet, err := client.NewFleet(config, w.members)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(config.Directory, "receipts"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- fleet.Run(t.Context()) }()
		if err = <-done; err == nil || w.asked("POST report") != 0 {
			t.Errorf("%d reports were sent, %v", w.asked("POST report"), err)
		}
		ledger, errRead := os.ReadFile(filepath.Join(config.Directory, "ledger"))
		if errRead != nil || bytes.Contains(ledger, []byte("sent ")) {
			t.Errorf("ledger %q, %v", ledger, errRead)
		}
		if err := fleet.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
	})
}

// A file of receipts that was damaged is refused with its name.
func TestDamagedReceipts(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"header":        func(b []byte) []byte { b[0] ^= 1; return b },
		"coin":          func(b []byte) []byte { return bytes.Replace(b, []byte("look "), []byte("took "), 1) },
		"announcement":  func(b []byte) []byte { i := bytes.Index(b, []byte("look ")); b[i+40] ^= 1; return b },
		"other line":    func(b []byte) []byte { return append(b, "lost 00\n"...) },
		"cut off start": func(b []byte) []byte { return b[:30] },
		"another name":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 8, receiptTask())
				w.members = w.members[:1]
				var file []byte
				_, config := compare(t, w, func(w *world, e *ended) {
					await(t, func() bool {
						files, _ := filepath.Glob(filepath.Join(w.dir, "receipts", "*"))
						if len(files) == 1 {
							file, _ = os.ReadFile(files[0])
						}
						return bytes.Contains(file, []byte("taken "))
					})
				})
				digest := w.digest
				if change == nil {
					digest[0] ^= 1
				} else {
					digest[31] ^= 1 // not the one that is done; what is read comes before the name
					file = change(file)
				}
				path := filepath.Join(config.Directory, "receipts", hexOf(digest))
				if err := os.WriteFile(path, file, 0o600); err != nil {
					t.Fatal(err)
				}
				if f, err := client.NewFleet(config, w.members); err == nil {
					f.Close()
					t.Error("it was taken")
				} else if !bytes.Contains([]byte(err.Error()), []byte("receipts")) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func hexOf(d [32]byte) string { return hex.EncodeToString(d[:]) }
