package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/account/audit"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/run/setting"
)

// auditSumFlags describe the vector sum to audit.
type auditSumFlags struct {
	sumFlags
	n                 int64
	eps, delta, sigma float64
}

func (s *auditSumFlags) flags(cmd *cobra.Command) {
	bind(cmd, setting.Table{
		{Name: "eps", Into: &s.eps, Help: "of a vector sum: epsilon of one round that grid and noise are chosen for (or give them)"},
		{Name: "delta", Into: &s.delta, Help: "of a vector sum: delta of the claim"},
		{Name: "n", Into: &s.n, Help: "of a vector sum: number of clients, each of which is run"},
	})
	s.noiseFlags(cmd)
	s.byFlag(cmd)
	bind(cmd, setting.Table{{Name: "sigma", Into: &s.sigma, Help: "of a vector sum with --noise-by aggregators: noise of one of them, in clip norms"}})
}

// unused returns an error if flags of a vector sum stand beside another randomizer.
func (s *auditSumFlags) unused(fs *pflag.FlagSet, randomizer string) error {
	for _, name := range []string{"eps", "delta", "n", "noise", "noise-bits", "variance", "grid", "honest", "noise-by", "sigma"} {
		if fs.Changed(name) {
			return usage("--%s goes with --randomizer %s, not %s", name, vecsumName, randomizer)
		}
	}
	return nil
}

// round returns the round to audit and the ε that it claims at δ.
func (s *auditSumFlags) round(fs *pflag.FlagSet) (p vecsum.Params, claim float64, err error) {
	if err := s.check(fs); err != nil {
		return p, 0, err
	}
	if s.n < 1 {
		return p, 0, usage("--n %d must be at least 1 with --randomizer %s", s.n, vecsumName)
	}
	if err := dp.CheckDelta(s.delta); err != nil {
		return p, 0, usageError(err)
	}
	given := ""
	for _, name := range []string{"grid", "noise-bits", "variance"} {
		if fs.Changed(name) {
			given = name
		}
	}
	switch {
	case fs.Changed("eps") && given != "":
		return p, 0, usage("--%s contradicts --eps, for which it is chosen", given)
	case fs.Changed("eps"):
		p, err = vecsum.Tight(vecsum.Target{Eps: s.eps, Delta: s.delta, Users: s.n, Honest: s.honest, Dim: int(s.dim), Radius: 1,
			Kind: vecsum.NoiseKind(s.noise)})
		if err != nil {
			return p, 0, usageError(err)
		}
		return p, s.eps, nil
	}
	p = s.params()
	p.Users, p.Radius = s.n, 1
	if p.Grid > 0 {
		p.Norm = vecsum.Norm(p.Dim, p.Grid, vecsum.NormBeta)
	}
	if claim, err = p.Epsilon(s.delta, 1); err != nil {
		return p, 0, usageError(err)
	}
	return p, claim, nil
}

// auditSumDocument is the JSON of an audit of a vector sum.
type auditSumDocument struct {
	auditVerdict
	Delta float64 `json:"delta"`
	N     int64   `json:"n"`
	account.DocumentSum
	auditSample
}

// runSum audits a vector sum.
func (a *auditFlags) runSum(cmd *cobra.Command) error {
	fs := cmd.Flags()
	for _, name := range []string{"eps0", "bits"} {
		if fs.Changed(name) {
			return usage("--%s is of single reports and has no meaning with --randomizer %s", name, vecsumName)
		}
	}
	if a.dim < 1 || a.dim > 1<<20 {
		return usage("--dim %d must lie between 1 and 2^20 for an audit", a.dim)
	}
	a.sum.dim = int64(a.dim)
	var p vecsum.Params
	var by *vecsum.Aggregated
	var sigma, claim float64
	var err error
	if a.sum.by == vecsum.ByAggregators {
		by = new(vecsum.Aggregated)
		*by, sigma, claim, err = a.sum.aggregated(cmd)
	} else {
		if fs.Changed("sigma") {
			return usage("--sigma goes with --noise-by aggregators: of noise that clients add give --noise-bits or --variance")
		}
		p, claim, err = a.sum.round(fs)
	}
	if err != nil {
		return err
	}
	if !fs.Changed("claim") {
		a.claim = claim
	}
	if err := a.complete(); err != nil {
		return err
	}
	bar, finish := a.progress(cmd.ErrOrStderr())
	begin := time.Now()
	r, err := audit.RunSum(cmd.Context(), audit.SumConfig{Params: p, Aggregated: by, Claimed: a.claim, Delta: a.sum.delta, Trials: a.trials,
		Confidence: a.confidence, Seed: a.seed, Workers: a.workers, Progress: bar})
	finish()
	if err != nil {
		if cmd.Context().Err() == nil {
			return usageError(err) // the only errors left are values out of range
		}
		return err
	}
	p.MinUsers = a.sum.n
	if a.show.json && by != nil {
		err = printJSON(cmd.OutOrStdout(), a.aggregatedDocument(*by, sigma, r, time.Since(begin).Seconds()))
	} else if a.show.json {
		verdict, sample := a.written(vecsumName, r, time.Since(begin).Seconds())
		err = printJSON(cmd.OutOrStdout(), auditSumDocument{verdict, a.sum.delta, p.Users, account.NewDocumentSum(p), sample})
	} else {
		out := printer{w: cmd.OutOrStdout()}
		verdict := "not refuted"
		if r.Refuted {
			verdict = "REFUTED"
		}
		out.row("claim", "a round is (%.9g, %g)-private: %s", r.Claimed, a.sum.delta, verdict)
		if by != nil {
			out.row("round", "%s", describeSum(account.Query{Sum: vecsum.Params{Dim: by.Dim}, NoiseBy: a.sum.by, Sigma: sigma}))
			out.row("observer", "knows all clients but one, and the other aggregator's noise")
		} else {
			out.row("round", "%d clients, %s", p.Users, describeSum(account.Query{Sum: p}))
		}
		out.row("eps is at least", "%.4g, with confidence %v", r.LowerBound, r.Confidence)
		out.row("event", "%s", r.Witness)
		out.row("seen", "%d and %d of %d rounds with each input", r.Hits[0], r.Hits[1], r.Draws)
		err = out.err
	}
	if err == nil && r.Refuted {
		err = fmt.Errorf("claim refuted: a round has eps of at least %.4g at delta = %v with confidence %v, above the claimed %v",
			r.LowerBound, a.sum.delta, r.Confidence, r.Claimed)
	}
	return err
}
