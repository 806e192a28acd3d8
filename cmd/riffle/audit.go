package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/account/audit"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/run/setting"
)

// auditFlags describe an audit.
type auditFlags struct {
	randomizer              string
	eps0, claim, confidence float64
	dim, bits               int
	trials                  int64
	seed                    uint64
	workers                 int
	show                    output
	sum                     auditSumFlags
	shape                   stepFlags
}

func newAudit() *cobra.Command {
	var a auditFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Try to refute a randomizer's claimed eps0 from samples",
		Long: `Audit draws reports for pairs of inputs. On one half of the reports it looks for an
event that one input makes likelier than the other by more than e^eps0; it tests the
event on the other half. It prints a lower bound on the true eps0 that holds with
the stated confidence: a true claim is refuted with probability at most
1 - confidence. An audit that refutes nothing does not prove the claim.

With --randomizer vecsum it runs whole rounds of a vector sum, with the code of all
n clients, and tests the claim of one round at --delta. With --noise-by aggregators
the observer knows all clients but one and the noise of one of two aggregators.

Exit code 1 if the claim is refuted.`,
		Example: `  riffle audit --randomizer privunit --eps0 2 --trials 1e6
  riffle audit --randomizer krr:8 --eps0 1 --json
  riffle audit --randomizer rr --dim 1 --eps0 2 --claim 1.8   # a wrong claim: refuted
  riffle audit --randomizer vecsum --eps 1 --delta 1e-2 --n 20 --dim 4
  riffle audit --randomizer vecsum --noise-by aggregators --sigma 4 --delta 1e-2 --dim 4`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.randomizer == vecsumName {
				return a.runSum(cmd)
			}
			return a.run(cmd)
		},
	}
	bind(cmd, setting.Table{
		{Name: "randomizer", Into: &a.randomizer, Default: "privunit", Check: others, Values: append(randomizerNames(), "krr:K\tof K symbols", vecsumName), Help: "%s"},
		{Name: "eps0", Into: &a.eps0, Help: "eps0 the randomizer is made for (required)"},
		{Name: "claim", Into: &a.claim, Help: "eps0 to refute (default: what the randomizer claims, numeric slack included)"},
		{Name: "trials", Into: &a.trials, Default: "1e6", Help: "reports to draw (1e6 notation is fine)"},
		{Name: "dim", Into: &a.dim, Default: "16", Help: "length of the input; for krr the number of symbols"},
		{Name: "bits", Into: &a.bits, Help: "coordinates (rinf) or bits (r1) a report; 0 means 1"},
		{Name: "confidence", Into: &a.confidence, Default: fmt.Sprint(audit.DefaultConfidence), Help: "confidence of the lower bound"},
		{Name: "workers", Into: &a.workers, Range: "[0, 4096]", Help: "worker goroutines (default: one per CPU); results do not depend on it"},
	})
	a.shape.flags(cmd)
	fs := cmd.Flags()
	fs.Uint64Var(&a.seed, "seed", 1, "seed of the reports; equal seeds give equal results")
	a.sum.flags(cmd)
	a.show.flags(fs)
	fs.SortFlags = false
	return cmd
}

// auditDocument is the JSON of an audit of a randomizer.
type auditDocument struct {
	auditVerdict
	Eps0 float64 `json:"eps0"`
	Dim  int     `json:"dim"`
	auditSample
}

// auditVerdict begins the JSON of every audit.
type auditVerdict struct {
	Claimed    float64 `json:"claimed"`
	LowerBound float64 `json:"lower_bound"`
	Confidence float64 `json:"confidence"`
	Refuted    bool    `json:"refuted"`
	Randomizer string  `json:"randomizer"`
}

// auditSample ends the JSON of every audit: what was drawn and seen.
type auditSample struct {
	Trials  int64    `json:"trials"`
	Seed    uint64   `json:"seed"`
	Event   string   `json:"event"`
	Hits    [2]int64 `json:"hits"`
	Draws   int64    `json:"draws"`
	Seconds float64  `json:"seconds"`
}

// written returns what the JSON of every audit has.
func (a *auditFlags) written(randomizer string, r audit.Result, seconds float64) (auditVerdict, auditSample) {
	return auditVerdict{Claimed: r.Claimed, LowerBound: r.LowerBound, Confidence: r.Confidence, Refuted: r.Refuted, Randomizer: randomizer},
		auditSample{Trials: a.trials, Seed: a.seed, Event: r.Witness, Hits: r.Hits, Draws: r.Draws, Seconds: seconds}
}

