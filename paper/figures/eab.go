package figures

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/picture"
)

const chenCaoGe = "Chen, Cao, Ge 2024"

// divergences are curves of the Rényi divergence of one shuffle of n reports: the rows of the
// paper's Table 1 that have a formula here, and riffle's own. A curve is the largest of its
// methods' divergences.
var divergences = []struct {
	name, label string
	methods     []string
}{
	{"efmrtt-rdp", "EFMRTT 2019", []string{"efmrtt-rdp"}},
	{"gddsk-simple", "CCS 2021, eq. (4)", []string{"gddsk-simple"}},
	{"gddsk", "CCS 2021, Theorem 1", []string{"gddsk-wbk"}},
	{"eab-thm1", "the paper, Theorem 1", []string{"eab-thm1"}},
	{"gdp-approx", "the paper, Corollary 2", []string{"gdp-approx"}},
	{"riffle-blanket", "riffle, proved", []string{"blanket-rdp"}},
	{"lower-2rr", "eq. (5): binary RR (lower)", []string{"lower-rr2"}},
	{lower, "riffle, lower bound", []string{"lower-rr2", "lower-rr3"}},
}

// shuffles computes divergences of one shuffle, and caches the last shuffle's curves.
type shuffles struct {
	eps0   float64
	n      int64
	curves map[string]func(order float64) (float64, error)
}

func (s *shuffles) at(method string, eps0 float64, n int64, order int) (float64, error) {
	if s.curves == nil || s.eps0 != eps0 || s.n != n {
		*s = shuffles{eps0, n, map[string]func(float64) (float64, error){}}
	}
	curve, ok := s.curves[method]
	if !ok {
		var err error
		curve, err = account.Divergence(account.Query{Participation: dp.All, Eps0: eps0, Population: n}, method)
		if err != nil {
			return 0, err
		}
		s.curves[method] = curve
	}
	return curve(float64(order))
}

// largest returns the largest of the methods' divergences.
func (s *shuffles) largest(methods []string, eps0 float64, n int64, order int) (most float64, err error) {
	for _, m := range methods {
		y, err := s.at(m, eps0, n, order)
		if err != nil {
			return 0, fmt.Errorf("figures: %s at eps0 = %v, n = %d, order %d: %v", m, eps0, n, order, err)
		}
		most = math.Max(most, y)
	}
	return most, nil
}

// described returns the kind and the source of methods of one kind, from the accountant's
// rows.
func described(methods []string) (kind, source string) {
	for _, m := range account.Methods() {
		if slices.Contains(methods, m.ID) {
			kind = string(m.Kind)
			source += "; " + m.Source
		}
	}
	return kind, strings.TrimPrefix(source, "; ")
}

// divergenceData evaluates the bounds at every x.
func divergenceData(ctx context.Context, xs []float64, at func(x float64) (eps0 float64, n int64, order int)) ([]series, error) {
	var out []series
	for _, b := range divergences {
		kind, source := described(b.methods)
		s := series{Name: b.name, Label: b.label, Kind: kind, Source: source, X: xs, Style: styleOf(b.name)}
		var kept shuffles
		for _, x := range xs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			eps0, n, order := at(x)
			y, err := kept.largest(b.methods, eps0, n, order)
			if err != nil {
				return nil, err
			}
			s.Y = append(s.Y, y)
		}
		out = append(out, s)
	}
	return out, nil
}

const eabNote = "The paper's text at hand has lost the numbers of this figure; ε₀, n and the orders are riffle's choice."

const eabLimit = "Corollary 2 is a limit law and no bound: at ε₀ = 5 in Figure 3 it lies a quarter below the pair that it stands for."

const eabRate = "The paper's Theorem 1 is the clones pair of Feldman, McMillan, Talwar 2022, exactly. The rate of their 2023 paper, evaluated exactly, is riffle's curve (with riffle's own proof), and lies below: the paper compares with the closed forms."

const eabSimple = "Equation (4) without its exponential term exceeds Corollary 2 by about (e^ε₀+1)²·λ/(λ−1), the factor that the text has lost."

