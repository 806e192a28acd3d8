package measure

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/run/setting"
)

// Asked is a question as people write it: on a command line, or in a file of settings. All of it is
// public and is written before anything is known of the data.
type Asked struct {
	Measure    string
	Column     string
	Features   string // of a linear regression, joined by commas: COLUMN=LOW..HIGH
	Where      string // conditions, joined by commas
	Range      string // LOW..HIGH
	Everyone   bool
	Bins       string // LOW..HIGH:COUNT, or edges
	Categories string // texts, joined by |
	Ranks      string // joined by commas
	Levels     int64
	Longest    int64   // of a heavy hitter
	Alphabet   string  // of heavy hitters; "": all bytes
	Share      float64 // of all clients, from which on a text is a heavy hitter
}

// Fields is the table of a question's settings, but for its kind.
func (a *Asked) Fields() setting.Table {
	const part = "Question"
	return setting.Table{
		{Name: "column", Part: part, Into: &a.Column, Help: "column that is asked about; of a linear regression the one to predict"},
		{Name: "features", Part: part, Into: &a.Features, Help: "columns to predict from, with their public ranges: age=0..120,rooms=1..10"},
		{Name: "where", Part: part, Into: &a.Where, Help: "public conditions; rows that miss one do not count: age>=40,city=berlin"},
		{Name: "range", Part: part, Into: &a.Range, Help: "public range of the column, 0..120; values are clipped to it"},
		{Name: "everyone", Part: part, Into: &a.Everyone, Help: "every client surely has a value: a mean or variance then needs no count"},
		{Name: "bins", Part: part, Into: &a.Bins, Help: "public bins of a histogram of numbers: 0..100:20 for 20 equal ones, or edges 0,18,40,65,120"},
		{Name: "categories", Part: part, Into: &a.Categories, Help: "public categories of a histogram of texts: berlin|paris|*; * is all others"},
		{Name: "ranks", Part: part, Into: &a.Ranks, Help: "ranks of quantiles, between 0 and 1 (default 0.25,0.5,0.75)"},
		{Name: "levels", Part: part, Into: &a.Levels, Range: "[1, 19]", Help: "depth of the tree for quantiles, whose leaves cut the range into 2^levels (default 10)"},
		{Name: "share", Part: part, Into: &a.Share, Range: "[0.0001, 0.5]", Help: "share of all clients from which on a text is found (default 0.01)"},
		{Name: "longest", Part: part, Into: &a.Longest, Range: "[1, 256]", Help: "most symbols of a text that is found; each symbol takes a round (default 16)"},
		{Name: "alphabet", Part: part, Into: &a.Alphabet, Check: others, Help: "the characters that texts are made of, as abcdefghijklmnopqrstuvwxyz; fewer make shorter reports (default: all bytes)"},
	}
}

// usual values of a question's settings.
const (
	usualRanks  = "0.25,0.5,0.75"
	usualLevels = 10

	usualLongest = 16
	usualShare   = .01
)

// notRead ends the refusal of a question that leaves out something public.
const notRead = "never read off the data, which would reveal them"

// others takes any text, which is checked where it is used.
func others(string) error { return nil }

// Question returns the question. It reads nothing off the data: what is missing is refused.
func (a Asked) Question() (q statistic.Question, err error) {
	q = statistic.Question{Measure: a.Measure, Column: a.Column, Everyone: a.Everyone}
	if a.Where != "" {
		for _, text := range split(a.Where, ',') {
			c, err := statistic.ParseCondition(text)
			if err != nil {
				return q, inputError("where: %v", err)
			}
			q.Where = append(q.Where, c)
		}
	}
	if a.Range != "" {
		if q.Low, q.High, err = parseRange(a.Range); err != nil {
			return q, inputError("range: %v", err)
		}
	}
	if a.Measure == statistic.LinearRegression && a.Features == "" {
		return q, inputError("%s needs features, as age=0..120,rooms=1..10: their ranges are public and %s", a.Measure, notRead)
	}
	switch a.Measure {
	case "mean", "variance", "quantiles", statistic.LinearRegression:
		if a.Range == "" {
			return q, inputError("%s needs range, as 0..120: it is public and %s", a.Measure, notRead)
		}
	case "histogram":
		if a.Bins != "" && a.Categories != "" {
			return q, inputError("histogram has bins and categories: bins count numbers, categories texts, and it needs one of them")
		}
		if a.Bins == "" && a.Categories == "" {
			return q, inputError("histogram needs bins, as 0..100:20, or categories, as berlin|paris|*: they are public and %s", notRead)
		}
	}
	if a.Features != "" {
		if q.Features, err = parseFeatures(a.Features); err != nil {
			return q, inputError("features: %v", err)
		}
	}
	if a.Bins != "" {
		if q.Edges, err = parseBins(a.Bins); err != nil {
			return q, inputError("bins: %v", err)
		}
	}
	if a.Categories != "" {
		q.Categories = split(a.Categories, '|')
		if name := q.Categories[0]; a.Column != "" && strings.HasPrefix(name, a.Column+"=") {
			return q, inputError("categories: %q begins with the column, as a model's do: those of a question are its texts alone, as berlin|paris|*", name)
		}
	}
	if a.Measure == "quantiles" {
		if a.Ranks == "" {
			a.Ranks = usualRanks
		}
		if a.Levels == 0 {
			a.Levels = usualLevels
		}
	}
	if a.Measure == statistic.HeavyHitters {
		if a.Longest == 0 {
			a.Longest = usualLongest
		}
		if a.Share == 0 {
			a.Share = usualShare
		}
	}
	q.Longest, q.Alphabet, q.Share = int(a.Longest), a.Alphabet, a.Share
	q.Levels = int(a.Levels)
	if a.Ranks != "" {
		if q.Ranks, err = numbers(a.Ranks); err != nil {
			return q, inputError("ranks: %v", err)
		}
	}
	if err := q.Validate(); err != nil {
		return q, inputError("%s", asSettings.Replace(err.Error()))
	}
	return q, nil
}