// mechanism returns the mechanism to audit.
func (a *auditFlags) mechanism(cmd *cobra.Command) (randomizer.Randomizer, error) {
	name, symbols, ok := strings.Cut(a.randomizer, ":")
	switch {
	case name == "gaussian" || name == randomizer.PlainName:
		return nil, usage("--randomizer %s claims no eps0 with delta = 0, so there is nothing to refute", name)
	case ok && dp.Class(name) != dp.KRR:
		return nil, usage("--randomizer %s: only krr takes a number of symbols", a.randomizer)
	case ok && cmd.Flags().Changed("dim"):
		return nil, usage("--dim %d contradicts --randomizer %s", a.dim, a.randomizer)
	case ok:
		k, err := setting.ParseCount(symbols)
		if err != nil || k < 2 || k > 1<<20 {
			return nil, usage("--randomizer %s: symbols must be a whole number between 2 and 2^20", a.randomizer)
		}
		a.dim = int(k)
	}
	if a.dim > 1<<20 {
		return nil, usage("--dim %d must be at most 2^20 for an audit", a.dim)
	}
	c := randomizer.Config{Dim: a.dim, Radius: 1, Eps0: a.eps0, Bits: a.bits}
	if err := a.shape.apply(&c); err != nil {
		return nil, usageError(err)
	}
	m, err := randomizer.New(name, c)
	if err != nil {
		return nil, usageError(err)
	}
	if k, ok := m.(randomizer.Keyed); ok {
		return k.ForRound([32]byte{}), nil // real seeds, in the round of some key
	}
	return m, nil
}

func (a *auditFlags) run(cmd *cobra.Command) error {
	if err := a.sum.unused(cmd.Flags(), a.randomizer); err != nil {
		return err
	}
	m, err := a.mechanism(cmd)
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed("claim") {
		a.claim = m.Event().Eps0
	}
	if err := a.complete(); err != nil {
		return err
	}
	bar, finish := a.progress(cmd.ErrOrStderr())
	begin := time.Now()
	r, err := audit.Run(cmd.Context(), audit.Config{
		Mechanism: m, Claimed: a.claim, Trials: a.trials, Confidence: a.confidence,
		Seed: a.seed, Workers: a.workers, Progress: bar,
	})
	finish()
	if err != nil {
		if cmd.Context().Err() == nil {
			return usageError(err) // the only errors left are values out of range
		}
		return err
	}
	if err := a.print(cmd.OutOrStdout(), m, r, time.Since(begin).Seconds()); err != nil {
		return err
	}
	if r.Refuted {
		return fmt.Errorf("claim refuted: %s has eps0 of at least %.4g with confidence %v, above the claimed %v", m.Facts().Name, r.LowerBound, r.Confidence, r.Claimed)
	}
	return nil
}

// complete fills in defaults and refuses values out of range.
func (a *auditFlags) complete() error {
	if a.confidence == 0 { // the library would replace 0 by its default
		return usage("--confidence 0 must lie strictly between 0 and 1")
	}
	if a.workers == 0 {
		a.workers = runtime.GOMAXPROCS(0)
	}
	return nil
}

func (a *auditFlags) print(w io.Writer, m randomizer.Randomizer, r audit.Result, seconds float64) error {
	if a.show.json {
		verdict, sample := a.written(m.Facts().Name, r, seconds)
		return printJSON(w, auditDocument{verdict, a.eps0, a.dim, sample})
	}
	p := printer{w: w}
	verdict := "not refuted"
	if r.Refuted {
		verdict = "REFUTED"
	}
	p.row("claim", "%s is %.9g-LDP: %s", m.Facts().Name, r.Claimed, verdict)
	p.row("eps0 is at least", "%.4g, with confidence %v", r.LowerBound, r.Confidence)
	p.row("event", "%s", r.Witness)
	p.row("seen", "%d and %d of %d reports of each input", r.Hits[0], r.Hits[1], r.Draws)
	return p.err
}

// progress shows a bar on a terminal, and nothing elsewhere.
func (a *auditFlags) progress(w io.Writer) (show func(done int64), finish func()) {
	b := newBar(w, a.show, "audit", "reports", 0, a.trials)
	if b == nil {
		return nil, func() {}
	}
	return b.reached, b.clear
}
