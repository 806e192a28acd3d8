package endpoint

import (
	"sync"
	"time"
)

// rates are those of posts and of questions.
type rates [2]*bucket

// pace takes one from the rate of such requests and, for a stranger, from its address's part of
// it. Strangers leave half of a burst to proven callers, from however many addresses they
// come, unless they may have all of it.
func (g *gate) pace(me *guest, question bool, now time.Time) bool {
	kind := 0
	if question {
		kind = 1
	}
	all := g.rates[kind]
	if all == nil {
		return true
	}
	left := 0.0
	if !me.proven {
		own := &me.party.rates[kind]
		if *own == nil {
			*own = newBucket(g.ofRate*all.rate, max(1, g.ofRate*all.burst))
		}
		if !(*own).take(now, 0) {
			return false
		}
		left = max(0, min(all.burst/2, all.burst-1, (1-g.ofRate)*all.burst))
	}
	return all.take(now, left)
}

// bucket is a token bucket.
type bucket struct {
	mu          sync.Mutex
	rate, burst float64
	level       float64
	at          time.Time
}

func newBucket(rate, burst float64) *bucket { return &bucket{rate: rate, burst: burst, level: burst} }

// take takes one token, unless fewer tokens than left would then remain.
func (b *bucket) take(now time.Time, left float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.level = min(b.burst, b.level+b.rate*max(0, now.Sub(b.at).Seconds()))
	}
	b.at = now
	if b.level < 1+left {
		return false
	}
	b.level--
	return true
}

// full says whether the bucket is full, that is, the same as a new one, or none.
func (b *bucket) full(now time.Time) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.level+b.rate*max(0, now.Sub(b.at).Seconds()) >= b.burst
}
