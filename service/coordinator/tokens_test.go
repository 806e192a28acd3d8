package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/token/tokentest"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// bureau is a registrar that has given every client its tokens.
type bureau struct {
	private ed25519.PrivateKey
	issuer  *token.Issuer
	keys    *token.Keys
	task    [32]byte
	// forge, if not nil, puts another token into a message.
	forge func(round, place, client int64, message int, good [wire.TokenBytes]byte) [wire.TokenBytes]byte
	// bare, if true, leaves all tokens out.
	bare bool
}

// The keys of epochs, by rounds and messages, and the tokens that were made under them: they are dear.
var (
	epochsMu sync.Mutex
	epochs   = map[[2]int64]*token.Issuer{}
	made     = map[string][wire.TokenBytes]byte{}
)

func epochOf(t testing.TB, rounds, messages int64) *token.Issuer {
	t.Helper()
	epochsMu.Lock()
	defer epochsMu.Unlock()
	if i := epochs[[2]int64{rounds, messages}]; i != nil {
		return i
	}
	i, err := tokentest.Issuer(wire.ID{1}, wire.ID{byte(rounds), byte(messages)}, rounds, messages)
	if err != nil {
		t.Fatal(err)
	}
	epochs[[2]int64{rounds, messages}] = i
	return i
}

// tokens asks for a token with each message.
func tokens(w *world) { w.bureau = &bureau{} }

func (b *bureau) key() ed25519.PublicKey {
	if b == nil {
		return nil
	}
	return b.private.Public().(ed25519.PublicKey)
}

// join adds the tokens to the task.
func (b *bureau) join(w *world) {
	b.private = signer(w.t)
	rounds := w.task.LastRound()
	if w.task.PerClient() == 1 {
		rounds = max(rounds, 20) // so that most tasks have the same keys
	}
	b.issuer = epochOf(w.t, rounds, w.task.PerClient())
	m := b.issuer.Keys()
	w.task.Tokens = wire.Tokens{Epoch: m.Epoch, Keys: wire.Digest(m)}
	w.config.TokenKeys = wire.Sign(b.private, wire.LabelTokenKeys, wire.Encode(m))
	var err error
	if b.keys, err = token.ForTask(m, w.task); err != nil {
		w.t.Fatal(err)
	}
	b.task = wire.Digest(w.task)
}

// enrol signs the clients of the enrolment.
func (b *bureau) enrol(w *world) {
	e := &w.sh.Enrolment
	e.Registrar = wire.Sign(b.private, wire.LabelRegistrar, wire.Encode(wire.Roster{Population: e.Population, Serial: 1, Clients: e.Clients, Digest: e.Roster, From: e.From, To: e.To}))
}

// of is a client's token for a task, under the key at a place.
func (b *bureau) of(task [32]byte, client int64, place int) (out [wire.TokenBytes]byte) {
	epochsMu.Lock()
	defer epochsMu.Unlock()
	name := fmt.Sprintf("%x %x %d %d", b.issuer.Keys().Epoch, task, client, place)
	if t, ok := made[name]; ok {
		return t
	}
	seed := [32]byte{}
	binary.LittleEndian.PutUint64(seed[:], uint64(client)+1)
	out = one(b.issuer, task, seed, place)
	made[name] = out
	return out
}

// one returns one token. Only its round's are asked for, as if the epoch ended there.
func one(i *token.Issuer, task, seed [32]byte, place int) (out [wire.TokenBytes]byte) {
	m := i.Keys()
	first := place - place%int(m.Messages)
	m.Moduli = m.Moduli[:first+int(m.Messages)]
	k, err := token.NewKeys(m)
	if err != nil {
		panic(err)
	}
	p := token.NewPending(k, task, seed)
	_, blinded, err := p.Request(wire.ID{}, first)
	if err != nil {
		panic(err)
	}
	signed, err := i.Sign(context.Background(), int64(place), blinded[(place-first)*wire.TokenModulus:(place-first+1)*wire.TokenModulus])
	if err != nil {
		panic(err)
	}
	flat, err := p.FinishOne(place, signed)
	if err != nil {
		panic(err)
	}
	return [wire.TokenBytes]byte(flat)
}

func (b *bureau) token(round, place, client int64, message int) [wire.TokenBytes]byte {
	at, ok := b.keys.Place(round, int64(message))
	if !ok {
		panic("no such key")
	}
	if b.bare {
		return [wire.TokenBytes]byte{}
	}
	good := b.of(b.task, client, at)
	if b.forge != nil {
		return b.forge(round, place, client, message, good)
	}
	return good
}

// Rounds of tokens give the model of the pure functions, over every trust and participation, and
// their charges: for n-min clients.
func TestRoundsWithTokens(t *testing.T) {
	for _, trust := range []dp.Trust{dp.Shuffle, dp.Local, dp.Distributed} {
		for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
			if !longtest.On && trust != dp.Shuffle && p != dp.All {
				continue
			}
			bubble(t, string(trust)+" "+string(p), func(t *testing.T) {
				w := newWorld(t, trust, p, tokens)
				s := w.run()
				w.check(s)
				if s.Released != 3 || s.Failed+s.Void != 0 || len(s.Rejected) != 0 {
					t.Errorf("%+v", s)
				}
				for i, b := range w.disk.Log {
					e, err := wire.Decode[wire.Entry](b)
					if charged := e.Event.Participation == dp.All && e.Event.Population == 3; err != nil || trust != dp.Local && !charged {
						t.Errorf("entry %d is %+v, %v", i, e, err)
					}
				}
			})
		}
	}
}

