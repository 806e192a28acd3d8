package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/picture"
	"github.com/riffle-dp/riffle/learn/statistic"
)

// printAnswer prints the numbers of an answer with their intervals in at most 80 columns.
func printAnswer(p *printer, a statistic.Answer) {
	t := answerTable{head: [4]string{"", "value", "95 % interval", "all together"}}
	single := func(name string, n *statistic.Number) {
		if n != nil {
			t.add(name, n.Value, n.Interval)
		}
	}
	single("clients counted", a.Count)
	single("share of clients", a.Share)
	single("mean", a.Mean)
	single("variance", a.Variance)
	if a.Coefficients != nil || a.Quantiles != nil {
		t.print(p)
		p.line("")
		t.rows = nil
	}
	if a.Coefficients != nil {
		t.head[0] = "coefficient"
	}
	if a.Bins != nil {
		t.head[0], t.head[1] = a.Column, "clients"
		t.whole = a.Bins[0].Lower != nil
	}
	for i, name := range a.BinNames() {
		t.add(name, a.Bins[i].Count, a.Bins[i].Interval)
	}
	if a.Quantiles != nil {
		t.head[0], t.head[1] = "rank", a.Column
	}
	for _, q := range a.Quantiles {
		t.add(strconv.FormatFloat(q.Rank, 'g', -1, 64), q.Value, q.Interval)
	}
	for i, c := range a.Coefficients {
		name := c.Column
		if i == 0 {
			name = "(intercept)"
		}
		if c.High95 >= nothing {
			t.rows = append(t.rows, [4]string{name, "not known", "too much noise", ""})
			continue
		}
		t.add(name, c.Value, c.Interval)
	}
	if s := a.Search; s != nil {
		t.head[0], t.head[1] = a.Column, "clients"
		for _, item := range a.Items {
			t.add(itemName(item), item.Count, item.Interval)
		}
		t.add("(texts too long …)", s.Others.Value, s.Others.Interval)
	}
	t.print(p)
	if s := a.Search; s != nil {
		p.line("")
		printSearch(p, a)
	}
	if a.Quantiles != nil {
		p.line("")
		of := answerTable{head: [4]string{"value", "aimed at", "its rank: 95 %", ""}}
		for _, q := range a.Quantiles {
			of.rows = append(of.rows, [4]string{significant(q.Value, (q.High95-q.Low95)/2), fmt.Sprint(q.Rank), fmt.Sprintf("%.4f .. %.4f", q.RankLow95, q.RankHigh95), ""})
		}
		of.print(p)
	}
	p.line("")
}

// itemName names a heavy hitter.
func itemName(i statistic.Item) string {
	if i.Text != nil {
		return visible(*i.Text)
	}
	return fmt.Sprintf("%q", i.Bytes)
}

// printSearch says how sure a search for heavy hitters is.
func printSearch(p *printer, a statistic.Answer) {
	s := a.Search
	percent := func(x float64) string { return strconv.FormatFloat(100*x, 'g', 3, 64) + " %" }
	p.row("found", "each text that %s of the clients have, none below %s;", percent(s.Sure), percent(s.Never))
	p.row("", "each but for a chance of 0.001")
	switch {
	case len(s.Unfinished) > 0:
		p.row("unfinished", "%s were not followed to their end", counted(int64(len(s.Unfinished)), "beginning"))
	case s.Counted == 0:
		p.row("counted", "in the rounds that found them: small counts are too large on average")
	}
	p.row("rounds", "%d, of which %d counted what was found; a client was in one", s.Rounds, s.Counted)
}

