package dataset

import (
	"fmt"
	"math/bits"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// Assignment says how examples are dealt to clients that hold several.
type Assignment string

const (
	// Contiguous gives client i the examples i·m to (i+1)·m − 1.
	Contiguous Assignment = "contiguous"
	// Scattered deals the examples out in a random order, drawn from the seed.
	Scattered Assignment = "scattered"
)

// UsersConfig describes a population whose clients hold several examples.
type UsersConfig struct {
	// Clients is N, the number of clients. Required, at least 1.
	Clients int64
	// Examples is the number of rows that clients draw from. Required, at least 1.
	Examples int
	// PerClient is m, 1 ≤ m ≤ Examples. Required.
	PerClient int
	// Assignment needs N·m ≤ Examples. The default is Contiguous if that holds; otherwise the
	// population is bootstrapped.
	Assignment Assignment
	// Seed chooses a scattered or bootstrapped assignment.
	Seed uint64
}

// Users says which m examples each of N simulated clients holds. It serves privacy of the
// whole client: a client's gradient is the mean over its m examples, clipped after the mean,
// so one report covers everything that the client holds.
//
// If N·m ≤ Examples no two clients share an example, and Examples − N·m examples belong to
// nobody. Otherwise the population is bootstrapped: each of a client's m examples is drawn
// uniformly, with replacement and as if independently; see Population for what such runs
// show. Asking for an assignment is then an error. Memory is O(1), or 4 bytes per example if
// scattered.
type Users struct {
	clients   int64
	examples  uint64
	perClient int
	disjoint  bool
	order     []uint32 // examples in the order of a scattered assignment
	key       key
}

// NewUsers returns the population that c describes.
func NewUsers(c UsersConfig) (*Users, error) {
	if c.Clients < 1 {
		return nil, fmt.Errorf("dataset: population of %d clients must have at least 1", c.Clients)
	}
	if c.Examples < 1 {
		return nil, fmt.Errorf("dataset: population over %d examples needs at least 1", c.Examples)
	}
	if c.PerClient < 1 || c.PerClient > c.Examples {
		return nil, fmt.Errorf("dataset: m = %d examples per client must be at least 1 and at most the %d there are", c.PerClient, c.Examples)
	}
	u := &Users{
		clients: c.Clients, examples: uint64(c.Examples), perClient: c.PerClient,
		disjoint: c.Clients <= int64(c.Examples/c.PerClient), key: newKey(c.Seed, domainUsers),
	}
	switch c.Assignment {
	case "":
		return u, nil
	case Contiguous, Scattered:
	default:
		return nil, fmt.Errorf("dataset: assignment %q must be %q or %q", c.Assignment, Contiguous, Scattered)
	}
	if !u.disjoint {
		return nil, fmt.Errorf("dataset: assignment %q of m = %d examples to %d clients needs more than the %d there are", c.Assignment, c.PerClient, c.Clients, c.Examples)
	}
	if c.Assignment == Scattered {
		if uint64(c.Examples) > 1<<32 {
			return nil, fmt.Errorf("dataset: scattering %d examples, at most 2^32 are scattered", c.Examples)
		}
		u.order = make([]uint32, c.Examples)
		for i := range u.order {
			u.order[i] = uint32(i)
		}
		sample.Shuffle(rng.Replay(c.Seed, domainUsers), u.order)
		u.order = u.order[:int(c.Clients)*c.PerClient]
	}
	return u, nil
}

// Clients returns N.
func (u *Users) Clients() int64 { return u.clients }

// PerClient returns m.
func (u *Users) PerClient() int { return u.perClient }

// Bootstrapped says whether examples are drawn with replacement.
func (u *Users) Bootstrapped() bool { return !u.disjoint }

// Example returns the index of example 0 ≤ j < m of a client 0 ≤ client < N.
// It is safe for concurrent use and takes a few nanoseconds.
func (u *Users) Example(client int64, j int) int {
	if client < 0 || client >= u.clients || j < 0 || j >= u.perClient {
		panic(fmt.Sprintf("dataset: example %d of client %d outside the %d of %d clients", j, client, u.perClient, u.clients))
	}
	if u.disjoint {
		at := int(client)*u.perClient + j
		if u.order != nil {
			return int(u.order[at])
		}
		return at
	}
	// The hash runs twice because client and j do not fit into one word.
	hi, _ := bits.Mul64(u.key.hash(u.key.hash(uint64(client))+uint64(j)), u.examples)
	return int(hi)
}
