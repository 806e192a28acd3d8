package endpoint

import (
	"runtime/metrics"
	"time"
)

var started = time.Now()

// processMetrics describes the process by the runtime's own counts.
func processMetrics() []Metric {
	samples := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	value := func(i int) []Sample {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return nil
		}
		return []Sample{{nil, float64(samples[i].Value.Uint64())}}
	}
	return []Metric{
		{"riffle_goroutines", "Goroutines.", Gauge, value(0)},
		{"riffle_memory_bytes", "Memory mapped by the runtime.", Gauge, value(1)},
		{"riffle_heap_bytes", "Memory of live and unswept objects.", Gauge, value(2)},
		{"riffle_gc_cycles_total", "Collections.", Counter, value(3)},
		{"riffle_uptime_seconds", "Seconds since the start.", Gauge, []Sample{{nil, time.Since(started).Seconds()}}},
	}
}
