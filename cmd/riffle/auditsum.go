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
	n          int64
	eps, delta float64
}

func (s *auditSumFlags) flags(cmd *cobra.Command) {
	bind(cmd, setting.Table{
		{Name: "eps", Into: &s.eps, Help: "of a vector sum: epsilon of one round that grid and noise are chosen for (or give them)"},
		{Name: "delta", Into: &s.delta, Help: "of a vector sum: delta of the claim"},
		{Name: "n", Into: &s.n, Help: "of a vector sum: number of clients, each of which is run"},
	})
	s.noiseFlags(cmd)
}

// unused returns an error if flags of a vector sum stand beside another randomizer.
func (s *auditSumFlags) unused(fs *pflag.FlagSet, randomizer string) error {
	for _, name := range []string{"eps", "delta", "n", "noise", "noise-bits", "variance", "grid", "honest"} {
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
		p, err = vecsum.Tight(vecsum.Target{Eps: s.eps, Delta: s.delta, Users: int64(s.n), Honest: s.honest, Dim: int(s.dim), Radius: 1,
			Kind: vecsum.NoiseKind(s.noise)})
		if err != nil {
			return p, 0, usageError(err)
		}
		return p, s.eps, nil
	}
	p = s.params()
	p.Users, p.Radius = int64(s.n), 1
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
	Claimed    float64 `json:"claimed"`
	LowerBound float64 `json:"lower_bound"`
	Confidence float64 `json:"confidence"`
	Refuted    bool    `json:"refuted"`
	Randomizer string  `json:"randomizer"`
	Delta      float64 `json:"delta"`
	N          int64   `json:"n"`
	account.DocumentSum
	Trials  int64    `json:"trials"`
	Seed    uint64   `json:"seed"`
	Event   string   `json:"event"`
	Hits    [2]int64 `json:"hits"`
	Draws   int64    `json:"draws"`
	Seconds float64  `json:"seconds"`
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
	p, claim, err := a.sum.round(fs)
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
	r, err := audit.RunSum(cmd.Context(), audit.SumConfig{Params: p, Claimed: a.claim, Delta: a.sum.delta, Trials: int64(a.trials),
		Confidence: a.confidence, Seed: a.seed, Workers: a.workers, Progress: bar})
	finish()
	if err != nil {
		if cmd.Context().Err() == nil {
			return usageError(err) // the only errors left are values out of range
		}
		return err
	}
	p.MinUsers = int64(a.sum.n)
	if a.show.json {
		err = printJSON(cmd.OutOrStdout(), auditSumDocument{r.Claimed, r.LowerBound, r.Confidence, r.Refuted, vecsumName, a.sum.delta, p.Users, account.NewDocumentSum(p),
			int64(a.trials), a.seed, r.Witness, r.Hits, r.Draws, time.Since(begin).Seconds()})
	} else {
		out := printer{w: cmd.OutOrStdout()}
		verdict := "not refuted"
		if r.Refuted {
			verdict = "REFUTED"
		}
		out.row("claim", "a round is (%.9g, %g)-private: %s", r.Claimed, a.sum.delta, verdict)
		out.row("round", "%d clients, %s", p.Users, describeSum(p))
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
