//go:build soak && linux

package shuffler

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	source "github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/opener"
)

// millionsEnv makes the test binary the clients or the opener of TestMillions: a millions in JSON.
const millionsEnv = "RIFFLE_SHUFFLER_MILLIONS"

func init() {
	soakChild = func() {
		text := os.Getenv(millionsEnv)
		if text == "" {
			return
		}
		var m millions
		err := json.Unmarshal([]byte(text), &m)
		if err == nil {
			debug.SetMemoryLimit(soakMemory)
			if m.Clients {
				err = m.send()
			} else {
				err = m.openAll()
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// soakMemory is GOMEMLIMIT of each process.
const soakMemory = 900 << 20

// millions is what a process of the soak knows.
type millions struct {
	Clients      bool // the clients' process, or the opener's
	Address      string
	Announcement []byte
	N            int64
	Master       []byte // of the sessions
	Expires      int64
	Seal         []byte // the shuffler's public sealing key: a wire.Key in JSON
	Key          []byte // the coordinator's private one
	Word         wire.RoundClosed
}

// millionKey is what stands for the signing key of client i: sessions are made without it.
func millionKey(i int64) [32]byte {
	return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
}

// millionSeed is client i's report.
func millionSeed(i int64) [16]byte {
	d := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("seed"), uint64(i)))
	return [16]byte(d[:])
}

// said is what the clients or the opener print in the end.
type said struct {
	Count      int64
	Sum        [32]byte // exclusive or of the digests of all seeds
	Values     [32]byte // digest of the sum of what the seeds stand for
	Peak       float64  // MiB
	Processor  float64  // seconds
	Sent, Back int64
}

func (m *millions) say(count int64, sum [32]byte, values []int64, sent, back int64) error {
	h := sha256.New()
	for _, v := range values {
		_ = binary.Write(h, binary.LittleEndian, v)
	}
	s := said{Count: count, Sum: sum, Peak: peak(), Processor: cpu(), Sent: sent, Back: back}
	h.Sum(s.Values[:0])
	return json.NewEncoder(os.Stdout).Encode(s)
}

// mechanism is that of the reports: seeds for a model of RIFFLE_DIM parameters.
func (m *millions) mechanism(announcement [32]byte) (randomizer.Mechanism, error) {
	dim := 1930
	if n, err := strconv.Atoi(os.Getenv("RIFFLE_DIM")); err == nil {
		dim = n
	}
	described, err := mechanism.Describe(randomizer.StepUnit, randomizer.Config{Dim: dim, Radius: 1, Eps0: 2, Encoding: randomizer.Seed}, "norm")
	if err != nil {
		return nil, err
	}
	own, err := mechanism.New(described)
	if err != nil {
		return nil, err
	}
	return randomizer.ForRound(own, announcement), nil
}

// reporter makes reports of clients whose keys are millionKey's.
type reporter struct {
	ann     wire.Announcement
	digest  [32]byte
	seal    wire.Key
	master  *master
	expires int64
}

func (r reporter) report(i int64, content []byte) ([]byte, error) {
	part, err := envelope.SealPart(r.ann.Coordinator, envelope.Coordinator, r.digest, content)
	if err != nil {
		return nil, err
	}
	key := millionKey(i)
	id := wire.ClientID(key[:])
	report := &wire.Report{Announcement: r.digest, Client: id, ID: reportID(int(i), 0), Part: part}
	session := wire.Session{Expires: r.expires, Key: r.master.key(wire.ID{7}, id, r.expires)}
	wire.Authenticate(report, session)
	return envelope.SealReport(r.seal, report, session.Key.Pass(r.digest))
}

// send sends each client's report, and adds up what they say.
func (m *millions) send() error {
	ann, err := wire.Decode[wire.Announcement](m.Announcement)
	if err != nil {
		return err
	}
	var seal wire.Key
	if err := json.Unmarshal(m.Seal, &seal); err != nil {
		return err
	}
	digest := wire.Digest(ann)
	own, err := m.mechanism(digest)
	if err != nil {
		return err
	}
	from := reporter{ann: ann, digest: digest, seal: seal, master: newMaster(m.Master), expires: m.Expires}
	size, err := envelope.ReportSize(wire.X25519, ann.PartBytes(), 0)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var sum [32]byte
	values := make([]int64, own.Facts().Dim)
	var done atomic.Int64
	began := time.Now()
	l := &loader{address: m.Address, mode: kept, n: m.N, size: int(size)}
	all := make([]*coordinator.Tally, 2*runtime.NumCPU())
	tallies := make(chan *coordinator.Tally, len(all))
	for i := range all {
		all[i] = coordinator.NewPartial(own)
		tallies <- all[i]
	}
	l.report = func(i int64, body []byte) error {
		seed := millionSeed(i)
		d := sha256.Sum256(seed[:])
		r := own.NewReport()
		if err := randomizer.DecodeReport(seed[:], own, r); err != nil {
			return err
		}
		t := <-tallies
		t.Open(r)
		tallies <- t
		mu.Lock()
		xor(&sum, d)
		mu.Unlock()
		sealed, err := from.report(i, seed[:])
		if err != nil {
			return err
		}
		if len(sealed) != len(body) {
			return fmt.Errorf("a report of %d bytes, want %d", len(sealed), len(body))
		}
		copy(body, sealed)
		if n := done.Add(1); n%500_000 == 0 {
			fmt.Fprintf(os.Stderr, "%d reports after %v\n", n, time.Since(began).Round(time.Second))
		}
		return nil
	}
	if err := l.run(1024); err != nil {
		return err
	}
	for _, t := range all {
		for j, v := range t.Sum {
			values[j] += v
		}
	}
	return m.say(done.Load(), sum, values, l.sent.Load(), l.received.Load())
}

// openAll fetches the batch and opens it in ranges, as workers do.
func (m *millions) openAll() error {
	own, err := envelope.ParseKey(m.Key)
	if err != nil {
		return err
	}
	ring, err := envelope.NewKeyring(own)
	if err != nil {
		return err
	}
	ann, err := wire.Decode[wire.Announcement](m.Announcement)
	if err != nil {
		return err
	}
	digest := wire.Digest(ann)
	mech, err := m.mechanism(digest)
	if err != nil {
		return err
	}
	ctx := context.Background()
	reader := source.Reader{Source: source.Source{URL: "http://" + m.Address, Client: &http.Client{}}, Announcement: digest, Reports: m.Word.Reports, Chunks: m.Word.Chunks,
		Digest: m.Word.Digest, Size: ann.ReportBytes, Workers: 1}
	digests, err := reader.Digests(ctx)
	if err != nil {
		return err
	}
	round := opener.Round{Keyring: ring, Announcement: digest, Mechanism: mech}
	const each = 16
	var mu sync.Mutex
	var sum [32]byte
	var count int64
	var identities [][16]byte // which a coordinator holds, to find equal ones
	values := make([]int64, mech.Facts().Dim)
	failed := make(chan error, 16)
	parallel((len(digests)+each-1)/each, func(i int) {
		from := i * each
		p, err := round.Range(ctx, reader.Source, reader.Size, digests[from:min(len(digests), from+each)], wire.Opened{Announcement: digest, From: int64(from)})
		if err != nil {
			select {
			case failed <- err:
			default:
			}
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for j, v := range p.Sum {
			values[j] += v
		}
		for _, seed := range p.Identities {
			xor(&sum, sha256.Sum256(seed[:]))
		}
		count += p.Accepted
		identities = append(identities, p.Identities...)
	})
	select {
	case err := <-failed:
		return err
	default:
	}
	if int64(len(identities)) != count {
		return fmt.Errorf("%d seeds of %d reports", len(identities), count)
	}
	return m.say(count, sum, values, 0, 0)
}

// TestMillions is a round of RIFFLE_REPORTS clients, ten million if it is not set, each with a seed: a process
// of clients sends them over TLS to a shuffler, which is this process, with an embedded store, and a third
// opens and adds them. All of them count, none of these processes takes a GiB.
func TestMillions(t *testing.T) {
	n := int64(10_000_000)
	if m, err := strconv.ParseInt(os.Getenv("RIFFLE_REPORTS"), 10, 64); err == nil {
		n = m
	}
	debug.SetMemoryLimit(soakMemory)
	debug.SetGCPercent(400)
	w := newWorld(t, 0)
	part, err := envelope.PartSize(wire.X25519, 16)
	if err != nil {
		t.Fatal(err)
	}
	// Not in memory, as some systems have their directory of temporary files.
	dir, err := os.MkdirTemp(os.Getenv("RIFFLE_DISK"), "riffle-millions-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := w.config()
	c.Store = stored(t, filepath.Join(dir, "store"))
	c.Poll, c.Lease, c.BlockWait = time.Second, 15*time.Second, 5*time.Millisecond
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	c.Roster = make([]byte, 32*n)
	parallel(int(n), func(i int) { key := millionKey(int64(i)); copy(c.Roster[32*i:], key[:]) })
	began := time.Now()
	s := w.start(c)
	c.Roster = nil
	t.Logf("the roster takes %v", time.Since(began))
	expires := s.sessionEnd(time.Now().Unix())
	secret, err := s.store.Secret(t.Context(), masterName(expires))
	if err != nil {
		t.Fatal(err)
	}
	parallel(int(n), func(i int) { // as an answer to a request for a session does
		key := millionKey(int64(i))
		s.noteSession(wire.ClientID(key[:]), expires)
	})
	ann := s.announcement(1, func(a *wire.Announcement) {
		a.ReportBytes, a.Deadline = part, time.Now().Add(3*time.Hour).UnixMilli()
	})
	s.open(ann)

	address, stop := listen(t, s, certificate(t))
	defer stop()
	_, forPeers := s.Handlers()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forPeers.ServeHTTP(w, endpoint.WithPeer(r, Coordinator)) })}
	go func() { _ = peers.Serve(l) }()
	defer peers.Close()

	seal, err := json.Marshal(w.seal.Keys[0])
	if err != nil {
		t.Fatal(err)
	}
	own, err := w.reader.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	last, lastCPU := time.Now(), cpu()
	stage := func(name string) {
		now, used := time.Now(), cpu()
		t.Logf("%s: %v, %.1f µs a report of this process's processor time; peak %.0f MiB, live %.0f MiB", name, now.Sub(last).Round(time.Second), 1e6*(used-lastCPU)/float64(n), peak(), live())
		last, lastCPU = now, used
	}
	m := millions{Clients: true, Address: address, Announcement: wire.Encode(ann), N: n, Master: secret, Expires: expires, Seal: seal}
	sent := millionsChild(t, m)
	stage("taken in")
	word := s.closed(ann)
	stage("closed")
	if word.Reports != n || len(word.Rejected) != 0 {
		t.Fatalf("word %+v", word)
	}
	m = millions{Address: l.Addr().String(), Announcement: wire.Encode(ann), N: n, Key: own, Word: word}
	opened := millionsChild(t, m)
	stage("offered")
	if sent.Count != n || opened.Count != n || sent.Sum != opened.Sum || sent.Values != opened.Values {
		t.Errorf("sent %+v, opened %+v", sent, opened)
	}
	for who, mib := range map[string]float64{"shuffler": peak(), "clients": sent.Peak, "opener": opened.Peak} {
		t.Logf("%s: peak %.0f MiB", who, mib)
		if mib >= 1024 {
			t.Errorf("%s: %.0f MiB at its peak", who, mib)
		}
	}
	t.Logf("clients: %.1f µs a report, %d bytes sent and %d received a report over TCP; opener: %.1f µs a report; %d chunks",
		1e6*sent.Processor/float64(n), sent.Sent/n, sent.Back/n, 1e6*opened.Processor/float64(n), word.Chunks)
	s.must(Coordinator, "DELETE", path(ann, ""), nil)
}

func millionsChild(t *testing.T, m millions) (s said) {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), millionsEnv+"="+string(text))
	child.Stderr = os.Stderr
	out, err := child.Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}
