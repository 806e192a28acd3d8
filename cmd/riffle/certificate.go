package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/run/setting"
)

// certificateFlags are the flags of eps that write and check certificates.
type certificateFlags struct{ write, method, verify string }

func (c *certificateFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.write, "certificate", "", "write a `FILE` from which others can check the bound")
	bind(cmd, setting.Table{{Name: "certificate-method", Into: &c.method, Check: others, Values: words(certificate.Methods()...), Help: "%s (default: the tightest of them)"}})
	cmd.Flags().StringVar(&c.verify, "verify", "", "check a certificate `FILE` in arbitrary precision; takes seconds to minutes, and at most "+shortTime(verifyTime))
}

// verifyTime is the longest time that a check takes. The number of its steps is bounded too, but each may be slow.
const verifyTime = 20 * time.Minute

// shortTime writes whole minutes.
func shortTime(d time.Duration) string { return fmt.Sprintf("%.0f minutes", d.Minutes()) }

// check refuses flags that make no sense together.
func (c *certificateFlags) check(cmd *cobra.Command, curve bool) error {
	switch name := beside(cmd, "verify", "json"); {
	case c.method != "" && c.write == "":
		return usage("--certificate-method goes with --certificate FILE")
	case c.write != "" && curve:
		return usage("--certificate holds one answer, --curve asks for many")
	case c.verify != "" && name != "":
		return usage("--verify takes the query from the certificate: --%s has no place beside it", name)
	}
	return nil
}

// certify writes the certificate of a query that was answered.
func (c *certificateFlags) certify(cmd *cobra.Command, q account.Query, answer account.Reply) error {
	d, err := account.Certify(cmd.Context(), q, c.method)
	if err != nil {
		return err
	}
	text, err := d.Encode()
	if err != nil {
		return err
	}
	if err := durable.WriteFile(c.write, text); err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	fmt.Fprintf(stderr, "riffle: %s claims epsilon <= %s at delta = %s (%s)\n", c.write, roundUp(d.Claim.Eps), roundUp(d.Claim.Delta), d.Claim.Method)
	if u := answer.Upper; u != nil && u.Method != d.Claim.Method && (u.Eps < d.Claim.Eps*.999 || u.Delta < d.Claim.Delta*.99) {
		fmt.Fprintf(stderr, "riffle: the tighter bound of %s has no independent check and is not certified\n", u.Method)
	}
	return nil
}

// verdictJSON is the result of checking a certificate, as JSON.
type verdictJSON struct {
	Verified bool              `json:"verified"`
	Reason   string            `json:"reason,omitempty"`
	Claim    certificate.Claim `json:"claim"`
	Delta    *float64          `json:"delta_found,omitempty"`
	Room     *float64          `json:"room,omitempty"`
	Query    certificate.Query `json:"query"`
	Seconds  float64           `json:"seconds"`
}

func (c *certificateFlags) runVerify(cmd *cobra.Command, asJSON bool) error {
	f, err := durable.Open(c.verify)
	if err != nil {
		return usageError(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, certificate.MaxSize+1))
	if err != nil {
		return usageError(err)
	}
	d, err := certificate.Decode(text)
	if err != nil {
		return usageError(err)
	}
	start := time.Now()
	verdict, err := verifyWithin(cmd, d, verifyTime)
	if err != nil && !errors.Is(err, certificate.ErrRejected) {
		return err
	}
	out := verdictJSON{Verified: err == nil, Claim: d.Claim, Query: d.Query, Seconds: time.Since(start).Seconds()}
	switch {
	case err != nil:
		out.Reason = err.Error()
	case d.Round != nil:
		out.Delta, out.Room = &verdict.Delta, &verdict.Room
	}
	if asJSON {
		return errors.Join(printJSON(cmd.OutOrStdout(), out), err)
	}
	if err != nil {
		return err
	}
	p := printer{w: cmd.OutOrStdout()}
	q := d.Query
	adjacency := "replace one client"
	if q.Adjacency == dp.AddRemoveOne {
		adjacency = "remove one client"
	}
	p.line("verified: %s", describeQuery(account.Query{Trust: q.Trust, Sigma: q.Sigma, Participation: q.Participation, Eps0: q.Eps0, Population: q.N,
		Reports: q.K, Gamma: q.Gamma, Dropout: q.Dropout, Rounds: q.Rounds,
		Class: q.Randomizer, Symbols: q.Symbols, TV: q.TV, Steps: dp.NewSteps(q.Height, q.Shares, q.Eta), Colluders: q.Colluders, HiddenReports: q.KHidden}))
	p.line("epsilon <= %s at delta = %s   (%s; %s)", roundUp(d.Claim.Eps), roundUp(d.Claim.Delta), d.Claim.Method, adjacency)
	if d.Round != nil {
		p.line("recomputed: delta <= %s at that epsilon, in %.1f s", roundUp(verdict.Delta), out.Seconds)
	}
	return p.err
}

// verifyWithin checks a certificate, shows how far it is, and rejects what takes longer than limit.
func verifyWithin(cmd *cobra.Command, d certificate.Document, limit time.Duration) (certificate.Verdict, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), limit)
	defer cancel()
	var part string
	var b *bar
	verdict, err := d.VerifyShowing(ctx, func(name string, done, of int64) {
		if name != part {
			b.clear()
			part, b = name, newBar(cmd.ErrOrStderr(), output{}, "checking "+name, "pieces", 0, of)
		}
		b.reached(done)
	})
	b.clear()
	if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
		err = fmt.Errorf("certificate: the check was stopped after %s; the claim may be true: %w", shortTime(limit), certificate.ErrRejected)
	}
	return verdict, err
}
