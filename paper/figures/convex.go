package figures

import (
	"cmp"
	"context"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/picture"
)

const cheu = "Cheu, Joseph, Mao, Peng 2022"

// rate is a cell of the paper's Table 1: the exponents of the private term.
type rate struct {
	loss, interaction, theorem string
	optimizer                  string // "": any
	trust                      string // "": the paper's vector sums
	strong                     bool   // for strongly convex losses
	smooth                     string // whether losses are smooth: "yes", "no", or "" for both
	stated                     string
	n, eps, dim                float64 // exponents
}

// rates is Table 1, with the baseline of Theorem 4.1, the pan-private variant, and what §1
// states about other models; d is the dimension.
var rates = []rate{
	{"convex", "sequential", "4.1 (baseline)", "psgd", "", false, "", "d^(1/4)/(εn)^(1/2)", -1. / 2, -1. / 2, 1. / 4},
	{"convex", "sequential", "4.7", "agd-smooth", "", false, "", "d^(1/3)/(εn)^(2/3)", -2. / 3, -2. / 3, 1. / 3},
	{"convex", "full", "4.9", "gd", "", false, "", "d^(1/2)/(εn)", -1, -1, 1. / 2},
	{"convex and smooth", "sequential", "4.3", "agd", "", false, "yes", "d^(2/5)/(εn)^(4/5)", -4. / 5, -4. / 5, 2. / 5},
	{"convex and smooth", "sequential", "Appendix C (pan-private)", "pan-private", "central", false, "yes", "d^(2/5)/(εn)^(4/5)", -4. / 5, -4. / 5, 2. / 5},
	{"strongly convex", "sequential", "4.8", "agd-phases", "", true, "no", "d^(2/3)/(εn)^(4/3)", -4. / 3, -4. / 3, 2. / 3},
	{"strongly convex", "full", "4.9", "gd", "", true, "", "d/(εn)²", -2, -2, 1},
	{"strongly convex and smooth", "sequential", "4.8", "agd-phases", "", true, "yes", "d/(εn)²", -2, -2, 1},
	{"convex, local model", "sequential", "§1, Duchi et al. 2018", "", "local", false, "", "d^(1/2)/(εn^(1/2))", -1. / 2, -1, 1. / 2},
	{"convex, central model", "–", "§1, Bassily et al. 2019", "", "central", false, "", "d^(1/2)/(εn)", -1, -1, 1. / 2},
}

// covers says whether a recorded setting, optimiser/trust/loss, is an instance of the cell.
func (r rate) covers(setting string) bool {
	parts := append(strings.SplitN(setting, "/", 3), "", "")
	optimizer, trust, loss := parts[0], parts[1], parts[2]
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(loss, w) })
	}
	strong := optimizer == "agd-phases" || has("ridge", "strong", "lambda")
	smooth := has("logistic", "squared")
	switch {
	case r.optimizer != "" && r.optimizer != optimizer, r.optimizer == "" && optimizer == "pan-private", r.strong != strong,
		r.smooth == "yes" && !smooth, r.smooth == "no" && smooth:
		return false
	case r.trust == "":
		return dp.Trust(trust).Is(dp.SumsOnly)
	}
	return trust == r.trust
}

func convexFigures() []figure {
	const random = "A population that is locally strongly convex, as random data's is, shows steeper slopes than the worst case; where noise exceeds the domain, slopes are flatter. Slopes are no evidence for or against worst-case rates."
	const noise = "The vector sums behind the runs use riffle's noise: with the paper's constants, whose deviation is 400 to 760 times as large, no slope shows at n ≤ 1e6."
	return []figure{
		{Name: "cjmp-table1", Paper: cheu, Where: "Table 1", Title: "Convex optimisation: stated and measured rates",
			Caption: "Stated rates of Table 1, and what experiment e5 measured: slopes of log excess population loss against log n (all, and the last two), log ε and log d, least squares, the other quantities fixed.",
			Notes: []string{"The paper's table gives upper bounds and omits the non-private term 1/√n and logarithms.", random, noise, "Settings are optimiser/trust/loss. What §1 states of the local and the central model is about the best algorithm, not about each listed.",
				"Single-message shuffling is another model and not in the table; the picture's CSV has it."}, draw: convexTable},
		{Name: "cjmp-rates", Paper: cheu, Where: "Table 1, as a picture", Title: "Convex optimisation: excess loss against n",
			Caption: "Excess population loss of experiment e5 against n; mean of the seeds, bars from the least to the most.", Notes: []string{random, noise}, draw: drawConvex},
	}
}

