package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/run/setting"
)

// protocolFlags are the flags that describe a protocol, shared by eps and plan.
type protocolFlags struct {
	asked     account.Query
	class     string
	adjacency dp.Adjacency
	vecsum    sumFlags
	steps     stepFlags
}

func (p *protocolFlags) flags(cmd *cobra.Command) {
	bind(cmd, setting.Table{
		{Name: "participation", Into: &p.asked.Participation, Default: string(dp.All), Values: valuesOf("participation"), Help: "%s"},
		{Name: "eps0", Into: &p.asked.Eps0, Help: "local privacy parameter of each report"},
		{Name: "cross-eps0", Into: &p.asked.CrossEps0, Help: "clients have different randomizers: log of the most by which the chance of an outcome for one client, whose report has --eps0, exceeds that for any other, whatever they hold (default: eps0)"},
		{Name: "sigma", Into: &p.asked.Sigma, Help: "noise of each report in units of the clip norm, with --randomizer gaussian; of the sum, with --noise-by aggregators or --every"},
		{Name: "n", Into: &p.asked.Population, Help: "clients (1e6 notation is fine)"},
		{Name: "k", Into: &p.asked.Reports, Help: "reports a round, with sampled or once"},
		{Name: "gamma", Into: &p.asked.Gamma, Help: "each client's chance to take part, with check-in"},
		{Name: "dropout", Into: &p.asked.Dropout, Help: "chance p' that a participant's report never arrives"},
		{Name: "rounds", Into: &p.asked.Rounds, Default: "1", Help: "rounds that are announced, void ones too"},
		{Name: "messages", Into: &p.asked.Messages, Range: "[1, 4096]", Help: "messages of each client in a round, each with eps0; no chance is credited to several (default 1)"},
		{Name: "delta", Into: &p.asked.Delta, Help: "delta at which epsilon is wanted"},
		{Name: "randomizer", Into: &p.class, Default: "generic", Values: classes(), Check: others, Help: "%s; those after vecsum take --dim, the length of their input"},
		{Name: "tv", Into: &p.asked.TV, Help: "known total-variation parameter a of a generic randomizer: any two inputs differ by at most a(e^eps0-1)"},
		{Name: "colluders", Into: &p.asked.Colluders, Help: "number of the n clients that tell the observer all they know"},
		{Name: "trust", Into: &p.asked.Trust, Default: string(dp.DefaultTrust), Values: dp.DescribeTrusts(dp.Accountable), Help: "what hides a report: %s; distributed goes with gaussian, vector-sum with vecsum"},
		{Name: "adjacency", Into: &p.adjacency, Default: string(dp.ReplaceOne), Values: words(dp.ReplaceOne, dp.AddRemoveOne), Help: "%s one client; remove is for --trust " + dp.AnyTrust(dp.RemovalCounted) + " --participation check-in only"},
	})
	cmd.Flags().BoolVar(&p.asked.HiddenReports, "k-hidden", false, "nobody sees how many reports a round has")
	cmd.Flags().BoolVar(&p.asked.AdaptiveWithinRound, "adaptive-within-round", false, "a report may depend on earlier reports of its round: only bounds proved for that")
	p.vecsum.flags(cmd)
	p.steps.flags(cmd)
	cmd.Flags().SortFlags = false
}

// classes returns the values of --randomizer: classes of reports, then randomizers that
// belong to none of them.
func classes() (out []string) {
	known := map[string]bool{}
	for _, c := range account.Classes() {
		name := string(c.Class)
		known[name] = true
		if c.Class == dp.KRR {
			name += ":K"
		}
		if c.Help != "" {
			name += "\t" + c.Help
		}
		out = append(out, name)
	}
	return append(out, slices.DeleteFunc(randomizerNames(), func(name string) bool { return known[name] })...)
}

func randomizerNames() (out []string) {
	for _, k := range randomizer.Kinds() {
		out = append(out, k.Name)
	}
	return out
}

