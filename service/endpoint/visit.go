package endpoint

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// visit is one request.
type visit struct {
	guest    *guest // nil in tests of handlers
	question bool   // else it is a post
	peer     string
	held     int64 // bytes of its body held

	slow  *time.Timer // cuts the body off when its time is over; nil: never
	body  sync.Mutex
	whole bool // the body has arrived, or is no longer waited for
}

// arrived records that the body is no longer waited for.
func (v *visit) arrived() {
	if v.slow == nil {
		return
	}
	v.slow.Stop()
	v.body.Lock()
	defer v.body.Unlock()
	v.whole = true
}

const overRate = "over the server's rate"

// what returns which of the amounts counts the request.
func (v *visit) what() int {
	if v.question {
		return questions
	}
	return posts
}

// begin counts a request. It returns an error text if there is no room for it.
func (v *visit) begin(now time.Time) string {
	me := v.guest
	if me == nil {
		return ""
	}
	g := me.gate
	g.mu.Lock()
	why := ""
	if !g.pace(me, v.question, now) {
		why = overRate
	}
	var closing []*guest
	if why == "" {
		var ok bool
		if closing, ok = g.take(me, v.what(), 1, now); !ok {
			why = "too many requests are under way"
		} else {
			me.asked = now
		}
	}
	g.mu.Unlock()
	g.close(closing)
	return why
}

// end gives back a request's bytes at its end.
func (v *visit) end() {
	v.arrived()
	me := v.guest
	if me == nil {
		return
	}
	me.gate.mu.Lock()
	defer me.gate.mu.Unlock()
	me.gate.give(me, v.what(), 1)
	me.gate.give(me, bytesHeld, v.held)
	me.asked = time.Now()
	me.busy()
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// Prove records that the sender of a request is known: it has shown that it is one of the
// server's own callers, whose number, at least 0, is caller. ctx is the request's context. From
// then on its connection does not count as a stranger's, unless this caller has many
// connections.
func Prove(ctx context.Context, caller int) {
	if v := visitOf(ctx); v != nil && v.guest != nil {
		v.guest.prove(caller)
	}
}

// Client is an enrolled client's number for [Prove], which stays when the roster changes.
func Client(id wire.ID) int {
	n := binary.BigEndian.Uint64(id[:])
	return int((n ^ n>>32) & math.MaxInt) // of all bits, where int has 32
}

// Hold adds n to the bytes of a request's body that the server holds in memory, until the
// request ends. ctx is the request's context. It returns false if there is no room: each
// address of strangers has its share, and the connections that have been idle longest are
// closed first. Only one goroutine of a request may call it.
func Hold(ctx context.Context, n int64) bool {
	v := visitOf(ctx)
	if v == nil || v.guest == nil {
		return true
	}
	g := v.guest.gate
	g.mu.Lock()
	closing, ok := g.take(v.guest, bytesHeld, n, time.Now())
	if ok {
		v.held += n
	}
	g.mu.Unlock()
	g.close(closing)
	if !ok {
		g.turned.Add(1)
	}
	return ok
}
