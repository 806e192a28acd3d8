package figures

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/internal/picture"
)

// mark is a point stated in a paper's text: accuracy in %, and its deviation.
type mark struct{ eps, accuracy, deviation float64 }

// tradeOff is a figure of accuracy against ε, from an experiment.
type tradeOff struct {
	experiment string
	own, other []mark // by the paper's accounting, and by the one it compares with
	ownLabel   string
	otherLabel string
}

const accuracyNote = "ε is the cost of the rounds up to the evaluation: thin lines by the paper's own accounting (column eps_paper of the recording), thick ones by riffle's proved bound. Bars: least and most of the seeds. Filled markers: what the paper's text states."

func girgisAccuracy() []figure {
	const own, other = "the paper, Theorem 1", "the paper, FMT with strong comp."
	linf := tradeOff{"e1", []mark{{1.4, 80, 1.8}, {2.91, 90, .5}}, []mark{{1.4, 70.7, 2.1}, {4.82, 90, 0}}, own, other}
	l2 := tradeOff{"e2", []mark{{3, 81.15, .7}, {5.8, 89.7, .5}}, []mark{{3, 76.46, 1.9}, {18.3, 89.7, 0}}, own, other}
	notes := []string{accuracyNote, "The papers give d = 13,170 for this network; its layers as printed have 13,706 parameters."}
	const first = "MNIST, CNN, R∞ at ε₀ = 1.5, 10,000 of 60,000 clients a round, ℓ∞ clip .01, 200 epochs, δ = 1e-5."
	const second = "MNIST, CNN, PrivUnit at ε₀ = 2, 2,000 of 60,000 clients a round, ℓ2 clip .005, 200 epochs, δ = 1e-5."
	return []figure{
		{Name: "g21-neurips3", Paper: girgis, Where: "Figure 3 (NeurIPS)", Title: "Privacy and accuracy, ℓ∞ clipping", Caption: first, Notes: notes, draw: linf.draw},
		{Name: "g21-5a", Paper: girgis, Where: "Figure 5a (arXiv)", Title: "Privacy and accuracy, ℓ∞ clipping", Caption: first + " The same data as NeurIPS Figure 3.", Notes: notes, draw: linf.draw},
		{Name: "g21-5b", Paper: girgis, Where: "Figure 5b (arXiv)", Title: "Privacy and accuracy, ℓ2 clipping", Caption: second, Notes: notes, draw: l2.draw},
	}
}

func checkInAccuracy() figure {
	t := tradeOff{"e4", []mark{{.67, 90, 0}}, []mark{{.80, 90, 0}}, "the paper, n = 1e7", "the paper's baseline, n = 1e7"}
	return figure{Name: "sci-2b", Paper: selfCheckIn, Where: "Figure 2b", Title: "Privacy and accuracy under check-in",
		Caption: "MNIST, CNN. Figure 2b: Federated DP-SGD, ε₀ = 2, n = 60,000, γ = .1, C = .05, 5,540 rounds; the stated points belong to the second experiment: ε₀ = 8, n = 1e7, γ = 1e-4, 2,000 rounds.",
		Notes:   []string{accuracyNote, "The paper converts (ε₀, δ₀) to a Rényi divergence (its Lemma 3). (ε, δ)-DP with δ > 0 implies no finite Rényi divergence: its ε are no bounds, and riffle does not offer that accounting."},
		draw:    t.draw}
}

// shades distinguish settings.
var shades = []picture.Style{{Colour: blue}, {Colour: vermilion, Dash: picture.Dashed}, {Colour: green, Dash: picture.DashDot}, {Colour: purple, Dash: picture.LongDash},
	{Colour: orange, Dash: picture.Dotted}, {Colour: sky, Dash: picture.Dashed}, {Colour: vermilion, Dash: picture.DashDot}, {Colour: blue, Dash: picture.Dotted},
	{Colour: green, Dash: picture.Dashed}, {Colour: purple, Dash: picture.Dotted}}

