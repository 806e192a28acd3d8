package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// ended is a round as shuffler and coordinator publish it, before they sign it.
type ended struct {
	closed wire.RoundClosed
	head   wire.Receipts
	list   []byte // the receipts
	whole  []byte // what is served in place of head and list; nil: those
}

// receiptsOf opens what the open round's clients have sent.
func (w *world) receiptsOf() (ids []wire.ID) {
	for _, r := range w.reports {
		size := int(w.open.ReportBytes)
		for part := range slices.Chunk(r.Part, size) {
			content, err := w.rings[envelope.Coordinator].OpenPart(envelope.Coordinator, w.digest, part)
			if err != nil {
				w.t.Fatal(err)
			}
			_, with, err := w.task.Attachments().Split(content)
			if err != nil {
				w.t.Fatal(err)
			}
			if w.open.ShareBytes > 0 {
				content, err := w.rings[envelope.Aggregator].OpenPart(envelope.Aggregator, w.digest, r.Share)
				if err != nil {
					w.t.Fatal(err)
				}
				if _, other, err := w.task.Attachments().Split(content); err != nil || other != with {
					w.t.Errorf("the two parts carry other receipts: %v", err)
				}
			}
			ids = append(ids, with.Receipt)
		}
	}
	return ids
}

// word is what honest servers publish of the open round, if other clients had reports too.
func (w *world) word(others int) *ended {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := w.receiptsOf()
	for range int64(others) * w.open.PerClient() {
		var id wire.ID
		rand.Read(id[:])
		ids = append(ids, id)
	}
	e := &ended{closed: wire.RoundClosed{Announcement: w.digest, Round: w.open.Round, Reports: int64(len(w.reports) + others), Digest: [32]byte{1}, Chunks: 1}}
	if w.open.ShareBytes > 0 {
		e.closed.Shares = [32]byte{2}
	}
	e.list = wire.SortReceipts(ids)
	e.head = wire.Receipts{Announcement: w.digest, Whole: int64(len(ids))}
	return e
}

// tell publishes it.
func (w *world) tell(e *ended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == nil {
		w.told = map[string][]byte{}
	}
	if e.head.Closed == ([32]byte{}) {
		e.head.Closed = wire.Digest(e.closed)
	}
	if e.head.List == ([32]byte{}) {
		e.head.List = sha256.Sum256(e.list)
	}
	path := fmt.Sprintf("/v1/rounds/%x/", w.digest)
	w.told[path+"closed"] = wire.Sign(w.operator, wire.LabelClosed, wire.Encode(e.closed))
	if e.whole == nil {
		e.whole = append(wire.Sign(w.coordinator, wire.LabelReceipts, wire.Encode(e.head)), e.list...)
	}
	w.told[path+"receipts"] = e.whole
}

func receiptTask() wire.Task {
	task := shuffleTask()
	task.Receipts = true
	return task
}

// compare has one client report among others, publishes what change makes of the round's word,
// and returns what the client finds.
func compare(t *testing.T, w *world, change func(w *world, e *ended), configure ...func(*client.JoinConfig)) (client.Findings, client.JoinConfig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	theta := make([]float32, dim)
	w.publish(w.announcement(1, theta), theta, nil)
	config := w.config()
	for _, f := range configure {
		f(&config)
	}
	fleet, end := w.run(ctx, config)
	w.wait(ctx, len(w.members))
	e := w.word(3)
	change(w, e)
	w.tell(e)
	await(t, func() bool { return fleet.Snapshot().Reports[client.Sent] == int64(len(w.members)) })
	end()
	stored, err := client.ReadFindings(config.Directory)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(config.Directory, "receipts", "*"))
	if err != nil || len(files) != 0 {
		t.Errorf("%v are left, %v", files, err)
	}
	now := fleet.Snapshot().Compared
	if now.Missing != stored.Missing || now.Unfit != stored.Unfit || w.task.Receipts && now.Compared != stored.Compared {
		t.Errorf("stored %+v, counted %+v", stored, now)
	}
	return now, config
}

// without takes own receipts out of a list.
func (w *world) without(e *ended, n int) {
	own := w.receiptsOf()[:n]
	var left []byte
	for id := range slices.Chunk(e.list, 16) {
		if !slices.Contains(own, wire.ID(id)) {
			left = append(left, id...)
		}
	}
	e.list = left
}

