package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func receipts(w *world) { w.task.Receipts = true }

// readList reads a list as clients do.
func readList(b []byte, w *world) (head wire.Receipts, list []wire.ID, err error) {
	message, err := wire.Verify(w.key.Public().(ed25519.PublicKey), wire.LabelReceipts, b[:min(len(b), wire.ReceiptsHead)])
	if err != nil {
		return head, nil, err
	}
	if head, err = wire.Decode[wire.Receipts](message); err != nil {
		return head, nil, err
	}
	r := wire.NewReceiptReader(head)
	if err := r.Add(b[wire.ReceiptsHead:], func(id wire.ID, _ bool) { list = append(list, id) }); err != nil {
		return head, nil, err
	}
	return head, list, r.Close()
}

// checkTold holds what is stored for clients against the rounds: every round's word, and with
// receipts the list of all that were opened, once and sorted.
func (w *world) checkTold() {
	w.t.Helper()
	m := w.disk.store(nil)
	rec, _, err := readRecord(context.Background(), m, wire.Digest(w.task))
	if err != nil {
		w.t.Fatal(err)
	}
	if int64(len(rec.Told)) != min(rec.Round, keepTold) {
		w.t.Fatalf("%d rounds are told of, %d have ended", len(rec.Told), rec.Round)
	}
	for _, t := range rec.Told {
		message, err := wire.Verify(w.sh.Public, wire.LabelClosed, t.Closed)
		if err != nil {
			w.t.Fatal(err)
		}
		c, err := wire.Decode[wire.RoundClosed](message)
		if err != nil || hash(c.Announcement) != t.Announcement {
			w.t.Fatalf("%+v, %v", c, err)
		}
		if w.task.Receipts == (t.Receipts == hash{}) && !c.Void {
			w.t.Errorf("receipts: %t, list %x", w.task.Receipts, t.Receipts)
		}
		if t.Receipts == (hash{}) {
			continue
		}
		b, err := m.GetObject(context.Background(), receiptsName(wire.Digest(w.task), t.Receipts))
		if err != nil {
			w.t.Fatal(err)
		}
		head, list, err := readList(b, w)
		if err != nil {
			w.t.Fatal(err)
		}
		if head.Announcement != c.Announcement || head.Closed != wire.Digest(c) || head.Len()+head.Unopened != c.Reports*w.task.PerClient() {
			w.t.Errorf("%+v of %+v", head, c)
		}
		a := wire.Announcement{Round: c.Round, Participation: w.task.Participation, Messages: w.task.Messages, Sample: w.config.Sample}
		who, message2 := w.batched(a)
		for place, client := range who {
			if w.garbage[place] == 2 {
				continue // sealed to another key
			}
			if id := receipt(c.Announcement, client, message2[place]); !slices.Contains(list, id) {
				w.t.Errorf("round %d: the receipt of client %d is missing", c.Round, client)
			}
		}
	}
}

// All receipts that were opened are listed: also those of reports that were left out, and those of
// shares that the other aggregator does not have.
func TestReceiptsOfOpenedMessagesAreListed(t *testing.T) {
	for _, c := range []struct {
		name        string
		trust       dp.Trust
		messages    int64
		garbage     map[int]int
		whole, half int64
		unopened    int64
	}{
		{"shuffle", dp.Shuffle, 1, nil, 8, 0, 0},
		{"messages", dp.Shuffle, 3, nil, 24, 0, 0},
		{"not possible, not opened", dp.Shuffle, 1, map[int]int{1: 1, 4: 2}, 7, 0, 1},
		{"sum", dp.Distributed, 1, nil, 8, 0, 0},
		{"share that cannot be summed", dp.Distributed, 1, map[int]int{2: 3}, 8, 0, 0},
		{"ids that differ", dp.Distributed, 1, map[int]int{2: 4}, 8, 0, 0},
		{"receipts that differ", dp.Distributed, 1, map[int]int{2: 7}, 7, 1, 0},
		{"proofs", dp.Distributed, 1, nil, 8, 0, 0},
		{"proofs, receipts that differ", dp.Distributed, 1, map[int]int{2: 7}, 7, 1, 0},
	} {
		bubble(t, c.name, func(t *testing.T) {
			kind := func(*world) {}
			if strings.HasPrefix(c.name, "proofs") {
				kind = withProofs
			}
			w := newWorld(t, c.trust, dp.All, receipts, kind, func(w *world) {
				w.task.Rounds, w.garbage = 1, c.garbage
				w.config.Colluders = 0
				if c.messages > 1 {
					w.task.Messages = c.messages
				}
			})
			s := w.run()
			if s.State != Done {
				t.Fatalf("%+v", s)
			}
			w.checkTold()
			m := w.disk.store(nil)
			rec, _, err := readRecord(t.Context(), m, wire.Digest(w.task))
			if err != nil {
				t.Fatal(err)
			}
			if last := rec.Told[0]; last.Whole != c.whole || last.Half != c.half || last.Unopened != c.unopened {
				t.Errorf("whole %d, half %d, not opened %d", last.Whole, last.Half, last.Unopened)
			}
		})
	}
}

