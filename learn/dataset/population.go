package dataset

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// Split parts the indices 0 … n−1 into training and validation. The validation part holds the
// `validation` indices with the smallest keyed hash of (seed, index). The parts are disjoint,
// cover everything, and are sorted; the same arguments give the same parts everywhere, and a
// larger validation part contains a smaller one.
//
// Split a training set with it, not a test set: after hyper-parameters are chosen on a test
// set, the test accuracy says nothing.
func Split(n, validation int, seed uint64) (train, val []int, err error) {
	return split(n, validation, "validation", newKey(seed, domainSplit))
}

// split holds back the given number of examples under key. Errors call them what.
func split(n, held int, what string, key key) (train, val []int, err error) {
	if n < 2 {
		return nil, nil, fmt.Errorf("dataset: n = %d examples must be at least 2 to split", n)
	}
	if held < 1 || held >= n {
		return nil, nil, fmt.Errorf("dataset: %s = %d must be at least 1 and below n = %d", what, held, n)
	}
	type ranked struct {
		hash  uint64
		index int
	}
	order := make([]ranked, n)
	for i := range order {
		order[i] = ranked{key.hash(uint64(i)), i}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.index, b.index))
	})
	away := make([]bool, n)
	for _, r := range order[:held] {
		away[r.index] = true
	}
	train = make([]int, 0, n-held)
	val = make([]int, 0, held)
	for i, h := range away {
		if h {
			val = append(val, i)
		} else {
			train = append(train, i)
		}
	}
	return train, val, nil
}

// PopulationConfig describes a population of simulated clients.
type PopulationConfig struct {
	// Clients is N, the number of clients. Required, at least 1.
	Clients int64
	// Examples is m, the number of examples that clients draw from. Required, at least 1.
	Examples int
	// Seed chooses the assignment; it plays no part if Clients = Examples.
	Seed uint64
}

// Population says which example each of N simulated clients holds. It computes the answer
// from (seed, client), without a table of N entries.
//
// If N equals the number m of examples, client i holds example i. Otherwise the population is
// bootstrapped: each client holds an example drawn from the m uniformly, with replacement and
// as if independently of the others. So for N > m each example stands for about N/m clients,
// and for N < m some examples are held twice and others by nobody.
//
// A bootstrapped run shows accuracy, time and memory at that N, for clients whose data follow
// the empirical law of the table. Its privacy guarantee is per client, as in a real
// population of N people. It is not a guarantee for the person behind one row of the table,
// which is copied to about N/m clients; group privacy would cost that factor.
type Population struct {
	clients  int64
	examples uint64
	key      key
}

// NewPopulation returns the population that c describes, in O(1) memory.
func NewPopulation(c PopulationConfig) (Population, error) {
	if c.Clients < 1 {
		return Population{}, fmt.Errorf("dataset: population of %d clients must have at least 1", c.Clients)
	}
	if c.Examples < 1 {
		return Population{}, fmt.Errorf("dataset: population over %d examples needs at least 1", c.Examples)
	}
	return Population{c.Clients, uint64(c.Examples), newKey(c.Seed, domainPopulation)}, nil
}

// Clients returns N.
func (p Population) Clients() int64 { return p.clients }

// bootstrapped says whether examples are drawn with replacement.
func (p Population) bootstrapped() bool { return p.clients != int64(p.examples) }

// Example returns the index, 0 ≤ index < m, of the example that a client
// 0 ≤ client < N holds. It is safe for concurrent use and takes a few
// nanoseconds. Each example's share is within m/2⁶⁴ of 1/m.
func (p Population) Example(client int64) int {
	if client < 0 || client >= p.clients {
		panic(fmt.Sprintf("dataset: client %d outside the population of %d", client, p.clients))
	}
	if !p.bootstrapped() {
		return int(client)
	}
	hi, _ := bits.Mul64(p.key.hash(uint64(client)), p.examples)
	return int(hi)
}

// Each use of a seed has its own domain.
const (
	domainSplit      = 1
	domainPopulation = 2
	domainUsers      = 3
	domainTest       = 4
	domainSkew       = 5
	domainSynthetic  = 6
)

// key is a keyed mixing function on 64-bit words. For a fixed key it is a bijection made of
// two rounds of the splitmix64 finaliser, each behind its own key word. It is statistically
// uniform and not cryptographic, which is enough to place public examples in a simulation.
type key struct{ k0, k1 uint64 }

func newKey(seed, domain uint64) key {
	k0 := mix(mix(seed+0x9e3779b97f4a7c15) ^ domain*0xd1342543de82ef95)
	return key{k0, mix(k0 + 0x9e3779b97f4a7c15)}
}

func (k key) hash(i uint64) uint64 { return mix(mix(i^k.k0) + k.k1) }

// mix is the finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014, variant 13 of D. Stafford).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
