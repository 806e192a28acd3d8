package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/account/audit"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// aggregated returns the sum with aggregators' noise to audit, the sigma that it is charged for
// and the ε that a round claims at δ.
func (s *auditSumFlags) aggregated(cmd *cobra.Command) (p vecsum.Aggregated, sigma, claim float64, err error) {
	fs := cmd.Flags()
	for _, name := range append([]string{"n"}, ofClients...) {
		if fs.Changed(name) {
			return p, 0, 0, usage("--%s is of noise that clients add: with --noise-by aggregators give --sigma or --eps, and --dim", name)
		}
	}
	if fs.Changed("eps") == fs.Changed("sigma") {
		return p, 0, 0, usage("give one of --sigma, and --eps, for which it is chosen, with --noise-by aggregators")
	}
	// Other clients are known to the observer, so their number does not matter.
	q := account.Query{Class: account.VectorSumClass, NoiseBy: vecsum.ByAggregators, Sum: vecsum.Params{Dim: int(s.dim)}, Sigma: s.sigma,
		Participation: dp.All, Population: 2, Rounds: 1, Delta: s.delta}
	var r account.Reply
	if fs.Changed("eps") {
		q, r, err = account.Plan(cmd.Context(), s.eps, q, "sigma")
	} else {
		r, err = account.Answer(cmd.Context(), q, "best")
	}
	if err != nil {
		return p, 0, 0, usageError(err)
	}
	if r.Upper == nil {
		return p, 0, 0, usageError(errors.New("--sigma: so little noise has no bound, so there is nothing to refute"))
	}
	p, err = vecsum.NewAggregated(q.Population, int(s.dim), 1, q.Sigma)
	return p, q.Sigma, r.Upper.Eps, err
}

// auditAggregatedDocument is the JSON of an audit of a vector sum whose noise the aggregators add.
type auditAggregatedDocument struct {
	auditVerdict
	NoiseBy  vecsum.NoiseBy `json:"noise_by"`
	Delta    float64        `json:"delta"`
	Sigma    float64        `json:"sigma"`
	Dim      int            `json:"dim"`
	Steps    int64          `json:"steps"`
	Bound    int64          `json:"bound"`
	Variance uint64         `json:"variance"`
	auditSample
}

// aggregatedDocument returns the JSON of an audit.
func (a *auditFlags) aggregatedDocument(p vecsum.Aggregated, sigma float64, r audit.Result, seconds float64) auditAggregatedDocument {
	verdict, sample := a.written(vecsumName, r, seconds)
	return auditAggregatedDocument{verdict, a.sum.by, a.sum.delta, sigma, p.Dim, p.Steps, p.Bound, p.Variance, sample}
}