// What shuffler and coordinator can do about a round's list of receipts, and what clients say.
func TestClientsCompareReceipts(t *testing.T) {
	head := func(f func(w *world, e *ended)) func(*world, *ended) { return f }
	for name, c := range map[string]struct {
		change func(w *world, e *ended)
		want   client.Findings
		says   string
	}{
		"honest": {func(*world, *ended) {}, client.Findings{Compared: 1, Listed: 1, Found: 1}, ""},
		"a shuffler that dropped it": {func(w *world, e *ended) {
			w.without(e, 1)
			e.closed.Reports--
			e.head.Whole--
		}, client.Findings{Compared: 1, Listed: 1, Missing: 1}, "said that it has the report, and 1 of its receipts"},
		"a shuffler that put garbage in its place": {func(w *world, e *ended) {
			w.without(e, 1)
			e.head.Whole, e.head.Unopened = e.head.Whole-1, 1
		}, client.Findings{Compared: 1, Listed: 1, Missing: 1}, "are not among the 3"},
		"a shuffler that put garbage in the place of all": {func(w *world, e *ended) { e.list, e.head.Whole, e.head.Unopened = nil, 0, 4 },
			client.Findings{Compared: 1, Listed: 1, Missing: 1}, "are not among the 0"},
		"other receipts": {func(w *world, e *ended) {
			ids := make([]wire.ID, 4)
			for i := range ids {
				rand.Read(ids[i][:])
			}
			e.list = wire.SortReceipts(ids)
		}, client.Findings{Compared: 1, Listed: 1, Missing: 1}, "left it out"},
		"fewer than signed": {func(w *world, e *ended) { w.without(e, 1); e.head.Whole-- }, client.Findings{Unfit: 1}, "of 4 messages"},
		"more than signed":  {head(func(w *world, e *ended) { e.list = append(e.list, bytes.Repeat([]byte{255}, 16)...); e.head.Whole++ }), client.Findings{Unfit: 1}, "of 4 messages"},
		"a list that is too short": {func(w *world, e *ended) { e.head.List = sha256.Sum256(e.list); e.list = e.list[:32] },
			client.Findings{Unfit: 1}, "2 receipts, the signed head has 4"},
		"a list that is cut within a receipt": {func(w *world, e *ended) { e.head.List = sha256.Sum256(e.list); e.list = e.list[:40] },
			client.Findings{Unfit: 1}, "40 bytes of receipts"},
		"a list that is too long": {func(w *world, e *ended) {
			e.head.List = sha256.Sum256(e.list)
			e.list = append(e.list, bytes.Repeat([]byte{255}, 1<<20)...)
		}, client.Findings{Unfit: 1}, "more receipts than"},
		"a changed list": {func(w *world, e *ended) {
			e.head.List = sha256.Sum256(e.list)
			e.list = append(bytes.Clone(e.list[:63]), e.list[63]^1)
		}, client.Findings{Unfit: 1}, "not those of the signed head"},
		"not sorted": {func(w *world, e *ended) {
			e.list = append(bytes.Clone(e.list[16:]), e.list[:16]...)
		}, client.Findings{Unfit: 1}, "do not ascend"},
		"unsigned": {func(w *world, e *ended) { e.whole = append(make([]byte, 64), e.list...) }, client.Findings{Unfit: 1}, "no head"},
		"signed by the shuffler": {func(w *world, e *ended) {
			e.head.Closed = wire.Digest(e.closed)
			e.head.List = sha256.Sum256(e.list)
			e.whole = append(wire.Sign(w.operator, wire.LabelReceipts, wire.Encode(e.head)), e.list...)
		}, client.Findings{Unfit: 1}, "signature does not fit"},
		"signed for something else": {func(w *world, e *ended) {
			e.whole = append(wire.Sign(w.coordinator, wire.LabelAnnouncement, wire.Encode(e.head)), e.list...)
		}, client.Findings{Unfit: 1}, "signature does not fit"},
		"of another round":       {func(w *world, e *ended) { e.head.Announcement[0] ^= 1 }, client.Findings{Unfit: 1}, "those of announcement"},
		"for another word":       {func(w *world, e *ended) { e.head.Closed = [32]byte{9} }, client.Findings{Unfit: 1}, "another word"},
		"huge numbers":           {func(w *world, e *ended) { e.head.Whole = 1 << 47 }, client.Findings{Unfit: 1}, "of 4 messages"},
		"halves of single parts": {func(w *world, e *ended) { e.head.Whole, e.head.Half = 3, 1 }, client.Findings{Unfit: 1}, "reports have one part"},

		"a word of another round": {func(w *world, e *ended) { e.closed.Announcement[5] ^= 1 }, client.Findings{Unfit: 1}, "announcement"},
		"a word with another n":   {func(w *world, e *ended) { e.closed.Reports = 99 }, client.Findings{Unfit: 1}, "99 reports, must lie between n-min = 3 and 8"},
		"a word below n-min":      {func(w *world, e *ended) { e.closed.Reports = 2 }, client.Findings{Unfit: 1}, "2 reports, must lie"},
		"a word without a batch":  {func(w *world, e *ended) { e.closed.Digest = [32]byte{} }, client.Findings{Unfit: 1}, "digest 00000000"},
		"a word with shares":      {func(w *world, e *ended) { e.closed.Shares = [32]byte{1} }, client.Findings{Unfit: 1}, "shares"},
		"a void round":            {func(w *world, e *ended) { e.closed = wire.RoundClosed{Announcement: w.digest, Round: 1, Void: true} }, client.Findings{Compared: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 8, receiptTask())
				w.members = w.members[:1]
				got, _ := compare(t, w, c.change)
				last := got.Last
				got.Last, got.Format, c.want.Format = nil, 0, 0
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("found %+v, want %+v", got, c.want)
				}
				if c.says == "" && len(last) != 0 || c.says != "" && (len(last) != 1 || !strings.Contains(last[0].Detail, c.says)) {
					t.Errorf("says %+v, want %q", last, c.says)
				}
			})
		})
	}
}

