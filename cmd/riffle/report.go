package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/operate"
)

// also lists what is measured besides accuracy and loss. Of a table with classes that begins
// with the best constant's loss, which a rare class does not flatter.
func also(s *train.Summary) []string {
	out := measures(s.Numbers)
	if _, ok := s.Numbers["baseline_accuracy"]; ok {
		out = append([]string{fmt.Sprintf("loss %.4f of the best constant", s.Baseline.Loss)}, out...)
	}
	return out
}

// writeReport writes report.html into the run directory. An interrupted run can be resumed.
func writeReport(r *train.Run, s *train.Summary, interrupted bool) error {
	c := r.Config
	number, commit := version()
	privacy := privacyOf(r)
	privacy.ReportsPerRound, privacy.Rounds, privacy.PlannedRounds = float64(s.ClientGradients)/float64(max(1, s.Rounds)), s.Rounds, c.Rounds
	privacy.Epsilon, privacy.Method, privacy.Source = float64(s.Epsilon), s.Bound, s.BoundSource
	if k := s.EpsilonKnowsWho; k != nil {
		privacy.KnowsWho, privacy.KnownRounds = float64(*k), s.Rounds
	}
	var shown dashboard.View
	operate.Compare(&shown, r.Setup)
	page := report.Run{
		Title:   title(r),
		Command: command(c), Version: number + " (" + commit + ")",
		Started: time.Now().Add(-time.Duration(s.Seconds * float64(time.Second))).Format("2006-01-02 15:04"), Seconds: s.Seconds,
		TestAccuracy: s.Evaluation.Accuracy, TestLoss: s.Evaluation.Loss,
		Evaluated: shown.Evaluated,
		Baseline:  s.Baseline.Text, Also: strings.Join(also(s), ", "),
		Warnings: s.Warnings, Privacy: privacy,
	}
	if s.LabelUnit != 0 {
		page.LossUnits = fmt.Sprintf("%.4g in the units of %s", s.LabelUnit*s.Evaluation.Loss, c.Label)
	}
	page.Void = s.Rounds - r.Steps
	if interrupted {
		page.Interrupted, page.Resume = true, resumption(r)
	}
	for _, m := range r.Metrics {
		page.Points = append(page.Points, report.Point{Round: m.Round, Epsilon: float64(m.Epsilon), Loss: m.Loss,
			Accuracy: float64(m.Accuracy), Seconds: m.Seconds})
	}
	page.Classes, page.Confusion, page.Samples = operate.Examine(r.Setup, s.Evaluation, r.Theta())
	page.Coefficients, page.Caption = coefficientTable(s.Coefficients, c)
	page.Measured, page.MeasuredOn = measuredTable(r.Metrics)
	base := train.Default()
	defaults := base.Fields()
	for i, f := range c.Fields() {
		if v := f.String(); v != "" {
			setting := report.Setting{Name: f.Name, Value: v}
			if v == defaults[i].String() {
				setting.Origin = "default"
			}
			page.Config = append(page.Config, setting)
		}
	}
	var out bytes.Buffer
	if err := report.Write(&out, page); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(r.Dir, train.ReportFile), out.Bytes())
}

// measuredTable lists what clients measured in each evaluation's round, and says how; nil if nothing.
func measuredTable(all []train.Metrics) (rows [][]string, caption string) {
	for _, e := range all {
		m := e.Private
		if m == nil {
			continue
		}
		if rows == nil {
			rows = [][]string{{"Round", "Loss", "95 % interval"}}
			if m.Accuracy != nil {
				rows[0] = append(rows[0], "Accuracy", "95 % interval")
			}
			caption = fmt.Sprintf("Each of these rounds measured the model that it began with, on the share %v of clients' rows, which are never trained on. A row's loss above %.4g counts as that. Each client counts once, and the figures are a part of the clients' reports: they cost no ε of their own.", m.Holdout, m.LossLimit)
		}
		row := []string{fmt.Sprint(e.Round), fmt.Sprintf("%.4f", m.Loss.Value), fmt.Sprintf("%.4f … %.4f", m.Loss.Low95, m.Loss.High95)}
		if a := m.Accuracy; a != nil {
			row = append(row, fmt.Sprintf("%.2f %%", 100*a.Value), fmt.Sprintf("%.2f … %.2f %%", 100*a.Low95, 100*a.High95))
		}
		rows = append(rows, row)
	}
	return rows, caption
}

// title returns a run's title, without any path.
func title(r *train.Run) string {
	c := r.Config
	if c.Gradients != "" {
		return r.Model.Name + " by a program"
	}
	text := fmt.Sprintf("%s on %s", c.Model, filepath.Base(c.Data))
	if r.Plan != nil {
		text += " by " + c.Optimizer
	}
	return text
}

// privacyOf returns a run's promise, without what has been spent.
func privacyOf(r *train.Run) report.Privacy {
	c := r.Config
	eps0, _ := r.LocalEps()
	return report.Privacy{
		Trust: c.Trust.Recorded(), Participation: c.Participation, Adjacency: dp.ReplaceOne,
		Population: c.Population, ReportsPerClient: r.ReportsPerClient, Randomizer: r.Mechanism.Facts().Name, Eps0: eps0, Asked: c.Eps0, Messages: c.Messages, Sigma: c.Sigma, SumNoise: c.NoiseOfSum(), Every: c.Every, Honest: r.NoisyClients(),
		Delta: c.Delta, Status: dp.Proved, Simulated: true, Assumes: r.Assumes, PublicExamples: int64(r.Data.Public), PerClient: c.PerClient,
	}
}

// resumption returns the shell command that continues a run.
func resumption(r *train.Run) string {
	line := "riffle train --resume " + shellQuote(r.Dir)
	if program := r.Config.Gradients; program != "" {
		line += " --gradients " + shellQuote(program)
	}
	return line
}

// command returns the shell command that makes the same run, with every setting that differs
// from the defaults, including those that were chosen or solved for.
func command(c train.Config) string {
	line, base := "riffle train", train.Default()
	defaults := base.Fields()
	for i, f := range c.Fields() {
		if v := f.String(); v != "" && v != defaults[i].String() && (!f.Local || f.Name == "gradients") {
			line += " --" + f.Name + " " + shellQuote(v)
		}
	}
	return line
}

func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./,@=:+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
