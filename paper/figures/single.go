package figures

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/picture"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

const ownFigures = "riffle, single messages"

// What the figures of single messages have in common: the default run's clients, rounds and
// model, and the δ at which ε is bounded.
const (
	singleClients = 60_000
	singleRounds  = 160
	singleDim     = 1930
	singleDelta   = 1e-5
)

// singleSetting is the setting as captions state it.
const singleSetting = "n = 60,000 clients, T = 160 rounds of all of them, δ = 1e-5, replace-one; 1,930 parameters"

// law is a randomizer of single messages.
type law struct {
	name, label string // as those of a series
	short       string // in the table
	randomizer  string
	steps       int
	style       picture.Style
	shown       []int64 // numbers of messages in the picture against ε
}

var laws = []law{
	{"privunit", "PrivUnit, edge with least noise", "PrivUnit", randomizer.PrivUnit, 0, picture.Style{Colour: vermilion, Marker: picture.Square}, []int64{1, 8}},
	{"privunit-shuffled", "PrivUnit, edge for the shuffle", "one step", randomizer.StepUnit, 1, picture.Style{Colour: blue, Dash: picture.Dashed, Marker: picture.Triangle}, []int64{1, 8}},
	{"stepunit-3", "StepUnit, 3 steps", "three steps", randomizer.StepUnit, 3, picture.Style{Width: 2.2, Marker: picture.Dot}, messageCounts},
}

// messageCounts are the messages of each client in a round.
var messageCounts = []int64{1, 2, 4, 8}

// run is what rounds of single messages cost, and how noisy their means are.
type run struct {
	eps   float64 // proved, of all rounds
	noise float64 // variance of a coordinate of a round's mean, in units of C²/n
	ratio float64 // noise over that of the central Gaussian mechanism with the same ε
}

// run asks for one law, ε₀ and number of messages.
func (d *desk) run(ctx context.Context, l law, eps0 float64, messages int64) (run, error) {
	m, err := randomizer.New(l.randomizer, randomizer.Config{Dim: singleDim, Radius: 1, Eps0: eps0, Steps: l.steps})
	if err != nil {
		return run{}, fmt.Errorf("figures: %w", err)
	}
	q := account.Query{Participation: dp.All, Population: singleClients, Rounds: singleRounds, Messages: messages, Delta: singleDelta}.Of(m.Event())
	eps, err := d.eps(ctx, q, upper)
	if err != nil {
		return run{}, err
	}
	out := run{eps: eps, noise: noiseOf(m, messages)}
	central, err := centralNoise(eps)
	if err != nil {
		return run{}, err
	}
	out.ratio = out.noise / central
	return out, nil
}

// noiseOf returns the variance of a coordinate of a round's mean, in units of C²/n.
func noiseOf(m randomizer.Randomizer, messages int64) float64 {
	return m.Facts().MSE / singleDim / float64(messages)
}

// centralNoise returns the variance, in units of C²/n, that a trusted curator adds to each
// coordinate of every round's mean so that all rounds cost ε. Replacing a client moves a mean by
// 2C/n at most, so rounds with noise s²·C²/n are Gaussian with μ² = 4T/(n·s²) together.
func centralNoise(eps float64) (float64, error) {
	mu, err := gdp.Calibrate(dp.Guarantee{Eps: eps, Delta: singleDelta})
	if err != nil {
		return 0, fmt.Errorf("figures: %w", err)
	}
	return 4 * singleRounds / (singleClients * float64(mu*mu)), nil
}

// runs computes a run for each law, number of messages and ε₀, in this order, on all
// processors.
func (d *desk) runs(ctx context.Context, eps0 []float64) ([]run, error) {
	out := make([]run, len(laws)*len(messageCounts)*len(eps0))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	jobs := make(chan int)
	var wg sync.WaitGroup
	for range max(1, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range jobs {
				r, err := d.run(ctx, laws[i/len(eps0)/len(messageCounts)], eps0[i%len(eps0)], messageCounts[i/len(eps0)%len(messageCounts)])
				if err != nil {
					stop(err)
					return
				}
				out[i] = r
			}
		})
	}