// Each forged token leaves its report out, for its reason and in every round; the step is the one
// of the others, exactly.
func TestForgedTokensAreLeftOut(t *testing.T) {
	foreign := epochOf(t, 1, 1) // of another epoch
	others := one(foreign, [32]byte{}, [32]byte{1}, 0)
	type attack func(w *world, round, client int64, good [wire.TokenBytes]byte) [wire.TokenBytes]byte
	for name, c := range map[string]struct {
		why   wire.Reason
		forge attack
	}{
		"replayed": {wire.SpentToken, func(w *world, round, _ int64, _ [wire.TokenBytes]byte) [wire.TokenBytes]byte {
			return w.bureau.of(w.bureau.task, 1, int(round-1))
		}},
		"another round's": {wire.NoToken, func(w *world, round, c int64, _ [wire.TokenBytes]byte) [wire.TokenBytes]byte {
			return w.bureau.of(w.bureau.task, c, int(round))
		}},
		"another task's": {wire.NoToken, func(w *world, round, c int64, _ [wire.TokenBytes]byte) [wire.TokenBytes]byte {
			return w.bureau.of([32]byte{7}, c, int(round-1))
		}},
		"another epoch's": {wire.NoToken, func(*world, int64, int64, [wire.TokenBytes]byte) [wire.TokenBytes]byte { return others }},
		"none":            {wire.NoToken, func(*world, int64, int64, [wire.TokenBytes]byte) (none [wire.TokenBytes]byte) { return none }},
		"changed": {wire.NoToken, func(_ *world, _, _ int64, good [wire.TokenBytes]byte) [wire.TokenBytes]byte {
			good[200] ^= 1
			return good
		}},
		"another nonce": {wire.NoToken, func(_ *world, _, _ int64, good [wire.TokenBytes]byte) [wire.TokenBytes]byte {
			good[0] ^= 1
			return good
		}},
	} {
		for i, trust := range []dp.Trust{dp.Shuffle, dp.Distributed} {
			if !longtest.On && i == len(name)%2 { // by default each with one of the two
				continue
			}
			bubble(t, name+" "+string(trust), func(t *testing.T) {
				w := newWorld(t, trust, dp.All, tokens)
				w.bureau.forge = func(round, place, client int64, _ int, good [wire.TokenBytes]byte) [wire.TokenBytes]byte {
					if place != 2 {
						return good
					}
					return c.forge(w, round, client, good)
				}
				s := w.run()
				w.check(s, 2)
				if s.Released != 3 || s.Reports != 21 || s.Rejected[c.why] != 3 || len(s.Rejected) != 1 {
					t.Errorf("%d reports, rejected %v", s.Reports, s.Rejected)
				}
			})
		}
	}
}

// The aggregator checks tokens itself: a report with a token for the coordinator alone is left out.
func TestAggregatorChecksTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, with := range map[string][]option{"": {tokens}, "proofs": {tokens, withProofs}} {
			w := newWorld(t, dp.Distributed, dp.All, with...)
			w.garbage[2] = 8
			s := w.run()
			w.check(s, 2)
			if s.Released != 3 || s.Reports != 21 || len(s.Rejected) != 1 {
				t.Errorf("%s: %d reports, rejected %v", name, s.Reports, s.Rejected)
			}
			if n := w.agg.Load().Snapshot().Refused[wire.NoToken]; n != 3 {
				t.Errorf("%s: the aggregator refuses %d for their tokens", name, n)
			}
		}
	})
}

// A token of another index of the same client is none: an ally cannot spend all its tokens in one
// place.
func TestTokensOfAnotherIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.Once, tokens, func(w *world) { w.task.Messages = 2 })
		w.bureau.forge = func(round, place, client int64, message int, good [wire.TokenBytes]byte) [wire.TokenBytes]byte {
			if client%4 == 1 { // one of each block
				at, _ := w.bureau.keys.Place(round, int64(1-message))
				return w.bureau.of(w.bureau.task, client, at)
			}
			return good
		}
		s := w.run()
		w.check(s, 1, 4) // the second run begins with the second client of the block
		if s.Released != 3 || s.Rejected[wire.NoToken] != 6 {
			t.Errorf("%+v", s)
		}
	})
}

