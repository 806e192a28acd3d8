package store

import (
	"context"
	"strconv"
	"strings"
)

// Result is what a worker made of an item.
type Result struct {
	Item   string
	Data   []byte
	Failed string // why there is no result; "" if there is one
}

// Results reads the results of a group. It is for one goroutine. It is an interface for the same reason as
// Lease.
type Results interface {
	// Next returns the next results that are whole; an item may have several. It returns before it has read
	// all if they are large together; it returns none only when it has read up to the last message that the
	// stream's leader has.
	Next(ctx context.Context) ([]Result, error)
	// Settle leaves out what else comes for an item.
	Settle(item string)
}

type results struct {
	q      *Queue
	group  string
	next   uint64 // place in the stream
	enough int    // enoughResults, except in tests
	pieces map[string]*pieces
	past   map[string]bool // items of which no more results are wanted
}

// pieces are the messages of one result that have come.
type pieces struct {
	item     string
	n, bytes int
	all      map[int][]byte
}

// maxPieces bounds the messages of one result: 4 GiB.
const maxPieces = 1 << 16

// enoughResults is how many bytes of results Next returns at most, but for the last one: a caller that
// has lost its place reads the results of a whole batch.
const enoughResults = 32 << 20

// Results reads the results of a group from the first one on.
func (q *Queue) Results(group string) Results {
	return &results{q: q, group: group, enough: enoughResults, pieces: map[string]*pieces{}, past: map[string]bool{}}
}

func (r *results) Next(ctx context.Context) (out []Result, err error) {
	if err := checkSuffix(r.group, false); err != nil {
		return nil, err
	}
	bytes := 0
	for m, err := range r.q.s.read(ctx, r.q.doneStream(), r.next, r.q.doneSubject(r.group+".>")) {
		if err != nil {
			return out, err
		}
		r.next = m.seq + 1
		item, key, k, n, ok := r.parse(m.msg.Subject())
		if !ok || r.past[item] {
			continue
		}
		if n == 0 {
			out = append(out, Result{Item: item, Failed: string(m.msg.Data())})
			continue
		}
		p := r.pieces[key]
		if p == nil {
			p = &pieces{item: item, n: n, all: map[int][]byte{}}
			r.pieces[key] = p
		}
		if _, twice := p.all[k]; twice || n != p.n {
			continue // not what Finish writes
		}
		p.all[k] = m.msg.Data()
		if p.bytes += len(p.all[k]); len(p.all) < n {
			continue
		}
		delete(r.pieces, key)
		whole := make([]byte, 0, p.bytes)
		for k := range n {
			whole = append(whole, p.all[k]...)
		}
		out = append(out, Result{Item: item, Data: whole})
		if bytes += len(whole); bytes >= r.enough {
			break
		}
	}
	return out, nil
}

func (r *results) Settle(item string) {
	r.past[item] = true
	for key, p := range r.pieces {
		if p.item == item {
			delete(r.pieces, key)
		}
	}
}

// parse reads the subject of a result's message: item, nonce, number of the piece, number of pieces. It
// is not ok if Finish and Fail write no such message.
func (r *results) parse(subject string) (item, key string, k, n int, ok bool) {
	f := strings.Split(strings.TrimPrefix(subject, r.q.doneSubject("")), ".")
	at := len(f) - 3
	if at < 2 {
		return "", "", 0, 0, false
	}
	k, err := strconv.Atoi(f[at+1])
	n, err2 := strconv.Atoi(f[at+2])
	ok = err == nil && err2 == nil && k >= 0 && n >= 0 && n <= maxPieces && k <= max(0, n-1)
	return strings.Join(f[:at], "."), strings.Join(f[:at+1], "."), k, n, ok
}
