package operate

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/service/coordinator"
)

// This file shows tasks with a question on the page.

// inWords says what a question asks.
func inWords(q statistic.Question) string {
	text := strings.ReplaceAll(q.Measure, "-", " ")
	if q.Column != "" {
		text += " of " + q.Column
	}
	for i, c := range q.Where {
		text += []string{" where ", " and "}[min(i, 1)] + c.String()
	}
	return text
}

// asked fills in what a question's task has in place of a model.
func (v *pageWriter) asked(ctx context.Context, t *dashboard.View, p *measure.Plan, s wire.Status, last *shownTask) {
	t.Question, t.Blind = inWords(p.Question), "The task asks a question: there is no model."
	t.Budget, t.Expected = dp.Number(p.Epsilon), dp.Number(p.Clients)
	if p.Sample != 0 {
		t.Expected = dp.Number(p.Sample)
	}
	t.Facts = askedFacts(p, s)
	t.Privacy = askedPromise(p, s)
	if s.State == coordinator.Unusable {
		t.Blind = "This coordinator cannot run the task."
	}
	if s.Released == 0 || !last.led {
		return
	}
	if last.answer == nil || last.answerAt != s.Round {
		state, now, err := v.process.service.Learned(ctx, s.ID)
		if err == nil {
			var a statistic.Answer
			if a, err = p.AnswerOf(state); err == nil {
				last.answer, last.answerAt = shownAnswer(a), now.Round
			}
		}
		if err != nil && ctx.Err() == nil && t.Why == "" {
			t.Why = err.Error()
		}
	}
	t.Answer = last.answer
}

// mostFigures is the most figures of an answer that a page shows.
const mostFigures = 1000

// shownAnswer returns an answer as the page shows it.
func shownAnswer(a statistic.Answer) *dashboard.Answer {
	out := &dashboard.Answer{What: "Number", Note: fmt.Sprintf("From %s. The intervals cover %s.", aboutWhom(a), strings.Join(a.Errors, " and "))}
	add := func(name string, value float64, i statistic.Interval) {
		out.Rows = append(out.Rows, dashboard.Figure{Name: name, Value: dp.Number(value), Low: dp.Number(i.Low95), High: dp.Number(i.High95), JointLow: dp.Number(i.JointLow95), JointHigh: dp.Number(i.JointHigh95)})
	}
	for _, one := range []struct {
		name string
		n    *statistic.Number
	}{{"clients counted", a.Count}, {"share of clients", a.Share}, {"mean", a.Mean}, {"variance", a.Variance}} {
		if one.n != nil {
			add(one.name, one.n.Value, one.n.Interval)
		}
	}
	if len(a.Bins) > 0 {
		out.What, out.Bars = a.Column, true
	}
	for i, name := range a.BinNames() {
		add(name, a.Bins[i].Count, a.Bins[i].Interval)
	}
	if len(a.Quantiles) > 0 {
		out.What = "rank"
	}
	for _, q := range a.Quantiles {
		add(fmt.Sprint(q.Rank), q.Value, q.Interval)
	}
	if s := a.Search; s != nil {
		out.What, out.Bars = a.Column, true
		for _, item := range a.Items {
			name := fmt.Sprintf("%q", item.Bytes)
			if item.Text != nil {
				name = *item.Text
			}
			add(name, item.Count, item.Interval)
		}
		add("(texts too long or with other symbols)", s.Others.Value, s.Others.Interval)
		out.Note += fmt.Sprintf(" Texts that %.3g %% of the clients have are found, none below %.3g %%, each but for a chance of 0.001; %d of %d rounds counted what was found.", 100*s.Sure, 100*s.Never, s.Counted, s.Rounds)
	}
	if len(a.Coefficients) > 0 {
		out.What = "coefficient"
	}
	for i, c := range a.Coefficients {
		name := c.Column
		if i == 0 {
			name = "intercept"
		}
		add(name, c.Value, c.Interval)
	}
	if n := len(out.Rows) - mostFigures; n > 0 {
		out.Rows = out.Rows[:mostFigures]
		out.Note += fmt.Sprintf(" %s more figures: riffle task answer.", dashboard.Grouped(int64(n)))
	}
	return out
}

// aboutWhom says whose reports an answer sums up; a regression is about those who reported.
func aboutWhom(a statistic.Answer) string {
	if a.Measure == statistic.LinearRegression {
		return reportsIn(a)
	}
	return reportsIn(a) + " of " + dashboard.Grouped(a.Clients) + " clients"
}

func reportsIn(a statistic.Answer) string {
	if a.Reports == 1 {
		return "1 report"
	}
	return dashboard.Grouped(a.Reports) + " reports"
}

func askedFacts(p *measure.Plan, s wire.Status) []dashboard.Fact {
	list := []dashboard.Fact{
		{Name: "Question", Value: inWords(p.Question)}, {Name: "Clients", Value: dashboard.Grouped(p.Clients)}, {Name: "Taking part", Value: string(s.Task.Participation)}, {Name: "Hidden by", Value: string(p.Trust)},
		{Name: "Fewest reports of a round", Value: dashboard.Grouped(s.Task.MinReports)}, {Name: "Numbers of a report", Value: dashboard.Grouped(s.Task.Mechanism.Dim)},
	}
	switch sum := s.Task.Mechanism.Sum; {
	case sum.Proved():
		list = append(list, dashboard.Fact{Name: "Noise of each aggregator", Value: fmt.Sprintf("σ = %.4g of what one client can change, added to the sum", sum.Sigma)},
			dashboard.Fact{Name: "A report proves", Value: "that its vector is no longer than a client's (" + sum.Proofs + ")"})
	case s.Task.Trust.Is(dp.SumsOnly):
		list = append(list, dashboard.Fact{Name: "Noise of a client", Value: fmt.Sprintf("σ = %.4g of what one client can change", sum.Sigma)})
	default:
		list = append(list, dashboard.Fact{Name: "Randomizer", Value: fmt.Sprintf("%s with ε₀ = %.12g", s.Task.Mechanism.Name, math.Ceil(1e7*p.Mechanism.Event().Eps0)/1e7)})
	}
	if s.Task.Tokens != (wire.Tokens{}) {
		list = append(list, dashboard.Fact{Name: "Each message has", Value: "a token of the registrar"})
	}
	return append(list, published(s, p.Clients)...)
}

// askedPromise returns what a question's clients are promised for the charges so far.
func askedPromise(p *measure.Plan, s wire.Status) report.Privacy {
	out := report.Privacy{Trust: s.Task.Trust, Participation: s.Task.Participation, Adjacency: dp.ReplaceOne, Population: p.Clients, Question: true, Rounds: s.Charged, ReportsPerClient: s.Task.LastRound(),
		Randomizer: s.Task.Mechanism.Name, Sigma: s.Task.Mechanism.Sum.Sigma, SumNoise: p.NoiseBy == vecsum.ByAggregators, Epsilon: float64(s.Eps), Delta: s.Task.Delta, Method: s.Method, Source: s.Source,
		Status: dp.Proved, PerClient: 1, Running: s.State == coordinator.Running}
	if s.Task.Trust.Is(dp.LocallyPrivate) {
		out.Eps0 = p.Mechanism.Event().Eps0
		out.Asked = s.Task.Mechanism.Eps0
	}
	switch {
	case s.Task.Participation == dp.Once:
		out.ReportsPerClient, out.Rounds = 1, s.Released+s.Failed
	case s.State == coordinator.Done:
		out.ReportsPerClient = s.Round
	}
	if s.Released > 0 {
		out.ReportsPerRound = float64(s.Reports) / float64(s.Released)
	}
	return out
}
