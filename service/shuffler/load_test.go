//go:build unix

package shuffler

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// BenchmarkRound runs one round: reports of 300 bytes over TLS from another
// process into an embedded store, the shuffle, and every part opened again.
// RIFFLE_REPORTS says how many, RIFFLE_MESSAGES how many messages each has, RIFFLE_CONTENT of how many
// bytes these are, and RIFFLE_BUCKET how many bytes a bucket may take; b.N does not. RIFFLE_CONNECTIONS says
// how reports come: kept, which is the default, for connections that carry many; each for a connection of
// its own with a whole handshake; resumed for one whose handshake is resumed. Its bound then has that handshake.
func BenchmarkRound(b *testing.B) {
	setting := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	mode := cmp.Or(os.Getenv("RIFFLE_CONNECTIONS"), kept)
	n, messages, content := setting("RIFFLE_REPORTS", 10_000), setting("RIFFLE_MESSAGES", 1), setting("RIFFLE_CONTENT", 300)
	w := newWorld(b, 0)
	part, err := envelope.PartSize(wire.X25519, int64(content))
	if err != nil {
		b.Fatal(err)
	}
	on, dir := disk(b)
	c := w.config()
	c.Store, c.Poll, c.Lease = on, time.Second, 15*time.Second
	c.Bucket = int64(setting("RIFFLE_BUCKET", 0))
	c.Roster = make([]byte, ed25519.PublicKeySize*n)
	clients := make([]ed25519.PrivateKey, n)
	parallel(n, func(i int) {
		clients[i] = signer(b)
		copy(c.Roster[ed25519.PublicKeySize*i:], public(clients[i]))
	})
	s := w.start(c)
	c.Roster = nil
	ann := s.announcement(1, func(a *wire.Announcement) {
		a.Messages, a.ReportBytes, a.Deadline = int64(messages), part, time.Now().Add(3*time.Hour).UnixMilli()
	})
	s.open(ann)
	// Sessions last for days: what they cost is measured by itself.
	requests, sessions := make([][]byte, n), make([]wire.Session, n)
	w.clients = clients
	parallel(n, func(i int) { requests[i] = w.request(i) })
	before := cpu()
	parallel(n, func(i int) { sessions[i] = w.decoded(requests[i], s.must("", "POST", "/v1/session", requests[i])) })
	session := (cpu() - before) / float64(n)
	w.clients, requests = nil, nil
	file := filepath.Join(b.TempDir(), "reports")
	size, sum := seal(b, w, ann, clients, sessions, file, content)
	sessions = nil
	clients = nil
	// As riffle serve shuffler does with GOMEMLIMIT=800MiB, and from here on measured.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(800 << 20)
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forgets the peak, where there is one

	// What bounds it: an open for each report, and one for each message.
	ring, err := envelope.NewKeyring(w.reader)
	if err != nil {
		b.Fatal(err)
	}
	one := make([]byte, size)
	f, err := os.Open(file)
	if err == nil {
		_, err = io.ReadFull(f, one)
	}
	if err != nil {
		b.Fatal(err)
	}
	f.Close()
	cost := func() (opens, verify float64) { // in seconds of a processor, with all processors at work
		const times = 4000
		report, err := w.seal.OpenReport(one, ann.PartBytes(), 0)
		if err != nil {
			b.Fatal(err)
		}
		before := cpu()
		parallel(times, func(int) {
			r, err := w.seal.OpenReport(one, ann.PartBytes(), 0)
			for ; err == nil && len(r.Part) > 0; r.Part = r.Part[part:] {
				_, err = ring.OpenPart(envelope.Coordinator, wire.Digest(ann), r.Part[:part])
			}
			if err != nil {
				b.Error(err)
			}
		})
		between := cpu()
		parallel(times, func(int) {
			key, err := s.sessionKey(context.Background(), report.Client, report.Session, time.Now())
			if err == nil {
				err = wire.Authentic(&report, key)
			}
			if err != nil {
				b.Error(err)
			}
		})
		return (between - before) / times, (cpu() - between) / times
	}
	opens, verify := cost()

	pair := certificate(b)
	handshake := 0.0
	if mode != kept {
		handshake = handshakes(b, pair, mode, min(n, 10_000))
	}
	address, stop := listen(b, s, pair)

	idle := live()
	b.ResetTimer()
	cpu0, wall0 := cpu(), time.Now()
	child, said := loaded(b, address, mode, file, size)
	cpu1, wall1 := cpu(), time.Now()
	var sent, received float64
	if _, err := fmt.Sscan(said, &sent, &received); err != nil {
		b.Fatal(err)
	}
	taken, held := occupied(b, dir), live()
	looked := cpu() - cpu1
	word := s.closed(ann)
	cpu2, wall2 := cpu()-looked, time.Now()
	if word.Reports != int64(n) || len(word.Rejected) != 0 {
		b.Fatalf("word %+v", word)
	}
	var got [sha256.Size]byte
	var mu sync.Mutex
	parallel(int(word.Chunks), func(i int) {
		chunk, err := wire.Decode[wire.Chunk](s.must(Coordinator, "GET", path(ann, fmt.Sprintf("/chunks/%d", i)), nil))
		if err != nil {
			b.Error(err)
			return
		}
		var part [sha256.Size]byte
		for j := range chunk.Len() {
			plain, err := ring.OpenPart(envelope.Coordinator, wire.Digest(ann), chunk.Item(j))
			if err != nil {
				b.Error(err)
				return
			}
			xor(&part, sha256.Sum256(plain))
		}
		mu.Lock()
		defer mu.Unlock()
		xor(&got, part)
	})
	cpu3, wall3 := cpu()-looked, time.Now()
	b.StopTimer()
	offered := occupied(b, dir)
	if got != sum {
		b.Error("what was opened is not what was sent")
	}
	again, againVerify := cost()
	opens, verify = (opens+again)/2, (verify+againVerify)/2
	if mode != kept {
		handshake = (handshake + handshakes(b, pair, mode, min(n, 10_000))) / 2
	}
	bound := handshake + opens
	stop()
	r := float64(n)
	used := child.SystemTime() + child.UserTime()
	wall := wall3.Sub(wall0).Seconds()
	b.ReportMetric(r/wall, "reports/s")
	b.ReportMetric(100*bound*r/(cpu3-cpu0), "%ofbound-cpu")
	b.ReportMetric(100*bound*r/float64(runtime.NumCPU())/wall, "%ofbound-wall")
	b.ReportMetric(peak(), "peak-MB")
	if mode != kept {
		b.Logf("connections: %s; a handshake alone %.1f µs", mode, 1e6*handshake)
	}
	b.Logf("%d reports: all opens %.1f µs, a MAC %.1f µs, once a session %.1f µs; per report, µs of processor and of wall clock: taking %.1f and %.1f, closing %.1f and %.1f, offering and opening %.1f and %.1f; the clients' process %.1f",
		n, 1e6*opens, 1e6*verify, 1e6*session, 1e6*(cpu1-cpu0)/r, 1e6*wall1.Sub(wall0).Seconds()/r, 1e6*(cpu2-cpu1)/r, 1e6*wall2.Sub(wall1).Seconds()/r,
		1e6*(cpu3-cpu2)/r, 1e6*wall3.Sub(wall2).Seconds()/r, 1e6*used.Seconds()/r)
	b.Logf("bytes a report: a POST's body %d, over TCP %.0f sent and %.0f received; in the store %.0f taken in, %.0f offered", size, sent/r, received/r, taken/r, offered/r)
	b.Logf("memory in use after a collection: %.0f MB before the reports, %.0f MB with all of them taken in", idle, held)
	for name, spent := range s.Snapshot().Stages {
		b.Logf("%-8s %8d times, %8.1f s of wall clock, summed over goroutines", name, spent.Count, spent.Seconds)
	}
	b.Logf("closed in %v, %d chunks", wall2.Sub(wall1), word.Chunks)
}