// The quantities against which excess loss is measured.
func byN(r row) float64       { return r.N }
func byDim(r row) float64     { return r.Dim }
func byEpsilon(r row) float64 { return r.Epsilon }

// slope is the excess loss of one setting against one quantity, with the others fixed.
type slope struct {
	setting     string
	fixed       [2]float64
	x, mean     []float64
	least, most []float64
	all, last   float64 // slopes of the logarithms, over all x and over the last two
	seeds       int
}

// slopes groups the last rounds of e5 by setting and the fixed quantities, and fits each
// group against vary. Groups are in the order of the rows.
func slopes(rows []row, vary func(row) float64, fixed ...func(row) float64) []slope {
	// An evaluation before the end is not the method's result.
	final := map[string]int64{}
	id := func(r row) string { return fmt.Sprint(r.Setting, r.N, r.Dim, r.Epsilon, r.Seed) }
	for _, r := range rows {
		final[id(r)] = max(final[id(r)], r.Round)
	}
	key := func(r row) (k slope) {
		k.setting = r.Setting
		for i, f := range fixed {
			if k.fixed[i] = f(r); math.IsNaN(k.fixed[i]) {
				k.fixed[i] = 0 // 0 stands for a value that is not given, because NaN would not equal itself
			}
		}
		return k
	}
	groups := map[string][]row{}
	var out []slope
	for _, r := range rows {
		if r.Round < final[id(r)] || !(vary(r) > 0) {
			continue
		}
		k := key(r)
		name := fmt.Sprint(k.setting, k.fixed)
		if groups[name] == nil {
			out = append(out, k)
		}
		groups[name] = append(groups[name], r)
	}
	for i := range out {
		s := &out[i]
		for _, p := range gather(groups[fmt.Sprint(s.setting, s.fixed)], vary) {
			s.x, s.mean = append(s.x, vary(p.at)), append(s.mean, p.mean)
			s.least, s.most = append(s.least, p.least), append(s.most, p.most)
			s.seeds = max(s.seeds, p.seeds)
		}
		s.all, s.last = logSlope(s.x, s.mean), math.NaN()
		if n := len(s.x); n >= 2 {
			s.last = logSlope(s.x[n-2:], s.mean[n-2:])
		}
	}
	return out
}

// widest returns the setting's group with the most x, if it has at least two.
func widest(list []slope, setting string) (best slope, ok bool) {
	for _, s := range list {
		if s.setting == setting && len(s.x) > max(1, len(best.x)) {
			best, ok = s, true
		}
	}
	return best, ok
}

// logSlope returns the least-squares slope of log y against log x; NaN with fewer than two
// different x, or if a y is not positive.
func logSlope(x, y []float64) float64 {
	var mx, my, xx, xy float64
	for i := range x {
		if !(x[i] > 0 && y[i] > 0) {
			return math.NaN()
		}
		mx += math.Log(x[i]) / float64(len(x))
		my += math.Log(y[i]) / float64(len(x))
	}
	for i := range x {
		d := math.Log(x[i]) - mx
		xx += d * d
		xy += d * (math.Log(y[i]) - my)
	}
	if !(xx > 0) {
		return math.NaN()
	}
	return xy / xx
}

// mostLines is the largest number of curves with which a picture is readable.
const mostLines = 12