func eabFigures() []figure {
	orders := grid(2, 128, 25)
	over := func(eps0 float64) func(context.Context, *desk) (data, error) {
		return func(ctx context.Context, d *desk) (data, error) {
			series, err := divergenceData(ctx, fewer(orders, d.points), func(x float64) (float64, int64, int) { return eps0, 1e4, int(x) })
			return data{band: true, XName: "order", X: picture.Axis{Label: "order λ", Scale: picture.Log, Min: 2, Max: 128}, Y: picture.Axis{Label: "Rényi divergence (nats)", Scale: picture.Log}, Series: series}, err
		}
	}
	three := func(ctx context.Context, d *desk) (data, error) {
		series, err := divergenceData(ctx, fewer(gridOf(.1, 5, 25), d.points), func(x float64) (float64, int64, int) { return x, 1e4, 8 })
		return data{band: true, XName: "eps0", X: picture.Axis{Label: "ε₀ of one report (nats)", Scale: picture.Log, Min: .1, Max: 5}, Y: picture.Axis{Label: "Rényi divergence of order 8 (nats)", Scale: picture.Log, Min: 2e-6, Max: 10}, Series: series}, err
	}
	return []figure{
		{Name: "eab-2a", Paper: chenCaoGe, Where: "Figure 2 at ε₀ = 0.5", Title: "Rényi divergence of a shuffle: n = 1e4, ε₀ = 0.5", Caption: "One shuffle of n = 1e4 reports, no sampling, ε₀ = 0.5, replace-one.",
			Notes: []string{eabNote, eabRate, eabLimit, eabSimple}, draw: over(.5)},
		{Name: "eab-2b", Paper: chenCaoGe, Where: "Figure 2 at ε₀ = 2", Title: "Rényi divergence of a shuffle: n = 1e4, ε₀ = 2", Caption: "One shuffle of n = 1e4 reports, no sampling, ε₀ = 2, replace-one.",
			Notes: []string{eabNote, eabRate, eabLimit, eabSimple}, draw: over(2)},
		{Name: "eab-3", Paper: chenCaoGe, Where: "Figure 3", Title: "Rényi divergence of a shuffle: n = 1e4, λ = 8", Caption: "One shuffle of n = 1e4 reports, no sampling, order 8, over ε₀, replace-one.",
			Notes: []string{eabNote, eabRate, eabLimit, "Values above 10 are in the CSV only: a divergence is at most ε₀ in any case.", "Where ε₀ is large the ternary mechanism is worse than the binary one that the paper's lower bound is about."}, draw: three},
		{Name: "eab-4", Paper: chenCaoGe, Where: "Figure 4", Title: "Shuffled Laplace DP-SGD on 60 principal components", Caption: "MNIST, PCA to 60 values, ReLU, softmax, Laplace noise, shuffled clients; test accuracy against rounds, which are epochs.",
			Notes: []string{"The paper states 96.41 % in private and 98.18 % without, at a budget that its text has lost. Its accounting is a limit law (Theorem 3), not a guarantee; riffle's ε is proved.",
				"Bars: least and most of the seeds."}, draw: eabAccuracy},
		{Name: "eab-table1", Paper: chenCaoGe, Where: "Table 1", Title: "Rényi divergence bounds of one shuffle", Caption: "The bounds of the paper's table as numbers: one shuffle of n reports, no sampling, order λ, nats.",
			Notes: []string{"The table's formulas are lost in the text at hand; each row is the formula that riffle computes from its source. Upper bounds are rounded up, the lower one down.", eabRate, eabLimit, eabSimple}, draw: eabTable},
	}
}

// eabAccuracy returns accuracy over rounds, from experiment e3.
func eabAccuracy(_ context.Context, d *desk) (data, error) {
	rows, err := readResults(d.results, "e3")
	if err != nil {
		return data{}, err
	}
	out := data{XName: "round", X: picture.Axis{Label: "rounds (epochs)", Scale: picture.Linear}, Y: picture.Axis{Label: "test accuracy (%)", Scale: picture.Linear}}
	if len(rows) == 0 {
		out.Notes = append(out.Notes, missing("e3"))
	}
	last := 50.
	type horizontal struct {
		name, label, source string
		y                   float64
		style               picture.Style
	}
	levels := []horizontal{{"paper-without", "the paper, without privacy", "the paper's text", 98.18, picture.Style{Colour: grey, Dash: picture.LongDash}},
		{"paper", "the paper, private", "the paper's text", 96.41, picture.Style{Colour: grey, Dash: picture.Dotted}}}
	points := gather(rows, func(r row) float64 { return float64(r.Round) })
	for i, setting := range settings(points) {
		look := shades[i%len(shades)]
		s := series{Name: setting, Label: short(setting), Kind: "measured", Source: "experiment e3", Style: look}
		eps, end := 0., point{}
		for _, p := range points {
			if p.setting == setting {
				s.add(float64(p.at.Round), p)
				eps, end = math.Max(eps, p.proved), p
			}
		}
		if !(eps > 0) || math.IsInf(eps, 1) {
			// The rounds of this setting are batches, not epochs, so only its end is drawn.
			levels = append(levels, horizontal{setting, short(setting) + ", at its end, not private", "experiment e3, last evaluation", 100 * end.mean, picture.Style{Colour: look.Colour, Dash: picture.DashDot}})
			continue
		}
		last = math.Max(last, s.X[len(s.X)-1])
		s.Label += ", ε ≤ " + digits(eps, "upper")
		s.thin()
		out.Series = append(out.Series, s)
	}
	for _, l := range levels {
		l.style.Marker = picture.NoMarker
		out.Series = append(out.Series, series{Name: l.name, Label: l.label, Kind: "stated", Source: l.source, X: []float64{0, last}, Y: []float64{l.y, l.y}, Style: l.style})
	}
	out.percent()
	return out, nil
}

func eabTable(ctx context.Context, _ *desk) (data, error) {
	cases := []struct {
		eps0  float64
		n     int64
		order int
	}{{.4, 1e4, 2}, {1, 1e4, 2}, {1, 1e4, 8}, {2, 1e4, 8}, {2, 1e5, 8}, {4, 1e5, 8}}
	t := table{Header: []string{"bound", "kind", "source"}}
	for _, c := range cases {
		t.Header = append(t.Header, fmt.Sprintf("ε₀ = %g, n = %s, λ = %d", c.eps0, picture.Number(float64(c.n)), c.order))
	}
	for _, b := range divergences {
		kind, source := described(b.methods)
		row := []string{b.name, kind, source}
		var kept shuffles
		for _, c := range cases {
			if err := ctx.Err(); err != nil {
				return data{}, err
			}
			y, err := kept.largest(b.methods, c.eps0, c.n, c.order)
			if err != nil {
				return data{}, err
			}
			row = append(row, digits(y, kind))
		}
		t.Rows = append(t.Rows, row)
	}
	return data{Table: t}, nil
}

// digits writes four digits; upper bounds are rounded up, lower ones down.
func digits(x float64, kind string) string {
	text := fmt.Sprintf("%.4g", x)
	var shown float64
	if _, err := fmt.Sscan(text, &shown); err != nil || x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return text
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(x)))-3)
	switch {
	case kind == "upper" && shown < x:
		return fmt.Sprintf("%.4g", shown+unit)
	case kind == "lower" && shown > x:
		return fmt.Sprintf("%.4g", shown-unit)
	}
	return text
}
