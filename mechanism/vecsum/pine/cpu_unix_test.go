//go:build unix

package pine

import (
	"syscall"
	"testing"
	"time"
)

// loop runs f as often as b asks, and reports the processor time of a run too: beside other
// programs, elapsed time says little.
func loop(b *testing.B, f func() error) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	runs, before := 0, used()
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
		runs++
	}
	b.ReportMetric(float64((used()-before).Microseconds())/float64(runs)/1000, "cpu-ms/op")
}
