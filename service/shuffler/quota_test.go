//go:build soak && linux

package shuffler

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
		key := millionKey(int64(i))
		c.Roster = append(c.Roster, key[:]...)
	}
	c.Bucket = 8_000_000
	if n, err := strconv.ParseInt(os.Getenv("RIFFLE_BUCKET"), 10, 64); err == nil {
		c.Bucket = n
	}
	c.Poll, c.Lease, c.BlockWait = 50*time.Millisecond, 15*time.Second, 10*time.Millisecond
	return w, c
}

// quotaChild returns what a process of these tests works with: a fourth field of the variable is a round's name.
func quotaChild(t *testing.T, variable string) (w *world, c Config, round string) {
	t.Helper()
	f := strings.Split(os.Getenv(variable), "|")
	if len(f) < 3 {
		t.Skip("a part of a test under a quota")
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
	w, c = quotaConfig(t, expires, clients)
	c.Store = on(t, store.Config{Domain: "shuffler", URL: f[1], Replicas: 1, Timeout: time.Minute})
	if len(f) > 3 {
		round = f[3]
	}
	return w, c, round
}

// whenClosed waits until a round is closed, by whichever process, and returns its record.
func (n *node) whenClosed(t *testing.T, round string) *record {
	for {
		rec, err := n.loadRecord(t.Context(), round)
		if err != nil {
			t.Fatal(err)
		}
		if rec.State == Closed {
			return rec
		}
		time.Sleep(20 * time.Millisecond) // another process shows it only in the store
	}
}

func TestCloserChild(t *testing.T) {
	w, c, round := quotaChild(t, closerEnv)
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	n := w.start(c)
	os.Stdout.WriteString("\nready\n")
	n.whenClosed(t, round)
	pass := n.Snapshot().Stages["pass-2"]
	c.Log.Info("stopped", "buckets", pass.Count, "seconds", pass.Seconds)
	n.stop()
}

// TestClosingUnderQuota closes a round by one process and by two, each held to a quarter of a core by a
// cgroup, and tells how long it takes. RIFFLE_REPORTS is the number of reports, RIFFLE_BUCKET what a bucket
// may take, in bytes.
func TestClosingUnderQuota(t *testing.T) {
	group := quotaGroup(t)
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

// quotaGroup returns what the names of the test's cgroups begin with, and removes them in the end.
func quotaGroup(t *testing.T) string {
	group := filepath.Join("/sys/fs/cgroup/cpu", fmt.Sprintf("riffle-quota-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	t.Cleanup(func() { // the processes have ended
		own, err := filepath.Glob(group + "*")
		for _, dir := range own {
			err = errors.Join(err, os.Remove(dir))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return group
}

// quotaCluster starts three servers that write to memory, so that it is the processes that are measured
// and not a disk.
func quotaCluster(t *testing.T, group string) store.Config {
	dir, err := os.MkdirTemp("/dev/shm", "riffle-quota-")
	if err != nil {
		t.Skipf("no directory in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	where, nodes := cluster(t, dir, 3, 1)
	for _, cmd := range nodes {
		limit(t, group, cmd.Process.Pid, map[string]string{"cpu.shares": "20000"})
	}
	return where
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
	where := quotaCluster(t, group)
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
	rec := n.whenClosed(t, name)
	took := time.Since(deadline)
	word := w.word(ann, rec.Closed)
	t.Logf("%d processes: %v, %d reports in %d chunks, %d buckets by %d streams", processes, took, word.Reports, word.Chunks, 1<<rec.Plan.Bits, len(rec.streams(name)))
	if word.Reports != int64(clients) {
		t.Errorf("%d reports of %d", word.Reports, clients)
	}
	return took
}

// frontendEnv makes the test binary a frontend: when its keys expire, the servers, and the number of clients.
const frontendEnv = "RIFFLE_SHUFFLER_FRONTEND"

func TestFrontendChild(t *testing.T) {
	w, c, _ := quotaChild(t, frontendEnv)
	c.FrontendOnly = true
	clients := len(c.Roster) / 32
	n := w.start(c)
	end := n.sessionEnd(time.Now().Unix())
	for i := range clients { // as an answer to a request for a session does
		key := millionKey(int64(i))
		n.noteSession(wire.ClientID(key[:]), end)
	}
	address, stop := listen(t, n, certificate(t))
	fmt.Printf("\nlistens %s\n", address)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent closes it
	stop()
	n.stop()
}

// TestFrontendsUnderQuota sends reports to one frontend and to two, each held to a quarter of a core by a
// cgroup, and tells how long it takes. RIFFLE_REPORTS is the number of reports.
func TestFrontendsUnderQuota(t *testing.T) {
	group := quotaGroup(t)
	clients := 20_000
	if n, err := strconv.Atoi(os.Getenv("RIFFLE_REPORTS")); err == nil {
		clients = n
	}
	took := map[int]time.Duration{}
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) { took[processes] = takeUnderQuota(t, group, processes, clients) })
	}
	t.Logf("%d reports: one frontend %v, two %v: %.2f times as fast", clients, took[1], took[2], took[1].Seconds()/took[2].Seconds())
}

func takeUnderQuota(t *testing.T, group string, processes, clients int) time.Duration {
	where := quotaCluster(t, group)
	expires := time.Now().Add(24 * time.Hour).Unix()
	w, c := quotaConfig(t, expires, clients)
	c.FrontendOnly, c.Store = true, on(t, where)
	n := w.start(c)
	ann := n.announcement(1, func(a *wire.Announcement) {
		a.Participation, a.Gamma, a.Deadline = dp.CheckIn, .99, time.Now().Add(time.Hour).UnixMilli()
	})
	n.open(ann)
	end := n.sessionEnd(time.Now().Unix())
	secret, err := n.store.Secret(t.Context(), masterName(end))
	if err != nil {
		t.Fatal(err)
	}
	from := reporter{ann: ann, digest: wire.Digest(ann), seal: w.seal.Keys[0], master: newMaster(secret), expires: end}
	reports := make([][]byte, clients)
	parallel(clients, func(i int) {
		content := make([]byte, partContent)
		binary.LittleEndian.PutUint64(content, uint64(i))
		var err error
		if reports[i], err = from.report(int64(i), content); err != nil {
			t.Error(err)
		}
	})
	var addresses []string
	var pids []int
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFrontendChild$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d|%s|%d", frontendEnv, expires, where.URL, clients), "GOMAXPROCS=1")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		var out io.ReadCloser
		if err == nil {
			out, err = cmd.StdoutPipe()
		}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			t.Logf("a frontend used %v", cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}()
		lines := bufio.NewScanner(out)
		for address := ""; address == ""; {
			if !lines.Scan() {
				t.Fatal("a frontend does not start")
			}
			address, _ = strings.CutPrefix(lines.Text(), "listens ")
			if address == lines.Text() {
				address = ""
				continue
			}
			addresses = append(addresses, address)
		}
		go func() {
			for lines.Scan() {
			}
		}()
		pids = append(pids, cmd.Process.Pid)
	}
	for _, pid := range pids {
		limit(t, group, pid, map[string]string{"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "5000", "cpu.shares": "20000"})
	}
	l := &loader{address: strings.Join(addresses, ","), mode: kept, n: int64(clients), size: len(reports[0]),
		report: func(i int64, body []byte) error { copy(body, reports[i]); return nil }}
	began := time.Now()
	if err := l.run(64 * processes); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	r, err := n.round(t.Context(), wire.Digest(ann))
	if err != nil {
		t.Fatal(err)
	}
	distinct, err := n.reported(t.Context(), r)
	if err != nil || distinct != int64(clients) {
		t.Errorf("%d reports of %d are stored, %v", distinct, clients, err)
	}
	t.Logf("%d frontends: %v, %.0f reports a second", processes, took, float64(clients)/took.Seconds())
	return took
}
