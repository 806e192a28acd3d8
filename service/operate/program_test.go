package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
)

// What goes wrong with a program is in this machine's log, once for a round; a task of another
// dimension is refused.
func TestProgramsOfClients(t *testing.T) {
	var text bytes.Buffer
	p, err := openProgram(t.Context(), config.Client{Gradients: externaltest.Listen(t, "wrong-dim")}, slog.New(slog.NewJSONHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	task := wire.Task{Name: "own"}
	task.Mechanism.Dim = externaltest.Dim
	c := programClient{p, 7}
	if g, err := c.Open(task); g != nil || err != nil {
		t.Error(err)
	}
	other := task
	other.Mechanism.Dim++
	if _, err := c.Open(other); err == nil || err.Error() != "operate: the program's model has 5 parameters, the task's 6" {
		t.Error(err)
	}
	theta := make([]float32, externaltest.Dim)
	if _, err := c.Ask(t.Context(), task, 1, theta); err == nil {
		t.Error("a wrong answer is no error")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // it is opened after a second
	defer cancel()
	for range 3 {
		if _, err := c.Ask(ctx, task, 2, theta); err == nil {
			t.Error("a program that is not open answers")
		}
	}
	var got []string
	for line := range strings.Lines(text.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m["error"].(string))
	}
	if len(got) != 2 || !strings.Contains(got[0], `it sends a tensor "gradients", F32 [1 4], want one tensor gradients, F32 [1 5]`) || !strings.Contains(got[1], "it is not open") {
		t.Errorf("the log has %q", got)
	}
	if text, lines := told(errText("external: it has ended; its last lines:\n  | a\n  | b")); text != "it has ended" || strings.Join(lines, ",") != "a,b" {
		t.Errorf("%q, %q", text, lines)
	}
}

type errText string

func (e errText) Error() string { return string(e) }

// The check of clients tries the program.
func TestInspectTriesPrograms(t *testing.T) {
	for mode, want := range map[string]string{"good": "", "nan": "2 values of its gradient are not finite", "wrong-dim": "F32 [1 4]", "no-dim": "lack dim"} {
		n := &inspection{role: RoleClient}
		n.program(t.Context(), config.Client{Gradients: externaltest.Listen(t, mode)})
		if len(n.list) != 1 || (want == "") != (n.list[0].Error == "") || !strings.Contains(n.list[0].Error, want) || n.list[0].Unreachable {
			t.Errorf("%s: %+v", mode, n.list)
		}
	}
}

// What ready names is removed only if it can be what a process left there.
func TestReadyRemovesNoOtherFile(t *testing.T) {
	dir := t.TempDir()
	left, precious := filepath.Join(dir, "left"), filepath.Join(dir, "precious")
	link := filepath.Join(dir, "link")
	for name, text := range map[string]string{left: "", precious: "key"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(precious, link); err != nil {
		t.Skip(err)
	}
	for name, refused := range map[string]bool{left: false, filepath.Join(dir, "none"): false, precious: true, link: true, dir: true} {
		err := removeReady(name)
		_, there := os.Lstat(name)
		if refused != (err != nil) || refused != (there == nil) {
			t.Errorf("%s: %v, %v", name, err, there)
		}
	}
}

// A task whose parameters have other names, shapes or another order than the program's is refused:
// its gradients would be of other parameters.
func TestClientsProgramOfAnotherModel(t *testing.T) {
	p, err := openProgram(t.Context(), config.Client{Gradients: externaltest.Listen(t, "learn")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for parameters, fits := range map[string]bool{"slope=2x2 offset=": true, "": true, "offset= slope=2x2": false, "slope=4 offset=": false} {
		c := train.Default()
		c.Model, c.Dim, c.Parameters, c.Rounds = "external", externaltest.Dim, parameters, 3
		made, err := train.NewTask(t.Context(), "own", c, train.Enrolled{Population: wire.ID{1}, Clients: 40, MinReports: 10})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (programClient{p, 7}).Open(made.Wire); (err == nil) != fits {
			t.Errorf("%q: %v", parameters, err)
		}
	}
}
