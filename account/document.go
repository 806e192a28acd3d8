package account

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// VectorSumClass is the name of a vector sum in documents and on the command line.
const VectorSumClass dp.Class = "vecsum"

// Document is a Reply in JSON, printed by riffle eps --json. Its keys are a contract with
// scripts.
type Document struct {
	Upper *DocumentBound `json:"upper"`
	Best  *DocumentBound `json:"best"`
	Lower *DocumentBound `json:"lower"`
	// KnowsWho is the cost to somebody who knows who took part in each round, for a client in every round; absent where no
	// chance is credited, so that it is the same.
	KnowsWho *DocumentBound `json:"knows_who,omitempty"`
	// Gap is upper less lower, where epsilon is bounded.
	Gap    *float64        `json:"gap,omitempty"`
	Bounds []DocumentBound `json:"bounds"`
	// Local is what the messages of one client in a round promise together without a shuffler;
	// absent: the client has one, which promises eps0.
	Local float64       `json:"local_epsilon,omitempty"`
	Query DocumentQuery `json:"query"`
	// Design is the round of a vector sum whose noise the aggregators add; absent: another
	// question.
	Design *designDocument `json:"design,omitempty"`
}

// designDocument is one round of a vector sum whose noise the aggregators add.
type designDocument struct {
	Steps int64 `json:"steps"` // integer steps in a clip norm
	Bound int64 `json:"bound"` // largest norm of a rounded vector, in steps
	// Variance is the parameter of each aggregator's discrete Gaussian noise on a coordinate, or of each client's, in
	// squared steps.
	Variance uint64 `json:"variance"`
	// NoiseBound is the largest norm of one client's noise, in those steps; absent if aggregators add it.
	NoiseBound int64 `json:"noise_bound,omitempty"`
	// Released is the standard deviation of all noise on a coordinate of the sum, in clip norms: of both aggregators',
	// sqrt(2) times what one alone has, or of n_min clients'. Sigma of the query counts one, or the honest ones.
	Released float64 `json:"sigma_released"`
	// Weights are those that sums have in what is released of a round, its own first, in units of
	// 2^-Bits, if the noise is correlated over rounds. Variance and Released are of such a release. Gain is the ratio
	// of the root mean squared errors of the sums over all rounds so far, with independent noise
	// of equal cost and with this.
	Weights []int64 `json:"weights,omitempty"`
	Bits    int     `json:"weight_bits,omitempty"`
	Gain    float64 `json:"gain,omitempty"`
}

// DocumentBound is one bound. Eps and Delta are null if it does not apply; Note then says
// why.
type DocumentBound struct {
	Method  string     `json:"method"`
	Kind    dp.Kind    `json:"kind"`
	Status  dp.Status  `json:"status"`
	Eps     *dp.Number `json:"eps"`
	Delta   *float64   `json:"delta"`
	Source  string     `json:"source"`
	Order   float64    `json:"order,omitempty"`
	Note    string     `json:"note,omitempty"`
	Seconds float64    `json:"seconds"`
}

// DocumentQuery is a Query. DocumentSum goes with the randomizer VectorSumClass.
type DocumentQuery struct {
	Trust         dp.Trust         `json:"trust"`
	Participation dp.Participation `json:"participation"`
	Randomizer    dp.Class         `json:"randomizer"`
	Symbols       int              `json:"symbols,omitempty"`
	Adjacency     dp.Adjacency     `json:"adjacency"`
	TV            float64          `json:"tv,omitempty"`
	Height        float64          `json:"height,omitempty"`
	Shares        []float64        `json:"shares,omitempty"`
	Eta           float64          `json:"eta,omitempty"`
	Eps0          float64          `json:"eps0"`
	CrossEps0     float64          `json:"cross_eps0,omitempty"`
	Sigma         float64          `json:"sigma,omitempty"`
	N             int64            `json:"n"`
	K             int64            `json:"k,omitempty"`
	Gamma         float64          `json:"gamma,omitempty"`
	Dropout       float64          `json:"dropout,omitempty"`
	Colluders     int64            `json:"colluders,omitempty"`
	KHidden       bool             `json:"k_hidden,omitempty"`
	Adaptive      bool             `json:"adaptive_within_round,omitempty"`
	Rounds        int64            `json:"rounds"`
	Messages      int64            `json:"messages,omitempty"` // of each client in a round; absent: one
	DocumentSum
	NoiseBy vecsum.NoiseBy `json:"noise_by,omitempty"` // of a vector sum; absent: clients
	// Every and Strategy are of noise that is correlated over rounds; absent: it is independent.
	Every    int64         `json:"every,omitempty"`
	Strategy toeplitz.Kind `json:"strategy,omitempty"`
	Delta    *float64      `json:"delta,omitempty"`
	Eps      *float64      `json:"eps,omitempty"`
}

