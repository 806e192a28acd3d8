//go:build unix

package coordinator

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
)

const (
	loadDim  = 1930
	loadEps0 = 2.834
)

// loadMechanism is that of the benchmark's task.
func loadMechanism(encoding string) (wire.Mechanism, error) {
	return mechanism.Describe(randomizer.StepUnit, randomizer.Config{Dim: loadDim, Radius: 1, Eps0: loadEps0, Encoding: encoding}, "norm")
}

// BenchmarkLargeRound runs one round of RIFFLE_REPORTS reports of StepUnit, d = 1,930, in encoding
// RIFFLE_ENCODING (seed or values): the coordinator charges the batch, fetches it from a shuffler
// in another process, opens every report, adds it and takes the step. b.N does not count.
func BenchmarkLargeRound(b *testing.B) {
	n, err := strconv.ParseInt(os.Getenv("RIFFLE_REPORTS"), 10, 64)
	if err != nil {
		n = 2000
	}
	encoding := os.Getenv("RIFFLE_ENCODING")
	if encoding == "" {
		encoding = randomizer.Seed
	}
	w := newWorld(b, dp.Shuffle, dp.All, func(w *world) {
		w.n, w.task.Rounds = n, 1
		if w.task.Mechanism, err = loadMechanism(encoding); err != nil {
			b.Fatal(err)
		}
	})
	w.config.Round = 20 * time.Hour
	w.config.Optimizer = func() (pure.Learner, error) {
		return optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: loadDim, Schedule: func(int64) float64 { return .5 }})
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), loadChild+"="+hex.EncodeToString(w.key.Public().(ed25519.PublicKey)),
		"RIFFLE_REPORTS="+strconv.FormatInt(n, 10), "RIFFLE_ENCODING="+encoding)
	child.Stderr = os.Stderr
	stop, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	says, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		stop.Close() // it ends with its input
		if err := child.Wait(); err != nil {
			b.Error(err)
		}
	}()
	line, err := bufio.NewReader(says).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	url, public, _ := strings.Cut(strings.TrimSpace(line), " ")
	key, err := hex.DecodeString(public)
	if err != nil {
		b.Fatal(err)
	}
	seen := &fetched{to: &http.Transport{}}
	defer seen.to.CloseIdleConnections()
	runtime.GC()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forgets the peak, where there is one

	b.ResetTimer()
	before := cpuSeconds(b)
	p, err := w.start(nil, func(c *Config) {
		c.Workers = runtime.NumCPU() // as riffle coordinator has
		c.Shuffler = batch.Source{URL: url, Key: key, Client: &http.Client{Transport: seen}}
		c.LeaseTTL = 15 * time.Second
	})
	if err != nil {
		b.Fatal(err)
	}
	s, err := p.Wait(context.Background(), wire.Digest(w.task))
	used, wall := cpuSeconds(b)-before, time.Since(time.Unix(0, seen.first.Load())).Seconds()
	b.StopTimer()
	peak := peakMemory(b)
	p.stop()
	if err := <-p.done; err != nil {
		b.Error(err)
	}
	if err != nil || s.Reports != n || s.Released != 1 || len(s.Rejected) != 0 {
		b.Fatalf("%v: %+v", err, s)
	}
	r := float64(n)
	b.ReportMetric(r/wall, "reports/s")
	b.ReportMetric(1e6*used/r, "µs-cpu/report")
	b.ReportMetric(float64(seen.bytes.Load())/r, "B/report")
	b.ReportMetric(peak, "peak-MB")
}

// fetched counts the bytes of chunks and tells when the first was asked for.
type fetched struct {
	to    *http.Transport
	first atomic.Int64 // Unix nanoseconds
	bytes atomic.Int64
}

func (f *fetched) RoundTrip(q *http.Request) (*http.Response, error) {
	chunk := strings.Contains(q.URL.Path, "/chunks")
	if chunk {
		f.first.CompareAndSwap(0, time.Now().UnixNano())
	}
	r, err := f.to.RoundTrip(q)
	if err == nil && chunk {
		r.Body = countedBody{r.Body, &f.bytes}
	}
	return r, err
}

type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c countedBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// cpuSeconds is what this process has used.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// peakMemory is the most memory this process has held, in MB; 0 where it is not known.
func peakMemory(b *testing.B) (mb float64) {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if _, err := fmt.Sscan(v, &mb); err != nil {
				b.Fatal(err)
			}
		}
	}
	return mb / 1024
}