// boundNames are the bounds that can be asked for alone.
func boundNames() (out []string) {
	for _, m := range account.Methods() {
		if !m.OnlyDivergence && !slices.Contains(out, m.ID) {
			out = append(out, m.ID)
		}
	}
	return out
}

// query returns the query that the flags describe. It checks only what concerns the flags
// themselves; package account checks the rest.
func (p *protocolFlags) query(fs *pflag.FlagSet) (account.Query, error) {
	q := p.asked
	q.Class, q.AskDelta = dp.Class(p.class), fs.Changed("eps")
	if fs.Changed("n-min") && p.vecsum.nMin < 1 {
		return q, usage("--n-min %d must be at least 1", p.vecsum.nMin)
	}
	if ok, err := p.sum(fs); ok || err != nil {
		q.Trust, q.Sum = "", p.vecsum.params() // the class decides the trust
		if p.aggregated() {
			q.NoiseBy, q.Every, q.Strategy = p.vecsum.by, p.vecsum.every, p.vecsum.strategy
		}
		if err != nil {
			return q, err
		}
	}
	if p.class != vecsumName {
		q.Least = p.vecsum.nMin
	}
	if fs.Changed("tv") && p.asked.TV == 0 {
		return q, usage("--tv 0 must be above 0")
	}
	if name, symbols, ok := strings.Cut(p.class, ":"); ok && dp.Class(name) == dp.KRR {
		k, err := setting.ParseCount(symbols)
		if err != nil || k < 2 || k > 1<<30 {
			return q, usage("--randomizer %s: K must be a whole number between 2 and 2^30", p.class)
		}
		q.Class, q.Symbols = dp.Class(name), int(k)
	}
	if err := p.steps.check(fs, p); err != nil {
		return q, err
	}
	if m, ok, err := p.named(p.asked.Eps0); err != nil {
		return q, usageError(err)
	} else if ok {
		e := m.Event() // includes the slack of its arithmetic
		if q.TV > 0 {
			return q, usage("--tv is for --randomizer generic: that of %s is known", p.class)
		}
		q = q.Of(e)
	} else if p.dimNamed() && !q.Class.LDP() { // eps0 is to be solved for
		q.Class = dp.Generic
	}
	if p.adjacency == dp.AddRemoveOne {
		if !q.Trust.Is(dp.RemovalCounted) || q.Participation != dp.CheckIn {
			return q, usage("--adjacency remove is refused: the number of reports in a batch is public, so a removed client is seen to be missing; it is counted for --trust %s --participation %s", dp.AnyTrust(dp.RemovalCounted), dp.CheckIn)
		}
		q.Adjacency = dp.AddRemoveOne
	}
	takesK := q.Participation == dp.Sampled || q.Participation == dp.Once
	switch {
	case fs.Changed("k") && !takesK:
		return q, usage("--k goes with --participation sampled or once, not %s", p.asked.Participation)
	case fs.Changed("gamma") && q.Participation != dp.CheckIn:
		return q, usage("--gamma goes with --participation check-in, not %s", p.asked.Participation)
	}
	return q, nil
}