// DocumentSum is the vector sum of a query.
type DocumentSum struct {
	Dim       int              `json:"dim,omitempty"`
	Grid      int64            `json:"grid,omitempty"`
	Noise     vecsum.NoiseKind `json:"noise,omitempty"`
	NoiseBits int64            `json:"noise_bits,omitempty"`
	Variance  float64          `json:"variance,omitempty"`
	NMin      int64            `json:"n_min,omitempty"`
	Honest    float64          `json:"honest,omitempty"`
}

// NewDocumentSum describes a round of vector sums.
func NewDocumentSum(p vecsum.Params) DocumentSum {
	return DocumentSum{p.Dim, p.Grid, p.Noise.Kind, p.Noise.Bits, p.Noise.Variance, p.MinUsers, p.Honest}
}

// Document returns the reply in the form of a JSON document.
func (r Reply) Document() Document {
	one := func(b *dp.Bound) *DocumentBound {
		if b == nil {
			return nil
		}
		out := documentBound(*b, true)
		return &out
	}
	q := r.Query
	if q.Adjacency == "" {
		q.Adjacency = dp.ReplaceOne
	}
	out := Document{Upper: one(r.Upper), Best: one(r.Best), Lower: one(r.Lower), KnowsWho: one(r.KnowsWho), Bounds: []DocumentBound{},
		Query: DocumentQuery{Trust: q.Trust, Participation: q.Participation, Randomizer: q.Class, Symbols: q.Symbols, Adjacency: q.Adjacency,
			Eps0: q.Eps0, CrossEps0: q.CrossEps0, Sigma: q.Sigma, N: q.Population, K: q.Reports, Gamma: q.Gamma, Dropout: q.Dropout, Rounds: q.Rounds, Messages: q.Messages,
			TV: q.TV, Height: q.Steps.Height, Shares: q.Steps.Each(), Eta: q.Steps.Eta, Colluders: q.Colluders, KHidden: q.HiddenReports, Adaptive: q.AdaptiveWithinRound}}
	if gap, ok := r.Gap(r.Lower); ok {
		out.Gap = &gap
	}
	if q.Messages > 1 {
		out.Local = dp.TimesUp(q.Eps0, q.Messages)
	}
	out.Query.NMin = q.Least
	if q.isSum() {
		out.Query.DocumentSum, out.Query.NoiseBy = NewDocumentSum(q.Sum), q.NoiseBy
		if out.Query.Every = q.Every; q.Every != 0 {
			out.Query.Strategy = cmp.Or(q.Strategy, toeplitz.Band)
		}
	}
	out.Design = q.documentDesign()
	if q.AskDelta {
		out.Query.Eps = &q.Eps
	} else {
		out.Query.Delta = &q.Delta
	}
	for _, l := range r.Bounds {
		out.Bounds = append(out.Bounds, documentBound(l.Bound, l.Applies))
	}
	return out
}

