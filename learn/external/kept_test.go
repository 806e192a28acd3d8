package external

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// notes gathers what is told of a program.
type notes struct {
	mu   sync.Mutex
	errs []error
}

func (n *notes) tell(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errs = append(n.errs, err)
}

func (n *notes) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := errors.Join(n.errs...); err != nil {
		return err.Error()
	}
	return ""
}

func keep(t *testing.T, mode string, timeout time.Duration) (*Kept, *notes) {
	t.Helper()
	n := &notes{}
	k, err := Keep(t.Context(), Config{Program: program(mode), Purpose: Client, Timeout: timeout}, n.tell)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k, n
}

// A program that ends is opened again, and has the same answers.
func TestKeptIsOpenedAgain(t *testing.T) {
	k, n := keep(t, "dies", 20*time.Second) // at its second question
	theta := []float32{1, 2, 3, 4, 5}
	if k.Dim() != programDim {
		t.Errorf("dim %d", k.Dim())
	}
	for round, dies := range []bool{false, true, false, true} {
		row, odd, err := k.Gradient(t.Context(), "task", int64(round+1), theta, 7)
		switch {
		case dies != (err != nil):
			t.Fatalf("question %d: %v", round, err)
		case dies && !strings.Contains(err.Error(), "MemoryError: out of memory"):
			t.Errorf("error %v", err)
		case !dies && (odd != 0 || row[4] != gradientOf(theta, 7, 4)):
			t.Errorf("%v, %d", row, odd)
		}
	}
	if _, _, err := k.Gradient(t.Context(), "task", 9, theta[1:], 7); err == nil || !strings.Contains(err.Error(), "its model has 5 parameters, the task's 4") {
		t.Errorf("error %v", err)
	}
	if n.text() != "" {
		t.Errorf("told %s: the caller has the errors", n.text())
	}
}

// An answer that is late is dropped, and the next one is the next question's.
func TestLateAnswersAreDropped(t *testing.T) {
	longtest.Only(t, "a program answers after seconds")
	k, _ := keep(t, "late", 20*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, _, err := k.Gradient(ctx, "", 1, []float32{9, 9, 9, 9, 9}, 1); err == nil || !strings.Contains(err.Error(), "it gave no answer in the time that a round has for it") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begun); took > 4*time.Second { // the program answers after 5
		t.Errorf("it took %v", took)
	}
	theta := []float32{1, 2, 3, 4, 5}
	if row, _, err := k.Gradient(t.Context(), "", 2, theta, 2); err != nil || row[4] != gradientOf(theta, 2, 4) {
		t.Errorf("%v, %v", row, err)
	}
}

