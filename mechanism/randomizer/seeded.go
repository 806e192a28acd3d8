package randomizer

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/seed"
)

// Keyed is a randomizer with encoding [Seed]. A client reports 16 bytes, a seed; package seed
// expands a seed to Dim standard normal values, which are what the report stands for. The client
// accepts a seed with a probability that rises with the score of its values, so a report's
// density is h of [StepUnit] (one step for [PrivUnit]). Every seed is a legal report: a liar
// cannot choose his report, only search for one that suits him.
//
// A seed needs the key of its round. ForRound gives the mechanism of a round, which is the one
// of a running system: its Randomize tries seeds, its Add expands them. Equal seeds of a round
// are one report; whoever adds them up leaves out the others.
//
// The randomizer itself, without a key, is for simulations: its Randomize draws the report's
// values directly from their law, without any tries, as dense fixed-point integers of the same
// unit. Estimate, MeanBound, Event and the estimates' law are the same for both, up to
// [seed.Mechanism.Eta], which Event contains.
type Keyed interface {
	Randomizer
	// ForRound returns the mechanism of a round. key is public, the digest of its announcement.
	ForRound(key [32]byte) Randomizer
}

// Distinct is a mechanism of which equal reports of a round count once.
type Distinct interface {
	Mechanism
	// Identity tells reports that passed Check apart.
	Identity(r *Report) [16]byte
	// Remove takes the report of that identity out of a sum that it is in.
	Remove(sum []int64, identity [16]byte)
}

// ForRound returns the mechanism with which clients report in the round of that key: m itself,
// unless it is [Keyed].
func ForRound(m Mechanism, key [32]byte) Mechanism {
	if k, ok := m.(Keyed); ok {
		return k.ForRound(key)
	}
	return m
}

// seedUnit is the value 1 in fixed point, as in package seed. A simulated value beyond 8, which has
// probability 1.2e-15, is cut.
const seedUnit = 1 << 28

// TriesExponent says how many seeds [Facts.Largest] lets a liar try: 2^TriesExponent.
const TriesExponent = 40

// bestScore is √(2·ln 2^40), which the largest of 2^40 standard normal values exceeds with a chance
// of 5 %.
const bestScore = 7.446

// seeded is the randomizer of simulations.
type seeded struct {
	pure
	dense
	reports *seed.Mechanism
	longest float64 // largest length that Check accepts, in fixed point
	scratch *sync.Pool
	// square is E[z²] and top the largest density of the score z.
	square, top float64
}

func newSeeded(name string, c Config, edges []float64) (Randomizer, error) {
	height := math.Expm1(c.Eps0) / float64(len(edges))
	reports, err := seed.New(seed.Config{Dim: c.Dim, Radius: c.Radius, Edges: edges, Height: height})
	if err != nil {
		return nil, fmt.Errorf("randomizer: eps0 = %v, edges %v: %w", c.Eps0, edges, err)
	}
	m := &seeded{reports: reports, scratch: newScratch(c.Dim)}
	weight, extra := 1., 0. // E[h], and E[(z²−1)h]
	var shares []float64
	for _, z := range edges {
		shares = append(shares, tail.UpperNormal(z))
		weight += height * tail.UpperNormal(z)
		extra += height * z * tail.NormalDensity(z)
	}
	m.square, m.top = 1+extra/weight, (1+height*float64(len(edges)))/weight
	// The acceptance coins are rounded to 64 bits: with ε₀ ≤ MaxSeedEps0 the ratio of two of
	// them is off by less than coins.
	const coins = 0x1p-44
	eps0 := c.Eps0 + unequal(weight, reports.Eta()) + coins
	if eps0 > dp.MaxEps0 {
		return nil, fmt.Errorf("randomizer: eps0 = %v with its numeric slack is above %d", c.Eps0, dp.MaxEps0)
	}
	m.longest = seedUnit * tail.Length(c.Dim, longestSeed)
	m.dense = dense{values: c.Dim, limit: math.MaxInt32, whole: m.checkLength}
	unit := reports.Scale() * seedUnit // what a value of 1 stands for
	m.pure = pure{base{
		facts: m.dense.sized(Facts{
			Name:  name,
			Dim:   c.Dim,
			Tries: reports.Tries,
			// Largest at x = 0. The last factor covers that the values are only nearly normal.
			MSE:     unit * unit * (float64(c.Dim-1) + m.square) * (1 + 1e-7),
			Largest: bestScore * unit / c.Radius,
		}),
		radius: c.Radius, scale: reports.Scale(),
		input: c.Radius, report: m.longest * reports.Scale(),
	}, stepsEvent(eps0, height, shares, reports.Eta())}
	return m, nil
}

