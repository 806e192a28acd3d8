package dataset

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
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
	// Examples is the number of rows that clients draw from. Required, at least 1.
	Examples int
	// PerClient is m, the examples that each client holds, at most Examples. Default 0: one
	// each, and bootstrapped unless there are as many clients as examples.
	PerClient int
	// Scattered deals the examples of several per client out in a random order, drawn from
	// the seed, instead of row by row. It needs N·m ≤ Examples.
	Scattered bool
	// Seed chooses a scattered or bootstrapped assignment.
	Seed uint64
}

// Population says which m examples each of N simulated clients holds. It computes the answer
// from (seed, client), without a table of N entries; scattered, it takes 4 bytes per example.
//
// With PerClient, and N·m ≤ Examples, no two clients share an example, and Examples − N·m
// examples belong to nobody. Without it, N = Examples gives client i the example i. Any other
// population is bootstrapped: each example of a client is drawn uniformly, with replacement
// and as if independently of the others. So for N·m > Examples each example is held about
// N·m/Examples times, and for smaller N some are held twice and others by nobody.
//
// A bootstrapped run shows accuracy, time and memory at that N, for clients whose data follow
// the empirical law of the table. Its privacy guarantee is per client, as in a real
// population of N people: a client's gradient is the mean over its m examples, clipped after
// the mean, so one report covers everything that the client holds. It is not a guarantee for
// the person behind one row of the table, which is copied to about N·m/Examples clients;
// group privacy would cost that factor.
type Population struct {
	Clients      int64 // N
	PerClient    int   // m
	Bootstrapped bool  // examples are drawn with replacement

	examples uint64
	several  bool     // whether PerClient was given
	order    []uint32 // examples in the order of a scattered assignment
	key      key
}

// NewPopulation returns the population that c describes.
func NewPopulation(c PopulationConfig) (*Population, error) {
	if c.Clients < 1 {
		return nil, fmt.Errorf("dataset: population of %d clients must have at least 1", c.Clients)
	}
	if c.Examples < 1 {
		return nil, fmt.Errorf("dataset: population over %d examples needs at least 1", c.Examples)
	}
	if c.PerClient < 0 || c.PerClient > c.Examples {
		return nil, fmt.Errorf("dataset: m = %d examples per client must be at least 1 and at most the %d there are", c.PerClient, c.Examples)
	}
	p := &Population{Clients: c.Clients, PerClient: max(1, c.PerClient), examples: uint64(c.Examples), several: c.PerClient > 0}
	if p.several {
		p.Bootstrapped, p.key = c.Clients > int64(c.Examples/c.PerClient), newKey(c.Seed, domainUsers)
	} else {
		p.Bootstrapped, p.key = c.Clients != int64(c.Examples), newKey(c.Seed, domainPopulation)
	}
	if !c.Scattered {
		return p, nil
	}
	if p.Bootstrapped {
		return nil, fmt.Errorf("dataset: scattering m = %d examples to each of %d clients needs more than the %d there are", p.PerClient, c.Clients, c.Examples)
	}
	if uint64(c.Examples) > 1<<32 {
		return nil, fmt.Errorf("dataset: scattering %d examples, at most 2^32 are scattered", c.Examples)
	}
	p.order = make([]uint32, c.Examples)
	for i := range p.order {
		p.order[i] = uint32(i)
	}
	sample.Shuffle(rng.Replay(c.Seed, domainUsers), p.order)
	p.order = p.order[:int(c.Clients)*p.PerClient]
	return p, nil
}

// Example returns the index of example 0 ≤ j < m of a client 0 ≤ client < N. It is safe for
// concurrent use and takes a few nanoseconds. In a bootstrapped population each example's
// share is within Examples/2⁶⁴ of 1/Examples.
func (p *Population) Example(client int64, j int) int {
	if client < 0 || client >= p.Clients || j < 0 || j >= p.PerClient {
		panic(fmt.Sprintf("dataset: example %d of client %d outside the %d of %d clients", j, client, p.PerClient, p.Clients))
	}
	if !p.Bootstrapped {
		at := int(client)*p.PerClient + j
		if p.order != nil {
			return int(p.order[at])
		}
		return at
	}
	hash := p.key.hash(uint64(client))
	if p.several { // once more, because client and j do not fit into one word
		hash = p.key.hash(hash + uint64(j))
	}
	hi, _ := bits.Mul64(hash, p.examples)
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