// convexLook returns a style: a colour for each trust mode, a dash and a marker for each
// optimiser.
func convexLook(setting string) picture.Style {
	parts := append(strings.SplitN(setting, "/", 3), "")
	look := map[string]picture.Style{
		"agd": {Marker: picture.Dot}, "psgd": {Dash: picture.Dashed, Marker: picture.Square}, "gd": {Dash: picture.DashDot, Marker: picture.Triangle},
		"agd-smooth": {Dash: picture.LongDash, Marker: picture.Box}, "agd-phases": {Dash: picture.Dotted, Marker: picture.Ring}, "pan-private": {Dash: picture.Dotted, Marker: picture.Cross},
	}[parts[0]]
	look.Colour = map[string]color.RGBA{"vector-sum": blue, "distributed": purple, "shuffle": sky, "local": vermilion, "central": green}[parts[1]]
	if look.Colour == (color.RGBA{}) {
		look.Colour = grey
	}
	return look
}

func drawConvex(_ context.Context, d *desk) (data, error) {
	rows, err := readResults(d.results, "e5")
	if err != nil {
		return data{}, err
	}
	out := data{XName: "n", X: picture.Axis{Label: clientsAxis, Scale: picture.Log}, Y: picture.Axis{Label: "excess population loss", Scale: picture.Log}}
	shown, left := 0, 0
	for _, s := range slopes(rows, byN, byDim, byEpsilon) {
		hidden := len(s.x) < 2 || shown >= mostLines
		switch {
		case !hidden:
			shown++
		case len(s.x) >= 2:
			left++
		}
		out.Series = append(out.Series, series{Name: fmt.Sprintf("%s d=%g eps=%g", s.setting, s.fixed[0], s.fixed[1]), Label: short(s.setting),
			Kind: "measured", Source: "experiment e5", X: s.x, Y: s.mean, Low: s.least, High: s.most, Style: convexLook(s.setting), Hidden: hidden})
	}
	if len(rows) == 0 {
		out.Notes = append(out.Notes, "Experiment e5 is not recorded, so that there is no picture. `riffle experiment e5` runs it.")
	}
	if left > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d settings are in the CSV only.", left))
	}
	out.Notes = append(out.Notes, "In the legend: optimiser/trust/loss; a colour for each trust, a dash and marker for each optimiser.")
	return out, nil
}

func convexTable(_ context.Context, d *desk) (data, error) {
	rows, err := readResults(d.results, "e5")
	if err != nil {
		return data{}, err
	}
	var out data
	if len(rows) == 0 {
		out.Notes = append(out.Notes, "Experiment e5 is not recorded: the stated rates only. `riffle experiment e5` runs it.")
	}
	overN, overEps, overDim := slopes(rows, byN, byDim, byEpsilon), slopes(rows, byEpsilon, byN, byDim), slopes(rows, byDim, byN, byEpsilon)
	out.Table = table{Header: []string{"loss", "interaction", "theorem", "optimiser", "stated", "setting",
		"n: stated", "n: measured", "n: last two", "ε: stated", "ε: measured", "d: stated", "d: measured", "seeds"}}
	text := func(x float64) string {
		if math.IsNaN(x) {
			return "–"
		}
		return fmt.Sprintf("%.2f", x)
	}
	for _, r := range rates {
		row := []string{r.loss, r.interaction, r.theorem, cmp.Or(r.optimizer, "any"), r.stated}
		found := false
		for _, setting := range unique(overN) {
			s, ok := widest(overN, setting)
			if !ok || !r.covers(setting) {
				continue
			}
			found = true
			measured := func(list []slope) string {
				if s, ok := widest(list, setting); ok {
					return text(s.all)
				}
				return "–"
			}
			out.Table.Rows = append(out.Table.Rows, append(slices.Clone(row), setting, text(r.n), text(s.all), text(s.last),
				text(r.eps), measured(overEps), text(r.dim), measured(overDim), fmt.Sprint(s.seeds)))
		}
		if !found {
			out.Table.Rows = append(out.Table.Rows, append(row, "not recorded", text(r.n), "–", "–", text(r.eps), "–", text(r.dim), "–", "–"))
		}
	}
	return out, nil
}

// unique lists the settings in order.
func unique(list []slope) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s.setting) {
			out = append(out, s.setting)
		}
	}
	return out
}