// certificate is that of a server on this machine.
func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	cert, key, _, err := endpoint.GenerateCertificate([]string{"localhost"}, time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// listen has a shuffler answer clients, as riffle serve shuffler does, until stop is called.
func listen(t testing.TB, s *node, pair tls.Certificate) (address string, stop func()) {
	t.Helper()
	clients, _ := s.Handlers()
	server, err := endpoint.NewServer(endpoint.ServerConfig{Name: "reports", Address: "127.0.0.1:0", Certificate: pair, Handler: clients,
		Share: 1, Tickets: s.TicketKeys, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx) }()
	return server.Address, func() {
		t.Helper()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// loaded runs the clients' process until it ends, and returns what it used and printed.
func loaded(b *testing.B, address, mode, file string, size int) (*os.ProcessState, string) {
	b.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), loadChild+"="+address, "RIFFLE_LOAD_MODE="+mode, "RIFFLE_LOAD_FILE="+file, "RIFFLE_LOAD_SIZE="+strconv.Itoa(size))
	child.Stderr = os.Stderr
	said, err := child.Output()
	if err != nil {
		b.Fatal(err)
	}
	return child.ProcessState, string(said)
}

// handshakes returns what accepting a connection, its handshake, one byte and closing cost a
// server that does nothing else, in seconds of a processor.
func handshakes(b *testing.B, pair tls.Certificate, mode string, n int) float64 {
	b.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var one [1]byte
				if _, err := c.Read(one[:]); err == nil {
					_, _ = c.Write(one[:])
					_, _ = c.Read(one[:]) // until the client closes
				}
			}()
		}
	}()
	before := cpu()
	loaded(b, l.Addr().String(), mode, "", n)
	return (cpu() - before) / float64(n)
}

