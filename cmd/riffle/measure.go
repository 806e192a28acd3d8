package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/train"
)

// measureFlags are the flags of riffle measure.
type measureFlags struct {
	asked   measure.Asked
	config  measure.Config
	run     measure.RunConfig
	data    string
	missing string
	plot    string
	out     string
	ledger  string
	budget  float64
	show    output
}

// kindOfQuestion is a row of the table of what can be asked.
type kindOfQuestion struct {
	name, short, long string
	settings          []string // those of measure.Asked
	example           string
	drawn             bool
}

// kindsOfQuestions are the kinds, in the order in which help shows them.
var kindsOfQuestions = [...]kindOfQuestion{
	{"count", "Count the clients whose row meets public conditions, or has a value",
		`Count tells how many clients' rows meet all the conditions of --where, and have a value in
--column if one is named.`,
		[]string{"column", "where"}, `  riffle measure count --data shop.csv --where 'plan=pro,age>=30'`, false},
	{"mean", "Measure the mean of a column, clipped to a public range",
		`Mean clips each value to the public --range and tells the mean over the clients that have a
value and meet --where. It counts these as well, unless --everyone says that all have one.`,
		[]string{"column", "where", "range", "everyone"}, `  riffle measure mean --data shop.csv --column spent --range 0..500`, false},
	{"variance", "Measure the variance of a column, clipped to a public range",
		`Variance clips each value to the public --range and tells mean and variance over the clients
that have a value and meet --where. It counts these as well, unless --everyone says that all
have one.`,
		[]string{"column", "where", "range", "everyone"}, `  riffle measure variance --data shop.csv --column visits --range 0..50`, false},
	{"histogram", "Count clients in public bins or categories",
		`Histogram counts the clients in each public bin of a column of numbers, or with each public
category of a column of texts. A number beyond the first or last edge counts in the first or
last bin. The category "*" is all other texts; without it they count nowhere.`,
		[]string{"column", "where", "bins", "categories"},
		`  riffle measure histogram --data shop.csv --column age --bins 0..100:20 --json
  riffle measure histogram --data shop.csv --column city --categories 'berlin|paris|*' --plot city.svg`, true},
	{"quantiles", "Measure quantiles of a column, such as the median",
		`Quantiles counts the clients in the 2, 4, 8, … equal parts of the public --range, makes the
counts agree with each other, and reads the quantiles off the finest ones. A client sends one
vector with a one for each level.`,
		[]string{"column", "where", "range", "ranks", "levels"}, `  riffle measure quantiles --data shop.csv --column spent --range 0..500 --ranks 0.1,0.5,0.9`, true},
	{statistic.HeavyHitters, "Find the texts that many clients have, and count them",
		`Heavy-hitters finds the texts that at least a --share of the clients have, without a list of
texts to look for. It asks in rounds, symbol by symbol, how texts go on after the beginnings
that were frequent; each client is in one round only, so the rounds cost what one costs. Texts
longer than --longest symbols, or with symbols outside --alphabet, are counted together. The
answer says from which share on texts are surely found, and below which none is.`,
		[]string{"column", "where", "share", "longest", "alphabet"},
		`  riffle measure heavy-hitters --data shop.csv --column city --share 0.1 --longest 8`, true},
	{statistic.LinearRegression, "Measure the least-squares line of a column over others",
		`Linear-regression clips the column to the public --range and the --features to theirs, and
tells the coefficients of the line that fits best, in the columns' own units. A row with a
number missing does not count. If noise hides how the rows spread, the answer says that the
coefficients are not known.`,
		[]string{"column", "features", "where", "range"}, `  riffle measure linear-regression --data shop.csv --column amount --range 0..400 --features 'visits=0..50,spent=0..500'`, true},
}

// exampleTable is the first line of all examples: it writes the table that they ask.
const exampleTable = "  riffle data export --synthetic shop --n 2e4 --out shop.csv   # a table to try it on"

func newMeasure() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "measure",
		Short: "Answer a question about a table's rows privately: counts, means, histograms, quantiles",
		Long: `Measure answers one question about the rows of a table, each of which is a client's. It
needs no model: every client sends one vector with a little noise, only the sum of all is
seen, and the answer is computed from it. --trust names other ways. Each number comes with its
95 % interval, and with a wider one that holds for all numbers of the answer together.

Ranges, bins and categories are public. You write them down; nothing is read off the data,
because the data's own range or values would tell of single rows.

Measure is a simulation: every role runs in this process, which reads the whole table. The
noise comes from --seed, and whoever knows the seed can subtract it.`,
		Example: exampleTable + "\n" + kindsOfQuestions[3].example + "\n" + kindsOfQuestions[1].example,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// An unknown kind is refused by its name: its flags are not looked at.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
	}
	for _, k := range kindsOfQuestions {
		cmd.AddCommand(newMeasureKind(k))
	}
	return cmd
}

