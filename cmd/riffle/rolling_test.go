package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// versionBefore is the commit that roles of this version must work with: all features of a network
// task are in it, and the same versions of messages and stores. It is the commit of the last release,
// once there is one; until then the last commit before the roles were spread over processes. Each
// release puts the commit of the one before it here.
const versionBefore = "32a2f0ad8ed684d1a2669eacebbb7514881ea655"

// programAt builds the program of an earlier version from the repository's history.
func programAt(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	archive := exec.Command("git", "-C", "../..", "archive", "--format=tar", commit)
	var whyNot bytes.Buffer
	archive.Stderr = &whyNot
	files, err := archive.Output()
	if err != nil {
		t.Skipf("the history of the repository is not here: git archive %s: %v: %s", commit, err, &whyNot)
	}
	if err := unpack(bytes.NewReader(files), dir); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "riffle-before")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/riffle")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-trimpath", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "module lookup disabled") {
			t.Skipf("modules of the version before are not here: %s", out)
		}
		t.Fatalf("the version before cannot be built: %v\n%s", err, out)
	}
	return program
}

// unpack writes the files of an archive.
func unpack(from io.Reader, dir string) error {
	for files := tar.NewReader(from); ; {
		h, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o700)
		case tar.TypeReg:
			var b []byte
			if b, err = io.ReadAll(files); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o600))
			}
		}
		if err != nil {
			return err
		}
	}
}

// twoShufflers moves the shuffler's store to a server, and makes a second process of it, which only takes
// reports: those of the last clients.
func twoShufflers(d *deployment) {
	d.t.Helper()
	first := d.configs[operate.RoleShuffler]
	c, err := config.Load[config.Shuffler](first)
	if err != nil {
		d.t.Fatal(err)
	}
	next, front := filepath.Join(filepath.Dir(first), "shared.yaml"), filepath.Join(filepath.Dir(first), "front.yaml")
	edit(d.t, first, next, "    dir: data\n    max-bytes: 0\n    url: \"\"\n    replicas: 0\n", "    url: "+natsServer(d.t)+"\n    replicas: 1\n")
	want(d.t, exitDone, "", "migrate", operate.RoleShuffler, "--config", first, "--to", next, "--json")
	free, err := operate.FreeAddresses(3)
	if err != nil {
		d.t.Fatal(err)
	}
	edit(d.t, next, front, c.Listen, free[0], c.PeersListen, free[1], c.Admin, free[2], "operator: \"\"", "operator: front.sock",
		"frontend-only: false", "frontend-only: true")
	d.configs[operate.RoleShuffler], d.configs[frontName] = next, front
	clients := d.l.Config(fmt.Sprint("clients-", d.l.Processes-1))
	edit(d.t, clients, clients, c.Listen, free[0])
}

// rolling is a deployment some of whose processes run the program before.
type rolling struct {
	*deployment
	program string
	old     []string // names of processes that are started with it
	before  int      // how often it was started
}

func deployRolling(t *testing.T, program string, p scenario, old ...string) *rolling {
	r := &rolling{program: program, old: slices.Clone(old)}
	also := p.edit
	p.edit = func(d *deployment) {
		if also != nil {
			also(d)
		}
		d.launch = func(name string, cmd *exec.Cmd) error {
			if slices.Contains(r.old, name) {
				cmd.Path, cmd.Args[0], cmd.Err = program, program, nil
				r.before++
			}
			return cmd.Start()
		}
	}
	r.deployment = deploy(t, p)
	return r
}

// upgrade stops a process of the program before and starts the new one in its place, in the middle of
// a round.
func (r *rolling) upgrade(name string) {
	r.t.Helper()
	after := int64(0)
	if r.last != nil {
		after = r.last.Round
	}
	r.phase(after, "collecting", patience)
	r.stop(name)
	r.old = slices.DeleteFunc(r.old, func(s string) bool { return s == name })
	r.start(name)
	r.reach(min(r.last.Round+1, r.rounds), patience)
}

