//go:build soak && linux

package opener

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// childEnv makes the test binary a worker: the queue's and the shuffler's address, the coordinator's key in
// hex, and the file of the worker's own key.
const childEnv = "RIFFLE_OPENER_CHILD"

func TestMain(m *testing.M) {
	if task := os.Getenv(childEnv); task != "" {
		if err := child(strings.Split(task, "|")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(f []string) error {
	key, err := hex.DecodeString(f[2])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(f[3])
	if err != nil {
		return err
	}
	own, err := envelope.ParseKey(text)
	if err != nil {
		return err
	}
	ring, err := envelope.NewKeyring(own)
	if err != nil {
		return err
	}
	q, err := store.DialQueue(context.Background(), store.Config{Domain: "coordinator", URL: f[0]}, Queue)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	w := Worker{Keyring: ring, Coordinator: key, Shuffler: f[1], Client: &http.Client{}, Ranges: 2}
	return w.Run(context.Background(), q) // until it is killed
}

// held puts a process into a group that may use a quarter of a processor, or skips the benchmark.
func held(b *testing.B, pid int) {
	b.Helper()
	dir := fmt.Sprintf("/sys/fs/cgroup/cpu/riffle-%d", pid)
	err := os.Mkdir(dir, 0o755)
	for _, f := range [][2]string{{"cpu.cfs_period_us", "20000"}, {"cpu.cfs_quota_us", "5000"}, {"cgroup.procs", strconv.Itoa(pid)}} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f[0]), []byte(f[1]), 0o644)
		}
	}
	if err != nil {
		b.Skip("this machine has no groups of cgroup v1 with a quota of processor time: ", err)
	}
	b.Cleanup(func() { _ = os.Remove(dir) }) // it is empty once the process has ended
}

// BenchmarkWorkers opens a batch of seeds by one worker and by two, each a process with a quarter of a
// processor. Run it with -benchtime 1x.
func BenchmarkWorkers(b *testing.B) {
	const messages = 120_000
	broker, err := server.NewServer(&server.Options{ServerName: "one", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true,
		StoreDir: b.TempDir(), SyncAlways: true, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	broker.Start()
	b.Cleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
	if !broker.ReadyForConnections(time.Minute) {
		b.Fatal("the broker does not start")
	}
	at := store.Config{Domain: "coordinator", URL: broker.ClientURL(), Replicas: 1}
	if err := store.Init(b.Context(), at); err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(b.Context(), at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	q, err := s.Queue(b.Context(), Queue, store.QueueConfig{})
	if err != nil {
		b.Fatal(err)
	}
	own, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	ring, err := envelope.NewKeyring(own)
	if err != nil {
		b.Fatal(err)
	}
	public, signer, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	task := wire.Task{Population: wire.ID{1}, Name: "speed", Trust: dp.Shuffle, Participation: dp.All, MinReports: 2, Rounds: 1, Delta: 1e-6}
	if task.Mechanism, err = mechanism.Describe(randomizer.StepUnit, randomizer.Config{Dim: 1930, Radius: 1, Eps0: 2, Encoding: randomizer.Seed}, "norm"); err != nil {
		b.Fatal(err)
	}
	announcement := [32]byte{7}
	sealed, digests, size := batchOf(b, own.Public, announcement, messages)
	shuffler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		if err != nil || i >= len(sealed) {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(sealed[i])
	}))
	b.Cleanup(shuffler.Close)
	var first []int64
	for _, n := range []int{1, 2, 1, 2} {
		b.Run(fmt.Sprint("workers-", n), func(b *testing.B) {
			d := Dealer{Signer: signer, Keyring: ring}
			var processes []*exec.Cmd
			for i := range n {
				key, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
				if err != nil {
					b.Fatal(err)
				}
				text, err := key.MarshalText()
				path := filepath.Join(b.TempDir(), "key")
				if err == nil {
					err = os.WriteFile(path, text, 0o600)
				}
				if err != nil {
					b.Fatal(err)
				}
				d.Workers = append(d.Workers, key.Public)
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{broker.ClientURL(), shuffler.URL, hex.EncodeToString(public), path}, "|"))
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
				if line := make([]byte, 6); true {
					if _, err := out.Read(line); err != nil || string(line) != "ready\n" {
						b.Fatalf("worker %d says %q: %v", i, line, err)
					}
				}
				processes = append(processes, cmd)
			}
			for _, p := range processes {
				held(b, p.Process.Pid)
			}
			group := fmt.Sprintf("task.%d", time.Now().UnixNano())
			for b.Loop() {
				sum := make([]int64, 1930)
				open := map[string]*wire.Opening{}
				const each = 4
				for from := 0; from < len(digests); from += each {
					o := &wire.Opening{Announcement: announcement, Task: wire.Encode(task), Size: size, From: int64(from), Digests: digests[from:min(len(digests), from+each)]}
					name := fmt.Sprintf("%s.%d", group, from)
					text, err := d.Deal(own.Public.ID(), *o)
					if err == nil {
						err = q.Put(b.Context(), name, text)
					}
					if err != nil {
						b.Fatal(err)
					}
					open[name] = o
				}
				accepted, results := int64(0), q.Results(group)
				for len(open) > 0 {
					got, err := results.Next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					for _, x := range got {
						o := open[x.Item]
						if o == nil {
							continue
						}
						p, err := d.Read(o, x.Data)
						if err != nil {
							b.Fatal(x.Failed, err)
						}
						for j, v := range p.Sum {
							sum[j] += v
						}
						accepted += p.Accepted
						delete(open, x.Item)
					}
					time.Sleep(20 * time.Millisecond)
				}
				if accepted != messages {
					b.Fatalf("%d of %d messages are accepted", accepted, messages)
				}
				if first == nil {
					first = sum
				} else if !slices.Equal(first, sum) {
					b.Fatal("another sum")
				}
				if err := q.Purge(b.Context(), "task"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(messages)*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// batchOf seals seeds in chunks of 64 KiB.
func batchOf(b *testing.B, key wire.Key, announcement [32]byte, messages int) (chunks [][]byte, digests [][32]byte, size int64) {
	b.Helper()
	parts := make([][]byte, messages)
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := w; i < messages; i += 2 {
				seed := binary.LittleEndian.AppendUint64(make([]byte, 8, 16), uint64(i))
				var err error
				if parts[i], err = envelope.SealPart(key, envelope.Coordinator, announcement, seed); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	size = int64(len(parts[0]))
	each := int((64 << 10) / size)
	for run := range slices.Chunk(parts, each) {
		c := wire.Chunk{Index: int64(len(chunks)), Size: size, Items: slices.Concat(run...)}
		chunks, digests = append(chunks, wire.Encode(c)), append(digests, sha256.Sum256(c.Items))
	}
	return chunks, digests, size
}
