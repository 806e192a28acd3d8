package statistic

import (
	"fmt"
	"math"
)

// rare bounds each of two chances: that a search misses an item that the share of all clients have,
// and that it finds one below limits.never. Both count all rounds, prefixes and symbols.
const rare = 1e-3

// limits are what a round of a search takes as frequent, and what follows.
type limits struct {
	cut   float64 // counts from here on are frequent
	sure  float64 // the least share of the clients that an item is found from, but for the chance rare
	never float64 // no item below this share is found, but for the chance rare
}

// limits returns the limits for a round with the given law. The cut is as high as it can be without
// missing items of the share. It also lies above what the noise reaches alone, so far that no more
// prefixes are frequent than a round can ask about: k counts from cut on hold at least
// k·(cut − noise) of the round's reports. Where that raises it, sure is above the share.
func (t prefixTree) limits(d drawn) limits {
	miss := rare / (float64(t.longest) * math.Floor(1/t.share)) // of one item in one round
	asked := t.prefixes() * (t.size() + 1)
	noise := d.above(rare / (float64(t.longest) * float64(asked)))
	least := noise + float64(d.reports)/float64(t.prefixes())
	have := int64(math.Ceil(t.share * float64(d.clients)))
	l := limits{cut: d.cut(have, miss), sure: t.share}
	if !(l.cut >= least) {
		l.cut = least
		// The chance of a miss falls in the number of clients.
		below := d.clientsFor(-miss, func(have int64) float64 { less, _ := d.below(have, l.cut); return -less })
		l.sure = float64(below+1) / float64(d.clients)
	}
	// Items end at one of prefixes in each round but the last, and at any count there.
	items := float64(t.prefixes()*(t.longest-1) + asked)
	never := d.clientsFor(rare/items, func(have int64) float64 { less, _ := d.below(have, l.cut); return 1 - less })
	l.never = float64(max(0, never)) / float64(d.clients)
	return l
}

// check refuses a search whose noise or number of clients does not let it find all items of the share:
// d is the law of its smallest round.
func (t prefixTree) check(d drawn) error {
	l := t.limits(d)
	if l.sure <= t.share && l.never >= t.share/4 { // so at most t.items() are found
		return nil
	}
	for share := t.share; share < .5; share = math.Min(.5, share*1.1) {
		u := t
		u.share = share
		if l := u.limits(d); l.sure <= share && l.never >= share/4 {
			share = math.Ceil(share*1000) / 1000
			return fmt.Errorf("statistic: rounds of %d of n = %d clients with this noise do not show items of share = %v: try share = %v, a shorter longest or a larger epsilon",
				d.reports, d.clients, t.share, share)
		}
	}
	return fmt.Errorf("statistic: rounds of %d of n = %d clients with this noise show no frequent items: ask more clients, or with a shorter longest or a larger epsilon", d.reports, d.clients)
}
