package statistic

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// prefixTree is what is public of a search for heavy hitters, the items that at least a share of all clients
// have. An item is a text of at most longest symbols. Each client is in one round only. A round asks
// its clients how their item goes on after one of the prefixes that earlier rounds found to be
// frequent: with which symbol, or whether it ends there. After longest rounds at most all items are
// found, and the rounds that are left count them again.
type prefixTree struct {
	longest int    // L, the symbols of the longest item
	symbols []rune // in order; nil: the symbols are the 256 bytes
	share   float64
}

// word is an item or its beginning, as indices of symbols.
type word []uint16

const (
	mostLongest = 256
	mostSymbols = 1024
	leastShare  = 1e-4
)

// newPrefixTree checks its arguments. An empty alphabet is that of all bytes.
func newPrefixTree(longest int, alphabet string, share float64) (prefixTree, error) {
	t := prefixTree{longest: longest, share: share}
	switch {
	case longest < 1 || longest > mostLongest:
		return t, fmt.Errorf("statistic: longest = %d symbols of an item must lie between 1 and %d", longest, mostLongest)
	case !(share >= leastShare && share <= .5):
		return t, fmt.Errorf("statistic: share = %v of the clients must lie between %v and 0.5", share, leastShare)
	case !utf8.ValidString(alphabet):
		return t, fmt.Errorf("statistic: the alphabet is not UTF-8")
	}
	if alphabet != "" {
		t.symbols = []rune(alphabet)
		slices.Sort(t.symbols)
		for i, r := range t.symbols {
			if i > 0 && r == t.symbols[i-1] {
				return t, fmt.Errorf("statistic: the alphabet has the symbol %q twice", r)
			}
		}
		if len(t.symbols) > mostSymbols {
			return t, fmt.Errorf("statistic: the alphabet has %d symbols, above %d", len(t.symbols), mostSymbols)
		}
	}
	if d := t.dim(); d > maxDim {
		return t, fmt.Errorf("statistic: share = %v with %d symbols needs %d counts a round, above %d: ask for a larger share or a smaller alphabet",
			share, t.size(), d, maxDim)
	}
	return t, nil
}

// size is A, the number of symbols.
func (t prefixTree) size() int {
	if t.symbols == nil {
		return 256
	}
	return len(t.symbols)
}

// prefixes is the most prefixes that a round asks about, C.
func (t prefixTree) prefixes() int { return int(math.Ceil(2 / t.share)) }

// items is the most items that a search finds.
func (t prefixTree) items() int { return 2 * t.prefixes() }

// dim is the number of counts of a round: for each prefix each symbol and the end, or each found
// item; the last one is that of all clients whose item is too long or has other symbols.
func (t prefixTree) dim() int { return max(t.prefixes()*(t.size()+1), t.items()) + 1 }

// rounds is the number of rounds: one for each symbol, and one that counts what was found.
func (t prefixTree) rounds() int { return t.longest + 1 }

// parse returns an item's symbols; ok is false if it is too long or has other symbols.
func (t prefixTree) parse(item string) (w word, ok bool) {
	if t.symbols == nil {
		if len(item) > t.longest {
			return nil, false
		}
		for i := range len(item) {
			w = append(w, uint16(item[i]))
		}
		return w, true
	}
	if len(item) > utf8.UTFMax*t.longest || !utf8.ValidString(item) {
		return nil, false
	}
	for _, r := range item {
		i, in := slices.BinarySearch(t.symbols, r)
		if !in || len(w) == t.longest {
			return nil, false
		}
		w = append(w, uint16(i))
	}
	return w, true
}

// text is the inverse of parse.
func (t prefixTree) text(w word) string {
	var b []byte
	for _, s := range w {
		if t.symbols == nil {
			b = append(b, byte(s))
		} else {
			b = utf8.AppendRune(b, t.symbols[s])
		}
	}
	return string(b)
}

// search is the state of a search between two rounds. It is public: the next round's clients get it.
type search struct {
	length   int    // of each prefix
	prefixes []word // in order; none: the coming round counts the found items
	found    []word // in the order in which they were found
}

// begin is the state before the first round: every item goes on after the empty prefix.
func (t prefixTree) begin() search { return search{prefixes: []word{{}}} }

// counting says whether the coming round counts what was found.
func (s search) counting() bool { return len(s.prefixes) == 0 }

// buckets is the number of counts that the coming round uses, beside the last one.
func (t prefixTree) buckets(s search) int {
	if s.counting() {
		return len(s.found)
	}
	return len(s.prefixes) * (t.size() + 1)
}

// bucket returns the one count to which a client with an item adds; −1: to none.
func (t prefixTree) bucket(s search, item string) int {
	w, ok := t.parse(item)
	if !ok {
		return t.dim() - 1
	}
	return t.bucketOf(s, w)
}

