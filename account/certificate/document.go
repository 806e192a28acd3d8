// Package certificate holds a claim (ε, δ) about a protocol together with the data of its
// proof, and checks the proof in arbitrary precision.
//
// The checker shares no code with the accountant that writes certificates: from riffle it
// imports package dp's vocabulary only. It is slow on purpose and meant to be read.
// certificate.md says what is proved, where, and what is taken from theorems.
package certificate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
)

// Format names the document, and Version its form.
const (
	Format  = "riffle-certificate"
	Version = 1
)

// MaxSize bounds a document's size in bytes.
const MaxSize = 16 << 20

// ErrMalformed is wrapped by errors about a document that is meaningless: another format, an
// unknown key, a value out of range.
var ErrMalformed = errors.New("malformed certificate")

// Document is a certificate. All losses are in nats, all masses are probabilities.
type Document struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Query   Query  `json:"query"`
	Claim   Claim  `json:"claim"`
	// Round and Composition are absent for the method "basic", whose proof is one
	// line.
	Round       *Round       `json:"round,omitempty"`
	Composition *Composition `json:"composition,omitempty"`
	// Reverse is for neighbours that are not alike: with adjacency remove, Round
	// is of the world with the client from the world without it, and Reverse the other way round.
	Reverse *Order `json:"reverse,omitempty"`
}

// Order is the proof for one order of the neighbours.
type Order struct {
	Round       Round       `json:"round"`
	Composition Composition `json:"composition"`
}

// Query is the protocol: rounds that are all alike, of reports that are each
// eps0-LDP, replace-one adjacency; or, with class gaussian and adjacency remove, of the sum of
// Gaussian reports.
type Query struct {
	Trust         dp.Trust         `json:"trust"`
	Participation dp.Participation `json:"participation"`
	// Randomizer is the class in the original question. The proofs of blanket-pld, clones-pld
	// and basic hold for every eps0-LDP randomizer and do not use the class.
	Randomizer dp.Class     `json:"randomizer"`
	Symbols    int          `json:"symbols,omitempty"`
	Adjacency  dp.Adjacency `json:"adjacency"`
	Eps0       float64      `json:"eps0"`
	N          int64        `json:"n"`
	K          int64        `json:"k,omitempty"`       // for sampled and once
	Gamma      float64      `json:"gamma,omitempty"`   // for check-in
	Dropout    float64      `json:"dropout,omitempty"` // each report is lost with this probability
	Rounds     int64        `json:"rounds"`
	// TV is a of dp.Report. Height, Shares and Eta are those of dp.Steps.
	TV     float64   `json:"tv,omitempty"`
	Height float64   `json:"height,omitempty"`
	Shares []float64 `json:"shares,omitempty"`
	Eta    float64   `json:"eta,omitempty"`
	// Colluders of the n clients tell the observer all they know.
	Colluders int64 `json:"colluders,omitempty"`
	// KHidden says that nobody sees how many reports a round has. The proof is that for a public number.
	KHidden bool `json:"k_hidden,omitempty"`
	// Sigma is σ of one Gaussian report over the clip norm; Eps0 is then 0.
	Sigma float64 `json:"sigma,omitempty"`
}

// Methods that prove a claim.
const (
	BlanketPLD = "blanket-pld"      // clones at rate 2/(e^eps0+1)
	ClonesPLD  = "clones-pld"       // clones at rate e^-eps0
	Basic      = "basic"            // pure guarantees, added
	KRRPLD     = "krr-pld"          // blanket of k-ary randomized response
	TVPLD      = "tv-pld"           // a known total variation
	LaplacePLD = "laplace-pld"      // Laplace noise
	CapPLD     = "cap-pld"          // two densities
	RisingPLD  = "rising-pld"       // a density that rises in steps
	RemovePLD  = "gauss-remove-pld" // one client more or less in a sum of Gaussian reports
)

// Methods lists the methods.
func Methods() []string {
	return []string{BlanketPLD, ClonesPLD, KRRPLD, TVPLD, LaplacePLD, CapPLD, RisingPLD, RemovePLD, Basic}
}

// thinned says whether some of the clients who are drawn collude, and others drop out.
func (q Query) thinned() bool {
	return q.Colluders > 0 && q.Dropout > 0 && q.Participation == dp.Sampled && !q.Trust.Is(dp.Alone)
}