func xor(sum *[sha256.Size]byte, d [sha256.Size]byte) {
	for i := range d {
		sum[i] ^= d[i]
	}
}

// cpu is what this process has used, in seconds.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// occupied is what the files of a directory take, in bytes.
func occupied(b *testing.B, dir string) (n float64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return nil // deleted in the meantime
		}
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			n += float64(info.Sys().(*syscall.Stat_t).Blocks) * 512
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// live is the memory that is in use, in MB.
func live() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// peak is the most memory this process has held, in MB; 0 where that is not known.
func peak() float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0 // not here
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(v)[0], 64) // the kernel's own number
			return kb / 1024
		}
	}
	return 0
}

// parallel calls f for 0 … n−1 on all processors.
func parallel(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// seal writes a report of each client to a file, and returns a report's size and
// the exclusive or of the digests of what they say. A thousand different parts do.
func seal(b *testing.B, w *world, ann wire.Announcement, clients []ed25519.PrivateKey, sessions []wire.Session, file string, content int) (int, [sha256.Size]byte) {
	b.Helper()
	var sum [sha256.Size]byte
	parts, digests := make([][]byte, 1000), make([][sha256.Size]byte, 1000)
	for i := range parts {
		plain := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, (content+1)/2)[:content]
		digests[i] = sha256.Sum256(plain)
		var err error
		if parts[i], err = envelope.SealPart(ann.Coordinator, envelope.Coordinator, wire.Digest(ann), plain); err != nil {
			b.Fatal(err)
		}
	}
	size, err := envelope.ReportSize(wire.X25519, ann.PartBytes(), 0)
	if err != nil {
		b.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	for i := range clients {
		for j := range int(ann.PerClient()) {
			xor(&sum, digests[(i*i+j)%1000])
		}
	}
	digest := wire.Digest(ann)
	parallel(len(clients), func(i int) {
		r := &wire.Report{Announcement: digest, Client: wire.ClientID(public(clients[i])), ID: reportID(i, 0)}
		for j := range int(ann.PerClient()) {
			r.Part = append(r.Part, parts[(i*i+j)%1000]...)
		}
		wire.Authenticate(r, sessions[i])
		sealed, err := envelope.SealReport(w.seal.Keys[0], r, sessions[i].Key.Pass(digest))
		if err == nil {
			_, err = f.WriteAt(sealed, int64(i)*size)
		}
		if err != nil {
			b.Error(err)
		}
	})
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return int(size), sum
}
