//go:build unix

package train

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
)

// BenchmarkExternal measures rounds of a program that answers at once: reading, clipping,
// randomizing and summing, in gradients a second and in processor time a gradient.
func BenchmarkExternal(b *testing.B) {
	const numpy = -1
	for _, c := range []struct {
		trust dp.Trust
		dim   int // numpy: the example's network, of 2,410 parameters
		n     int64
	}{{dp.VectorSum, 7850, 10000}, {dp.Shuffle, 7850, 10000}, {dp.None, 7850, 10000}, {dp.VectorSum, 1000000, 50}, {dp.VectorSum, numpy, 6000}, {dp.Shuffle, numpy, 6000}} {
		name := fmt.Sprintf("%s/d=%d", c.trust, c.dim)
		if c.dim == numpy {
			name = string(c.trust) + "/numpy"
		}
		b.Run(name, func(b *testing.B) {
			config := bowl(fmt.Sprintf("fast=%d", c.dim), func(config *Config) {
				if c.dim == numpy {
					if exec.Command("/usr/bin/python3", "-c", "import numpy").Run() != nil {
						b.Skip("no numpy")
					}
					b.Setenv("OMP_NUM_THREADS", "1")
					config.Gradients = "/usr/bin/python3 ../../python/examples/numpy_mlp.py"
				}
				config.Trust, config.Population, config.Rounds, config.EvalEvery, config.CheckpointEvery = c.trust, c.n, 1e6, 1e6, 1e6
				config.LR, config.Clip = "0.1", 1
				switch {
				case c.trust == dp.VectorSum:
					config.Sigma = 1
				case c.trust == dp.Shuffle:
					config.Eps0 = 2.5
				}
			})
			r, err := Prepare(b.Context(), config)
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			own := used(b, syscall.RUSAGE_SELF)
			rounds := int64(0)
			for b.Loop() {
				if _, err := r.simulation.Round(b.Context(), nil); err != nil {
					b.Fatal(err)
				}
				rounds++
			}
			each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(rounds*c.n) }
			b.ReportMetric(float64(rounds*c.n)/b.Elapsed().Seconds(), "gradients/s")
			b.ReportMetric(each(used(b, syscall.RUSAGE_SELF)-own), "µs-riffle/gradient")
			before := used(b, syscall.RUSAGE_CHILDREN)
			r.Close()
			b.ReportMetric(each(used(b, syscall.RUSAGE_CHILDREN)-before), "µs-program/gradient")
			b.ReportMetric(0, "ns/op")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
		})
	}
}

// used returns the processor time of this process, or of its children that have ended.
func used(b *testing.B, who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