// Twenty reports that the shuffler has made are no crowd: the step is that of the clients alone, and
// the charge counts none of the twenty. Without enough clients there is no step.
func TestStuffedBatches(t *testing.T) {
	for _, trust := range []dp.Trust{dp.Shuffle, dp.Distributed} {
		for _, honest := range []int64{8, 2} {
			bubble(t, fmt.Sprint(trust, " ", honest), func(t *testing.T) {
				w := newWorld(t, trust, dp.All, tokens, func(w *world) {
					w.n = 28
					if trust == dp.Distributed {
						w.task.Mechanism = sumMechanism(t, w.n, w.task.MinReports)
					}
				})
				w.present = func(_, c int64) bool { return c < honest }
				fill := w.sh.Fill
				w.sh.Fill = func(a wire.Announcement) (parts, shares [][]byte) {
					parts, shares = fill(a)
					whole := w.present
					w.present = func(_, c int64) bool { return c >= 8 }
					w.bureau.bare = true
					more, moreShares := fill(a)
					w.present, w.bureau.bare = whole, false
					// Honest reports stand among them.
					return slices.Concat(more[:10], parts, more[10:]), slices.Concat(moreShares[:min(10, len(moreShares))], shares, moreShares[min(10, len(moreShares)):])
				}
				s := w.run()
				if honest == 8 {
					w.check(s)
					if s.Released != 3 || s.Reports != 24 || s.Rejected[wire.NoToken] != 60 {
						t.Errorf("%+v", s)
					}
				} else if s.Released != 0 || s.Failed != 3 || s.FailedBy[FailedTokens]+s.FailedBy[FailedTooFew] != 3 || s.Rejected[wire.NoToken] != 60 {
					t.Errorf("%+v", s)
				}
				for i, b := range w.disk.Log {
					if e, err := wire.Decode[wire.Entry](b); err != nil || e.Event.Population != 3 {
						t.Errorf("entry %d is %+v, %v", i, e, err)
					}
				}
			})
		}
	}
}

// A coordinator that ends at any of its steps charges and releases the same.
func TestTokensAfterCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at := 1; ; at += 7 {
			w := newWorld(t, dp.Shuffle, dp.All, tokens)
			w.bureau.forge = func(round, place, _ int64, _ int, good [wire.TokenBytes]byte) [wire.TokenBytes]byte {
				if place == 5 { // two reports with one token: which of the two counts must not change
					return w.bureau.of(w.bureau.task, 1, int(round-1))
				}
				return good
			}
			crash := &stop{At: at, After: at%2 == 0}
			s := w.crashed(crash)
			w.check(s, 5)
			if !crash.hit() || t.Failed() {
				break
			}
		}
	})
}

// Keys that the registrar has not signed, or that are not the task's, are refused: nobody's messages
// are checked under keys of the coordinator's own making.
func TestOtherKeysAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(w *world){
			"not signed by the registrar": func(w *world) {
				w.config.TokenKeys = wire.Sign(w.key, wire.LabelTokenKeys, wire.Encode(w.bureau.issuer.Keys()))
			},
			"another epoch": func(w *world) {
				w.config.TokenKeys = wire.Sign(w.bureau.private, wire.LabelTokenKeys, wire.Encode(epochOf(w.t, 1, 1).Keys()))
			},
			"none":         func(w *world) { w.config.TokenKeys = nil },
			"no registrar": func(w *world) {},
		} {
			w := newWorld(t, dp.Shuffle, dp.All, tokens)
			change(w)
			p, err := w.start(nil, func(c *Config) {
				if name == "no registrar" {
					c.Shuffler.Registrar = nil
				}
			})
			if err == nil {
				p.stop()
				<-p.done
				t.Errorf("%s: the task is run", name)
			}
		}
	})
}

// A shuffler that hands a client's sealed part on twice gets nothing by it.
func TestSealedPartsThatAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, tokens)
		fill := w.sh.Fill
		w.sh.Fill = func(a wire.Announcement) (parts, shares [][]byte) {
			parts, shares = fill(a)
			parts[4] = bytes.Clone(parts[3])
			return parts, shares
		}
		s := w.run()
		w.check(s, 4)
		if s.Rejected[wire.SpentToken] != 3 {
			t.Errorf("%v", maps.Clone(s.Rejected))
		}
	})
}

// BenchmarkTokens compares the opening of a batch with tokens and without.
func BenchmarkTokens(b *testing.B) {
	i := epochOf(b, 1, 1)
	k, err := token.NewKeys(i.Keys())
	if err != nil {
		b.Fatal(err)
	}
	good := one(i, [32]byte{7}, [32]byte{1}, 0)
	ring := ring(b)
	content := make([]byte, 16)
	for _, with := range []bool{false, true} {
		a := wire.Attachments{Token: with}
		sealed, err := envelope.SealPart(ring.Keys[0], envelope.Coordinator, [32]byte{9}, a.Append(content, wire.Attached{Token: good}))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("tokens=", with), func(b *testing.B) {
			b.ReportMetric(float64(len(sealed)), "bytes/part")
			round := k.Round([32]byte{7}, 1)
			for b.Loop() {
				opened, err := ring.OpenPart(envelope.Coordinator, [32]byte{9}, sealed)
				if err != nil {
					b.Fatal(err)
				}
				if _, got, err := a.Split(opened); err != nil || with && !round.Valid(0, &got.Token) {
					b.Fatal("refused", err)
				}
			}
		})
	}
}
