//go:build unix

package proved

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/prio3"
)

// loop runs f, which handles so many reports, as often as b asks. It reports the processor time
// that a report needs, and what a core does in a second: beside other programs, elapsed time says little.
func loop(b *testing.B, reports int, f func() error) {
	used := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	runs, before := 0, used()
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
		runs += reports
	}
	each := (used() - before) / float64(runs)
	b.ReportMetric(1000*each, "cpu-ms/report")
	b.ReportMetric(1/each, "reports/core-s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReport is a report at client, aggregator and coordinator, from the opened half to the sum.
// Sealing, sending and opening are not in it.
func BenchmarkReport(b *testing.B) {
	const places = 64
	for _, d := range []int{1930, 13706} {
		r := mustNew(b, Config{Dim: d, Bound: 1<<15 + 59, Users: 60_000})
		src := rng.Replay(1)
		x := vector(src, d, 1<<15, 1)
		aggregator, coordinator := r.Sizes()
		b.Run(fmt.Sprint("proved/client/", d), func(b *testing.B) {
			loop(b, 1, func() error { _, _, err := r.Report(src, x); return err })
			b.ReportMetric(float64(aggregator), "aggregator-bytes")
			b.ReportMetric(float64(coordinator), "coordinator-bytes")
		})
		var reports []report
		for range places {
			reports = append(reports, mustReport(b, r, src, x))
		}
		messages := [2][]byte{}
		for k, s := range newSums(b, r, key, places) {
			messages[k] = mustBegin(b, s, reports)
		}
		for k, role := range []string{"aggregator", "coordinator"} {
			b.Run(fmt.Sprint("proved/", role, "/", d), func(b *testing.B) {
				loop(b, places, func() error {
					s := newSums(b, r, key, places)[k]
					mustBegin(b, s, reports)
					reasons, err := s.Finish(messages[1-k])
					for _, reason := range reasons {
						if reason != Accepted {
							b.Fatal(reason)
						}
					}
					return err
				})
				b.ReportMetric(float64(len(messages[k]))/places, "message-bytes/report")
			})
		}
	}
	const d = 1930
	s, err := prio3.New(vecsum.Config{Params: vecsum.Params{Users: 1 << 40, MinUsers: 1, Dim: d, Radius: 1, Grid: 355, Norm: vecsum.Norm(d, 355, vecsum.NormBeta),
		Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 156}}})
	if err != nil {
		b.Fatal(err)
	}
	src := rng.Replay(1)
	counts := make([]int64, d)
	for j := range counts {
		counts[j] = int64(src.Uint64() % 512)
	}
	b.Run("prio3/client/1930", func(b *testing.B) {
		loop(b, 1, func() error { _, err := s.Messages(src, counts); return err })
		b.ReportMetric(float64(s.Cost().Bytes), "bytes")
	})
	m, err := s.Messages(src, counts)
	if err != nil {
		b.Fatal(err)
	}
	begin := func(k int) (*prio3.Aggregator, []byte, error) { // none takes a report twice
		a, err := s.NewAggregator(k, prio3.VerifyKey{1})
		if err != nil {
			return nil, nil, err
		}
		prep, err := a.Begin(m[k])
		return a, prep, err
	}
	for k, role := range []string{"leader", "helper"} {
		_, other, err := begin(1 - k)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("prio3/"+role+"/1930", func(b *testing.B) {
			loop(b, 1, func() error {
				a, _, err := begin(k)
				if err != nil {
					return err
				}
				return a.Finish(other)
			})
		})
	}
}

// BenchmarkNew is what begins a round.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		mustNew(b, Config{Dim: 1930, Bound: 1<<15 + 22, Users: 60_000})
	}
}
