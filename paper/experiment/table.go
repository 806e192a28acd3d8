package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Stat summarises the seeds of a setting.
type Stat struct{ Mean, Min, Max float64 }

func newStat(values []float64) Stat {
	s := Stat{math.NaN(), math.NaN(), math.NaN()}
	if len(values) > 0 {
		var sum float64
		for _, v := range values {
			sum += v
		}
		s = Stat{sum / float64(len(values)), slices.Min(values), slices.Max(values)}
	}
	return s
}

// outcome is a setting's finished runs.
type outcome struct {
	Setting Setting
	Seeds   int
	Rounds  int64
	// Costs after the last round, as in Row.
	EpsProved, EpsBest, EpsPaper float64
	Value, Seconds               Stat
	N, Dim                       int64 // for a convex problem
	Epsilon                      float64
	// Unfinished is the number of unfinished runs, which are not in the figures; Reached is
	// the last evaluation of the one that got furthest.
	Unfinished int
	Reached    Row
	Curve      []Row // the mean over finished seeds at each evaluation

	finals []Row
	curves [][]Row // one for each finished seed
}

// comparison compares one of the source's figures with measured ones.
type comparison struct {
	Claim claim
	// Same is the value of Setting, the best of the source's own settings, at the last round
	// whose ε by the source's formula is at most claim.Eps; NaN if there is none.
	Setting string
	Same    Stat
	Round   int64
	Proved  float64 // cost of these rounds by the best proved bound
	// Final is that setting's value after all its rounds, whose cost is FinalProved.
	Final       Stat
	FinalProved float64
	// Ours is the best value of riffle's own settings whose proved cost is at most claim.Eps.
	Ours       Stat
	OurSetting string
	OurProved  float64
}

// slope is how a convex problem's mean excess loss falls with n: the least-squares slope of
// its logarithm against log n, at full precision.
type slope struct {
	Setting string
	Dim     int64
	Epsilon float64
	Slope   float64
	Points  int
}

// Table is an experiment's results.
type Table struct {
	Experiment  Experiment
	Outcomes    []outcome // in the order of the settings; settings without a run are left out
	Comparisons []comparison
	Slopes      []slope

	rows []Row
}

// NewTable summarises rows; rivals are recorded rows of the experiments in e.Rivals.
func NewTable(e Experiment, rows, rivals []Row) Table {
	t := Table{Experiment: e, Outcomes: outcomes(e, rows), rows: rows}
	t.Slopes = slopes(t.Outcomes)
	ours := slices.DeleteFunc(slices.Clone(t.Outcomes), func(o outcome) bool { return o.Setting.Paper })
	for _, name := range e.Rivals {
		for _, other := range List(name) {
			for _, o := range outcomes(other, rivals) {
				o.Setting.Name = name + "/" + o.Setting.Name
				ours = append(ours, o)
			}
		}
	}
	for _, c := range e.Claims {
		t.Comparisons = append(t.Comparisons, compare(c, t.Outcomes, ours))
	}
	return t
}

func outcomes(e Experiment, rows []Row) []outcome {
	var out []outcome
	for _, s := range e.Settings {
		o := outcome{Setting: s}
		bySeed := map[int64][]Row{}
		for _, r := range rows {
			same := r.Experiment == e.Name && r.Setting == s.Name
			if c := s.Solve; same && c != nil {
				same = r.N == c.N && r.Dim == int64(c.Dim) && r.Epsilon == c.Epsilon
			}
			if same {
				bySeed[r.Seed] = append(bySeed[r.Seed], r)
			}
		}
		var values, seconds []float64
		seeds := make([]int64, 0, len(bySeed))
		for seed := range bySeed {
			seeds = append(seeds, seed)
		}
		slices.Sort(seeds)
		for _, seed := range seeds {
			curve := bySeed[seed]
			slices.SortStableFunc(curve, func(a, b Row) int { return cmp.Compare(a.Round, b.Round) })
			last := curve[len(curve)-1]
			if !last.Final {
				o.Unfinished++
				if last.Round > o.Reached.Round {
					o.Reached = last
				}
				continue
			}
			o.Seeds++
			// A budget can end a run early, and the number of participants is random, so the
			// longest run counts.
			o.Rounds = max(o.Rounds, last.Round)
			o.EpsProved, o.EpsBest, o.EpsPaper = max(o.EpsProved, last.EpsProved), max(o.EpsBest, last.EpsBest), max(o.EpsPaper, last.EpsPaper)
			o.N, o.Dim, o.Epsilon = last.N, last.Dim, last.Epsilon
			o.finals, o.curves = append(o.finals, last), append(o.curves, curve)
			values, seconds = append(values, last.Value), append(seconds, last.Seconds)
		}
		if len(seeds) == 0 {
			continue
		}
		o.Value, o.Seconds, o.Curve = newStat(values), newStat(seconds), meanCurve(o.curves)
		out = append(out, o)
	}
	return out
}

