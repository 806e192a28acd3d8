package mark_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tracedisk"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// The test binary is also the program whose writes are traced, in this directory.
const powerEnv = "RIFFLE_MARK_POWER"

func powerConfig(root string) store.Config {
	return store.Config{Domain: "registrar", Dir: filepath.Join(root, "store")}
}

// powerList is a list of serials, as the registrar's and the aggregator's are: an entry follows the one
// before.
func powerList(s *store.Store, root string) *mark.List[int, string] {
	return &mark.List[int, string]{Name: "test", Log: s, Mark: mark.File(filepath.Join(root, "marks", "serials.json")),
		Apply: func(known map[int]string, head [32]byte, data []byte) error {
			var n int
			var last string
			if _, err := fmt.Sscanf(string(data), "%d %s", &n, &last); err != nil {
				return err
			}
			if known[n] != "" || last != fmt.Sprintf("%x", head) {
				return fmt.Errorf("entry %q after %x", data, head)
			}
			known[n] = string(data)
			return nil
		}}
}

func issue(ctx context.Context, l *mark.List[int, string]) (n int, err error) {
	n = int(l.Len()) + 1
	return n, l.Add(ctx, n, func(known string, head [32]byte) ([]byte, error) {
		if known != "" {
			return nil, errors.New("issued twice")
		}
		return fmt.Appendf(nil, "%d %x", n, head), nil
	})
}

func TestPowerFailureChild(t *testing.T) {
	root := os.Getenv(powerEnv)
	if root == "" {
		t.Skip("a part of TestPowerFailures")
	}
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(store.Init(ctx, powerConfig(root)))
	must(mark.File(filepath.Join(root, "marks", "serials.json")).Save(mark.Mark{}))
	os.Stdout.WriteString("said made 0\n")
	for range 2 {
		s, err := store.Open(ctx, powerConfig(root))
		must(err)
		l := powerList(s, root)
		must(l.Open(ctx))
		for range 4 {
			n, err := issue(ctx, l)
			must(err)
			os.Stdout.WriteString(fmt.Sprintf("said issued %d\n", n))
		}
		must(s.Close())
	}
}

// TestPowerFailures holds for each state in which a power failure may leave a role's list and its mark,
// on one disk or two: it is accepted, has all that was told, and gives the next serial once.
func TestPowerFailures(t *testing.T) {
	longtest.Only(t, "a traced process writes real stores")
	root, ctx := t.TempDir(), t.Context()
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
	tried, of := 0, 0
	for s := range l.States(3, longtest.Pick3(400, 400, 1<<16)) {
		issued, made := 0, false
		for _, line := range s.Said {
			if rest, ok := strings.CutPrefix(line, "said issued "); ok {
				fmt.Sscan(rest, &issued)
			}
			made = made || line == "said made 0"
		}
		if !made {
			continue // of the store's creation there is a test of its own
		}
		dir := filepath.Join(into, fmt.Sprint(s.Number))
		if err := s.Write(dir); err != nil {
			t.Fatal(err)
		}
		tried, of = tried+1, s.Of
		if err := checkPower(ctx, dir, issued); err != nil {
			t.Errorf("%v\nafter %q\nlost: %s", err, s.Said, s.Lost)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d states were opened", tried, of)
	if tried < 20 || of < 300 {
		t.Error("too few")
	}
}

func checkPower(ctx context.Context, dir string, issued int) (err error) {
	s, err := store.Open(ctx, powerConfig(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l := powerList(s, dir)
	if err := l.Open(ctx); err != nil {
		return err
	}
	if l.Len() < int64(issued) || l.Len() > int64(issued)+1 {
		return fmt.Errorf("%d entries, %d were told", l.Len(), issued)
	}
	if n, err := issue(ctx, l); err != nil || n <= issued {
		return fmt.Errorf("serial %d after %d: %w", n, issued, err)
	}
	return nil
}