func newMeasureKind(k kindOfQuestion) *cobra.Command {
	m := measureFlags{asked: measure.Asked{Measure: k.name}}
	cmd := &cobra.Command{
		Use:     k.name,
		Short:   k.short,
		Long:    k.long,
		Example: exampleTable + "\n" + k.example,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return m.measure(cmd) },
	}
	require(cmd, &m.data, "data", "CSV `FILE` with a header; every row is a client")
	table := slices.DeleteFunc(m.asked.Fields(), func(f setting.Field) bool { return !slices.Contains(k.settings, f.Name) })
	const privacy, running = "Privacy", "Run"
	c := &m.config
	bind(cmd, append(table, setting.Table{
		{Name: "missing", Part: "Question", Into: &m.missing, Check: checkOf("missing"), Help: "what empty cells count as, as age=40; otherwise their rows do not count"},
		{Name: "trust", Part: privacy, Into: &c.Trust, Default: dp.TrustNames(dp.SumsOnly)[0], Values: dp.DescribeTrusts(dp.Answering), Check: others, Help: "what protects rows: %s"},
		{Name: "noise-by", Part: privacy, Into: &c.NoiseBy, Values: []string{string(vecsum.ByClients) + "\tthe default", string(vecsum.ByAggregators) + "\teach of the two adds all of it"}, Help: "who adds the noise of a sum: %s"},
		{Name: "epsilon", Part: privacy, Into: &c.Epsilon, Default: "1", Help: "what the answer may cost a client"},
		{Name: "delta", Part: privacy, Into: &c.Delta, Default: "1e-5", Help: "delta of that cost"},
		{Name: "sample", Part: privacy, Into: &c.Sample, Help: "ask this many clients, drawn at random; 0 asks all (the default)"},
		{Name: "ledger", Part: privacy, Into: &m.ledger, File: true, Help: "file in which questions share a budget; each is charged before it is answered, also one that was asked before"},
		{Name: "budget", Part: privacy, Into: &m.budget, Range: "(0, inf)", Help: "epsilon that all questions of a new --ledger may cost together"},
		{Name: "workers", Part: running, Into: &m.run.Workers, Range: "[1, inf)", Help: "worker goroutines (default: one per CPU); the answer does not depend on it"},
	}...))
	fs := cmd.Flags()
	fs.Uint64Var(&m.run.Seed, "seed", 1, "seed of the noise; equal seeds give equal answers")
	if k.drawn {
		fs.StringVar(&m.plot, "plot", "", "draw the answer with its intervals to a .svg or .png `FILE`")
	}
	fs.StringVar(&m.out, "out", "", "write the JSON to this new `FILE`, too")
	m.show.flags(fs)
	for name, part := range map[string]string{"data": "Question", "seed": running, "no-progress": running, "quiet": running, "json": "Answer", "plot": "Answer", "out": "Answer"} {
		if fs.Lookup(name) != nil {
			must(fs.SetAnnotation(name, partOf, []string{part}))
		}
	}
	fs.SortFlags = false
	return cmd
}

// measureDocument is the JSON of riffle measure. Its keys are a contract with scripts.
type measureDocument struct {
	statistic.Answer
	measure.Guarantee
	// Ledger is what all questions of the ledger cost together.
	Ledger   *measureLedger `json:"ledger,omitempty"`
	Seed     uint64         `json:"seed"`
	Seconds  float64        `json:"seconds"`
	Question string         `json:"question"` // its canonical JSON
}

type measureLedger struct {
	Questions int64     `json:"questions"`
	Epsilon   dp.Number `json:"epsilon"`
	Budget    float64   `json:"budget"`
	Delta     float64   `json:"delta"`
}

// check refuses flags that do not go together, and files that cannot be written, before anything is
// charged.
// differ refuses a file that is named for two things: the answer would take the place of the budget.
func (m *measureFlags) differ() error {
	for _, p := range [][4]string{
		{"ledger", m.ledger, "out", m.out}, {"ledger", m.ledger, "plot", m.plot}, {"out", m.out, "plot", m.plot}, {"data", m.data, "plot", m.plot},
	} {
		if p[1] != "" && p[3] != "" && sameFile(p[1], p[3]) {
			return usage("--%s and --%s name one file, %s", p[0], p[2], p[3])
		}
	}
	return nil
}

// sameFile says whether two paths lead to one file, which may not be there yet.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if other, e := os.Stat(b); err == nil && e == nil {
		return os.SameFile(one, other)
	}
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}

func (m *measureFlags) check(cmd *cobra.Command) error {
	if m.ledger == "" && cmd.Flags().Changed("budget") {
		return usage("--budget goes with --ledger")
	}
	if m.ledger == "" && cmd.Flags().Changed("ledger") {
		return usage("--ledger is empty, want a file")
	}
	if cmd.Flags().Changed("where") && m.asked.Where == "" {
		return usage("--where is empty: leave it out to ask about all rows")
	}
	if err := m.differ(); err != nil {
		return err
	}
	plot := plotFlags{file: m.plot}
	if err := plot.check(); err != nil {
		return err
	}
	if m.out != "" {
		return newFile(m.out)
	}
	return nil
}