func newEps() *cobra.Command {
	var p protocolFlags
	var certificates certificateFlags
	var picture plotFlags
	var bounds, over string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "eps",
		Short: "Say what a protocol costs: bounds on epsilon",
		Long: `Eps bounds the privacy loss of rounds in which each client sends one eps0-LDP report
through a shuffler. The bound holds for replacing one client's data, at a given delta.
With --eps in place of --delta it bounds delta.`,
		Example: `  riffle eps --participation sampled --eps0 2 --n 1e6 --k 1000 --rounds 1e5 --delta 1e-8
  riffle eps --participation all --eps0 3 --n 60000 --delta 1e-5 --curve rounds=10,20,40,80
  riffle eps --participation all --eps0 3 --n 60000 --delta 1e-5 --curve rounds=1..1e4:25 --plot eps.svg
  riffle eps --participation all --eps0 3 --n 60000 --rounds 80 --delta 1e-5 --certificate eps.json
  riffle eps --verify eps.json
  riffle eps --trust distributed --randomizer gaussian --sigma 1 --participation check-in --n 6e5 --gamma 1e-3 --rounds 1e5 --delta 1e-8
  riffle eps --randomizer vecsum --dim 100 --grid 314 --noise-bits 735 --n 1e4 --delta 1e-6
  riffle eps --randomizer vecsum --noise-by aggregators --dim 1930 --sigma 90 --n 6e4 --rounds 120 --delta 1e-5
  riffle eps --randomizer vecsum --noise-by aggregators --every 20 --dim 1930 --sigma 61.5 --n 6e4 --rounds 400 --delta 1e-5`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fs := cmd.Flags()
			if err := certificates.check(cmd, over != ""); err != nil {
				return err
			}
			if certificates.verify != "" {
				return certificates.runVerify(cmd, asJSON)
			}
			q, err := p.query(fs)
			if err != nil {
				return err
			}
			if p.class == vecsumName {
				for _, name := range []string{"certificate", "plot"} {
					if fs.Changed(name) {
						return usage("--%s is not made for --randomizer %s", name, vecsumName)
					}
				}
			}
			var c curve
			queries := []account.Query{q}
			if over != "" {
				if c, err = parseCurve(over); err != nil {
					return err
				}
				if p.dimNamed() && c.name == "eps0" {
					return usage("--curve eps0=... is of what a report promises, which is more than the eps0 of %s: give it without --randomizer", p.class)
				}
				if p.class == vecsumName && c.name == "eps0" {
					return usage("--curve eps0=... is of single reports and has no meaning with --randomizer %s", vecsumName)
				}
				if queries, err = c.queries(fs, q); err != nil {
					return err
				}
			}
			if fs.Changed("eps") == (fs.Changed("delta") || c.name == "delta") {
				return usage("give exactly one of --delta (to bound epsilon) and --eps (to bound delta)")
			}
			if err := picture.check(); err != nil {
				return err
			}
			answers, err := answerAll(cmd, queries, bounds)
			if err != nil {
				return err
			}
			var more reportFacts
			if over == "" {
				if more, err = p.reportFacts(cmd.Context(), answers[0]); err != nil {
					return err
				}
			}
			if err := printAnswers(cmd.OutOrStdout(), answers, more, over != "", asJSON); err != nil {
				return err
			}
			most := 0.
			for _, a := range answers {
				if a.Upper != nil {
					most = max(most, a.Upper.Eps)
				}
			}
			warnLargeEps(cmd.ErrOrStderr(), most)
			if certificates.write != "" {
				if err := certificates.certify(cmd, q, answers[0]); err != nil {
					return err
				}
			}
			if picture.file != "" {
				return picture.plot(cmd, q, c, answers, bounds)
			}
			return nil
		},
	}
	p.flags(cmd)
	bind(cmd, setting.Table{
		{Name: "eps", Into: &p.asked.Eps, Help: "epsilon at which delta is wanted"},
		{Name: "bounds", Into: &bounds, Default: "all", Values: append([]string{"all", "best"}, boundNames()...), Help: "all, best (only what is needed for the tightest proved bound) or a bound's name, listed in docs/BOUNDS.md"},
		{Name: "curve", Into: &over, Check: others, Values: curves(), Help: "a list of answers: %s1,10,100 or 1..1e6:20"},
	})
	picture.flags(cmd)
	certificates.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func answerAll(cmd *cobra.Command, queries []account.Query, bounds string) ([]account.Reply, error) {
	var out []account.Reply
	for _, q := range queries {
		a, err := answer(cmd, q, bounds)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// answer asks the accountant, and marks errors in the query as bad usage.
func answer(cmd *cobra.Command, q account.Query, bounds string) (account.Reply, error) {
	if err := q.Validate(); err != nil {
		return account.Reply{}, usageError(err)
	}
	r, err := account.Answer(cmd.Context(), q, bounds)
	if err == nil {
		r.KnowsWho, err = account.AnswerKnowsWho(cmd.Context(), q)
	}
	return r, err
}

func printAnswers(w io.Writer, replies []account.Reply, more reportFacts, curve, asJSON bool) error {
	if asJSON {
		if !curve {
			return printJSON(w, documented{replies[0].Document(), more})
		}
		points := make([]account.Document, len(replies))
		for i, r := range replies {
			points[i] = r.Document()
		}
		return printJSON(w, map[string]any{"curve": points})
	}
	for i, r := range replies {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := printReply(w, r, more); err != nil {
			return err
		}
	}
	return nil
}

func printReply(w io.Writer, r account.Reply, more reportFacts) error {
	p := printer{w: w}
	p.line("%s", describeQuery(r.Query))
	if r.Query.Class == account.VectorSumClass {
		p.line("%s", describeSum(r.Query))
		if d := r.Document().Design; d != nil {
			who := "both"
			if r.Query.NoiseBy != vecsum.ByAggregators {
				who = fmt.Sprintf("%d clients", r.Query.Sum.MinUsers)
			}
			p.line("released with the noise of %s: deviation %.5g clip norms a coordinate", who, d.Released)
			if r.Query.Every > 0 {
				p.line("correlated over rounds (%s, %s): sums over rounds have 1/%.4g of the noise of independent noise that costs as much",
					cmp.Or(r.Query.Strategy, toeplitz.Band), counted(len(d.Weights), "weight"), d.Gain)
			}
		}
	}
	if r.Upper != nil {
		p.line("epsilon <= %s at delta = %s   (%s, %s; %s one client)", roundUp(r.Upper.Eps), roundUp(r.Upper.Delta), r.Upper.Method, r.Upper.Status, r.Upper.Adjacency)
	} else {
		p.line("no proved bound")
	}
	if b := r.KnowsWho; b != nil {
		whose := "a client in every round"
		if known, _ := r.Query.KnowsWho(); known.Class != account.VectorSumClass {
			whose += fmt.Sprintf(", each of at least %d reports", known.Population)
		}
		p.line("epsilon <= %s at delta = %s to who knows who took part, as the shuffler: %s   (%s, %s)", roundUp(b.Eps), roundUp(b.Delta), whose, b.Method, b.Status)
	}
	if text := assumed(r.Query); text != "" {
		p.line("assumed: %s", text)
	}
	if r.Lower != nil {
		p.line("epsilon >= %s for some mechanism the query admits   (%s, %s%s)", roundDown(r.Lower.Eps), r.Lower.Method, r.Lower.Status, gap(r, r.Lower))
	}
	if l := r.Orthogonal(); l != nil {
		p.line("epsilon >= %s if all others hold one orthogonal input   (%s, %s%s)", roundDown(l.Eps), l.Method, l.Status, gap(r, l))
	}
	if q := r.Query; q.Messages > 1 {
		p.line("a client's %d messages of a round promise epsilon <= %s together without the shuffle", q.Messages, roundUp(r.Document().Local))
	}
	if text := describeEncodings(more.Encodings, r.Query.AskDelta); text != "" {
		p.line("%s", text)
	}
	if more.Largest > 0 {
		text := moves(more.Largest)
		if more.Tries > 0 {
			text += ": " + tried
		}
		p.line("one report can move the mean of n by up to %s", text)
	}
	p.line("")
	p.line("%-22s %-12s %-12s %-12s %s", "bound", "epsilon", "delta", "kind", "source")
	for _, l := range r.Bounds {
		if !l.Applies {
			continue
		}
		text := l.Source
		if l.Order > 0 {
			text += fmt.Sprintf(" (order %.4g)", l.Order)
		}
		if l.Note != "" {
			text += "; " + l.Note
		}
		show := roundUp
		if l.Kind == dp.Lower {
			show = roundDown
		}
		p.line("%-22s %-12s %-12s %-12s %s", l.Method, show(l.Eps), show(l.Delta), l.Kind, text)
	}
	absent(&p, r.Bounds)
	return p.err
}

// assumed says what the first figure takes for granted of who takes part.
func assumed(q account.Query) string {
	if q.Participation != dp.Sampled && q.Participation != dp.CheckIn || q.Trust.Is(dp.Alone) || q.Every != 0 {
		return ""
	}
	whose := "all who are drawn come"
	if q.Participation == dp.CheckIn {
		whose = "all come whose coins say so"
	}
	switch {
	case q.Least > 0:
		return "who is there follows neither from data nor from draws; void rounds count"
	case q.Dropout > 0:
		whose += fmt.Sprintf(", but for a chance of %g that is the same for all", q.Dropout)
	}
	return whose + " (--n-min assumes nothing of that); who took part stays secret"
}

// absent lists the bounds that do not apply, by reason.
func absent(p *printer, bounds []account.Listed) {
	var reasons []string
	by := map[string][]string{}
	for _, l := range bounds {
		if l.Applies {
			continue
		}
		reason := strings.TrimSuffix(l.Note, ": "+dp.ErrNoBound.Error())
		if by[reason] == nil {
			reasons = append(reasons, reason)
		}
		by[reason] = append(by[reason], l.Method)
	}
	if len(reasons) > 0 {
		p.line("")
		p.line("no bound here:")
	}
	for _, reason := range reasons {
		p.line("  %s: %s", strings.Join(by[reason], ", "), reason)
	}
}

func describeQuery(q account.Query) string {
	parameter := fmt.Sprintf("eps0 = %g, ", q.Eps0)
	switch {
	case q.Class == dp.Gaussian:
		parameter = fmt.Sprintf("sigma = %g, ", q.Sigma)
	case q.Trust.Is(dp.SumsOnly):
		parameter = "" // a vector sum has neither
	}
	part := "participation " + string(q.Participation)
	if q.Every > 0 {
		part = fmt.Sprintf("each client in at most one of any %d rounds", q.Every)
	}
	text := fmt.Sprintf("%d round(s), n = %d, %s%s", q.Rounds, q.Population, parameter, part)
	if q.Reports > 0 {
		text += fmt.Sprintf(", k = %d", q.Reports)
	}
	if q.Least > 0 {
		text += fmt.Sprintf(", n-min = %d", q.Least)
	}
	if q.Messages > 1 {
		text += fmt.Sprintf(", %d messages of each client", q.Messages)
	}
	if q.Gamma > 0 {
		text += fmt.Sprintf(", gamma = %g", q.Gamma)
	}
	if q.Dropout > 0 {
		text += fmt.Sprintf(", dropout = %g", q.Dropout)
		if q.NoiseBy == vecsum.ByAggregators {
			text += " (counts for nothing: who causes it may choose whom)"
		}
	}
	if q.CrossEps0 > 0 {
		text += fmt.Sprintf(", cross-eps0 = %g", q.CrossEps0)
	}
	if q.TV > 0 {
		text += fmt.Sprintf(", total-variation parameter %g", q.TV)
	}
	if q.Class == dp.Rising {
		text += describeSteps(q.Steps)
	}
	if q.Colluders > 0 {
		text += fmt.Sprintf(", %d colluders", q.Colluders)
	}
	if q.HiddenReports {
		text += ", k hidden"
	}
	if q.AdaptiveWithinRound {
		text += ", adaptive within the round"
	}
	switch {
	case q.Trust.Is(dp.Alone):
		text += ", no shuffler"
	case q.Trust.Is(dp.SumsOnly):
		text += ", only the sum is seen"
	}
	return text
}
