package figures

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/picture"
)

const cheu = "Cheu, Joseph, Mao, Peng 2022"

// rate is a cell of the paper's Table 1: the private term's dependence on n.
type rate struct {
	loss, interaction, theorem string
	optimizer                  string // "" for any
	trust                      string // "" for sums of shuffled messages
	strong                     bool   // strongly convex losses
	smooth                     string // losses it is about: "yes", "no" or "" for both
	stated                     string
	slope                      float64 // of log excess against log n
}

// rates is Table 1 with the baseline of Theorem 4.1, the pan-private variant, and
// what §1 states of other models; d is the dimension.
var rates = []rate{
	{"convex", "sequential", "4.1 (baseline)", "psgd", "", false, "", "d^(1/4)/(εn)^(1/2)", -1. / 2},
	{"convex", "sequential", "4.7", "agd-smooth", "", false, "", "d^(1/3)/(εn)^(2/3)", -2. / 3},
	{"convex", "full", "4.9", "gd", "", false, "", "d^(1/2)/(εn)", -1},
	{"convex and smooth", "sequential", "4.3", "agd", "", false, "yes", "d^(2/5)/(εn)^(4/5)", -4. / 5},
	{"convex and smooth", "sequential", "Appendix C (pan-private)", "pan-private", "central", false, "yes", "d^(2/5)/(εn)^(4/5)", -4. / 5},
	{"strongly convex", "sequential", "4.8", "agd-phases", "", true, "no", "d^(2/3)/(εn)^(4/3)", -4. / 3},
	{"strongly convex", "full", "4.9", "gd", "", true, "", "d/(εn)²", -2},
	{"strongly convex and smooth", "sequential", "4.8", "agd-phases", "", true, "yes", "d/(εn)²", -2},
	{"convex, local model", "sequential", "§1, Duchi et al. 2018", "", "local", false, "", "d^(1/2)/(εn^(1/2))", -1. / 2},
	{"convex, central model", "–", "§1, Bassily et al. 2019", "", "central", false, "", "d^(1/2)/(εn)", -1},
}

// covers says whether a recorded setting, optimiser/trust/loss, is an instance.
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
		return slices.Contains([]string{"vector-sum", "distributed", "shuffle"}, trust)
	}
	return trust == r.trust
}

func convexFigures() []Figure {
	const random = "A population that is locally strongly convex, as random data's is, shows steeper slopes than the worst case; where noise exceeds the domain, slopes are flatter. Slopes are no evidence for or against worst-case rates."
	const noise = "The vector sums behind the runs use riffle's noise: with the paper's constants, whose deviation is 400 to 760 times as large, no slope shows at n ≤ 1e6."
	return []Figure{
		{Name: "cjmp-table1", Paper: cheu, Where: "Table 1", Title: "Convex optimisation: stated and measured rates",
			Caption: "Stated rates of Table 1, and what experiment e5 measured: the slope of log excess population loss against log n, least squares over all n, and over the last two.",
			Notes:   []string{"The paper's table gives upper bounds and omits the non-private term 1/√n and logarithms.", random, noise, "Settings are optimiser/trust/loss."}, draw: convexTable},
		{Name: "cjmp-rates", Paper: cheu, Where: "Table 1, as a picture", Title: "Convex optimisation: excess loss against n",
			Caption: "Excess population loss of experiment e5 against n; mean of the seeds, bars from the least to the most.", Notes: []string{random, noise}, draw: drawConvex},
	}
}

// slope is measured excess loss of one setting, dimension and budget.
type slope struct {
	setting      string
	dim, epsilon float64
	n, mean      []float64
	least, most  []float64
	all, last    float64 // slopes
	seeds        int
}