func (m *measureFlags) measure(cmd *cobra.Command) error {
	if err := m.check(cmd); err != nil {
		return err
	}
	ctx, stderr, begin := cmd.Context(), cmd.ErrOrStderr(), time.Now()
	q, err := m.asked.Question()
	if err != nil {
		return usageError(err)
	}
	if m.run.Rows, err = measure.Read(m.data, q, m.missing); err != nil {
		return usageError(fmt.Errorf("%w%s", err, m.hint(err)))
	}
	m.config.Question, m.config.Clients = q, int64(m.run.Rows.Rows)
	plan, err := measure.New(ctx, m.config)
	if err != nil {
		return usageError(err)
	}
	if m.ledger != "" {
		if m.run.Ledger, err = m.open(ctx); err != nil {
			return err
		}
		defer m.run.Ledger.Close()
	}
	asked := plan.MinReports
	if rounds := q.Rounds(); rounds > 1 {
		asked = plan.Clients
		m.show.note(stderr, "%s, each of %s: a client is in one of them", counted(rounds, "round"), counted(plan.MinReports, "report")+" at least")
	}
	size := counted(q.Dim(), "number")
	if plan.Trust.Is(dp.LocallyPrivate) { // a report names one symbol
		size = counted(plan.Mechanism.Facts().Dim, "symbol")
	}
	m.show.note(stderr, "%s of %s: %s, trust %s", counted(asked, "report"), counted(plan.Clients, "client"), size, plan.Trust)
	m.show.note(stderr, "cost: epsilon <= %s at delta = %g (%s one client)", roundUp(plan.Cost.Eps), plan.Delta, dp.ReplaceOne)
	if !m.show.quiet {
		warnLargeEps(stderr, plan.Cost.Eps)
	}
	m.show.note(stderr, "simulation: every role runs in this process and noise comes from seed %d; this protects nobody's data", m.run.Seed)
	bar := newBar(stderr, m.show, "asking", "reports", 0, asked)
	m.run.Progress = bar.add
	r, err := plan.Run(ctx, m.run)
	bar.clear()
	if errors.Is(err, context.Canceled) && m.ledger != "" && ctx.Err() != nil {
		return fmt.Errorf("interrupted; the question stays charged in %s and has no answer: %w", m.ledger, err)
	}
	if err != nil {
		return err
	}
	d := m.document(plan, r, time.Since(begin).Seconds())
	written := writeAnswer(d, d.Answer, m.out, m.plot)
	if written != nil { // the answer is printed nevertheless: it is paid for
		m.out, m.plot = "", ""
	}
	if m.show.json {
		return errors.Join(printJSON(cmd.OutOrStdout(), d), written)
	}
	return errors.Join(m.print(cmd.OutOrStdout(), d), written)
}

// hint says which flag helps with an error about a cell, "" if none does.
func (m *measureFlags) hint(err error) string {
	switch {
	case !errors.Is(err, dataset.ErrRows): // not of a cell
		return ""
	case !errors.Is(err, dataset.ErrText):
		return train.Hint(err)
	case m.asked.Bins != "":
		return "; --categories, in place of --bins, count texts"
	}
	return "; leave cells without a number empty"
}

// open opens the ledger.
func (m *measureFlags) open(ctx context.Context) (*measure.Ledger, error) {
	return measure.OpenLedger(ctx, m.ledger, measure.Budget{Epsilon: m.budget, Delta: m.config.Delta})
}

func (m *measureFlags) document(p *measure.Plan, r *measure.Result, seconds float64) measureDocument {
	d := measureDocument{Answer: r.Answer, Guarantee: p.Guarantee(dp.Number(r.Spent.Eps), r.Spent.Method),
		Seed: m.run.Seed, Seconds: seconds, Question: string(p.Question.JSON())}
	if l := m.run.Ledger; l != nil {
		d.Ledger = &measureLedger{l.Questions(), dp.Number(r.All.Eps), l.Budget.Epsilon, l.Budget.Delta}
	}
	return d
}

func (m *measureFlags) print(w io.Writer, d measureDocument) error {
	p := printer{w: w}
	printAnswer(&p, d.Answer)
	printCovered(&p, d.Answer)
	p.row("epsilon", "%s at delta = %g (%s one client)", roundUp(float64(d.Epsilon)), d.Delta, d.Adjacency)
	if l := d.Ledger; l != nil {
		p.row("ledger", "%s, epsilon %s of %g at delta = %g", counted(l.Questions, "question"), roundUp(float64(l.Epsilon)), l.Budget, l.Delta)
	}
	p.row("time", "%.1f s", d.Seconds)
	printWritten(&p, m.out, m.plot)
	return p.err
}