func (t tradeOff) draw(_ context.Context, d *desk) (data, error) {
	rows, err := readResults(d.results, t.experiment)
	if err != nil {
		return data{}, err
	}
	out := data{XName: "epsilon", X: picture.Axis{Label: "ε (nats)", Scale: picture.Log}, Y: picture.Axis{Label: "test accuracy (%)", Scale: picture.Linear}}
	if len(rows) == 0 {
		out.Notes = append(out.Notes, missing(t.experiment))
	}
	points := gather(rows, func(r row) float64 { return float64(r.Round) })
	for i, setting := range settings(points) {
		look := shades[i%len(shades)]
		thick, thin := look, look
		thick.Width, thick.Marker = 2.6, picture.NoMarker
		thin.Width, thin.Marker = 1.1, picture.Ring
		paper := accuracySeries(points, setting, " paper", short(setting)+", paper's ε", "ε by the paper's accounting", thin, byPaper)
		proved := accuracySeries(points, setting, " riffle", short(setting)+", riffle's ε", "riffle's proved ε", thick, byRiffle)
		for _, s := range []series{paper, proved} {
			if len(s.X) > 0 {
				out.Series = append(out.Series, s)
			}
		}
		if len(proved.X)+len(paper.X) == 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("Setting %s has no finite ε and is not drawn.", setting))
		}
	}
	rival, err := bestOfOurs(d)
	if err != nil {
		return data{}, err
	}
	if len(rival.X) > 0 {
		out.Series = append(out.Series, rival)
		out.Notes = append(out.Notes, "“riffle's own” is the most accurate setting of experiment e7, single-message shuffling too: other features, randomizer and participation.")
	}
	out.Series = append(out.Series, stated(t.ownLabel, "paper", t.own, picture.Style{Colour: grey, Marker: picture.Box, Points: true}),
		stated(t.otherLabel, "paper-baseline", t.other, picture.Style{Colour: grey, Marker: picture.Pyramid, Points: true}))
	out.percent()
	return out, nil
}

// accuracySeries returns one setting's accuracy against a column of ε.
func accuracySeries(points []point, setting, suffix, label, source string, style picture.Style, eps func(point) float64) series {
	s := series{Name: setting + suffix, Label: label, Kind: "measured", Source: source, Style: style}
	for _, p := range points {
		if p.setting == setting {
			s.add(eps(p), p)
		}
	}
	s.thin()
	return s
}

// bestOfOurs returns the most accurate setting of e7; empty if there is none.
func bestOfOurs(d *desk) (series, error) {
	rows, err := readResults(d.results, "e7")
	if err != nil {
		return series{}, err
	}
	points := gather(rows, func(r row) float64 { return float64(r.Round) })
	var best point
	for _, p := range points {
		if p.mean > best.mean {
			best = p
		}
	}
	return accuracySeries(points, best.setting, " riffle", "riffle's own ("+short(best.setting)+")", "experiment e7, riffle's proved ε", picture.Style{Width: 2.6, Marker: picture.NoMarker}, byRiffle), nil
}

// fewMarks is the largest number of markers and bars with which a curve is readable.
const fewMarks = 16

// thin removes most bars, and all markers, from a curve of many points.
func (s *series) thin() {
	if len(s.X) <= fewMarks {
		return
	}
	s.Style.Marker = picture.NoMarker
	s.BarEvery = (len(s.X) + fewMarks - 1) / fewMarks
}

// percent ends the axis at 100 % and begins it at the multiple of ten below the drawn values.
func (d *data) percent() {
	d.Y.Max = 100
	least := 90.
	for _, s := range d.Series {
		for _, y := range slices.Concat(s.Y, s.Low) {
			least = math.Min(least, y)
		}
	}
	d.Y.Min = math.Max(0, 10*math.Floor((least-1)/10))
}

func missing(experiment string) string {
	return fmt.Sprintf("Experiment %s is not recorded: only what the paper states is drawn. `riffle experiment %s` runs it.", experiment, experiment)
}

// add appends a point in %, unless it has no ε.
func (s *series) add(x float64, p point) {
	if x > 0 && !math.IsInf(x, 1) {
		s.X, s.Y = append(s.X, x), append(s.Y, 100*p.mean)
		s.Low, s.High = append(s.Low, 100*p.least), append(s.High, 100*p.most)
	}
}

// stated returns the points that a paper states.
func stated(label, name string, marks []mark, style picture.Style) series {
	s := series{Name: name, Label: label, Kind: "stated", Source: "the paper's text", Style: style}
	for _, m := range marks {
		s.X, s.Y = append(s.X, m.eps), append(s.Y, m.accuracy)
		s.Low, s.High = append(s.Low, m.accuracy-m.deviation), append(s.High, m.accuracy+m.deviation)
	}
	return s
}

func settings(points []point) []string {
	var out []string
	for _, p := range points {
		if !slices.Contains(out, p.setting) {
			out = append(out, p.setting)
		}
	}
	return out
}

// short returns a setting's name short enough for a legend.
func short(setting string) string {
	if letters := []rune(setting); len(letters) > 28 {
		return strings.TrimSpace(string(letters[:27])) + "…"
	}
	return setting
}