// slopes groups the rows of e5 and fits a line to each group in logarithms.
func slopes(rows []Row) []slope {
	type key struct {
		setting      string
		dim, epsilon float64
	}
	at := map[key]int{}
	var out []slope
	// The rows of one problem: last round of each seed.
	final := map[string]int64{}
	id := func(r Row) string { return fmt.Sprint(r.Setting, r.N, r.Dim, r.Epsilon, r.Seed) }
	for _, r := range rows {
		final[id(r)] = max(final[id(r)], r.Round)
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Round < final[id(r)] || !(r.N > 0) })
	known := func(x float64) float64 { // NaN equals nothing
		if math.IsNaN(x) {
			return 0
		}
		return x
	}
	for _, r := range rows {
		k := key{r.Setting, known(r.Dim), known(r.Epsilon)}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, slope{setting: r.Setting, dim: k.dim, epsilon: k.epsilon})
		}
	}
	for i := range out {
		s := &out[i]
		mine := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
			return r.Setting != s.setting || known(r.Dim) != s.dim || known(r.Epsilon) != s.epsilon
		})
		for _, p := range gather(mine, func(r Row) float64 { return r.N }) {
			s.n, s.mean = append(s.n, p.at.N), append(s.mean, p.mean)
			s.least, s.most = append(s.least, p.least), append(s.most, p.most)
			s.seeds = max(s.seeds, p.seeds)
		}
		s.all, s.last = logSlope(s.n, s.mean), math.NaN()
		if n := len(s.n); n >= 2 {
			s.last = logSlope(s.n[n-2:], s.mean[n-2:])
		}
	}
	return out
}

// logSlope is the least-squares slope of log y against log x; NaN with fewer
// than two different x, or a y that is not positive.
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

// mostLines is how many curves a picture can hold and be read.
const mostLines = 10

func drawConvex(_ context.Context, d *desk) (Data, error) {
	rows, err := Read(d.results, "e5")
	if err != nil {
		return Data{}, err
	}
	out := Data{XName: "n", X: picture.Axis{Label: clientsAxis, Scale: picture.Log}, Y: picture.Axis{Label: "excess population loss", Scale: picture.Log}}
	markers := []picture.Marker{picture.Dot, picture.Square, picture.Triangle, picture.Box, picture.Ring, picture.Cross, picture.Plus}
	measured := slopes(rows)
	for i, s := range measured {
		look := shades[i%len(shades)]
		look.Marker = markers[i%len(markers)]
		out.Series = append(out.Series, Series{Name: fmt.Sprintf("%s d=%g eps=%g", s.setting, s.dim, s.epsilon), Label: fmt.Sprintf("%s, %g", short(s.setting), s.epsilon),
			Kind: "measured", Source: "experiment e5", X: s.n, Y: s.mean, Low: s.least, High: s.most, Style: look, Hidden: i >= mostLines})
	}
	switch {
	case len(rows) == 0:
		out.Notes = append(out.Notes, "Experiment e5 is not recorded, so that there is no picture. `riffle experiment e5` runs it.")
	case len(measured) > mostLines:
		out.Notes = append(out.Notes, fmt.Sprintf("The picture has the first %d of %d settings, the CSV all.", mostLines, len(measured)))
	}
	out.Notes = append(out.Notes, "In the legend: optimiser/trust/loss, ε.")
	return out, nil
}

func convexTable(_ context.Context, d *desk) (Data, error) {
	rows, err := Read(d.results, "e5")
	if err != nil {
		return Data{}, err
	}
	var out Data
	if len(rows) == 0 {
		out.Notes = append(out.Notes, "Experiment e5 is not recorded: the stated rates only. `riffle experiment e5` runs it.")
	}
	measured := slopes(rows)
	out.Table = Table{Header: []string{"loss", "interaction", "theorem", "optimiser", "stated", "stated slope", "setting", "d", "ε", "measured slope", "last slope", "seeds"}}
	for _, r := range rates {
		row := []string{r.loss, r.interaction, r.theorem, cmp.Or(r.optimizer, "any"), r.stated, fmt.Sprintf("%.2f", r.slope)}
		found := false
		for _, s := range measured {
			if r.covers(s.setting) {
				found = true
				out.Table.Rows = append(out.Table.Rows, append(slices.Clone(row), s.setting, fmt.Sprintf("%g", s.dim), fmt.Sprintf("%g", s.epsilon),
					fmt.Sprintf("%.2f", s.all), fmt.Sprintf("%.2f", s.last), fmt.Sprint(s.seeds)))
			}
		}
		if !found {
			out.Table.Rows = append(out.Table.Rows, append(row, "not recorded", "", "", "", "", ""))
		}
	}
	return out, nil
}
