package main

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/run/setting"
)

// curve is a query in which one quantity has a list of values.
type curve struct {
	quantity
	values []float64
}

// quantity is a quantity over which a curve can run; its name is the name of its flag.
type quantity struct {
	name   string
	symbol string
	label  string // label of an axis, with the unit
	whole  bool
	low    float64
	set    func(*account.Query, float64)
}

func quantities() []quantity {
	return []quantity{
		{"rounds", "rounds", "rounds", true, 1, func(q *account.Query, x float64) { q.Rounds = int64(x) }},
		{"n", "n", "clients n", true, 1, func(q *account.Query, x float64) { q.Population = int64(x) }},
		{"k", "k", "reports a round k", true, 1, func(q *account.Query, x float64) { q.Reports = int64(x) }},
		{"gamma", "γ", "chance γ of a client to take part in a round", false, 0, func(q *account.Query, x float64) { q.Gamma = x }},
		{"eps0", "ε₀", "ε₀ of one report (nats)", false, 0, func(q *account.Query, x float64) { q.Eps0 = x }},
		{"delta", "δ", "δ", false, 0, func(q *account.Query, x float64) { q.Delta = x }},
	}
}

// curves returns the ways in which the text of a curve can begin: each quantity, with "=".
func curves() (out []string) {
	for _, q := range quantities() {
		out = append(out, q.name+"=")
	}
	return out
}

// maxCurve bounds the number of a curve's points.
const maxCurve = 10000

// parseCurve reads "rounds=1,10,100" or, evenly spaced in the logarithm,
// "rounds=1..1e6:20".
func parseCurve(text string) (curve, error) {
	name, list, ok := strings.Cut(text, "=")
	at := slices.IndexFunc(quantities(), func(q quantity) bool { return q.name == name })
	if !ok || at < 0 {
		return curve{}, usage("--curve %q must have the form rounds=1,10,100 or rounds=1..1e6:20, of rounds, n, k, gamma, eps0 or delta", text)
	}
	c := curve{quantity: quantities()[at]}
	for _, part := range strings.Split(list, ",") {
		values, err := c.parse(text, strings.TrimSpace(part))
		if err != nil {
			return c, err
		}
		if c.values = append(c.values, values...); len(c.values) > maxCurve {
			return c, usage("--curve has more than %d points", maxCurve)
		}
	}
	return c, nil
}

func (c curve) parse(text, part string) ([]float64, error) {
	from, rest, ranged := strings.Cut(part, "..")
	low, err := c.number(text, from)
	if err != nil || !ranged {
		return []float64{low}, err
	}
	to, number, counted := strings.Cut(rest, ":")
	high, err := c.number(text, to)
	if err != nil {
		return nil, err
	}
	points, err := setting.ParseCount(number)
	if !counted || err != nil || points < 2 || points > maxCurve || !(high > low && low > 0) {
		return nil, usage("--curve %q: %q must have the form low..high:points, 0 < low < high, 2 to %d points", text, part, maxCurve)
	}
	var out []float64
	for i := range points {
		x := low * math.Exp(math.Log(high/low)*float64(i)/float64(points-1))
		switch {
		case i == points-1:
			x = high
		case c.whole:
			x = math.Round(x)
		default:
			// Four digits are enough: the values are for people.
			x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
			x = math.Min(math.Max(x, low), high)
		}
		if len(out) == 0 || x > out[len(out)-1] {
			out = append(out, x)
		}
	}
	return out, nil
}

func (c curve) number(text, part string) (float64, error) {
	if c.whole {
		n, err := setting.ParseCount(part)
		if err != nil || float64(n) < c.low {
			return 0, usage("--curve %q: %s %q must be a whole number of at least %g", text, c.name, part, c.low)
		}
		return float64(n), nil
	}
	x, err := strconv.ParseFloat(part, 64)
	if err != nil || !(x > c.low) || math.IsInf(x, 1) {
		return 0, usage("--curve %q: %s %q must be a number above %g", text, c.name, part, c.low)
	}
	return x, nil
}

// queries returns the curve's questions. The quantity must not be given as a flag as well.
func (c curve) queries(fs *pflag.FlagSet, q account.Query) ([]account.Query, error) {
	if fs.Changed(c.name) {
		return nil, usage("--curve %s=... contradicts --%s", c.name, c.name)
	}
	if c.name == "delta" && q.AskDelta {
		return nil, usage("--curve delta=... contradicts --eps")
	}
	out := make([]account.Query, len(c.values))
	for i, x := range c.values {
		out[i] = q
		c.set(&out[i], x)
	}
	return out, nil
}

// value returns the quantity's value in a query.
func (c quantity) value(q account.Query) float64 {
	switch c.name {
	case "rounds":
		return float64(q.Rounds)
	case "n":
		return float64(q.Population)
	case "k":
		return float64(q.Reports)
	case "gamma":
		return q.Gamma
	case "eps0":
		return q.Eps0
	default:
		return q.Delta
	}
}