// unequal returns the addition to ε₀ for shares above the edges that differ between inputs, by a
// factor of 1±eta at most. It is ln(M⁺/M⁻) for the largest and smallest E[h], M± = 1 ± eta times
// the steps' part, M⁻ at least 1; amplify.Steps has the same M±, with an eta that covers the
// rounding of shares, which a promise has no need of. It is rounded up to a multiple of 2^−44, so
// that computers whose functions differ in a last bit promise the same.
func unequal(weight, eta float64) float64 {
	most := (weight - 1) * (1 + eta) // M⁺/M⁻ − 1 for M⁻ = 1
	if eta < 1 {
		most = 2 * (weight - 1) * eta / (1 + (weight-1)*(1-eta))
	}
	return math.Ceil((math.Log1p(most)+1e-13)*0x1p44) * 0x1p-44
}

// Randomize overwrites r with the values of a randomized report of x, drawn from their law: normal
// across x and, along x, a score of density h.
func (m *seeded) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 0, m.facts.Dim)
	scratch := m.scratch.Get().(*privUnitScratch)
	defer m.scratch.Put(scratch)
	s := scratch.noise(src, &x)
	t := m.sign(src, s.xx) * m.reports.SimulateScore(src)
	size := math.Sqrt(s.xx)
	roundWide(r.Value, x, scratch.z, (t-s.xz/size)/size)
}

// AddSeveral adds the sum of count reports of x: see [Several]. Across x they are independent normal
// vectors, so their sum is one of variance count; along x it is the sum of count scores.
func (m *seeded) AddSeveral(src rng.Source, sum []int64, x []float32, count int64) {
	checkInput(m.facts.Dim, x)
	checkSeveral(m.facts.Dim, sum, count)
	scratch := m.scratch.Get().(*privUnitScratch)
	defer m.scratch.Put(scratch)
	s := scratch.noise(src, &x)
	var t float64
	for range count {
		t += float64(m.sign(src, s.xx) * m.reports.SimulateScore(src))
	}
	size, across := math.Sqrt(s.xx), math.Sqrt(float64(count))
	addRounded(sum, x, scratch.z, (t-float64(across*s.xz)/size)/size, across, wideMagic)
}

// checkLength refuses a report that is longer than any seed's.
func (m *seeded) checkLength(values []int32) error {
	var square float64
	for _, v := range values {
		square += float64(v) * float64(v)
	}
	if !(square <= m.longest*m.longest) {
		return fmt.Errorf("randomizer: report of length %.6g must be at most %.6g", math.Sqrt(square), m.longest)
	}
	return nil
}

// ForRound returns the mechanism of a round.
func (m *seeded) ForRound(key [32]byte) Randomizer {
	return &keyed{m, key}
}

// keyed is the mechanism of a round: its reports are seeds, as four words, little endian.
type keyed struct {
	*seeded
	round [32]byte
}

const seedWords = seed.Size / 4

// Facts are those of the randomizer, with the size of a seed.
func (m *keyed) Facts() Facts {
	f := m.seeded.Facts()
	f.Bits, f.Bytes = 8*seed.Size, seed.Size
	return f
}

// NewReport returns a seed.
func (m *keyed) NewReport() *Report { return &Report{Value: make([]int32, seedWords)} }

// Randomize overwrites r with a seed drawn for x.
func (m *keyed) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 0, seedWords)
	s := m.reports.Draw(src, &m.round, x)
	for i := range r.Value {
		r.Value[i] = int32(binary.LittleEndian.Uint32(s[4*i:]))
	}
}

// Check accepts every seed.
func (m *keyed) Check(r *Report) error {
	if r.Index != nil || len(r.Value) != seedWords {
		return fmt.Errorf("randomizer: report with %d indices and %d values must be a seed of %d words", len(r.Index), len(r.Value), seedWords)
	}
	return nil
}

// Add expands a seed and adds its values to sum.
func (m *keyed) Add(sum []int64, r *Report) { m.reports.AddTo(sum, &m.round, m.Identity(r)) }

// Identity returns the seed.
func (m *keyed) Identity(r *Report) (s [seed.Size]byte) {
	for i, v := range r.Value {
		binary.LittleEndian.PutUint32(s[4*i:], uint32(v))
	}
	return s
}

// Remove subtracts the values of a seed.
func (m *keyed) Remove(sum []int64, s [seed.Size]byte) {
	values := make([]int64, len(sum))
	m.reports.AddTo(values, &m.round, s)
	for i, v := range values {
		sum[i] -= v
	}
}