// asSettings names what was given as people write it.
var asSettings = strings.NewReplacer("edges is given", "bins is given", "low is given", "range is given", "high is given", "range is given")

// parseRange reads LOW..HIGH.
func parseRange(text string) (low, high float64, err error) {
	a, b, ok := strings.Cut(text, "..")
	low, errLow := finite(a)
	high, errHigh := finite(b)
	if !ok || errLow != nil || errHigh != nil || !(low < high) {
		return 0, 0, fmt.Errorf("%q must be two finite numbers, the lower one first, as 0..120", text)
	}
	return low, high, nil
}

// parseFeatures reads COLUMN=LOW..HIGH, joined by commas. A comma or backslash in a name has a
// backslash before it.
func parseFeatures(text string) (out []statistic.Feature, err error) {
	for _, item := range split(text, ',') {
		i := strings.LastIndex(item, "=")
		if i < 1 {
			return nil, fmt.Errorf("%q must be COLUMN=LOW..HIGH, as age=0..120", item)
		}
		f := statistic.Feature{Column: item[:i]}
		if f.Low, f.High, err = parseRange(item[i+1:]); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// mostBins bounds the bins that LOW..HIGH:COUNT asks for, before they are made.
const mostBins = 1 << 20

// parseBins reads LOW..HIGH:COUNT or ascending edges.
func parseBins(text string) ([]float64, error) {
	if !strings.Contains(text, "..") {
		edges, err := numbers(text)
		if err == nil && len(edges) < 2 {
			err = fmt.Errorf("%q must have at least two edges, as 0,18,65,120, or be 0..100:20", text)
		}
		return edges, err
	}
	span, count, ok := strings.Cut(text, ":")
	low, high, err := parseRange(span)
	n, errCount := setting.ParseCount(count)
	if !ok || err != nil || errCount != nil || n < 1 || n > mostBins {
		return nil, fmt.Errorf("%q must be LOW..HIGH:COUNT with two finite numbers, the lower one first, and 1 to %d bins, as 0..100:20", text, mostBins)
	}
	return equalBins(low, high, n), nil
}

// equalBins returns the edges of n equal bins. Each is the float64 nearest to the edge of the decimals low and high,
// which is the float64 of a cell that holds the edge's decimal: so the cell lies in the bin that begins there.
func equalBins(low, high float64, n int64) []float64 {
	exact := func(v float64) *big.Rat {
		r, _ := new(big.Rat).SetString(strconv.FormatFloat(v, 'g', -1, 64)) // always a decimal
		return r
	}
	from := exact(low)
	width := new(big.Rat).Sub(exact(high), from)
	// edge i = (from's numerator · n · width's denominator + i · width's numerator · from's denominator) / (n · both denominators)
	count := big.NewInt(n)
	at := new(big.Int).Mul(from.Num(), width.Denom())
	at.Mul(at, count)
	step := new(big.Int).Mul(width.Num(), from.Denom())
	denominator := new(big.Int).Mul(from.Denom(), width.Denom())
	denominator.Mul(denominator, count)
	edges := make([]float64, n+1)
	for i := range edges {
		edges[i], _ = new(big.Rat).SetFrac(at, denominator).Float64()
		at.Add(at, step)
	}
	return edges
}

// numbers reads numbers joined by commas.
func numbers(text string) (out []float64, err error) {
	for _, item := range strings.Split(text, ",") {
		v, err := finite(item)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func finite(text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, fmt.Errorf("%q is not a finite number", text)
	}
	return v + 0, nil // no negative zero
}

// split cuts text at each sep without a backslash before it.
func split(text string, sep byte) (out []string) {
	var item strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && (text[i+1] == sep || text[i+1] == '\\'):
			i++
			item.WriteByte(text[i])
		case text[i] == sep:
			out = append(out, item.String())
			item.Reset()
		default:
			item.WriteByte(text[i])
		}
	}
	return append(out, item.String())
}