// A shuffler that calls a round void, or too small, of which it took more reports.
func TestClientsCountTheirOwn(t *testing.T) {
	for name, change := range map[string]func(w *world, e *ended){
		"void":      func(w *world, e *ended) { e.closed = wire.RoundClosed{Announcement: w.digest, Round: 1, Void: true} },
		"too small": func(w *world, e *ended) { e.closed.Reports, e.head.Whole, e.list = 3, 3, e.list[:48] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 8, receiptTask())
				w.members = w.members[:4]
				if got, _ := compare(t, w, change); got.Unfit != 1 || !strings.Contains(got.Last[0].Detail, "the shuffler took 4") {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// With a registrar a round may be void because clients were revoked, however many reports came.
func TestVoidRoundsWithRegistrar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		got, _ := compare(t, r.world, func(w *world, e *ended) {
			e.closed = wire.RoundClosed{Announcement: w.digest, Round: 1, Void: true}
		}, func(c *client.JoinConfig) { c.RegistrarKey = r.config.RegistrarKey })
		if got.Compared != 1 || got.Unfit != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// Tasks without receipts have the word only, and leave nothing behind if it fits.
func TestClientsCompareWordsWithoutReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8, shuffleTask())
		w.members = w.members[:2]
		got, config := compare(t, w, func(*world, *ended) {})
		if got.Compared != 1 || w.asked("GET receipts") != 0 {
			t.Errorf("%+v, %d lists", got, w.asked("GET receipts"))
		}
		for _, name := range []string{"receipts", "rounds.json"} {
			if _, err := os.Stat(filepath.Join(config.Directory, name)); !os.IsNotExist(err) {
				t.Errorf("%s is there: %v", name, err)
			}
		}
		w = newWorld(t, 8, shuffleTask())
		w.members = w.members[:2]
		if got, _ := compare(t, w, func(w *world, e *ended) { e.closed.Reports = 9 }); got.Unfit != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// A client of several messages has a receipt for each, and one of a sum has one in both parts.
func TestReceiptsOfMessagesAndHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := receiptTask()
		task.Messages = 3
		w := newWorld(t, 8, task)
		w.members = w.members[:1]
		if got, _ := compare(t, w, func(w *world, e *ended) {
			w.without(e, 2)
			e.head.Whole, e.head.Unopened = e.head.Whole-2, 2
		}); got.Found != 1 || got.Missing != 2 {
			t.Errorf("%+v", got)
		}
		sum := receiptTask()
		sum.Trust, sum.Mechanism, sum.Delta, sum.Rounds = dp.Distributed, sumTask(t, 8, 3), 1e-5, 4
		for half := range 2 {
			w := newWorld(t, 8, sum)
			w.members = w.members[:1]
			got, _ := compare(t, w, func(w *world, e *ended) {
				if half == 0 {
					return
				}
				own := w.receiptsOf()[0]
				w.without(e, 1)
				e.list = append(e.list, own[:]...)
				e.head.Whole, e.head.Half = e.head.Whole-1, 1
			})
			if got.Found != int64(1-half) || got.Half != int64(half) || got.Missing != 0 {
				t.Errorf("half: %d: %+v", half, got)
			}
		}
	})
}