// A stranger gets what is public, by the digests that are public, and a refusal without any work
// for all else.
func TestStrangersAskForRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, receipts)
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.stop()
		if _, err := p.Wait(t.Context(), wire.Digest(w.task)); err != nil {
			t.Fatal(err)
		}
		ask := func(path string) *httptest.ResponseRecorder {
			rw := httptest.NewRecorder()
			p.Handler().ServeHTTP(rw, httptest.NewRequest(http.MethodGet, path, nil))
			return rw
		}
		rec, _, err := readRecord(t.Context(), w.disk.store(nil), wire.Digest(w.task))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rec.Told {
			closed := ask(fmt.Sprintf("/v1/rounds/%x/closed", r.Announcement))
			if closed.Code != 200 || !bytes.Equal(closed.Body.Bytes(), r.Closed) {
				t.Errorf("closed: %d, %d bytes", closed.Code, closed.Body.Len())
			}
			list := ask(fmt.Sprintf("/v1/rounds/%x/receipts", r.Announcement))
			if _, ids, err := readList(list.Body.Bytes(), w); list.Code != 200 || err != nil || len(ids) != 8 {
				t.Errorf("receipts: %d, %v, %d", list.Code, err, len(ids))
			}
		}
		// Another process has read nothing yet, and reads the list from the store.
		p.lists = cache{}
		reads := len(w.disk.happened())
		for range 3 {
			if list := ask(fmt.Sprintf("/v1/rounds/%x/receipts", rec.Told[0].Announcement)); list.Code != 200 {
				t.Errorf("receipts from the store: %d", list.Code)
			}
		}
		if full := p.oldLists.by; len(full) != 0 {
			t.Errorf("%d lists are held when nobody reads", len(full))
		}
		for path, want := range map[string]int{
			"/v1/rounds/" + strings.Repeat("ab", 32) + "/closed":   404,
			"/v1/rounds/" + strings.Repeat("ab", 32) + "/receipts": 404,
			"/v1/rounds/abcd/closed":                               400,
			"/v1/rounds/zz/receipts":                               400,
		} {
			if got := ask(path); got.Code != want {
				t.Errorf("%s: %d, want %d", path, got.Code, want)
			}
		}
		if n := len(w.disk.happened()) - reads; n > 1 {
			t.Errorf("%d reads of the store for one list and strangers' digests", n)
		}
	})
}

// Only the last rounds are kept, and the lists of others are deleted.
func TestOldListsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, receipts, func(w *world) { w.task.Rounds = keepTold + 3 })
		w.check(w.run())
		lists := 0
		w.disk.Lock()
		defer w.disk.Unlock()
		for name := range w.disk.Objects {
			if strings.HasPrefix(name, "receipts/") {
				lists++
			}
		}
		if lists != keepTold {
			t.Errorf("%d lists are stored, want %d", lists, keepTold)
		}
	})
}

// A list that is lost or changed is found by the check, and no other bytes are served.
func TestChangedListIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, receipts)
		w.check(w.run())
		w.disk.Lock()
		for name, b := range w.disk.Objects {
			if strings.HasPrefix(name, "receipts/") {
				w.disk.Objects[name] = append(bytes.Clone(b), make([]byte, 16)...)
			}
		}
		w.disk.Unlock()
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.stop()
		if _, err := p.Wait(t.Context(), wire.Digest(w.task)); err != nil {
			t.Fatal(err)
		}
		rec, _, err := readRecord(t.Context(), w.disk.store(nil), wire.Digest(w.task))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rec.Told {
			if _, err := p.oldList(t.Context(), endedRound{r, p.find(wire.Digest(w.task))}); err == nil || errors.Is(err, errLooking) {
				t.Errorf("a changed list is served: %v", err)
			}
			p.listAgain = p.listAgain.Add(-1 << 40)
		}
		problems := 0
		m := w.disk.store(nil)
		p.find(wire.Digest(w.task)).checkTold(t.Context(), m, func(string, ...any) { problems++ })
		if problems != len(rec.Told) {
			t.Errorf("the check finds %d of %d changed lists", problems, len(rec.Told))
		}
	})
}

// A coordinator that does not lead, or has just started, does not say that there is no such round:
// it asks for another try, and a client asks the one that leads.
func TestStandbySaysNothingOfRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, receipts)
		block, blocked := make(chan struct{}), make(chan struct{})
		slow := w.config
		slow.Record = func(_ [32]byte, round, place int64, _ *randomizer.Report) error {
			if round == 2 && place == 0 {
				close(blocked)
				<-block
			}
			return nil
		}
		one, err := w.start(nil, func(c *Config) { c.Tasks[0] = slow })
		if err != nil {
			t.Fatal(err)
		}
		<-blocked
		two, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		rec, _, err := readRecord(t.Context(), w.disk.store(nil), wire.Digest(w.task))
		if err != nil {
			t.Fatal(err)
		}
		ask := func(p *process, announcement hash) int {
			rw := httptest.NewRecorder()
			p.Handler().ServeHTTP(rw, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/v1/rounds/%x/closed", announcement), nil))
			return rw.Code
		}
		if got := ask(one, rec.Told[0].Announcement); got != 200 {
			t.Errorf("the leader: %d", got)
		}
		if got := ask(one, hash{1}); got != 404 {
			t.Errorf("the leader, of no round: %d", got)
		}
		if got := ask(two, rec.Told[0].Announcement); got != 503 {
			t.Errorf("a standby: %d", got)
		}
		two.stop()
		if err := <-two.done; err != nil {
			t.Error(err)
		}
		close(block)
		w.check(w.end(one))
	})
}