// documentDesign returns the design of a vector sum whose noise is no part of clients' vectors, nil for any
// other question.
func (q Query) documentDesign() *designDocument {
	if !q.aggregated() {
		return nil
	}
	p, err := q.design()
	if err != nil {
		return nil
	}
	released := float64(2 * p.Variance) // of both aggregators
	if p.ByClients() {
		released = float64(p.MinUsers) * float64(p.Variance)
	}
	d := &designDocument{Steps: p.Steps, Bound: p.Bound, Variance: p.Variance, NoiseBound: p.NoiseBound(), Released: math.Ldexp(math.Sqrt(released)/float64(p.Steps), -p.Bits)}
	if q.Every == 0 {
		return d
	}
	s, err := q.strategy()
	if err != nil {
		return nil
	}
	d.Bits, d.Weights = s.Bits, s.Weights
	if d.Gain, _, err = s.Gain(q.Rounds, q.Every); err != nil {
		return nil
	}
	return d
}

func documentBound(b dp.Bound, applies bool) DocumentBound {
	out := DocumentBound{Method: b.Method, Kind: b.Kind, Status: b.Status, Source: b.Source, Order: b.Order, Note: b.Note, Seconds: b.Seconds}
	if applies {
		eps, delta := dp.Number(b.Eps), b.Delta
		out.Eps, out.Delta = &eps, &delta
	}
	return out
}

// ParseDocumentQuery reads the query of a document, so that it can be asked again. It refuses
// unknown keys.
func ParseDocumentQuery(text []byte) (DocumentQuery, error) {
	var d DocumentQuery
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return DocumentQuery{}, fmt.Errorf("account: query: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return DocumentQuery{}, errors.New("account: query: more than one JSON value")
	}
	return d, nil
}

// Ask answers the query of a document, as Answer does. each, if not nil, is called before
// every method for single reports, some of which may be slow; by then, done of all methods
// have been computed.
func (a *Accountant) Ask(ctx context.Context, d DocumentQuery, which string, each func(method string, done, of int)) (Reply, error) {
	if (d.Eps == nil) == (d.Delta == nil) {
		return Reply{}, errors.New("account: give exactly one of delta, to bound epsilon, and eps, to bound delta")
	}
	q := Query{Trust: d.Trust, Participation: d.Participation, Class: d.Randomizer, Symbols: d.Symbols, Adjacency: d.Adjacency,
		TV: d.TV, Eps0: d.Eps0, CrossEps0: d.CrossEps0, Sigma: d.Sigma, Population: d.N, Reports: d.K, Gamma: d.Gamma, Dropout: d.Dropout, Rounds: d.Rounds, Messages: d.Messages,
		Colluders: d.Colluders, HiddenReports: d.KHidden, AdaptiveWithinRound: d.Adaptive}
	if len(d.Shares) > dp.MaxSteps {
		return Reply{}, fmt.Errorf("account: %d shares must be at most %d", len(d.Shares), dp.MaxSteps)
	}
	q.Steps = dp.NewSteps(d.Height, d.Shares, d.Eta)
	if d.Eps != nil {
		q.AskDelta, q.Eps = true, *d.Eps
	} else {
		q.Delta = *d.Delta
	}
	if d.Randomizer != VectorSumClass {
		q.Least, d.NMin = d.NMin, 0
		if d.DocumentSum != (DocumentSum{}) {
			return Reply{}, fmt.Errorf("account: dim, grid, noise, noise_bits, variance and honest go with randomizer %s, not %s", VectorSumClass, d.Randomizer)
		}
	} else if d.Trust != "" && !d.Trust.Is(dp.SumsOnly) {
		return Reply{}, fmt.Errorf("account: trust %s contradicts randomizer %s, of which only the sum is seen", d.Trust, VectorSumClass)
	}
	q.Sum, q.NoiseBy, q.Every, q.Strategy = d.params(), d.NoiseBy, d.Every, d.Strategy
	r, err := a.answer(ctx, q, which, each)
	if err == nil {
		r.KnowsWho, err = a.answerKnowsWho(ctx, q)
	}
	return r, err
}

// params returns the round's parameters, except those that follow from the clients.
func (d DocumentSum) params() vecsum.Params {
	return vecsum.Params{MinUsers: d.NMin, Honest: d.Honest, Dim: d.Dim, Grid: d.Grid,
		Noise: vecsum.Noise{Kind: d.Noise, Bits: d.NoiseBits, Variance: d.Variance}}
}