// end has the task end with every report, once, and so many starts of the program before.
func (r *rolling) end(before int) {
	r.t.Helper()
	r.whole(patience)
	r.nothingWrong()
	if r.before != before {
		r.t.Errorf("the version before was started %d times, want %d", r.before, before)
	}
}

// Roles of this version and of the one before run a task together, and each is replaced in the middle
// of it: every report counts, once, and nothing is charged twice.
func TestRollingUpgrade(t *testing.T) {
	longtest.Only(t, "builds the version before, and runs tasks with it")
	if testing.Short() {
		t.Skip("runs processes")
	}
	program := programAt(t, versionBefore)
	everyone := []string{operate.RoleShuffler, operate.RoleCoordinator, operate.RoleAggregator, operate.RoleRegistrar, operate.RoleRelay, "clients-0", "clients-1"}
	scene := func(trust dp.Trust, rounds int64) scenario {
		return scenario{clients: 6, processes: 2, trust: trust, rounds: rounds, spread: 200 * time.Millisecond, receipts: true}
	}
	for _, trust := range []dp.Trust{dp.Shuffle, withProofs} {
		servers := []string{operate.RoleShuffler, operate.RoleCoordinator}
		if trust == withProofs {
			servers = append(servers, operate.RoleAggregator)
		}
		for name, old := range map[string][]string{
			"an old shuffler":    {operate.RoleShuffler},
			"an old coordinator": {operate.RoleCoordinator},
			"an old aggregator":  {operate.RoleAggregator},
			"old clients":        {"clients-0", "clients-1"},
			"old servers":        servers,
			"some old clients":   {"clients-1"},
		} {
			if trust == dp.Shuffle && old[0] == operate.RoleAggregator {
				continue
			}
			t.Run(string(trust)+"/"+name, func(t *testing.T) {
				r := deployRolling(t, program, scene(trust, 3), old...)
				r.end(len(old))
			})
		}
	}
	t.Run("what is newer", func(t *testing.T) { refusesWhatIsNewer(t, program) })
	for name, old := range map[string]string{"an old frontend": frontName, "an old closer": operate.RoleShuffler} {
		t.Run(name, func(t *testing.T) {
			p := scene(dp.Shuffle, 6)
			p.edit = twoShufflers
			r := deployRolling(t, program, p, old)
			r.start(frontName)
			r.reach(2, patience)
			r.upgrade(old)
			r.end(1)
		})
	}
	for _, trust := range []dp.Trust{dp.Shuffle, withAll} {
		t.Run(string(trust)+"/one after the other", func(t *testing.T) {
			r := deployRolling(t, program, scene(trust, 10), everyone...)
			for _, name := range []string{operate.RoleRegistrar, operate.RoleAggregator, operate.RoleShuffler, operate.RoleCoordinator, operate.RoleRelay, "clients-0", "clients-1"} {
				if r.running[name] != nil {
					r.upgrade(name)
				}
			}
			r.end(len(r.configs))
		})
	}
}

// refusesWhatIsNewer gives the version before, in the end, what only this one knows, or a later one: it
// names it, and touches nothing.
func refusesWhatIsNewer(t *testing.T, program string) {
	r := deployRolling(t, program, scenario{clients: 2, processes: 1, trust: dp.Shuffle, rounds: 1})
	r.end(0)
	refused := func(text string, args ...string) {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), text) {
			t.Errorf("%v: %v, want %q in %s", args, err, text, out)
		}
	}
	clients := r.configs["clients-0"]
	edit(t, clients, clients, "shuffler:\n", "cache: https://127.0.0.1:1\nshuffler:\n")
	refused(`unknown key "cache"`, "client", "--config", clients)
	for _, role := range r.roles() {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(r.configs[role]), "*", "riffle-store.json"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: stores %v, %v", role, found, err)
		}
		edit(t, found[0], found[0], `"format": 1`, `"format": 2`)
		refused("has format 2, this program reads up to 1", "serve", role, "--config", r.configs[role])
		want(t, exitFailed, "has format 2, this program reads up to 1", "serve", role, "--config", r.configs[role])
	}
}
