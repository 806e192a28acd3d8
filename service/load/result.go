package load

import (
	"math"
	"time"
)

// Result is what was measured.
type Result struct {
	Clients     int     `json:"clients"`
	Connections string  `json:"connections"`
	Seconds     float64 `json:"seconds"` // from the first report to the last answer to one
	Rounds      int64   `json:"rounds"`
	// Reports is the number of reports that were taken, Again how often one of them was taken once more.
	Reports int64 `json:"reports"`
	Again   int64 `json:"again"`
	// Rate is (Reports + Again) / Seconds.
	Rate     float64 `json:"reports_per_second"`
	Sent     int64   `json:"bytes_sent"` // over TCP, by all requests
	Received int64   `json:"bytes_received"`
	Opened   int64   `json:"connections_opened"`
	Resumed  int64   `json:"connections_resumed"`
	// Requests has the times of requests by kind: announcement, model, session, ask, report, again, other.
	Requests map[string]Times `json:"requests"`
	// Errors counts the requests without a good answer, by kind and reason.
	Errors map[string]map[string]int64 `json:"errors,omitempty"`
	// Declined counts what clients declined, by cause.
	Declined map[string]int64 `json:"declined,omitempty"`
}

// Times are of requests with a good answer, from the begin of the connection, if it has one of its own, to the
// answer's end; in seconds. Quantiles are at most 5 % too large.
type Times struct {
	Count   int64   `json:"count"`
	Median  float64 `json:"median"`
	P90     float64 `json:"p90"`
	P99     float64 `json:"p99"`
	Longest float64 `json:"longest"`
}

// histogram counts durations in classes whose limits grow by 5 %, from 1 µs on.
type histogram struct {
	count   int64
	longest time.Duration
	classes [480]int64
}

const classRatio = 1.05

func (h *histogram) add(d time.Duration) {
	i := 0
	if us := float64(d) / float64(time.Microsecond); us > 1 {
		i = min(len(h.classes)-1, int(math.Ceil(math.Log(us)/math.Log(classRatio))))
	}
	h.classes[i]++
	h.count++
	h.longest = max(h.longest, d)
}

// quantile returns a limit below which the share q lies, in seconds.
func (h *histogram) quantile(q float64) float64 {
	need := int64(math.Ceil(q * float64(h.count)))
	for i, n := range h.classes {
		if need -= n; need <= 0 {
			return min(math.Pow(classRatio, float64(i))*1e-6, h.longest.Seconds())
		}
	}
	return h.longest.Seconds()
}

func (h *histogram) times() Times {
	if h.count == 0 {
		return Times{}
	}
	return Times{Count: h.count, Median: h.quantile(.5), P90: h.quantile(.9), P99: h.quantile(.99), Longest: h.longest.Seconds()}
}
