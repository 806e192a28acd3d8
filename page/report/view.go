package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/dp"
)

// view is the content of the template: text that the template escapes.
type view struct {
	Title, Version, Started string
	Summary                 string
	Interrupted             string
	Resume, Command         []string // words; the page breaks lines only between them
	Long                    bool     // class names are too long for narrow columns
	Tiles                   []tile
	Facts                   []pair
	Charts                  []chart
	ChartNotes              []string
	Evaluated               string
	Data                    series
	Rows                    []pointRow
	Matrix                  *matrix
	Samples                 []sampleGroup
	Statement               statement
	Coefficients            [][]string
	Caption                 string
	Measured                [][]string
	MeasuredOn              string
	Config                  []Setting

	Policy template.HTMLAttr
	Style  template.CSS
	Script template.JS
}

type tile struct{ Kind, Name, Value, Detail string }

type pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func newView(r Run) (view, error) {
	v := view{
		Title: r.Title, Version: r.Version, Started: r.Started, Command: words(r.Command), Config: r.Config,
		Coefficients: r.Coefficients, Caption: r.Caption, Measured: r.Measured, MeasuredOn: r.MeasuredOn,
		Evaluated: r.Evaluated,
		Summary:   summary(r), Tiles: tiles(r), Facts: facts(r),
		Statement: newStatement(r.Privacy),
		Matrix:    newMatrix(r.Classes, r.Confusion),
	}
	for _, c := range r.Classes {
		v.Long = v.Long || len([]rune(c)) > 3
	}
	if r.Interrupted {
		v.Interrupted, v.Resume = interrupted(r.Privacy), words(r.Resume)
	}
	v.Data, v.Rows = newSeries(r.Points), pointRows(r.Points)
	v.Charts, v.ChartNotes = charts(r.Points)
	var err error
	v.Samples, err = groupSamples(r.Classes, r.Samples)
	return v, err
}

// words splits at single spaces, so that joining gives the same command.
func words(command string) []string {
	if command == "" {
		return nil
	}
	return strings.Split(command, " ")
}

func interrupted(p Privacy) string {
	if p.PlannedRounds > 0 {
		return fmt.Sprintf("This run was stopped after %s of %s. All figures are for the rounds that ran.",
			count(p.Rounds), plural(p.PlannedRounds, "round"))
	}
	return fmt.Sprintf("This run was stopped after %s. All figures are for the rounds that ran.", plural(p.Rounds, "round"))
}

// summary is the run in one sentence.
func summary(r Run) string {
	p := r.Privacy
	s := fmt.Sprintf("%s trained this model in %s", plural(p.Population, "client"), plural(p.Rounds, "round"))
	switch {
	case p.Trust.Is(dp.Shuffled):
		s += ", through a shuffler that hides who sent what."
	case p.Trust.Is(dp.Alone):
		s += ", each hiding its own data with noise."
	case p.Trust.Is(dp.SumsOnly):
		if p.Every > 0 {
			who := "Each of two aggregators adds"
			if p.Honest > 0 {
				who = "Each client adds"
			}
			return s + ", by sums of which nobody sees the parts. " + who + " noise, which is correlated over rounds."
		}
		if p.SumNoise {
			return s + ", by sums of which nobody sees the parts, and to which each of two aggregators adds noise."
		}
		s += ", each adding noise to a sum of which nobody sees the parts."
	case !p.Trust.Is(dp.Protecting):
		s += ", without privacy."
	}
	return s
}