func compare(c claim, all, ours []outcome) comparison {
	nan := math.NaN()
	out := comparison{Claim: c, Same: newStat(nil), Proved: nan, Final: newStat(nil), FinalProved: nan, Ours: newStat(nil), OurProved: nan}
	for _, o := range all {
		if !o.Setting.Paper || o.Seeds == 0 {
			continue
		}
		// The best of the source's settings at this cost counts.
		var values []float64
		var round int64
		proved := 0.
		for _, curve := range o.curves {
			reached := -1
			for i, r := range curve {
				if r.EpsPaper <= c.Eps {
					reached = i
				}
			}
			if reached >= 0 {
				at := curve[reached]
				round, proved = max(round, at.Round), max(proved, at.EpsProved)
				values = append(values, at.Value)
			}
		}
		same := newStat(values)
		better := same.Mean > out.Same.Mean || math.IsNaN(out.Same.Mean) && !math.IsNaN(same.Mean)
		if better || math.IsNaN(same.Mean) && math.IsNaN(out.Same.Mean) && !(o.Value.Mean <= out.Final.Mean) {
			out.Setting, out.Same, out.Final, out.FinalProved = o.Setting.Name, same, o.Value, o.EpsProved
			if len(values) > 0 {
				out.Round, out.Proved = round, proved
			}
		}
	}
	for _, o := range ours {
		if o.Seeds > 0 && o.EpsProved <= c.Eps && !(o.Value.Mean <= out.Ours.Mean) {
			out.Ours, out.OurSetting, out.OurProved = o.Value, o.Setting.Name, o.EpsProved
		}
	}
	return out
}

func slopes(all []outcome) []slope {
	type line struct {
		name string
		dim  int64
		eps  float64
	}
	var order []line
	points := map[line][][2]float64{}
	for _, o := range all {
		if o.N == 0 || !(o.Value.Mean > 0) {
			continue
		}
		l := line{o.Setting.Name, o.Dim, o.Epsilon}
		if points[l] == nil {
			order = append(order, l)
		}
		points[l] = append(points[l], [2]float64{math.Log(float64(o.N)), math.Log(o.Value.Mean)})
	}
	var out []slope
	for _, l := range order {
		p := points[l]
		if len(p) < 2 {
			continue
		}
		var x, y, xx, xy float64
		for _, v := range p {
			x += v[0] / float64(len(p))
			y += v[1] / float64(len(p))
		}
		for _, v := range p {
			xx += (v[0] - x) * (v[0] - x)
			xy += (v[0] - x) * (v[1] - y)
		}
		out = append(out, slope{l.name, l.dim, l.eps, xy / xx, len(p)})
	}
	return out
}

// eps writes an upper bound with four digits, rounded up; a dash if there is none.
func eps(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case math.IsInf(x, 1):
		return "∞"
	case x == 0:
		return "0"
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-3)
	text := fmt.Sprintf("%.4g", x)
	var back float64
	if _, err := fmt.Sscan(text, &back); err == nil && back >= x {
		return text
	}
	return fmt.Sprintf("%.4g", (math.Floor(x/unit)+1)*unit)
}

// show writes a value: an accuracy in percent, or an excess loss.
func show(x float64, loss bool) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case loss:
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.2f %%", 100*x)
}

func (s Stat) show(seeds int, loss bool) string {
	if seeds < 2 || math.IsNaN(s.Mean) {
		return show(s.Mean, loss)
	}
	if loss {
		return fmt.Sprintf("%.3g [%.3g, %.3g]", s.Mean, s.Min, s.Max)
	}
	return fmt.Sprintf("%.2f %% [%.2f, %.2f]", 100*s.Mean, 100*s.Min, 100*s.Max)
}

// results returns headings and cells of the table of results.
func (t Table) results() (head []string, lines [][]string) {
	loss := slices.ContainsFunc(t.Outcomes, func(o outcome) bool { return o.N > 0 })
	head = []string{"setting", "whose", "rounds", "ε proved", "ε, paper's formula", "accuracy, mean [least, most]", "seeds", "seconds"}
	if loss {
		head = []string{"optimizer/trust/loss", "n", "d", "ε", "rounds", "excess loss, mean [least, most]", "seeds", "seconds"}
	}
	for _, o := range t.Outcomes {
		whose := "riffle"
		if o.Setting.Paper {
			whose = "paper"
		}
		seeds := fmt.Sprint(o.Seeds)
		if o.Unfinished > 0 {
			seeds += fmt.Sprintf(" (and %d to round %d of %d: %s at ε %s)", o.Unfinished, o.Reached.Round, o.Setting.rounds(),
				show(o.Reached.Value, false), eps(o.Reached.EpsProved))
		}
		rounds, seconds := fmt.Sprint(o.Rounds), fmt.Sprintf("%.0f", o.Seconds.Mean)
		if o.Seconds.Mean < 10 {
			seconds = fmt.Sprintf("%.2g", o.Seconds.Mean)
		}
		if o.Seeds == 0 {
			rounds, seconds = "–", "–"
			o.EpsProved, o.EpsPaper = math.NaN(), math.NaN()
		}
		if loss {
			lines = append(lines, []string{o.Setting.Name, fmt.Sprintf("%g", float64(o.N)), fmt.Sprint(o.Dim), fmt.Sprintf("%g", o.Epsilon), rounds,
				o.Value.show(o.Seeds, true), seeds, seconds})
			continue
		}
		lines = append(lines, []string{o.Setting.Name, whose, rounds, eps(o.EpsProved), eps(o.EpsPaper), o.Value.show(o.Seeds, false), seeds, seconds})
	}
	return head, lines
}