// Who was not in a round asks for the same as who was. A report that the shuffler did not say it
// has may be missing.
func TestAllClientsAskAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		for _, in := range []string{"in", "not drawn", "refused"} {
			task := receiptTask()
			task.Participation = dp.Sampled
			w := newWorld(t, 8, task)
			w.members = w.members[:1]
			theta := make([]float32, dim)
			a := w.announcement(1, theta)
			a.Sample = 5
			w.publish(a, theta, map[int]bool{0: in != "not drawn"})
			if in == "refused" {
				p := &posts{answer: func(int) int { return 410 }}
				w.set(p.before)
			}
			config := w.config()
			seen := newWatch()
			config.Watch = seen.tell
			fleet, end := w.run(t.Context(), config)
			seen.next(t.Context(), t, map[string]string{"in": client.Sent, "not drawn": client.NotDrawn, "refused": client.Lost}[in])
			e := w.word(4)
			if in == "in" {
				w.without(e, 1) // it finds that out, and asks for no more because of it
				e.head.Whole, e.head.Unopened = e.head.Whole-1, 1
			}
			w.tell(e)
			end()
			got := fleet.Snapshot().Compared
			if got.Listed != 1 || (got.Missing == 1) != (in == "in") || len(got.Last) != int(got.Missing) {
				t.Errorf("%s: %+v", in, got)
			}
			asked = append(asked, fmt.Sprint(w.asked("GET closed"), w.asked("GET receipts")))
		}
		if asked[0] != "1 1" || asked[1] != asked[0] || asked[2] != asked[0] {
			t.Errorf("asked for %q", asked)
		}
	})
}

// Of large lists each process reads one in some, by a coin that is stored before it reports. If it
// says no, no receipt is ever stored.
func TestLargeListsAreReadByCoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, look := range []bool{false, true} {
			w := newWorld(t, 8, receiptTask())
			w.members = w.members[:1]
			w.enrolment.Clients = 70_000
			theta := make([]float32, dim)
			a := w.announcement(1, theta)
			w.publish(a, theta, nil)
			config := w.config()
			flips := 0
			var e *ended
			for process := range 2 {
				fleet, err := client.NewFleet(config, w.members)
				if err != nil {
					t.Fatal(err)
				}
				fleet.Coin(func() bool { flips++; return look })
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- fleet.Run(ctx) }()
				if process == 0 {
					w.wait(ctx, 1)
					files, _ := filepath.Glob(filepath.Join(config.Directory, "receipts", "*"))
					if len(files) != 1 {
						t.Fatal(files)
					}
					await(t, func() bool { b, _ := os.ReadFile(files[0]); return bytes.Contains(b, []byte("taken ")) })
					b, err := os.ReadFile(files[0])
					if err != nil || bytes.Contains(b, []byte("mine")) != look {
						t.Errorf("look: %t, stored %.60q, %v", look, b, err)
					}
					e = w.word(66_000)
					stop() // the process ends, and another one compares
				} else {
					w.tell(e)
					w.end()
				}
				if err := errors.Join(<-done, fleet.Close()); err != nil {
					t.Fatal(err)
				}
				stop()
			}
			got, err := client.ReadFindings(config.Directory)
			want := int64(0)
			if look {
				want = 1
			}
			if err != nil || flips != 1 || got.Compared != 1 || got.Listed != want || got.Found != want || w.asked("GET receipts") != int(want) {
				t.Errorf("look: %t: %+v, %v, %d flips, %d lists", look, got, err, flips, w.asked("GET receipts"))
			}
		}
	})
}