func tiles(r Run) []tile {
	p := r.Privacy
	accuracy := tile{"accuracy", "Test accuracy", percent(r.TestAccuracy, 2), ""}
	switch right, all := tally(r.Confusion); {
	case math.IsNaN(r.TestAccuracy) && !math.IsNaN(r.TestLoss):
		accuracy = tile{"accuracy", "Test loss", number(r.TestLoss), "mean; targets are real numbers"}
	case math.IsNaN(r.TestAccuracy):
		accuracy.Detail = "not measured"
	case all > 0 && math.Abs(float64(right)/float64(all)-r.TestAccuracy) < 1e-6:
		accuracy.Detail = fmt.Sprintf("%s of %s test examples", count(right), count(all))
	case !math.IsNaN(r.TestLoss):
		accuracy.Detail = "loss " + number(r.TestLoss)
	}
	if math.IsInf(p.Epsilon, 1) {
		return []tile{accuracy,
			{"epsilon", "ε, privacy loss", "∞", "nothing is promised"},
			{"delta", "δ", "—", "means nothing without an ε"},
			{"bound", "Bound", dp.NoMethod, ""}}
	}
	adjacency := "replace one client"
	if p.Adjacency == dp.AddRemoveOne {
		adjacency = "add or remove one client"
	}
	status := map[dp.Status]string{dp.Proved: "proved", dp.Numeric: "not proved: numeric",
		dp.Approximation: "not a guarantee: approximate"}[p.Status]
	return []tile{accuracy,
		{"epsilon", "ε, privacy loss", roundUp(p.Epsilon, 4), status + ", " + adjacency},
		{"delta", "δ", small(p.Delta), "additive slack"},
		{"bound", "Bound", p.Method, p.Source}}
}

// tally returns the number of test examples classified correctly, and the number of all test
// examples.
func tally(confusion [][]int64) (right, all int64) {
	for i, row := range confusion {
		right += row[i]
		for _, n := range row {
			all += n
		}
	}
	return right, all
}

// promise describes the protection of a single report.
func promise(p Privacy) pair {
	if p.Honest > 0 {
		return pair{fmt.Sprintf("Noise of %d clients in a release, in clip norms", p.Honest), number(p.Sigma)}
	}
	if p.Every > 0 {
		return pair{"Noise of each aggregator in a release, in clip norms", number(p.Sigma)}
	}
	if p.SumNoise {
		return pair{"Noise of each aggregator, in clip norms", number(p.Sigma)}
	}
	if p.Trust.Is(dp.SumsOnly) {
		return pair{"Noise of a client, in clip norms", number(p.Sigma)}
	}
	text := local(p.Eps0)
	if p.Messages > 1 {
		text = fmt.Sprintf("%s: %d messages of %s", local(p.own()), p.Messages, text)
	}
	if asked := strconv.FormatFloat(p.Asked, 'g', 8, 64); p.Asked > 0 && asked != local(p.Eps0) {
		text += fmt.Sprintf(" (eps0 %s, and what covers rounding)", asked)
	}
	return pair{"ε₀ per report", text}
}

// takingPart says who is in a round.
func takingPart(p Privacy) string {
	if p.Every > 0 {
		return fmt.Sprintf("in at most one of %d rounds", p.Every)
	}
	return map[dp.Participation]string{dp.All: "all clients", dp.Sampled: "a random sample", dp.CheckIn: "by own coin", dp.Once: "once in a pass"}[p.Participation]
}

func facts(r Run) []pair {
	p := r.Privacy
	rounds := count(p.Rounds)
	if p.PlannedRounds > 0 && p.PlannedRounds != p.Rounds {
		rounds += " of " + count(p.PlannedRounds)
	}
	if r.Void > 0 {
		rounds += ", " + count(r.Void) + " void"
	}
	list := []pair{
		{"Clients", count(p.Population)},
		{"Rounds", rounds},
		{"Reports per round", number(p.ReportsPerRound)},
	}
	if p.PerClient > 1 {
		list = append(list, pair{"Examples per client", count(p.PerClient)})
	}
	if p.Trust.Is(dp.Protecting) {
		list = append(list,
			pair{"Taking part", takingPart(p)},
			pair{"Randomizer", strings.TrimSuffix(randomizerName(p), ", ")},
			promise(p))
	}
	if !math.IsNaN(r.TestLoss) {
		list = append(list, pair{"Test loss", number(r.TestLoss)})
	}
	list = append(list, pair{"Test loss, unscaled", r.LossUnits}, pair{"Also measured", r.Also}, pair{"Baseline", r.Baseline})
	for _, text := range r.Warnings {
		list = append(list, pair{"Warning", text})
	}
	if r.Seconds > 0 {
		list = append(list, pair{"Time", duration(r.Seconds)})
	}
	out := list[:0]
	for _, f := range list {
		if f.Value != "" {
			out = append(out, f)
		}
	}
	return out
}