// A program that does not open is no error of Keep's; one that is not there is.
func TestKeep(t *testing.T) {
	k, n := keep(t, "dies-open", 20*time.Second)
	if k.Dim() != 0 || !strings.Contains(n.text(), "No module named 'torch'") {
		t.Errorf("dim %d, told %s", k.Dim(), n.text())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := k.Gradient(ctx, "", 1, make([]float32, 5), 0); err == nil || !strings.Contains(err.Error(), "it is not open") {
		t.Errorf("error %v", err)
	}
	for _, program := range []string{"no-such-program-at-all", "unix:/nowhere/socket", "unix:nowhere/../socket", "unix:@riffle-test", "unix:", "'"} {
		if _, err := Keep(t.Context(), Config{Program: program, Purpose: Client}, nil); err == nil {
			t.Errorf("%s is kept", program)
		}
	}
}

// A program that comes back with another model is refused, and nobody waits until it has ended.
func TestAnotherModelHoldsNobodyUp(t *testing.T) {
	longtest.Only(t, "a program takes seconds to be ended")
	if runtime.GOOS == "windows" {
		t.Skip("the program is a shell script")
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "program")
	text := "#!/bin/sh\ncd '" + dir + "'\nif [ -e came ]; then exec " + program("stays=6") + "; fi\n: > came\nexec " + program("dies") + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	n := &notes{}
	k, err := Keep(t.Context(), Config{Program: "'" + script + "'", Purpose: Client, Timeout: 20 * time.Second}, n.tell)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	theta := make([]float32, programDim)
	for range 2 { // it dies at the second question
		_, _, err = k.Gradient(t.Context(), "", 1, theta, 0)
	}
	if err == nil {
		t.Fatal("the program lives")
	}
	longest := time.Duration(0)
	for begun := time.Now(); n.text() == "" && time.Since(begun) < 2*time.Minute; runtime.Gosched() {
		before := time.Now()
		if d := k.Dim(); d != programDim {
			t.Fatalf("dim %d", d)
		}
		longest = max(longest, time.Since(before))
	}
	if !strings.Contains(n.text(), "it now has 6 parameters, it had 5") {
		t.Errorf("told %s", n.text())
	}
	if longest > graceful/2 {
		t.Errorf("a caller waited %v", longest)
	}
}

// A socket that others can use, replace or own is refused for a client, whose gradients would be
// theirs.
func TestSocketsOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no owners")
	}
	for name, c := range map[string]struct {
		want string
		act  func(dir, socket string) error
	}{
		"fine":      {"", func(dir, socket string) error { return nil }},
		"sticky":    {"", func(dir, socket string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }},
		"open":      {"every user of this machine may connect", func(dir, socket string) error { return os.Chmod(socket, 0o722) }},
		"directory": {"every user of this machine may replace the socket", func(dir, socket string) error { return os.Chmod(dir, 0o777) }},
		"stranger":  {"the socket belongs to another user", func(dir, socket string) error { return os.Chown(socket, 12345, -1) }},
		"link": {"another user", func(dir, socket string) error {
			if err := os.Rename(socket, socket+"-real"); err != nil {
				return err
			}
			return errors.Join(os.Symlink(socket+"-real", socket), os.Lchown(socket, 12345, -1))
		}},
		"link to others": {"every user of this machine may replace the socket", func(dir, socket string) error {
			open := filepath.Join(dir, "open")
			if err := errors.Join(os.Mkdir(open, 0o700), os.Rename(socket, filepath.Join(open, "s")), os.Chmod(open, 0o777)); err != nil {
				return err
			}
			return os.Symlink(filepath.Join(open, "s"), socket)
		}},
		"landlord": {"directory belongs to another user", func(dir, socket string) error { return os.Chown(dir, 12345, -1) }},
	} {
		t.Run(name, func(t *testing.T) {
			address := listen(t, "good")
			socket := strings.TrimPrefix(address, "unix:")
			if err := os.Chmod(socket, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.act(filepath.Dir(socket), socket); errors.Is(err, os.ErrPermission) {
				t.Skip("only root gives files away")
			} else if err != nil {
				t.Fatal(err)
			}
			k, err := Keep(t.Context(), Config{Program: address, Purpose: Client}, nil)
			if err == nil {
				k.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// What any user may take, or is not there yet, is no place for a client's program, also if somebody listens.
func TestNamesThatAnybodyMayTake(t *testing.T) {
	if l, err := net.Listen("unix", "@riffle-test-taken"); err == nil {
		defer l.Close()
	}
	for _, purpose := range []purpose{Client, Simulate, Evaluate} {
		for program, want := range map[string]string{"unix:@riffle-test-taken": "any user may take such a name", "unix:\x00riffle-test-taken": "any user may take such a name",
			"unix:": "not the path of a socket", "unix:" + filepath.Join(t.TempDir(), "none"): "nothing answers there: "} {
			s, err := Open(t.Context(), Config{Program: program, Purpose: purpose})
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: %v, want %q", purpose, program, err, want)
			}
		}
	}
	dangling := filepath.Join(t.TempDir(), "s")
	if err := os.Symlink(filepath.Join(filepath.Dir(dangling), "later"), dangling); err != nil {
		t.Skip(err)
	}
	if err := trusted(dangling); runtime.GOOS != "windows" && err == nil {
		t.Error("a link to what is not there is trusted")
	}
}

// An error that lasts is told again, but not at each attempt.
func TestLastingErrorsAreToldAgain(t *testing.T) {
	var say telling
	now := time.Now()
	for _, c := range []struct {
		after time.Duration
		text  string
		want  bool
	}{{0, "one", true}, {0, "one", false}, {again - 1, "one", false}, {1, "one", true}, {time.Minute, "one", false}, {0, "other", true}, {0, "one", true}, {again, "one", true}} {
		if now = now.Add(c.after); say.due(c.text, now) != c.want {
			t.Errorf("%+v: %t", c, !c.want)
		}
	}
}

// A gradient costs its own memory once, and theta is not copied.
func TestGradientIsNotCopied(t *testing.T) {
	const dim = 1 << 20
	k, _ := keep(t, "fast=1048576", 20*time.Second)
	theta := make([]float32, dim)
	for round := range int64(2) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		row, _, err := k.Gradient(t.Context(), "", round+1, theta, 0)
		if err != nil || len(row) != dim {
			t.Fatal(len(row), err)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 4*dim+1<<20 {
			t.Errorf("%d bytes for a gradient of %d", got, 4*dim)
		}
	}
}
