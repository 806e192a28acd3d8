package coordinator

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// several asks for three messages of each client.
func several(w *world) { w.task.Messages = 3 }

// Rounds of several messages over HTTP give the model of the pure functions, and their charges:
// each as rounds of all the clients that came. Reports are counted as clients.
func TestRoundsOfSeveralMessages(t *testing.T) {
	for _, trust := range []dp.Trust{dp.Shuffle, dp.Local} {
		for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
			bubble(t, string(trust)+" "+string(p), func(t *testing.T) {
				w := newWorld(t, trust, p, several)
				s := w.run()
				w.check(s)
				var reports int64
				for _, a := range w.sh.Opened {
					if a.Messages != 3 {
						t.Errorf("announced %d messages", a.Messages)
					}
					reports += int64(len(w.who(a)))
				}
				if s.Released != 3 || s.Reports != reports || s.Failed+s.Void != 0 {
					t.Errorf("%d reports: %+v", reports, s)
				}
				for i, b := range w.disk.Log {
					e, err := wire.Decode[wire.Entry](b)
					if err != nil || e.Times != 3 || e.Event.Participation != dp.All || e.Event.Reports != 0 && e.Event.Reports != e.Event.Population {
						t.Errorf("entry %d is %+v, %v", i, e, err)
					}
				}
			})
		}
	}
}

// A message that cannot be opened, or is of something else, is left out by itself. The others of
// its client count, but no client counts for a part of its report.
func TestBadMessagesAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, several)
		w.garbage[2], w.garbage[9] = 1, 2 // of 24 messages
		s := w.run()
		w.check(s, 2, 9)
		if s.Reports != 3*7 || fmt.Sprint(s.Rejected) != fmt.Sprint(map[wire.Reason]int64{wire.OutOfRange: 3, wire.WrongKey: 3}) {
			t.Errorf("%d reports, rejected %v", s.Reports, s.Rejected)
		}
	})
}

// Recorded messages come by their places in the batch, run after run.
func TestRecordOfSeveralMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, several)
		next := map[int64]int64{}
		w.config.Record = func(_ [32]byte, round, at int64, r *randomizer.Report) error {
			a := w.sh.Opened[round-1]
			who, message := w.batched(a)
			if want := w.report(round, who[at], a.ModelDigest, message[at]); at != next[round] || fmt.Sprint(want.Value) != fmt.Sprint(r.Value) {
				t.Errorf("round %d: another report at place %d, after %d", round, at, next[round])
			}
			next[round]++
			return nil
		}
		w.check(w.run())
		for round := int64(1); round <= 3; round++ {
			if next[round] != 24 {
				t.Errorf("round %d: %d messages are recorded", round, next[round])
			}
		}
	})
}

// A shuffler whose batch does not have m messages of each client is not believed.
func TestLiesAboutMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, several)
		fill := w.sh.Fill
		w.sh.Fill = func(a wire.Announcement) (parts, shares [][]byte) {
			parts, shares = fill(a)
			return parts[:23], shares // counted as seven clients, with two messages too many
		}
		s := w.run()
		if s.Released != 0 || s.Failed != 3 || s.FailedBy[string(FailedBatch)] != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// A vector sum has one message of each client.
func TestSumsTakeOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, several)
		if p, err := w.start(nil); err == nil {
			p.stop()
			<-p.done
			t.Error("a vector sum of several messages is run")
		}
	})
}

// A shuffler that hands on the last round's messages, its own in place of clients', or one run
// several times gets nothing by it: messages open in their round, and equal seeds count once.
func TestMessagesThatAreRepeated(t *testing.T) {
	for _, c := range []struct {
		name     string
		fill     func(before, parts [][]byte, n int) [][]byte
		accepted int64 // in rounds 2 and 3
		rejected wire.Reason
	}{
		{"the round before's", func(before, parts [][]byte, n int) [][]byte { return before }, 0, wire.WrongKey},
		{"one run of the round before", func(before, parts [][]byte, n int) [][]byte {
			return slices.Concat(parts[:n], before[n:2*n], parts[2*n:])
		}, 16, wire.WrongKey},
		{"the first run three times", func(before, parts [][]byte, n int) [][]byte {
			return slices.Concat(parts[:n], parts[:n], parts[:n])
		}, 8, wire.Duplicate},
		{"runs in another order, clients' messages together", func(before, parts [][]byte, n int) [][]byte {
			out := slices.Concat(parts[2*n:], parts[:2*n])
			slices.SortFunc(out, bytes.Compare)
			return out
		}, 24, ""},
	} {
		bubble(t, c.name, func(t *testing.T) {
			w := newWorld(t, dp.Shuffle, dp.All, several, func(w *world) {
				var err error
				if w.task.Mechanism, err = mechanism.Describe(randomizer.StepUnit, randomizer.Config{Dim: dim, Radius: 1, Eps0: 2, Encoding: randomizer.Seed}, "norm"); err != nil {
					t.Fatal(err)
				}
			})
			seeds := func(a wire.Announcement) (parts [][]byte) {
				for place := range w.n * a.PerClient() {
					seed := make([]byte, 16)
					seed[0], seed[1] = byte(place), byte(a.Round)
					part, err := envelope.SealPart(a.Coordinator, envelope.Coordinator, wire.Digest(a), seed)
					if err != nil {
						t.Error(err)
					}
					parts = append(parts, part)
				}
				return parts
			}
			var before [][]byte
			batches := map[int64][][]byte{} // one of each round, however often it is asked for
			w.sh.Fill = func(a wire.Announcement) ([][]byte, [][]byte) {
				if batches[a.Round] == nil {
					parts := seeds(a)
					batches[a.Round] = parts
					if a.Round > 1 {
						batches[a.Round] = c.fill(before, parts, int(w.n))
					}
					before = parts
				}
				return batches[a.Round], nil
			}
			s := w.run()
			if s.Reports != 8+2*(c.accepted/3) || c.rejected != "" && s.Rejected[c.rejected] != 2*(24-c.accepted) {
				t.Errorf("%d reports, rejected %v", s.Reports, s.Rejected)
			}
			if len(w.disk.Log) != 3 {
				t.Errorf("%d rounds are charged", len(w.disk.Log))
			}
		})
	}
}
