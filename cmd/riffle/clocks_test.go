package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/operate"
)

// clockEnv is how many seconds the clock of wrongClock's program is fast.
const clockEnv = "RIFFLE_TEST_CLOCK"

// wrongClock builds this program with a clock that is wrong by as much as clockEnv says: time.Now
// of the standard library is another one for this build. The program itself has no such thing.
func wrongClock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("go env: %v", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Skipf("the standard library's source is not here: %v", err)
	}
	const now = "	sec, nsec, mono := runtimeNow()\n	if mono == 0 {\n"
	if strings.Count(string(text), now) != 1 {
		t.Fatal("time.Now of this version of Go is another one: change it otherwise")
	}
	changed := strings.Replace(string(text), now, strings.Replace(now, "\n", "\n	sec += fast\n", 1), 1) + `
var fast = func() (n int64) {
	text, _ := syscall.Getenv("` + clockEnv + `")
	minus := text != "" && text[0] == '-'
	for i := 0; i < len(text); i++ {
		if '0' <= text[i] && text[i] <= '9' {
			n = 10*n + int64(text[i]-'0')
		}
	}
	if minus {
		return -n
	}
	return n
}()
`
	changed = strings.Replace(changed, "import (\n", "import (\n	\"syscall\"\n", 1)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: filepath.Join(dir, "time.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"time.go": []byte(changed), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "riffle-late")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestClocksHoursApart lets each process in turn run with a clock that is three hours slow or fast, in the
// middle of a task, and then with the right one: nothing is lost, twice or charged too low, and the task
// goes on at once. Without the tag soak some of these are tried.
func TestClocksHoursApart(t *testing.T) {
	longtest.Only(t, "builds a program with another clock, and runs tasks with it")
	if testing.Short() {
		t.Skip("runs processes")
	}
	type wrong struct {
		name  string
		hours int
	}
	tried := []wrong{{operate.RoleShuffler, 3}, {operate.RoleCoordinator, 3}, {operate.RoleRegistrar, 3}, {"clients-0", -3}}
	if longtest.Soak {
		tried = nil
		for _, name := range []string{operate.RoleShuffler, operate.RoleCoordinator, operate.RoleAggregator, operate.RoleRegistrar, operate.RoleRelay, "clients-0"} {
			tried = append(tried, wrong{name, -3}, wrong{name, 3})
		}
	}
	program := wrongClock(t)
	for _, w := range tried {
		t.Run(fmt.Sprintf("%s%+d", w.name, w.hours), func(t *testing.T) {
			now := false
			p := scenario{clients: 4, processes: 2, trust: withAll, rounds: 16, round: 20 * time.Second, spread: 200 * time.Millisecond}
			p.edit = func(d *deployment) {
				d.launch = func(name string, cmd *exec.Cmd) error {
					if now && name == w.name {
						cmd.Path, cmd.Args[0], cmd.Err = program, program, nil
						cmd.Env = append(cmd.Environ(), fmt.Sprintf("%s=%d", clockEnv, 3600*w.hours))
					}
					return cmd.Start()
				}
			}
			d := deploy(t, p)
			d.reach(1, patience)
			d.stop(w.name)
			now = true
			d.start(w.name)
			goOn(4 * time.Second)
			during := d.look(d.api())
			select {
			case <-d.running[w.name].done: // clients have seen the task's end
				delete(d.running, w.name)
			default:
				d.stop(w.name)
			}
			now = false
			d.start(w.name)
			o := d.finish(patience)
			t.Logf("with the wrong clock to round %d of %d; %+v", during.GetRound(), d.rounds, o)
			// A shuffler whose clock is fast ends a round that is open.
			if o.released < d.rounds-1 || w.name != operate.RoleShuffler && o.released < d.rounds {
				t.Errorf("%+v\n%s", o, d.tails())
			}
			for _, c := range d.clients() {
				if got := d.findings(c); got.Missing+got.Half+got.Unfit+got.Untold > 0 {
					t.Errorf("%s: %+v", c, got)
				}
			}
		})
	}
}
