package coordinator

import (
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// BenchmarkRound runs one round of 4000 messages; BenchmarkOpenPart is the HPKE open
// that each of them needs.
func BenchmarkRound(b *testing.B) { benchmarkRound(b, 4000, 0) }

func BenchmarkRoundOfEight(b *testing.B) { benchmarkRound(b, 500, 8) }

func benchmarkRound(b *testing.B, clients, messages int64) {
	w := newWorld(b, dp.Shuffle, dp.All, func(w *world) {
		w.n, w.task.Rounds, w.task.Messages = clients, 1, messages
	})
	w.sh.PerChunk = 500
	var parts [][]byte
	w.sh.Fill = func(a wire.Announcement) ([][]byte, [][]byte) {
		b.StopTimer()
		defer b.StartTimer()
		parts, _ = w.fill(a)
		return parts, nil
	}
	for b.Loop() {
		w.disk = newDisk(w.t)
		w.task.Name += "x"
		w.config.Signed = wire.Sign(w.key, wire.LabelTask, wire.Encode(w.task))
		p, err := w.start(nil, func(c *Config) { c.Workers = 2 })
		if err != nil {
			b.Fatal(err)
		}
		if s := w.end(p); s.Reports != clients {
			b.Fatalf("%+v", s)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4000, "ns/message")
}

func BenchmarkOpenPart(b *testing.B) {
	w := newWorld(b, dp.Shuffle, dp.All)
	var a [32]byte
	sealed, err := envelope.SealPart(w.ring.Keys[0], envelope.Coordinator, a, make([]byte, 12))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := w.ring.OpenPart(envelope.Coordinator, a, sealed); err != nil {
			b.Fatal(err)
		}
	}
}
