package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tracedisk"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// The test binary is also the program whose writes are traced: the variable names what it does and the
// directory.
const powerEnv = "RIFFLE_CLIENT_POWER"

// say tells what no power failure may undo from now on, with one call of the system.
func say(format string, v ...any) { os.Stdout.Write(fmt.Appendf(nil, "said "+format+"\n", v...)) }

func TestPowerFailureChild(t *testing.T) {
	what, dir, _ := strings.Cut(os.Getenv(powerEnv), "|")
	switch what {
	case "run":
		synctest.Test(t, func(t *testing.T) { powerRun(t, dir) })
	case "again":
		powerAgain(t, dir)
	default:
		t.Skip("a part of TestPowerFailures")
	}
}

// dying is a store of a process that is killed between a write to the ledger and its sync.
type dying struct {
	client.Store
	dir string
	die *atomic.Bool
}

func (d dying) Append(name string, more []byte) error {
	if name != "ledger" || !d.die.Load() {
		return d.Store.Append(name, more)
	}
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(more)
	}
	if err != nil {
		panic(err)
	}
	os.Exit(0)
	return nil
}

// powerRun has three clients report in two rounds, with tokens and receipts. In a third round the
// reports are not answered; in a fourth the process is killed.
func powerRun(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	w, _, config := withTokens(t, 3, func(task *wire.Task) { task.Receipts = true })
	dir = filepath.Join(dir, "of", "clients")
	if err := client.CreateLedger(dir); err != nil {
		t.Fatal(err)
	}
	say("created")
	var die, refuse atomic.Bool
	config.Directory, config.Store = "", dying{client.DirectoryStore(dir), dir, &die}
	var left sync.Map // digests of reports that were refused
	refused := func() (n int) {
		left.Range(func(any, any) bool { n++; return true })
		return n
	}
	w.set(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/report" {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return false
		}
		say("post %x", sha256.Sum256(body))
		if refuse.Load() {
			left.Store(sha256.Sum256(body), true)
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		say("answer %x", sha256.Sum256(body))
		w.take(rw, body)
		return true
	})
	fleet, err := client.NewFleet(config, w.members)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	theta := make([]float32, dim)
	round := func(n int64, lasts time.Duration) {
		a := w.announcement(n, theta)
		a.Deadline = time.Now().Add(lasts).UnixMilli()
		a.Ledger = &wire.Head{Entries: n, Digest: [32]byte{byte(n)}}
		w.publish(a, theta, nil)
	}
	for n := range int64(2) {
		round(n+1, roundTime)
		w.wait(ctx, len(w.members))
		say("head %d", n+1)
		w.tell(w.word(3))
		await(t, func() bool { return fleet.Snapshot().Reports[client.Sent] == (n+1)*int64(len(w.members)) })
	}
	refuse.Store(true)
	round(3, 10*time.Second) // its reports are sent to its end
	await(t, func() bool { return refused() == len(w.members) })
	say("over") // the next round ends this one
	die.Store(true)
	round(4, roundTime)
	<-done
	t.Error("the process lives")
}

// powerAgain is the next process: what it finds charged and not answered it sends.
func powerAgain(t *testing.T, dir string) {
	o, err := client.OpenBook(filepath.Join(dir, "of", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	for digest := range o.Left {
		say("post %x", digest)
	}
}

// TestPowerFailures holds for each state in which a power failure may leave a client's directory: it
// opens; every report that left was charged, and one that was not answered is sent again with the same
// bytes; the furthest head is known.
func TestPowerFailures(t *testing.T) {
	longtest.Only(t, "it traces the system calls of a process")
	root := t.TempDir()
	program := func(what string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPowerFailureChild$")
		cmd.Env = append(os.Environ(), powerEnv+"="+what+"|"+root)
		return cmd
	}
	l, err := tracedisk.Record(root, program("run"), program("again"))
	if errors.Is(err, tracedisk.ErrNoTrace) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	tried, of, most, resent := 0, 0, 0, 0
	into, err := tracedisk.Memory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(into)
	for s := range l.States(1, longtest.Pick3(0, 3000, 1<<16)) {
		dir := filepath.Join(into, fmt.Sprint(s.Number))
		if err := s.Write(dir); err != nil {
			t.Fatal(err)
		}
		tried, of, most = tried+1, s.Of, max(most, len(s.Said))
		n, err := checkPower(filepath.Join(dir, "of", "clients"), s.Said)
		if err != nil {
			t.Errorf("%v\nafter %q\nlost: %s", err, s.Said, s.Lost)
		}
		if resent += n; t.Failed() && tried > 20 {
			break
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d states were opened; up to %d lines were said, reports were left in all %d times", tried, of, most, resent)
	if of < 200 || most < 20 || resent == 0 {
		t.Error("too few")
	}
}

func checkPower(dir string, told []string) (resent int, err error) {
	var created bool
	var head int64
	posted, answered := map[[32]byte]bool{}, map[[32]byte]bool{}
	for _, line := range told {
		what, value, _ := strings.Cut(strings.TrimPrefix(line, "said "), " ")
		var digest [32]byte
		raw, _ := hex.DecodeString(value)
		copy(digest[:], raw)
		switch what {
		case "created":
			created = true
		case "post":
			posted[digest] = true
		case "answer":
			answered[digest] = true
		case "over":
			maps.Copy(answered, posted)
		case "head":
			fmt.Sscan(value, &head)
		}
	}
	before, err := os.ReadFile(filepath.Join(dir, "ledger"))
	if errors.Is(err, os.ErrNotExist) && !created {
		return 0, nil
	}
	for range 2 { // a second opening finds the same
		o, err := client.OpenBook(dir)
		if err != nil {
			return 0, err
		}
		for digest := range posted {
			if !o.Charged[digest] {
				return 0, fmt.Errorf("report %x left and is not charged", digest[:4])
			}
			if !answered[digest] && !o.Left[digest] {
				return 0, fmt.Errorf("report %x was not answered and is lost", digest[:4])
			}
		}
		if o.Head < head {
			return 0, fmt.Errorf("head %d, told was %d", o.Head, head)
		}
		resent = len(o.Left)
	}
	after, err := os.ReadFile(filepath.Join(dir, "ledger"))
	if err != nil || !bytes.HasPrefix(before, after) {
		return 0, fmt.Errorf("opening changed the ledger, %v", err)
	}
	if _, err := client.ReadFindings(dir); err != nil {
		return 0, err
	}
	return resent, client.TokenFiles(dir)
}
