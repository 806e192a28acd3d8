package store

import (
	"fmt"
	"testing"
)

const reportBytes = 300

func blockBench(b *testing.B) (*Store, []byte) {
	s := fresh(b)
	must(b, s.createStream(b.Context(), "blocks", streamConfig{}))
	block := make([]byte, MaxBlock)
	b.SetBytes(MaxBlock)
	return s, block
}

func reports(b *testing.B) {
	b.ReportMetric(float64(b.N)*(MaxBlock/reportBytes)/b.Elapsed().Seconds(), "reports/s")
}

func BenchmarkAppendBlock(b *testing.B) {
	s, block := blockBench(b)
	for b.Loop() {
		_, err := s.Append(b.Context(), "blocks", "", "", block)
		must(b, err)
	}
	reports(b)
}

func BenchmarkAppendBlockParallel(b *testing.B) {
	s, block := blockBench(b)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Append(b.Context(), "blocks", "", "", block); err != nil {
				b.Error(err)
				return
			}
		}
	})
	reports(b)
}

func BenchmarkAppender(b *testing.B) {
	s, block := blockBench(b)
	a := s.appender("blocks")
	for i := 0; b.Loop(); i++ {
		must(b, a.Append(b.Context(), fmt.Sprint(i), "", block))
	}
	must(b, a.Flush(b.Context()))
	reports(b)
}

func BenchmarkReadBlocks(b *testing.B) {
	s, block := blockBench(b)
	a := s.appender("blocks")
	const blocks = 2000
	for range blocks {
		must(b, a.Append(b.Context(), "", "", block))
	}
	must(b, a.Flush(b.Context()))
	b.SetBytes(blocks * MaxBlock)
	for b.Loop() {
		n := 0
		for _, err := range s.Read(b.Context(), "blocks", "", 0) {
			must(b, err)
			n++
		}
		if n != blocks {
			b.Fatalf("read %d", n)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	s := fresh(b)
	rev, err := s.Put(b.Context(), "k", make([]byte, 200), 0)
	must(b, err)
	for b.Loop() {
		rev, err = s.Put(b.Context(), "k", make([]byte, 200), rev)
		must(b, err)
	}
}

func BenchmarkGet(b *testing.B) {
	s := fresh(b)
	_, err := s.Put(b.Context(), "k", make([]byte, 200), 0)
	must(b, err)
	for b.Loop() {
		_, err := s.Get(b.Context(), "k")
		must(b, err)
	}
}

func BenchmarkAppendLedger(b *testing.B) {
	s := fresh(b)
	entry := make([]byte, 200)
	last, err := uint64(0), error(nil)
	for b.Loop() {
		last, err = s.AppendEntry(b.Context(), last, entry)
		must(b, err)
	}
}

func BenchmarkOpenStore(b *testing.B) {
	s := fresh(b)
	closed(b, s)
	for b.Loop() {
		s, err := Open(b.Context(), s.config)
		must(b, err)
		closed(b, s)
	}
}