func (t Table) comparisons() (head []string, lines [][]string) {
	head = []string{"the paper", "its settings, at its ε by its formula", "the same after all rounds", "riffle at that ε, proved"}
	for _, c := range t.Comparisons {
		claim := show(c.Claim.Value, false) + " at ε = " + fmt.Sprintf("%g", c.Claim.Eps)
		if c.Claim.About != "" {
			claim += " (" + c.Claim.About + ")"
		}
		same, final, ours := "–", "–", "–"
		if !math.IsNaN(c.Same.Mean) {
			same = fmt.Sprintf("%s (%s, round %d; proved ε %s)", show(c.Same.Mean, false), c.Setting, c.Round, eps(c.Proved))
		}
		if !math.IsNaN(c.Final.Mean) {
			final = fmt.Sprintf("%s at proved ε %s (%s)", show(c.Final.Mean, false), eps(c.FinalProved), c.Setting)
		}
		if !math.IsNaN(c.Ours.Mean) {
			ours = fmt.Sprintf("%s at ε %s (%s)", show(c.Ours.Mean, false), eps(c.OurProved), c.OurSetting)
		}
		lines = append(lines, []string{claim, same, final, ours})
	}
	return head, lines
}

func (t Table) slopes() (head []string, lines [][]string) {
	head = []string{"optimizer/trust/loss", "d", "ε", "slope of log excess against log n", "values of n"}
	for _, s := range t.Slopes {
		lines = append(lines, []string{s.Setting, fmt.Sprint(s.Dim), fmt.Sprintf("%g", s.Epsilon), fmt.Sprintf("%.2f", s.Slope), fmt.Sprint(s.Points)})
	}
	return head, lines
}

// Files returns the files that belong in an experiment's directory by name: the rows as CSV,
// and the tables with the notes as Markdown. command returns the command that runs a setting.
func (t Table) Files(command func(Setting) string) map[string][]byte {
	return map[string][]byte{rowsFile: marshalRows(t.rows), tableFile: []byte(t.markdown(command))}
}

func (t Table) markdown(command func(Setting) string) string {
	var b strings.Builder
	e := t.Experiment
	fmt.Fprintf(&b, "# %s: %s\n\nSource: %s.\n", strings.ToUpper(e.Name), e.Title, e.Source)
	for _, note := range e.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	for _, part := range t.parts() {
		b.WriteByte('\n')
		rows := append([][]string{part.head, slices.Repeat([]string{"---"}, len(part.head))}, part.lines...)
		for _, row := range rows {
			b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		}
	}
	b.WriteString("\n## Settings\n")
	said := map[string]bool{}
	for _, o := range t.Outcomes {
		if said[o.Setting.Name] {
			continue
		}
		said[o.Setting.Name] = true
		fmt.Fprintf(&b, "\n%s", o.Setting.Name)
		if o.Setting.Note != "" {
			fmt.Fprintf(&b, ": %s", o.Setting.Note)
		}
		fmt.Fprintf(&b, "\n\n    %s\n", command(o.Setting))
	}
	return b.String()
}

// Text returns the tables for a terminal.
func (t Table) Text() string {
	var b strings.Builder
	for i, part := range t.parts() {
		if i > 0 {
			b.WriteByte('\n')
		}
		width := make([]int, len(part.head))
		rows := append([][]string{part.head}, part.lines...)
		for _, row := range rows {
			for j, cell := range row {
				width[j] = max(width[j], len([]rune(cell)))
			}
		}
		for _, row := range rows {
			line := ""
			for j, cell := range row {
				line += cell + strings.Repeat(" ", width[j]-len([]rune(cell))+2)
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	return b.String()
}

type part struct {
	head  []string
	lines [][]string
}

func (t Table) parts() []part {
	var out []part
	for _, of := range []func() ([]string, [][]string){t.results, t.comparisons, t.slopes} {
		if head, lines := of(); len(lines) > 0 {
			out = append(out, part{head, lines})
		}
	}
	return out
}

// meanCurve returns the mean over seeds at each evaluation.
func meanCurve(curves [][]Row) []Row {
	var out []Row
	if len(curves) == 0 {
		return nil
	}
	for i, r := range curves[0] {
		var sum float64
		for _, c := range curves {
			if i >= len(c) || c[i].Round != r.Round {
				return out // the seeds were evaluated at different rounds
			}
			sum += c[i].Value
		}
		r.Seed, r.Value = 0, sum/float64(len(curves))
		out = append(out, r)
	}
	return out
}