// bucketOf is bucket for a parsed item.
func (t prefixTree) bucketOf(s search, w word) int {
	switch {
	case s.counting():
		return slices.IndexFunc(s.found, func(f word) bool { return slices.Equal(f, w) })
	case len(w) < s.length:
		return -1
	}
	i, in := slices.BinarySearchFunc(s.prefixes, w[:s.length], slices.Compare[word])
	if !in {
		return -1
	}
	if len(w) == s.length {
		return i*(t.size()+1) + t.size()
	}
	return i*(t.size()+1) + int(w[s.length])
}

// step returns the state after a round that measured the given counts, of which those from cut on are
// frequent. If there are too many the largest are kept.
func (t prefixTree) step(s search, counts []float64, cut float64) search {
	if s.counting() {
		return s
	}
	used := counts[:t.buckets(s)]
	var frequent []int
	for b, c := range used {
		if c >= cut {
			frequent = append(frequent, b)
		}
	}
	slices.SortStableFunc(frequent, func(a, b int) int {
		switch {
		case used[a] > used[b]:
			return -1
		case used[a] < used[b]:
			return 1
		}
		return 0
	})
	next := search{length: s.length + 1, found: slices.Clone(s.found)}
	for _, b := range frequent {
		prefix, symbol := s.prefixes[b/(t.size()+1)], b%(t.size()+1)
		whole := symbol == t.size()
		if !whole {
			prefix = append(slices.Clone(prefix), uint16(symbol))
		}
		switch {
		case whole || next.length == t.longest: // longer items were not counted
			if len(next.found) < t.items() {
				next.found = append(next.found, prefix)
			}
		case len(next.prefixes) < t.prefixes():
			next.prefixes = append(next.prefixes, prefix)
		}
	}
	slices.SortFunc(next.prefixes, slices.Compare[word])
	if next.counting() {
		next.length = 0
	}
	return next
}

// parameters is the length of a state as parameters.
func (t prefixTree) parameters() int { return 3 + (t.prefixes()+t.items())*t.longest }

// encode writes a state as parameters, all small whole numbers: length, the number of prefixes and of
// found items; then each prefix and each item in longest places, a symbol as its index and 1, and 0
// after the last symbol and where there is none.
func (t prefixTree) encode(s search) []float32 {
	theta := make([]float32, t.parameters())
	theta[0], theta[1], theta[2] = float32(s.length), float32(len(s.prefixes)), float32(len(s.found))
	put := func(at int, words []word) {
		for i, w := range words {
			for j, symbol := range w {
				theta[at+i*t.longest+j] = float32(symbol) + 1
			}
		}
	}
	put(3, s.prefixes)
	put(3+t.prefixes()*t.longest, s.found)
	return theta
}

// decode is the inverse of encode. It refuses what encode does not write.
func (t prefixTree) decode(theta []float32) (search, error) {
	bad := fmt.Errorf("statistic: the parameters are no state of a search for items of at most %d symbols", t.longest)
	if len(theta) != t.parameters() {
		return search{}, bad
	}
	whole := func(v float32, most int) (int, bool) {
		i := int(max(0, min(v, float32(most))))
		return i, float32(i) == v
	}
	length, ok := whole(theta[0], t.longest-1)
	prefixes, ok1 := whole(theta[1], t.prefixes())
	found, ok2 := whole(theta[2], t.items())
	if !ok || !ok1 || !ok2 {
		return search{}, bad
	}
	get := func(at, n, space, length int) (words []word, ok bool) {
		for i := range space {
			w, ended := word{}, i >= n
			for _, v := range theta[at+i*t.longest : at+(i+1)*t.longest] {
				symbol, ok := whole(v, t.size())
				if !ok || ended && symbol != 0 {
					return nil, false
				}
				if ended = ended || symbol == 0; !ended {
					w = append(w, uint16(symbol-1))
				}
			}
			if i >= n {
				continue
			}
			if length >= 0 && len(w) != length {
				return nil, false
			}
			words = append(words, w)
		}
		return words, true
	}
	s := search{length: length}
	if s.prefixes, ok1 = get(3, prefixes, t.prefixes(), length); !ok1 {
		return search{}, bad
	}
	if s.found, ok2 = get(3+t.prefixes()*t.longest, found, t.items(), -1); !ok2 {
		return search{}, bad
	}
	for i := 1; i < len(s.prefixes); i++ {
		if slices.Compare(s.prefixes[i-1], s.prefixes[i]) >= 0 {
			return search{}, bad
		}
	}
	if s.counting() && s.length != 0 {
		return search{}, bad
	}
	return s, nil
}