// Claim says that the query is (Eps, Delta)-DP.
type Claim struct {
	Method string  `json:"method"`
	Eps    float64 `json:"eps"`
	Delta  float64 `json:"delta"`
}

// Round is a symmetric pair (P, Q) on the grid j·Step that is claimed to dominate one round.
// Q[j−1] is the Q-mass of loss j·Step, j = 1 … len(Q); each outcome has a mirror image.
// Infinite is the P-mass of infinite loss. The remaining mass has loss 0.
//
// With Lower the pair is not symmetric, and nothing has a mirror image: Lower[j−1] is the Q-mass
// of loss −j·Step, and Missing is the Q-mass that no loss has. The mass of loss −Balance·Step is
// listed as 0; it is what makes all Q-masses add to 1, which float64 could not.
type Round struct {
	Step     float64   `json:"step"`
	Infinite float64   `json:"infinite"`
	Q        []float64 `json:"q"`
	Lower    []float64 `json:"lower,omitempty"`
	Balance  int       `json:"balance,omitempty"` // 1 … len(Lower)
	Missing  float64   `json:"missing,omitempty"`
	// Times is the number of rounds that the pair is composed over.
	Times int64 `json:"times"`
	// Clones and Reports are hints. The checker distinguishes numbers of clones only up to
	// multiples of Clones, and numbers of reports only up to the blocks that start at the values
	// of Reports. Any blocks are sound; badly chosen ones prove less.
	Clones  int64   `json:"clones"`
	Reports []int64 `json:"reports,omitempty"`
	// Drawn is a hint as Reports is, for colluders among sampled clients of whom
	// some drop out: blocks of the number of honest clients who are drawn.
	Drawn []int64 `json:"drawn,omitempty"`
}

// Composition is the account of the floating-point composition that found the claim: at
// Claim.Eps, δ is at most Total, the sum of the four terms above it. The checker composes
// anew. Of these numbers it uses the window's end only; it checks the others as far as
// certificate.md says.
type Composition struct {
	Low       int64   `json:"low"`       // the window starts at loss low·step
	Points    int64   `json:"points"`    // and has this many grid points
	Tilt      float64 `json:"tilt"`      // t of e^{tL}
	Beyond    float64 `json:"beyond"`    // bound on the tilted mass above the window
	Inflation float64 `json:"inflation"` // factor for the rounding of masses and sums
	// Splitting bounds the variance that the grid adds to a round's loss: Step²/4.
	Splitting  float64 `json:"splitting"`
	Window     float64 `json:"window"`      // δ read off the window
	Truncation float64 `json:"truncation"`  // mass of infinite loss over all rounds
	WrapAround float64 `json:"wrap_around"` // charge for the mass above the window
	RoundOff   float64 `json:"round_off"`   // charge for the round-off of the transforms
	Total      float64 `json:"total"`
}

// Encode returns the document's bytes.
func (d Document) Encode() ([]byte, error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(d, "", " ")
	return append(text, '\n'), err
}

// Decode reads a document. Anything that it does not know is an error that wraps
// ErrMalformed.
func Decode(text []byte) (Document, error) {
	var d Document
	bad := func(err error) (Document, error) {
		return Document{}, fmt.Errorf("certificate: %v: %w", err, ErrMalformed)
	}
	if len(text) > MaxSize {
		return bad(fmt.Errorf("%d bytes, above %d", len(text), MaxSize))
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&d)
	if form := d.otherForm(); form != "" && d.Format != "" { // which says more than that a key is not known
		return bad(errors.New(form))
	}
	if err != nil {
		return bad(err)
	}
	again, err := json.Marshal(d)
	if err != nil {
		return bad(err)
	}
	// Encoding the result must give the input back, spaces aside. This refuses a key that
	// occurs twice or in other case, a number with digits that float64 drops, and anything
	// after the end.
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return bad(err)
	}
	if !bytes.Equal(compact.Bytes(), again) {
		return bad(errors.New("not as riffle writes it"))
	}
	return d, d.validate()
}

const (
	maxCount  = 1 << 52
	maxTimes  = 1e12
	maxNodes  = 1 << 15
	maxBlocks = 1 << 16
)