feed:
	for i := range out {
		select {
		case jobs <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(jobs)
	wg.Wait()
	return out, context.Cause(ctx)
}

const (
	ratioAxis   = "noise variance over the central Gaussian's"
	centralNote = "“Central Gaussian” is a trusted curator who adds Gaussian noise to each round's mean; its T rounds have the same proved ε, by the exact curve of their composition. A ratio of 1 would be as good; √ratio compares standard deviations."
	noiseNote   = "The noise is that of the randomizer, the bound on its mean squared error (at x = 0) by coordinate and over m messages. A report with encoding seed has the same noise but for a few thousandths."
	eachNote    = "With many reports the ratio depends on the randomizer and on the ε₀ of a message only, not on n, T or m (here to four digits): what several messages buy is a smaller ε₀ at the same ε."
	edgesNote   = "PrivUnit's own edge has the least noise of an ε₀-LDP report. “Edge for the shuffle” is the edge with the least noise for what a shuffle reveals (--randomizer stepunit --steps 1): less noise at equal ε, at a larger ε₀. Three steps go further the same way."
)

func singleFigures() []figure {
	notes := []string{centralNote, noiseNote, eachNote, edgesNote}
	return []figure{
		{Name: "noise-eps0", Paper: ownFigures, Where: "Noise against ε₀", Title: "Noise at equal ε, against ε₀ of a message",
			Caption: "Variance of a mean's noise over that of the central Gaussian mechanism with the same proved ε: " + singleSetting + ", one message of each client in a round; 2, 4 and 8 in the CSV.",
			Notes:   notes, draw: noiseByEps0},
		{Name: "noise-eps", Paper: ownFigures, Where: "Noise against ε", Title: "Noise at equal ε, with m messages of each client",
			Caption: "The same against the ε of all rounds, for m messages of each client in a round: " + singleSetting + ". PrivUnit with m = 2 and 4 is in the CSV.",
			Notes:   notes, draw: noiseByEps},
		{Name: "noise-table", Paper: ownFigures, Where: "Table", Title: "Noise at equal ε, by ε₀ and messages",
			Caption: "The numbers of the pictures: " + singleSetting + ". ε₀ is of one message, m·ε₀ what a client's messages of a round promise together without the shuffle, v·C²/n the variance of a coordinate of a round's mean. “One step” is PrivUnit with the edge for the shuffle, “three steps” StepUnit.",
			Notes:   notes, draw: noiseTable},
		trustFigure(),
	}
}

// singleEps0 are the ε₀ of the curves; tableEps0 those of the table.
var (
	singleEps0 = gridOf(.25, 5, 14)
	tableEps0  = []float64{.5, 1, 1.5, 2, 2.5, 3, 4}
)

func noiseByEps0(ctx context.Context, d *desk) (data, error) {
	xs := fewer(singleEps0, d.points)
	runs, err := d.runs(ctx, xs)
	if err != nil {
		return data{}, err
	}
	out := data{XName: "eps0", X: picture.Axis{Label: "ε₀ of one message (nats)", Scale: picture.Linear, Min: 0, Max: 5}, Y: picture.Axis{Label: ratioAxis, Scale: picture.Log, Min: 1, Max: 20}}
	for _, l := range laws {
		for _, m := range messageCounts {
			s := l.series(m, runs[:len(xs)], xs)
			runs = runs[len(xs):]
			s.Label, s.Hidden = l.label, m > 1
			out.Series = append(out.Series, s)
		}
	}
	return out, nil
}

// series returns one law's ratios.
func (l law) series(messages int64, runs []run, xs []float64) series {
	s := series{Name: fmt.Sprintf("%s m=%d", l.name, messages), Kind: "upper", Source: l.source(), X: xs, Style: l.style}
	for _, r := range runs {
		s.Y = append(s.Y, r.ratio)
	}
	return s
}

// source says which theorem bounds ε.
func (l law) source() string {
	if l.randomizer == randomizer.PrivUnit {
		return "riffle, cap-pld (dp/amplify/rising.md)"
	}
	return "riffle, rising-pld (dp/amplify/rising.md)"
}

// manyStyles tell the numbers of messages apart.
var manyStyles = []picture.Style{{Marker: picture.Dot}, {Dash: picture.Dashed, Marker: picture.Square}, {Dash: picture.DashDot, Marker: picture.Triangle}, {Dash: picture.Dotted, Marker: picture.Ring}}

func noiseByEps(ctx context.Context, d *desk) (data, error) {
	eps0 := fewer(singleEps0, d.points)
	runs, err := d.runs(ctx, eps0)
	if err != nil {
		return data{}, err
	}
	out := data{XName: "eps", X: picture.Axis{Label: "ε of all rounds (nats) at δ = 1e-5", Scale: picture.Log, Min: .1, Max: 5}, Y: picture.Axis{Label: ratioAxis, Scale: picture.Log, Min: 1, Max: 20}}
	for _, l := range laws {
		for i, m := range messageCounts {
			var xs []float64
			for _, r := range runs[:len(eps0)] {
				xs = append(xs, r.eps)
			}
			s := l.series(m, runs[:len(eps0)], xs)
			runs = runs[len(eps0):]
			s.Label, s.Style = fmt.Sprintf("%s, m = %d", l.label, m), manyStyles[i]
			s.Style.Colour, s.Style.Width, s.Hidden = l.style.Colour, l.style.Width, !slices.Contains(l.shown, m)
			out.Series = append(out.Series, s)
		}
	}
	return out, nil
}

func noiseTable(ctx context.Context, d *desk) (data, error) {
	xs := fewer(tableEps0, d.points)
	runs, err := d.runs(ctx, xs)
	if err != nil {
		return data{}, err
	}
	t := table{Header: []string{"ε₀", "m", "m·ε₀"}}
	for _, l := range laws {
		t.Header = append(t.Header, l.short+": v", l.short+": ε", l.short+": ratio")
	}
	at := func(l, m, e int) run { return runs[(l*len(messageCounts)+m)*len(xs)+e] }
	for e, eps0 := range xs {
		for i, m := range messageCounts {
			row := []string{picture.Number(eps0), fmt.Sprint(m), picture.Number(eps0 * float64(m))}
			for l := range laws {
				r := at(l, i, e)
				row = append(row, fmt.Sprintf("%.3g", r.noise), digits(r.eps, "upper"), digits(r.ratio, "upper"))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return data{Table: t}, nil
}
