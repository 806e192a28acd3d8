//go:build js && wasm

// Command benchmark times a report in a browser: it defines riffleReport(name), which returns the times
// in milliseconds of 50 reports of 1,930 parameters, randomized, encoded and sealed as service/client
// does. The name is a randomizer, such as stepunit, or sum, or proved.
package main

import (
	"context"
	"fmt"
	"syscall/js"
	"time"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

const (
	dim     = 1930
	reports = 50
)

func main() {
	js.Global().Set("riffleReport", js.FuncOf(func(_ js.Value, args []js.Value) any {
		times, err := measure(args[0].String())
		if err != nil {
			return err.Error()
		}
		return times
	}))
	select {}
}

func describe(name string) (wire.Mechanism, error) {
	switch name {
	case "sum":
	case "proved":
		p, err := vecsum.NewAggregated(1000, dim, 1, 10)
		if err != nil {
			return wire.Mechanism{}, err
		}
		sigma, _, err := p.Sigma(1)
		if err != nil {
			return wire.Mechanism{}, err
		}
		m, err := mechanism.NewAggregatedSum(p, sigma, 1000)
		if err != nil {
			return wire.Mechanism{}, err
		}
		return m.Describe(), nil
	default:
		return mechanism.Describe(name, randomizer.Config{Dim: dim, Radius: 1, Eps0: 2}, "norm")
	}
	p, err := vecsum.Tight(vecsum.Target{Eps: 1, Delta: 1e-6, Users: 1000, MinUsers: 1000, Dim: dim, Radius: 1})
	if err != nil {
		return wire.Mechanism{}, err
	}
	sigma, _, err := p.Sigma(context.Background(), 1e-6, 1)
	if err != nil {
		return wire.Mechanism{}, err
	}
	m, err := mechanism.NewVectorSum(p, sigma)
	if err != nil {
		return wire.Mechanism{}, err
	}
	return m.Describe(), nil
}

func measure(name string) (times []any, err error) {
	w, err := describe(name)
	if err != nil {
		return nil, err
	}
	m, err := mechanism.New(w)
	if err != nil {
		return nil, err
	}
	norm, err := mechanism.Norm(w)
	if err != nil {
		return nil, err
	}
	reporter, err := client.New(client.Config{Mechanism: m, ClipMode: client.ClipMode(w.ClipMode), Clip: w.Clip, Norm: norm})
	if err != nil {
		return nil, err
	}
	key, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
	if err != nil {
		return nil, err
	}
	grad := make([]float32, dim)
	for i := range grad {
		grad[i] = float32(i%7) - 3
	}
	for range reports {
		digest := [32]byte{1}
		begun := time.Now()
		of := reporter.ForRound(digest)
		out := of.NewReport()
		of.Report(rng.Secure(), grad, out)
		part, share, err := mechanism.Contents(rng.Secure(), m, digest, out)
		if err != nil {
			return nil, err
		}
		report := wire.Report{Announcement: digest}
		if report.Part, err = envelope.SealPart(key.Public, envelope.Coordinator, digest, part); err != nil {
			return nil, err
		}
		if len(share) > 0 {
			if report.Share, err = envelope.SealPart(key.Public, envelope.Aggregator, digest, share); err != nil {
				return nil, err
			}
		}
		if _, err := envelope.SealReport(key.Public, &report, wire.ID{}); err != nil {
			return nil, fmt.Errorf("seal: %w", err)
		}
		times = append(times, float64(time.Since(begun))/1e6)
	}
	return times, nil
}
