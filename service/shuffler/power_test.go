package shuffler

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tracedisk"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// The test binary is also the program whose writes are traced: the variable has the time at which its keys
// expire, and the directory.
const powerEnv = "RIFFLE_SHUFFLER_POWER"

// powerWorld makes the same keys each time.
func powerWorld(t *testing.T, expires int64) (w *world) {
	t.Run("keys", func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, 1)
		w = newWorld(t, 5)
	})
	w.t = t
	for _, k := range []*envelope.PrivateKey{w.shuffled, w.reader, w.second, w.answers} {
		k.Public.Expires = expires
	}
	var err error
	if w.seal, err = envelope.NewKeyring(w.shuffled); err != nil {
		t.Fatal(err)
	}
	return w
}

func powerStore(root string) store.Config {
	return store.Config{Domain: "shuffler", Dir: filepath.Join(root, "store")}
}

// TestPowerFailureChild is a round from its announcement to its release.
func TestPowerFailureChild(t *testing.T) {
	text, root, ok := strings.Cut(os.Getenv(powerEnv), "|")
	if !ok {
		t.Skip("a part of TestPowerFailures")
	}
	say := func(format string, v ...any) { os.Stdout.Write(fmt.Appendf(nil, "said "+format+"\n", v...)) }
	expires, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	w := powerWorld(t, expires)
	if err := store.Init(t.Context(), powerStore(root)); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), powerStore(root))
	if err != nil {
		t.Fatal(err)
	}
	say("made")
	c := w.config()
	c.Store = s
	n := w.start(c)
	ann := n.announcement(1, func(a *wire.Announcement) { a.Deadline = time.Now().Add(time.Hour).UnixMilli() })
	n.open(ann)
	say("open %x", wire.Encode(ann))
	for i := range w.clients {
		n.must("", "POST", "/v1/report", w.report(ann, i, 0))
		say("report %d", i+1)
	}
	say("closed %x", n.closed(ann).Digest)
	say("releasing")
	n.must(Coordinator, "DELETE", path(ann, ""), nil)
	say("released")
	n.stop()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPowerFailures holds for each state in which a power failure may leave a shuffler's store: the round
// goes on and ends with each acknowledged report once, the word on it stays, and keys that were said to be
// destroyed are not back.
func TestPowerFailures(t *testing.T) {
	longtest.Only(t, "it traces the system calls of a process with an embedded store")
	expires := time.Now().Add(24 * time.Hour).Unix()
	root := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPowerFailureChild$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d|%s", powerEnv, expires, root))
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
	w := powerWorld(t, expires)
	tried, of := 0, 0
	for s := range l.States(4, longtest.Pick3(0, 200, 1<<16)) {
		dir := filepath.Join(into, fmt.Sprint(s.Number))
		if err := s.Write(dir); err != nil {
			t.Fatal(err)
		}
		of = s.Of
		if slices.Contains(s.Said, "said made") { // of the store's creation there is a test of its own
			tried++
			if err := w.checkPower(t, dir, s.Said); err != nil {
				t.Errorf("%v\nafter %q\nlost: %s", err, s.Said, s.Lost)
			}
			if t.Failed() {
				t.Fatalf("state %d, after %q\nlost: %s", s.Number, s.Said, s.Lost)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d states were opened", tried, of)
	if tried < 8 || of < 300 {
		t.Error("too few")
	}
}

func (w *world) checkPower(t *testing.T, dir string, told []string) (err error) {
	ctx := context.Background()
	s, err := store.Open(ctx, powerStore(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	said := map[string]string{}
	for _, line := range told {
		what, value, _ := strings.Cut(strings.TrimPrefix(line, "said "), " ")
		said[what] = value
	}
	c := w.config()
	c.Store = s
	n := w.start(c)
	defer n.stop()
	raw, err := hex.DecodeString(said["open"])
	if err != nil || len(raw) == 0 {
		return err
	}
	ann, err := wire.Decode[wire.Announcement](raw)
	if err != nil {
		return err
	}
	digest := wire.Digest(ann)
	name := encodeName(digest[:])
	keys, err := s.List(ctx, store.Secrets, "")
	if err != nil {
		return err
	}
	if _, released := said["released"]; released && (slices.Contains(keys, name) || slices.Contains(keys, linksName(name))) {
		return fmt.Errorf("keys of a released round: %q", keys)
	}
	if _, closed := said["closed"]; closed && slices.Contains(keys, linksName(name)) {
		return fmt.Errorf("the order's key of a closed round: %q", keys)
	}
	var acked int
	fmt.Sscan(said["report"], &acked)
	if _, closed := said["closed"]; !closed {
		for i := acked; i < len(w.clients); i++ {
			if status, b := n.do("", "POST", "/v1/report", w.report(ann, i, 0)); status/100 != 2 && acked < len(w.clients)-1 {
				return fmt.Errorf("report %d: %d %s", i+1, status, b)
			}
		}
	}
	word := n.closed(ann)
	if was := said["closed"]; was != "" && was != fmt.Sprintf("%x", word.Digest) {
		return fmt.Errorf("the word has changed from %s to %x", was, word.Digest)
	}
	if word.Reports != int64(len(w.clients)) {
		return fmt.Errorf("%d reports in the batch, %d were acknowledged", word.Reports, acked)
	}
	if status, _ := n.do(Coordinator, "GET", path(ann, "/chunks"), nil); status == 200 {
		got := n.fetch(Coordinator, ann, word)
		for i := range w.clients {
			if !slices.ContainsFunc(got, func(b []byte) bool { return bytes.Equal(b, content(i, 0)) }) {
				return fmt.Errorf("report %d is not in the batch", i+1)
			}
		}
	} else if !slices.Contains(told, "said releasing") {
		return fmt.Errorf("the batch cannot be had: %d", status)
	}
	n.must(Coordinator, "DELETE", path(ann, ""), nil)
	keys, err = s.List(ctx, store.Secrets, "")
	if err == nil && (slices.Contains(keys, name) || slices.Contains(keys, linksName(name))) {
		err = fmt.Errorf("keys after the release: %q", keys)
	}
	return err
}