// A process that ends anywhere between a report and its comparison says the same as one that does
// not: what was stored, and how far, decides.
func TestReceiptsAfterCrashes(t *testing.T) {
	for name, c := range map[string]struct {
		cut     func(t *testing.T, dir string)
		missing int64
		posts   int // of the second process
	}{
		"nothing lost": {func(*testing.T, string) {}, 1, 0},
		"not known to be taken": {func(t *testing.T, dir string) {
			editReceipts(t, dir, func(b []byte) []byte { return b[:bytes.Index(b, []byte("taken"))] })
		}, 0, 0},
		"torn": {func(t *testing.T, dir string) {
			editReceipts(t, dir, func(b []byte) []byte { return b[:len(b)-3] })
		}, 0, 0},
		"torn receipt": {func(t *testing.T, dir string) {
			editReceipts(t, dir, func(b []byte) []byte { return b[:bytes.Index(b, []byte("taken"))-3] })
		}, 0, 0},
		"not charged": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "ledger")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b[:bytes.IndexByte(b, '\n')+1], 0o600); err != nil {
				t.Fatal(err)
			}
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 8, receiptTask())
				w.members = w.members[:1]
				theta := make([]float32, dim)
				w.publish(w.announcement(1, theta), theta, nil)
				config := w.config()
				ctx, stop := context.WithCancel(t.Context())
				fleet, err := client.NewFleet(config, w.members)
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- fleet.Run(ctx) }()
				w.wait(ctx, 1)
				files, _ := filepath.Glob(filepath.Join(config.Directory, "receipts", "*"))
				await(t, func() bool { b, _ := os.ReadFile(files[0]); return bytes.Contains(b, []byte("taken ")) })
				stop()
				if err := errors.Join(<-done, fleet.Close()); err != nil {
					t.Fatal(err)
				}
				c.cut(t, config.Directory)
				e := w.word(3)
				w.without(e, 1)
				e.head.Whole, e.head.Unopened = e.head.Whole-1, 1
				w.tell(e)
				w.end()
				for range 2 { // the second has nothing left to compare
					if fleet, err = client.NewFleet(config, w.members); err != nil {
						t.Fatal(err)
					}
					if err := errors.Join(fleet.Run(t.Context()), fleet.Close()); err != nil {
						t.Fatal(err)
					}
				}
				got, err := client.ReadFindings(config.Directory)
				if err != nil || got.Missing != c.missing || got.Compared != 1 {
					t.Errorf("%+v, %v", got, err)
				}
			})
		})
	}
}

func editReceipts(t *testing.T, dir string, f func([]byte) []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "receipts", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err == nil {
		err = os.WriteFile(files[0], f(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A crash between what was found and the removal of the file counts nothing twice.
func TestFindingsAreCountedOnce(t *testing.T) {
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
		path := filepath.Join(config.Directory, "receipts", fmt.Sprintf("%x", w.digest))
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		fleet, err := client.NewFleet(config, w.members)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(fleet.Run(t.Context()), fleet.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := client.ReadFindings(config.Directory)
		if err != nil || got.Compared != 1 || got.Found != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the file is still there: %v", err)
		}
	})
}

// A coordinator that tells nothing of a round, or cannot be reached for a while.
func TestCoordinatorTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8, receiptTask())
		w.members = w.members[:1]
		got, _ := compare(t, w, func(w *world, e *ended) {
			w.set(func(rw http.ResponseWriter, r *http.Request) bool {
				if !strings.HasPrefix(r.URL.Path, "/v1/rounds/") {
					return false
				}
				rw.WriteHeader(http.StatusNotFound)
				return true
			})
		})
		if got.Untold != 1 || got.Compared != 0 {
			t.Errorf("%+v", got)
		}
		w = newWorld(t, 8, receiptTask())
		w.members = w.members[:1]
		fails := 0
		got, _ = compare(t, w, func(w *world, e *ended) {
			w.set(func(rw http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/receipts") || fails == 3 {
					return false
				}
				switch fails++; fails {
				case 1:
					rw.WriteHeader(http.StatusServiceUnavailable)
				case 2: // a connection that breaks within the list
					rw.Header().Set("Content-Length", strconv.Itoa(1<<20))
					rw.Write(w.told[r.URL.Path][:wire.ReceiptsHead+16])
					panic(http.ErrAbortHandler)
				case 3:
					panic(http.ErrAbortHandler)
				}
				return true
			})
		})
		if fails != 3 || got.Compared != 1 || got.Found != 1 || got.Unfit != 0 {
			t.Errorf("after %d failures: %+v", fails, got)
		}
	})
}
