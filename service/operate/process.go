package operate

import (
	"runtime/metrics"
	"time"

	"github.com/riffle-dp/riffle/service/endpoint"
)

var started = time.Now()

// processMetrics describes the process by the runtime's own counts.
func processMetrics() []endpoint.Metric {
	samples := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	value := func(i int) []endpoint.Sample {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return nil
		}
		return []endpoint.Sample{{Value: float64(samples[i].Value.Uint64())}}
	}
	return []endpoint.Metric{
		{Name: "riffle_goroutines", Help: "Goroutines.", Kind: endpoint.Gauge, Samples: value(0)},
		{Name: "riffle_memory_bytes", Help: "Memory mapped by the runtime.", Kind: endpoint.Gauge, Samples: value(1)},
		{Name: "riffle_heap_bytes", Help: "Memory of live and unswept objects.", Kind: endpoint.Gauge, Samples: value(2)},
		{Name: "riffle_gc_cycles_total", Help: "Collections.", Kind: endpoint.Counter, Samples: value(3)},
		{Name: "riffle_uptime_seconds", Help: "Seconds since the start.", Kind: endpoint.Gauge, Samples: []endpoint.Sample{{Value: time.Since(started).Seconds()}}},
	}
}
