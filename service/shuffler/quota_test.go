//go:build soak && linux

package shuffler

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// closerEnv makes the test binary a shuffler that closes a round: time at which its keys expire, the
// servers, the number of clients, and the round's name.
const closerEnv = "RIFFLE_SHUFFLER_CLOSER"

func quotaConfig(t *testing.T, expires int64, clients int) (*world, Config) {
	w := powerWorld(t, expires)
	w.clients = nil
	c := w.config()
	for i := range clients {
		key := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
		c.Roster = append(c.Roster, key[:]...)
	}
	c.Bucket = 8_000_000
	if n, err := strconv.ParseInt(os.Getenv("RIFFLE_BUCKET"), 10, 64); err == nil {
		c.Bucket = n
	}
	c.Poll, c.Lease, c.BlockWait = 50*time.Millisecond, 15*time.Second, 10*time.Millisecond
	return w, c
}

func TestCloserChild(t *testing.T) {
	f := strings.Split(os.Getenv(closerEnv), "|")
	if len(f) != 4 {
		t.Skip("a part of TestClosingUnderQuota")
	}
	expires, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := strconv.Atoi(f[2])
	if err != nil {
		t.Fatal(err)
	}
	debug.SetGCPercent(200) // as riffle serve shuffler does
	w, c := quotaConfig(t, expires, clients)
	c.Store = on(t, store.Config{Domain: "shuffler", URL: f[1], Replicas: 1, Timeout: time.Minute})
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	n := w.start(c)
	os.Stdout.WriteString("\nready\n")
	for {
		time.Sleep(20 * time.Millisecond)
		rec, err := n.loadRecord(t.Context(), f[3])
		if err != nil {
			t.Fatal(err)
		}
		if rec.State == Closed {
			break
		}
	}
	pass := n.Snapshot().Stages["pass-2"]
	c.Log.Info("stopped", "buckets", pass.Count, "seconds", pass.Seconds)
	n.stop()
}

// TestClosingUnderQuota closes a round by one process and by two, each held to a quarter of a core by a
// cgroup, and tells how long it takes. RIFFLE_REPORTS is the number of reports, RIFFLE_BUCKET what a bucket
// may take, in bytes.
func TestClosingUnderQuota(t *testing.T) {
	group := filepath.Join("/sys/fs/cgroup/cpu", fmt.Sprintf("riffle-close-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	defer func() { // the processes have ended
		own, err := filepath.Glob(group + "*")
		for _, dir := range own {
			err = errors.Join(err, os.Remove(dir))
		}
		if err != nil {
			t.Error(err)
		}
	}()
	clients := 200_000
	if n, err := strconv.Atoi(os.Getenv("RIFFLE_REPORTS")); err == nil {
		clients = n
	}
	took := map[int]time.Duration{}
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) { took[processes] = closeUnderQuota(t, group, processes, clients) })
	}
	t.Logf("%d reports: one process %v, two %v: %.2f times as fast", clients, took[1], took[2], took[1].Seconds()/took[2].Seconds())
}

// limit puts a process into a group of its own with these settings.
func limit(t *testing.T, group string, pid int, settings map[string]string) {
	t.Helper()
	own := fmt.Sprintf("%s-%d", group, pid)
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	settings["cgroup.procs"] = strconv.Itoa(pid)
	for file, text := range settings {
		if err := os.WriteFile(filepath.Join(own, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func closeUnderQuota(t *testing.T, group string, processes, clients int) time.Duration {
	// The servers write to memory, so that it is the processes that are measured and not a disk.
	dir, err := os.MkdirTemp("/dev/shm", "riffle-close-")
	if err != nil {
		t.Skipf("no directory in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	where, nodes := cluster(t, dir, 3, 1)
	for _, cmd := range nodes {
		limit(t, group, cmd.Process.Pid, map[string]string{"cpu.shares": "20000"})
	}
	expires := time.Now().Add(24 * time.Hour).Unix()
	w, c := quotaConfig(t, expires, clients)
	c.FrontendOnly, c.Store = true, on(t, where)
	n := w.start(c)
	deadline := time.Now().Add(45 * time.Second)
	ann := n.announcement(1, func(a *wire.Announcement) {
		a.Participation, a.Gamma, a.ReportBytes, a.Deadline = dp.CheckIn, .99, 300, deadline.UnixMilli()
	})
	n.open(ann)
	d := wire.Digest(ann)
	name := encodeName(d[:])
	r, err := n.round(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan int, 1000)
	var writing sync.WaitGroup
	for range 2000 {
		writing.Go(func() {
			for i := range next {
				var tag [pure.TagSize]byte
				pure.Tag(r.order, tag[:0], r.roster.ids[i], wire.ID{byte(i), byte(i >> 8), byte(i >> 16), 1})
				part := sha256.Sum256(tag[:])
				if err := r.pack.add(context.Background(), tag[:], append(part[:], make([]byte, 268)...), nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range clients {
		next <- i
	}
	close(next)
	writing.Wait()
	t.Logf("filled with %v left", time.Until(deadline))
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCloserChild$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d|%s|%d|%s", closerEnv, expires, where.URL, clients, name), "GOMAXPROCS=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			t.Logf("a process used %v", cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}()
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "ready" {
		}
		limit(t, group, cmd.Process.Pid, map[string]string{"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "5000", "cpu.shares": "20000"})
		go func() {
			for lines.Scan() {
			}
		}()
	}
	if left := time.Until(deadline); left < time.Second {
		t.Fatalf("ready %v after the deadline", -left)
	}
	for {
		rec, err := n.loadRecord(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if rec.State == Closed {
			took := time.Since(deadline)
			word := w.word(ann, rec.Closed)
			t.Logf("%d processes: %v, %d reports in %d chunks, %d buckets by %d streams", processes, took, word.Reports, word.Chunks, 1<<rec.Plan.Bits, len(rec.streams(name)))
			if word.Reports != int64(clients) {
				t.Errorf("%d reports of %d", word.Reports, clients)
			}
			return took
		}
		time.Sleep(20 * time.Millisecond)
	}
}
