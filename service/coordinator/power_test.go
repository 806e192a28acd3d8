package coordinator

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tracedisk"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/store"
)

// The test binary is also the program whose writes are traced, in this directory.
const powerEnv = "RIFFLE_COORDINATOR_POWER"

func powerStore(root string) store.Config {
	return store.Config{Domain: "coordinator", Dir: filepath.Join(root, "store")}
}

func powerMark(root string) string { return filepath.Join(root, "marks", "ledger.json") }

// TestPowerFailureChild is a task of three rounds, from its creation to its end.
func TestPowerFailureChild(t *testing.T) {
	root := os.Getenv(powerEnv)
	if root == "" {
		t.Skip("a part of TestPowerFailures")
	}
	say := func(format string, v ...any) { os.Stdout.Write(fmt.Appendf(nil, "said "+format+"\n", v...)) }
	w := newWorld(t, dp.Shuffle, dp.All)
	if err := store.Init(t.Context(), powerStore(root)); err != nil {
		t.Fatal(err)
	}
	if err := MarkFile(powerMark(root)).Save(ledger.Mark{}); err != nil {
		t.Fatal(err)
	}
	say("made")
	s, err := store.Open(t.Context(), powerStore(root))
	if err != nil {
		t.Fatal(err)
	}
	// What the shuffler is asked tells what the coordinator must not forget.
	w.sh.Asked = func(method, path string) { say("%s %s", method, path) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	j, err := OpenJournal(ctx, s, powerMark(root), w.task.Population, w.budget())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Key: w.key, Keyring: w.ring, Store: s, Journal: j, Tasks: []Job{w.config},
		Shuffler: batch.Source{URL: w.server.URL, Key: w.sh.Public, Client: w.client(nil)}})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Service: c, done: make(chan error, 1), stop: cancel}
	go func() { p.done <- c.Run(ctx) }()
	if status := w.end(p); status.State != Done {
		t.Errorf("the task is %s: %s", status.State, status.Why)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPowerFailures holds for each state in which a power failure may leave a coordinator's store and its
// mark: both are accepted, fsck finds nothing, each round whose batch was asked for is charged once, and
// each that the shuffler was told to forget has made its step.
func TestPowerFailures(t *testing.T) {
	longtest.Only(t, "a traced process writes real stores")
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "marks"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPowerFailureChild$")
	cmd.Env = append(os.Environ(), powerEnv+"="+root)
	l, err := tracedisk.Record(root, cmd)
	if errors.Is(err, tracedisk.ErrNoTrace) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	into, err := tracedisk.Memory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(into)
	w := newWorld(t, dp.Shuffle, dp.All)
	tried, of, fetched := 0, 0, 0
	for s := range l.States(5, longtest.Pick3(200, 200, 1<<16)) {
		dir := filepath.Join(into, fmt.Sprint(s.Number))
		if err := s.Write(dir); err != nil {
			t.Fatal(err)
		}
		of = s.Of
		if slices.Contains(s.Said, "said made") { // of the store's creation there is a test of its own
			tried++
			n, err := w.checkPower(dir, s.Said)
			if err != nil {
				t.Fatalf("%v\nafter %q\nlost: %s", err, s.Said, s.Lost)
			}
			fetched = max(fetched, n)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d states were opened", tried, of)
	if tried < 15 || of < 300 || fetched < int(w.task.Rounds) {
		t.Errorf("too few; %d rounds were fetched", fetched)
	}
}

var asked = regexp.MustCompile(`^said (GET|DELETE) /v1/rounds/([0-9a-f]{64})(/chunks)?`)

func (w *world) checkPower(dir string, told []string) (fetched int, err error) {
	ctx := context.Background()
	s, err := store.Open(ctx, powerStore(dir))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	j, err := OpenJournal(ctx, s, powerMark(dir), w.task.Population, w.budget())
	if err != nil {
		return 0, err
	}
	if found := problems(s, nil, j, w.task); len(found) > 0 {
		return 0, fmt.Errorf("fsck: %s", strings.Join(found, "; "))
	}
	charged := map[string]int64{}
	j.View(func(b *ledger.Book) {
		for _, e := range b.Entries() {
			if charged[hex.EncodeToString(e.Announcement[:])] != 0 {
				err = fmt.Errorf("round %d is charged twice", e.Round)
			}
			charged[hex.EncodeToString(e.Announcement[:])] = e.Round
		}
	})
	if err != nil {
		return 0, err
	}
	got := map[string]bool{}
	for _, line := range told {
		m := asked.FindStringSubmatch(line)
		if m == nil || m[1] == "GET" && m[3] == "" {
			continue
		}
		round := charged[m[2]]
		if round == 0 {
			return 0, fmt.Errorf("%s, and the round is not charged", line)
		}
		if got[m[2]] = true; m[1] == "GET" {
			continue
		}
		record, _, err := readRecord(ctx, s, wire.Digest(w.task))
		if err != nil {
			return 0, err
		}
		if record.Round < round {
			return 0, fmt.Errorf("%s, and the record is at round %d, not %d", line, record.Round, round)
		}
	}
	return len(got), nil
}
