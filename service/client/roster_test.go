package client_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// registered is a world whose clients a registrar enrols.
type registered struct {
	*world
	registrar ed25519.PrivateKey
	config    client.JoinConfig
	mu        sync.Mutex
	first     wire.Enrolment
	older     []byte // what the shuffler says that a round counts on
}

// statement is the registrar's about the world's clients.
func (r *registered) statement(serial, from int64, change ...func(*wire.Roster)) []byte {
	e := r.first
	m := wire.Roster{Population: e.Population, Serial: serial, Clients: e.Clients, Digest: e.Roster, From: from, To: e.To}
	for _, f := range change {
		f(&m)
	}
	return wire.Sign(r.registrar, wire.LabelRegistrar, wire.Encode(m))
}

func newRegistered(t *testing.T) *registered {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r := &registered{world: newWorld(t, 3, shuffleTask()), registrar: key}
	r.config, r.first = r.world.config(), r.enrolment
	r.config.RegistrarKey = key.Public().(ed25519.PublicKey)
	r.enrolment.Registrar = r.statement(1, time.Now().Unix()-60)
	r.before = func(w http.ResponseWriter, q *http.Request) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if q.URL.Path != "/v1/enrolment" || q.URL.Query().Get("round") == "" || r.older == nil {
			return false
		}
		_, _ = w.Write(r.older)
		return true
	}
	return r
}

// round announces a round for an enrolment while the shuffler's newest one is now, and returns the
// number of reports sent, or the reason why the round is declined.
func (r *registered) round(t *testing.T, number int64, counts, now wire.Enrolment, opens time.Time) (sent int64, why string) {
	t.Helper()
	theta := make([]float32, dim)
	var declined []string
	var mu sync.Mutex
	config := r.config
	config.Watch = func(n client.Notice) {
		mu.Lock()
		defer mu.Unlock()
		if n.What == client.Declined {
			declined = append(declined, n.Err.Error())
		}
	}
	r.mu.Lock()
	r.older = wire.Sign(r.operator, wire.LabelEnrolment, wire.Encode(counts))
	r.mu.Unlock()
	r.world.enrolment = counts
	ann := r.announcement(number, theta)
	ann.Opens = opens.UnixMilli()
	r.world.enrolment = now
	r.publish(ann, theta, nil)
	r.world.ended = false
	fleet, end := r.run(t.Context(), config)
	defer end()
	await(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		sent = fleet.Snapshot().Reports[client.Sent]
		return sent == 3 || len(declined) > 0
	})
	mu.Lock()
	defer mu.Unlock()
	return sent, strings.Join(declined, "; ")
}

// Clients send only for clients that the registrar has signed, never for a roster older than one that
// they have seen, also in an earlier process.
func TestClientsKeepToTheRegistrar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		at := time.Now()
		good := r.enrolment
		with := func(serial int64, f func(e *wire.Enrolment)) wire.Enrolment {
			e := good
			e.Serial = serial
			f(&e)
			return e
		}
		second := with(2, func(e *wire.Enrolment) { e.Registrar = r.statement(2, at.Unix()-30) })
		number := int64(0)
		expect := func(name string, counts, now wire.Enrolment, opens time.Time, want string) {
			t.Helper()
			number++
			sent, why := r.round(t, number, counts, now, opens)
			if want == "" && (sent != 3 || why != "") || want != "" && (sent != 0 || !strings.Contains(why, want)) {
				t.Errorf("%s: %d sent, declined: %q, want %q", name, sent, why, want)
			}
		}
		expect("first", good, good, at, "")
		expect("second", second, second, at, "")
		expect("old one", good, good, at, "roster 1 after roster 2")
		none := with(3, func(e *wire.Enrolment) { e.Registrar = nil })
		expect("none", none, none, at, "names none")
		added := with(3, func(e *wire.Enrolment) { e.Clients++; e.Roster[0]++ })
		expect("a client added", added, added, at, "registrar has 3")
		over := with(3, func(e *wire.Enrolment) { e.Clients = 1000 })
		expect("n overstated", over, over, at, "registrar has 3")
		twice := with(3, func(e *wire.Enrolment) { e.Registrar = r.statement(2, at.Unix()-29) })
		expect("two of one serial", twice, twice, at, "two rosters 2")
		abroad := with(3, func(e *wire.Enrolment) {
			e.Registrar = r.statement(3, at.Unix()-20, func(m *wire.Roster) { m.Population[0]++ })
		})
		expect("another population", abroad, abroad, at, "population")
		late := with(3, func(e *wire.Enrolment) {
			e.To++
			e.Registrar = r.statement(3, at.Unix()-20, func(m *wire.Roster) { m.To -= 10 })
		})
		expect("beyond the roster", late, late, at, "ends at")
		key := r.registrar
		_, r.registrar, _ = ed25519.GenerateKey(rand.Reader)
		forged := with(3, func(e *wire.Enrolment) { e.Registrar = r.statement(3, at.Unix()) })
		expect("another key", forged, forged, at, string(pure.CauseSignature))
		r.registrar = r.operator
		forged = with(3, func(e *wire.Enrolment) { e.Registrar = r.statement(3, at.Unix()) })
		expect("the operator's key", forged, forged, at, string(pure.CauseSignature))
		r.registrar = key

		// A round that was opened before the newest roster was signed goes on with its own; one that was
		// opened later must not count on it.
		third := with(3, func(e *wire.Enrolment) { e.Registrar = r.statement(3, at.Unix()) })
		before := r.config.Policy.Skew
		r.config.Policy.Skew = time.Second
		expect("open when it changed", second, third, at.Add(-10*time.Second), "")
		expect("opened after it changed", second, third, time.Now().Add(3*time.Second), "signed before the round was opened")
		expect("the round's is an old one", good, third, time.Now(), "signed before the round was opened")
		r.config.Policy.Skew = before
		expect("newest", third, third, time.Now(), "")

		r.config.RegistrarKey = r.operator.Public().(ed25519.PublicKey)
		if _, err := client.NewFleet(r.config, r.members); err == nil {
			t.Error("the operator as registrar")
		}
	})
}