// otherForm names a format and version that this package does not read; "": it reads them.
func (d Document) otherForm() string {
	if d.Format == Format && d.Version == Version {
		return ""
	}
	return fmt.Sprintf("format %q, version %d; want %q, version %d", d.Format, d.Version, Format, Version)
}

// validate returns an error that wraps ErrMalformed and names the first value out of range. A
// valid document's claim may still be false.
func (d Document) validate() error {
	q, c, r, w := d.Query, d.Claim, d.Round, d.Composition
	takesK := q.Participation == dp.Sampled || q.Participation == dp.Once
	var out first
	check := out.check
	check(d.otherForm() == "", d.otherForm())
	removal := c.Method == RemovePLD
	if removal {
		check(q.Trust.Is(dp.RemovalCounted) && q.Randomizer == dp.Gaussian && q.Adjacency == dp.AddRemoveOne && q.Participation == dp.CheckIn,
			"gauss-remove-pld needs a check-in, adjacency remove, of sums of class gaussian")
		check(q.Eps0 == 0 && dp.CheckSigma(q.Sigma) == nil, "eps0 or sigma out of range")
		check(q.N-q.Colluders >= 2 && q.Gamma*(1-q.Dropout) >= 0x1p-100 && q.Gamma*(1-q.Dropout) <= 1-0x1p-40, "n or gamma out of range")
	} else {
		check(q.Trust.Is(dp.LocallyPrivate), "unknown trust")
		check(q.Randomizer.LDP(), "unknown randomizer")
		check(q.Adjacency == dp.ReplaceOne, "adjacency must be replace")
		check(within(q.Eps0, 1e-30, dp.MaxEps0) && q.Sigma == 0, "eps0 or sigma out of range")
	}
	check(takesK || q.Participation == dp.All || q.Participation == dp.CheckIn, "unknown participation")
	check((q.Randomizer == dp.KRR) == (q.Symbols != 0) && q.Symbols != 1 && q.Symbols >= 0, "symbols go with krr, at least 2")
	check(q.N >= 1 && q.N <= maxCount, "n out of range")
	check(takesK && q.K >= 1 && q.K <= q.N || !takesK && q.K == 0, "k out of range")
	checkIn := q.Participation == dp.CheckIn
	check(checkIn && q.Gamma > 0 && within(q.Gamma, 0, 1) || !checkIn && q.Gamma == 0, "gamma out of range")
	check(within(q.Dropout, 0, 1) && q.Dropout < 1, "dropout out of range")
	check(q.Rounds >= 1 && q.Rounds <= maxTimes, "rounds out of range")
	check(q.Participation != dp.Once || q.K >= 1 && q.Rounds <= q.N/q.K, "more disjoint batches than clients")
	check(slices.Contains(Methods(), c.Method), "unknown method")
	knownTV := q.Randomizer == dp.Cap || q.Randomizer == dp.Generic && q.TV != 0
	check(knownTV && within(q.TV, 1e-300, 1) || !knownTV && q.TV == 0, "tv out of range")
	check(q.Colluders >= 0 && q.Colluders < q.N, "colluders out of range")
	if q.Randomizer == dp.Rising {
		check(len(q.Shares) >= 1 && len(q.Shares) <= dp.MaxSteps, "too few or too many shares")
		check(within(q.Height, 1e-30, 1e30) && within(q.Eta, 0, 1) && q.Eta < 1, "height or eta out of range")
		last := 1.
		for _, share := range q.Shares {
			check(share >= 1e-300 && share < last, "shares must fall")
			last = share
		}
	} else {
		check(q.Height == 0 && len(q.Shares) == 0 && q.Eta == 0, "steps go with rising")
	}
	switch c.Method {
	case KRRPLD:
		check(q.Randomizer == dp.KRR || q.Randomizer == dp.BinaryRR, "krr-pld needs krr")
	case TVPLD:
		check(q.Randomizer == dp.Generic && knownTV, "tv-pld needs tv")
	case LaplacePLD:
		check(q.Randomizer == dp.LaplaceL1, "laplace-pld needs laplace")
	case CapPLD:
		check(q.Randomizer == dp.Cap, "cap-pld needs cap")
	case RisingPLD:
		check(q.Randomizer == dp.Rising, "rising-pld needs rising")
	}
	check(within(c.Eps, 0, math.MaxFloat64), "eps out of range")
	check(within(c.Delta, 0, 1) && c.Delta < 1, "delta out of range")
	check((c.Method == Basic) == (r == nil) && (r == nil) == (w == nil), "round and composition go with all methods but basic")
	check(removal == (d.Reverse != nil), "both orders go with gauss-remove-pld")
	if r != nil && w != nil {
		check(c.Delta >= 0x1p-170 && c.Eps <= 1e5, "eps or delta out of range")
		if p := r.problem(q, removal); p != "" {
			check(false, p)
		}
		if p := w.problem(*r, c.Eps); p != "" {
			check(false, p)
		}
		if d.Reverse != nil {
			check(d.Reverse.Round.Step == r.Step, "both orders need one step")
			if p := d.Reverse.Round.problem(q, removal); p != "" {
				check(false, "reverse: "+p)
			}
			if p := d.Reverse.Composition.problem(d.Reverse.Round, c.Eps); p != "" {
				check(false, "reverse: "+p)
			}
		}
	}
	if out.problem != "" {
		return fmt.Errorf("certificate: %s: %w", out.problem, ErrMalformed)
	}
	return nil
}

