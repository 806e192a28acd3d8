package figures

import (
	"context"
	"fmt"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/picture"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// trustTargets are the ε of the table of trust modes.
var trustTargets = []float64{.25, .5, 1, 2}

func trustFigure() figure {
	return figure{Name: "noise-trust-table", Paper: ownFigures, Where: "Table of trust modes", Title: "Noise at equal ε, by whom one trusts",
		Caption: "What each trust mode adds to a round's mean so that all rounds cost ε: " + singleSetting + ". v·C²/n is the variance of a coordinate; ε₀ of one message, m·ε₀ of all that a client sends in a round.",
		Notes: []string{centralNote,
			"Two aggregators: each client adds its part of the noise (binomial) to its vector and shares the sum. If the two collude they see it behind that part alone.",
			"Or each aggregator adds the whole noise to its share, so that one honest aggregator is enough: the released sum has both. If the two collude they see each vector bare.",
			"One shuffler: m messages of StepUnit with three steps, at the largest ε₀ that the proved bound allows (riffle plan --solve eps0)."},
		draw: trustTable}
}

// trusted is a row of the table of trust modes.
type trusted struct {
	who         string
	messages    int64 // 0: does not apply
	eps0, noise float64
}

// trustedAt returns the rows for one ε.
func trustedAt(ctx context.Context, eps float64) ([]trusted, error) {
	central, err := centralNoise(eps)
	if err != nil {
		return nil, err
	}
	q := account.Query{Participation: dp.All, Population: singleClients, Rounds: singleRounds, Delta: singleDelta}
	sums := q
	sums.Class, sums.Sum = account.VectorSumClass, vecsum.Params{Dim: singleDim, Noise: vecsum.Noise{Kind: vecsum.Binomial}}
	sums, _, err = account.Plan(ctx, eps, sums, "noise")
	if err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	own := q
	own.Class, own.Sum, own.NoiseBy = account.VectorSumClass, vecsum.Params{Dim: singleDim}, vecsum.ByAggregators
	own, _, err = account.Plan(ctx, eps, own, "sigma")
	if err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	design, err := vecsum.NewAggregated(singleClients, singleDim, 1, own.Sigma)
	if err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	out := []trusted{{who: "a curator, with central Gaussian noise", noise: central},
		{who: "two aggregators, with clients' noise", noise: sums.Sum.Variance(singleClients) / singleClients},
		{who: "two aggregators, with their own noise", noise: design.NoiseVariance(singleClients) / singleClients}}
	for _, m := range messageCounts {
		config := randomizer.Config{Dim: singleDim, Radius: 1}
		made := func(eps0 float64) (randomizer.Randomizer, error) {
			config.Eps0 = eps0
			return randomizer.New(randomizer.StepUnit, config)
		}
		q.Messages = m
		eps0, _, _, err := account.PlanReport(ctx, eps, q, func(eps0 float64) (dp.Report, error) {
			r, err := made(eps0)
			if err != nil {
				return dp.Report{}, err
			}
			return r.Event(), nil
		})
		if err != nil {
			return nil, fmt.Errorf("figures: %w", err)
		}
		r, err := made(eps0)
		if err != nil {
			return nil, fmt.Errorf("figures: %w", err)
		}
		out = append(out, trusted{"one shuffler, single messages", m, eps0, noiseOf(r, m)})
	}
	return out, nil
}

func trustTable(ctx context.Context, d *desk) (data, error) {
	t := table{Header: []string{"trusted", "ε", "m", "ε₀", "m·ε₀", "v", "ratio"}}
	for _, eps := range fewer(trustTargets, d.points) {
		rows, err := trustedAt(ctx, eps)
		if err != nil {
			return data{}, err
		}
		for _, r := range rows {
			row := []string{r.who, picture.Number(eps), "–", "–", "–"}
			if r.messages > 0 {
				row = append(row[:2], fmt.Sprint(r.messages), digits(r.eps0, "upper"), digits(r.eps0*float64(r.messages), "upper"))
			}
			t.Rows = append(t.Rows, append(row, digits(r.noise, "upper"), digits(r.noise/rows[0].noise, "upper")))
		}
	}
	return data{Table: t}, nil
}