// shortly writes a number in at most ten characters or so.
func shortly(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

// nothing is the end of the interval of a coefficient of which nothing is known.
const nothing = 1e100

// answerTable is a table of numbers with two intervals.
type answerTable struct {
	head [4]string
	rows [][4]string
	// whole keeps names uncut: a bin's edges, which are short, say nothing without their ends.
	whole bool
}

func (t *answerTable) add(name string, value float64, i statistic.Interval) {
	wide := (i.High95 - i.Low95) / 2
	if wide == 0 { // both ends are where counts end
		wide = (i.JointHigh95 - i.JointLow95) / 2
	}
	of := func(low, high float64) string { return significant(low, wide) + " .. " + significant(high, wide) }
	t.rows = append(t.rows, [4]string{name, significant(value, wide), of(i.Low95, i.High95), of(i.JointLow95, i.JointHigh95)})
}

// significant writes a number with two digits of its error.
func significant(x, wide float64) string {
	if !(wide > 0) || math.IsInf(wide, 0) {
		return shortly(x)
	}
	digits := 1 - int(math.Floor(math.Log10(wide)))
	if digits > 12 || digits < -6 {
		return strconv.FormatFloat(x, 'g', 4, 64)
	}
	text := strconv.FormatFloat(x, 'f', max(0, digits), 64)
	for d := digits - 1; len(text) > mostNumber && d >= 0; d-- { // fewer digits, as long as the number is whole
		text = strconv.FormatFloat(x, 'f', d, 64)
	}
	if len(text) > mostNumber {
		return strconv.FormatFloat(x, 'g', 4, 64)
	}
	if strings.Trim(text, "-0.") == "" {
		return strings.TrimPrefix(text, "-") // no -0
	}
	return text
}

// Most columns of a table, of the name of a row, and of a number that is written in full.
const mostTable, mostName, mostNumber = 80, 20, 10

// cut shortens a text.
func cut(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// print aligns the columns. Names are shortened so that a line fits.
func (t *answerTable) print(p *printer) {
	var wide [4]int
	all := append([][4]string{t.head}, t.rows...)
	all[0][1] = cut(all[0][1], mostNumber)
	for i := range all {
		for j, cell := range all[i][1:] {
			wide[j+1] = max(wide[j+1], utf8.RuneCountInString(cell))
		}
	}
	room := min(mostName, mostTable-wide[1]-wide[2]-wide[3]-6)
	for i := range all {
		all[i][0] = visible(all[i][0])
		if i == 0 || !t.whole {
			all[i][0] = cut(all[i][0], room)
		}
		wide[0] = max(wide[0], utf8.RuneCountInString(all[i][0]))
	}
	for _, row := range all {
		line := row[0] + strings.Repeat(" ", wide[0]-utf8.RuneCountInString(row[0]))
		for j := 1; j < len(row); j++ {
			line += "  " + strings.Repeat(" ", wide[j]-utf8.RuneCountInString(row[j])) + row[j]
		}
		p.line("%s", strings.TrimRight(line, " "))
	}
}

// printCovered prints whose reports an answer sums up, and what its intervals hold.
func printCovered(p *printer, a statistic.Answer) {
	p.row("reports", "%s", reportsOf(a))
	p.row("intervals", "95 %% each, 95 %% all together: %s", strings.Join(a.Errors, ", "))
}

// writeAnswer writes a document as JSON to the file out, and a picture of its answer to plot; "": none.
func writeAnswer(document any, a statistic.Answer, out, plot string) error {
	if out != "" {
		var text bytes.Buffer
		if err := printJSON(&text, document); err != nil {
			return err
		}
		if err := durable.WriteFile(out, text.Bytes()); err != nil {
			return err
		}
	}
	if plot == "" {
		return nil
	}
	p, err := pictureOf(a)
	if err != nil {
		return err
	}
	raw, err := p.Render(strings.ToLower(filepath.Ext(plot)))
	if err != nil {
		return err
	}
	return durable.WriteFile(plot, raw)
}

// printWritten names the files that were written; "": none.
func printWritten(p *printer, files ...string) {
	for _, file := range files {
		if file != "" {
			p.row("written", "%s", file)
		}
	}
}

// reportsOf says whose reports an answer sums up.
func reportsOf(a statistic.Answer) string {
	if a.Measure == statistic.LinearRegression {
		return fmt.Sprintf("%d, whose clients the answer is about", a.Reports)
	}
	if a.Reports == a.Clients {
		return fmt.Sprintf("%d, of all clients", a.Reports)
	}
	return fmt.Sprintf("%d of %d clients", a.Reports, a.Clients)
}

// pictureOf draws an answer's numbers with their intervals. It refuses an answer of one or two numbers.
func pictureOf(a statistic.Answer) (picture.Picture, error) {
	const interval = "95 % interval"
	if a.Bins == nil && a.Quantiles == nil && a.Coefficients == nil && a.Search == nil {
		return picture.Picture{}, usage("--plot: a %s has no picture", a.Measure)
	}
	if a.Quantiles != nil {
		l := picture.Line{Name: "value, with " + interval, Style: picture.Style{Colour: picture.Palette[0], Marker: picture.Dot}}
		for _, q := range a.Quantiles {
			l.X, l.Y, l.Low, l.High = append(l.X, q.Rank), append(l.Y, q.Value), append(l.Low, q.Low95), append(l.High, q.High95)
		}
		return picture.Picture{Title: "quantiles of " + a.Column, X: picture.Axis{Label: "rank", Scale: picture.Linear, Max: 1}, Y: picture.Axis{Label: a.Column, Scale: picture.Linear}, Lines: []picture.Line{l}}, nil
	}
	if a.Coefficients != nil {
		b := &picture.Bars{Name: "coefficient", Interval: interval}
		for _, c := range a.Coefficients[1:] {
			if c.High95 < nothing {
				b.Names, b.Y, b.Low, b.High = append(b.Names, c.Column), append(b.Y, c.Value), append(b.Low, c.Low95), append(b.High, c.High95)
			}
		}
		if b.Y == nil {
			return picture.Picture{}, errors.New("--plot: nothing is known of the coefficients, so nothing is drawn")
		}
		return picture.Picture{X: picture.Axis{Label: "feature"}, Y: picture.Axis{Label: a.Column + " per unit"}, Bars: b}, nil
	}
	b := &picture.Bars{Name: "clients, as measured", Interval: interval}
	for _, item := range a.Items {
		b.Names, b.Y, b.Low, b.High = append(b.Names, itemName(item)), append(b.Y, item.Count), append(b.Low, item.Low95), append(b.High, item.High95)
	}
	if a.Search != nil && len(a.Items) == 0 {
		return picture.Picture{}, errors.New("--plot: no text was found, so nothing is drawn")
	}
	names := a.BinNames()
	for i, bin := range a.Bins {
		b.Y, b.Low, b.High = append(b.Y, bin.Count), append(b.Low, bin.Low95), append(b.High, bin.High95)
		if bin.Lower != nil {
			b.From, b.To = append(b.From, *bin.Lower), append(b.To, *bin.Upper)
		} else {
			b.Names = append(b.Names, names[i])
		}
	}
	return picture.Picture{X: picture.Axis{Label: a.Column}, Y: picture.Axis{Label: "clients"}, Bars: b}, nil
}
