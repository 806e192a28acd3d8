package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/run/setting"
)

// This file has riffle plan. eps.go has the flags that it shares with riffle eps.

// plan solves for a value of the query. The eps0 of a randomizer that the flags name is solved
// for by the randomizer's own law.
func (p *protocolFlags) plan(ctx context.Context, target float64, q account.Query, solve string) (account.Query, account.Reply, error) {
	if _, named, err := p.named(1); err != nil {
		return q, account.Reply{}, err
	} else if !named || solve != "eps0" {
		return account.Plan(ctx, target, q, solve)
	}
	eps0, q, r, err := account.PlanReport(ctx, target, q, func(eps0 float64) (dp.Report, error) {
		m, _, err := p.named(eps0)
		if err != nil {
			return dp.Report{}, err
		}
		return m.Event(), nil
	})
	q.Eps0 = eps0 // what a report promises includes the slack of its arithmetic
	return q, r, err
}

func newPlan() *cobra.Command {
	var p protocolFlags
	var target float64
	var solve string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Choose a protocol for a target epsilon: the inverse of eps",
		Long: `Plan finds the largest eps0, k, gamma or rounds, or the smallest sigma, for which
the proved bound on epsilon stays at or below the target. All other values are
given. With --randomizer vecsum it designs a vector sum: grid, noise and modulus,
or with --noise-by aggregators or --every the smallest sigma.`,
		Example: `  riffle plan --target-eps 1 --delta 1e-5 --n 60000 --participation all --rounds 50 --solve eps0
  riffle plan --randomizer vecsum --target-eps 1 --delta 1e-6 --n 1e4 --dim 100 --solve noise-bits
  riffle plan --randomizer vecsum --noise-by aggregators --every 20 --target-eps 1 --delta 1e-5 --n 6e4 --dim 1930 --rounds 400 --solve sigma`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fs := cmd.Flags()
			if solve == "" || !fs.Changed("target-eps") {
				return usage("--solve and --target-eps are required (see riffle plan --help)")
			}
			if fs.Changed(solve) {
				return usage("--%s contradicts --solve %s", solve, solve)
			}
			sums := solve == "noise-bits" || solve == "mu"
			if p.aggregated() && solve != "sigma" {
				if p.vecsum.every != 0 {
					return usage("--solve %s is of noise that is a part of clients' vectors: with --every --solve sigma", solve)
				}
				return usage("--solve %s is of noise that clients add: with --noise-by aggregators --solve sigma", solve)
			}
			if sums != (p.class == vecsumName) && !p.aggregated() {
				return usage("--solve noise-bits and mu go with --randomizer %s, the others without: not --solve %s with --randomizer %s", vecsumName, solve, p.class)
			}
			if sums {
				return p.planSum(cmd, fs, target, solve, asJSON)
			}
			q, err := p.query(fs)
			if err != nil {
				return err
			}
			q, r, err := p.plan(cmd.Context(), target, q, solve)
			if err != nil {
				if errors.Is(err, cmd.Context().Err()) {
					return err
				}
				return usageError(err)
			}
			if r.KnowsWho, err = account.AnswerKnowsWho(cmd.Context(), q); err != nil {
				return err
			}
			if r.Upper != nil {
				warnLargeEps(cmd.ErrOrStderr(), r.Upper.Eps)
			}
			if asJSON {
				solution := map[string]any{"eps0": q.Eps0, "sigma": q.Sigma, "k": q.Reports, "gamma": q.Gamma, "rounds": q.Rounds}
				return printJSON(cmd.OutOrStdout(), map[string]any{
					"solution": map[string]any{solve: solution[solve]}, "check": documented{r.Document(), p.largestOf(r)}})
			}
			out := printer{w: cmd.OutOrStdout()}
			value := map[string]string{"eps0": fmt.Sprintf("%.6g", math.Floor(q.Eps0*1e6)/1e6), "k": fmt.Sprint(q.Reports),
				"gamma": fmt.Sprintf("%.6g", q.Gamma), "sigma": fmt.Sprintf("%.10g", math.Ceil(q.Sigma*1e6)/1e6), "rounds": fmt.Sprint(q.Rounds)}[solve]
			out.line("%s = %s", solve, value)
			if out.err != nil {
				return out.err
			}
			return printReply(cmd.OutOrStdout(), r, p.largestOf(r))
		},
	}
	p.flags(cmd)
	bind(cmd, setting.Table{
		{Name: "target-eps", Into: &target, Help: "epsilon that must not be exceeded"},
		{Name: "solve", Into: &solve, Check: others, Values: []string{"eps0", "k", "gamma", "rounds", "sigma", "noise-bits\tof a vector sum", "mu\tof a vector sum"}, Help: "what to solve for: %s"},
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