// problem says which value of a round is out of range; "": none is.
func (r Round) problem(q Query, directed bool) string {
	out := first{}
	out.check(within(r.Step, 1e-30, 100), "step out of range")
	out.check(within(r.Infinite, 0x1p-170, .5), "infinite out of range")
	out.check(len(r.Q) >= 1 && len(r.Q) <= maxNodes && float64(len(r.Q))*r.Step <= 100, "q has too few or too many entries")
	out.check(len(r.Lower) <= maxNodes && float64(len(r.Lower))*r.Step <= 100, "lower has too many entries")
	for _, m := range append(slices.Clip(r.Q), r.Lower...) {
		out.check(within(m, 0, 1), "q or lower out of range")
	}
	if directed {
		out.check(r.Balance >= 1 && r.Balance <= len(r.Lower) && r.Lower[r.Balance-1] == 0, "balance needs an entry of lower that is 0")
		out.check(within(r.Missing, 0x1p-172, 1), "missing out of range")
		out.check(r.Clones == 1 && len(r.Reports) == 0 && len(r.Drawn) == 0, "no blocks with gauss-remove-pld")
	} else {
		out.check(r.Balance == 0 && len(r.Lower) == 0 && r.Missing == 0, "lower, balance and missing go with gauss-remove-pld")
	}
	out.check(r.Times >= 1 && r.Times <= maxTimes, "times out of range")
	out.check(r.Clones >= 1 && r.Clones <= maxCount, "clones out of range")
	out.check(len(r.Reports) <= maxBlocks && len(r.Drawn) <= maxBlocks, "too many blocks of reports")
	out.check(len(r.Drawn) == 0 || q.thinned(), "drawn goes with colluders among sampled clients of whom some drop out")
	for i, k := range r.Drawn {
		out.check(k >= 0 && k <= q.N && (i == 0 || k > r.Drawn[i-1]), "drawn must rise")
	}
	for i, k := range r.Reports {
		out.check(k >= 1 && k <= q.N && (i == 0 || k > r.Reports[i-1]), "reports must rise")
	}
	return out.problem
}

// problem says which value of an account is out of range; "": none is.
func (w Composition) problem(r Round, eps float64) string {
	out := first{}
	out.check(w.Low >= -maxCount && w.Low <= maxCount && w.Points >= 1 && w.Points <= maxCount, "window out of range")
	out.check(within(w.Tilt, 0, 1e12) && w.Tilt*float64(max(len(r.Q), len(r.Lower)))*r.Step <= 1000 && w.Tilt*eps <= 1e6, "tilt out of range")
	for _, x := range []float64{w.Beyond, w.Splitting, w.Window, w.Truncation, w.WrapAround, w.RoundOff, w.Total} {
		out.check(within(x, 0, 1e6), "slack out of range")
	}
	out.check(w.Beyond >= 1e-300, "beyond out of range")
	out.check(within(w.Inflation, 1, 1e6), "inflation out of range")
	return out.problem
}

// first keeps the first problem that is found.
type first struct{ problem string }

func (f *first) check(ok bool, text string) {
	if !ok && f.problem == "" {
		f.problem = text
	}
}

// within is false for a NaN.
func within(x, low, high float64) bool { return x >= low && x <= high }
