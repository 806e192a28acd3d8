package tracedisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/durable"
)

// The test binary is also the program that is traced: TRACEDISK_CHILD names what it does, and where.
const childEnv = "TRACEDISK_CHILD"

var children = map[string]func(dir string) error{
	"replace": func(dir string) error {
		path := filepath.Join(dir, "f")
		return says(3, func(i int) error { return durable.WriteFile(path, content(i)) })
	},
	"replace without the file's sync": func(dir string) error {
		return says(3, func(i int) error {
			tmp := filepath.Join(dir, "tmp")
			return errors.Join(os.WriteFile(tmp, content(i), 0o600), os.Rename(tmp, filepath.Join(dir, "f")), durable.SyncDir(dir))
		})
	},
	"replace without the directory's sync": func(dir string) error {
		return says(3, func(i int) error {
			tmp := filepath.Join(dir, "tmp")
			return errors.Join(os.WriteFile(tmp, content(i), 0o600), durable.Sync(tmp), os.Rename(tmp, filepath.Join(dir, "f")))
		})
	},
	"overwrite": func(dir string) error {
		return says(3, func(i int) error {
			path := filepath.Join(dir, "f")
			return errors.Join(os.WriteFile(path, content(i), 0o600), durable.Sync(path), durable.SyncDir(dir))
		})
	},
	"below": func(dir string) error {
		return says(3, func(i int) error {
			below := filepath.Join(dir, fmt.Sprint("d", i))
			return errors.Join(durable.MkdirAll(below, 0o700), durable.WriteFile(filepath.Join(below, "f"), content(i)))
		})
	},
	"below a lost directory": func(dir string) error {
		return says(3, func(i int) error {
			below := filepath.Join(dir, fmt.Sprint("d", i))
			return errors.Join(os.Mkdir(below, 0o700), durable.WriteFile(filepath.Join(below, "f"), content(i)))
		})
	},
}

func content(i int) []byte { return []byte(strings.Repeat(fmt.Sprint(i), 1300)) }

func says(n int, do func(i int) error) error {
	for i := range n {
		if err := do(i + 1); err != nil {
			return err
		}
		fmt.Println("wrote", i+1)
	}
	return nil
}

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		name, dir, _ := strings.Cut(what, "|")
		if err := children[name](dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func record(t *testing.T, name string) *Log {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+name+"|"+dir)
	l, err := Record(dir, cmd)
	if errors.Is(err, ErrNoTrace) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Each program says what it has written. What its disk may be is known by reading the program.
func TestStates(t *testing.T) {
	for name, c := range map[string]struct {
		file  func(i int) string
		safe  bool
		whole bool // whether a file that is there is whole
	}{
		"replace":                              {func(int) string { return "f" }, true, true},
		"replace without the file's sync":      {func(int) string { return "f" }, false, false},
		"replace without the directory's sync": {func(int) string { return "f" }, false, true},
		"overwrite":                            {func(int) string { return "f" }, false, false},
		"below":                                {func(i int) string { return filepath.Join(fmt.Sprint("d", i), "f") }, true, true},
		"below a lost directory":               {func(i int) string { return filepath.Join(fmt.Sprint("d", i), "f") }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := record(t, name)
			states, lost, torn := 0, "", ""
			for s := range l.States(1, 1<<20) {
				states++
				if s.Number != states {
					t.Fatalf("state %d is number %d", states, s.Number)
				}
				dir := filepath.Join(t.TempDir(), "s")
				if err := s.Write(dir); err != nil {
					t.Fatal(err)
				}
				for i := range 4 {
					b, err := os.ReadFile(filepath.Join(dir, c.file(i)))
					acked := i > 0 && len(s.Said) >= i
					if c.file(0) == c.file(1) {
						acked = len(s.Said) == i && i > 0
					}
					if acked && (err != nil || string(b) < string(content(i))) {
						lost = s.Lost
					}
					if err == nil && len(b) != 1300 || strings.Trim(string(b), "123") != "" || err == nil && string(b) != strings.Repeat(string(b[:1]), len(b)) {
						torn = s.Lost
					}
				}
			}
			t.Logf("%d states", states)
			if states < 8 {
				t.Errorf("only %d states", states)
			}
			if (lost == "") != c.safe {
				t.Errorf("acknowledged and lost in %q, want safe %v", lost, c.safe)
			}
			if (torn == "") != c.whole {
				t.Errorf("torn in %q, want whole %v", torn, c.whole)
			}
		})
	}
}

func TestFewerStatesAreChosen(t *testing.T) {
	l := record(t, "overwrite")
	of, numbers := 0, 0
	for s := range l.States(7, 5) {
		numbers++
		of = s.Of
	}
	if numbers != 5 || of <= 5 {
		t.Errorf("%d of %d states", numbers, of)
	}
}

func TestParseCall(t *testing.T) {
	for text, want := range map[string]call{
		`openat(AT_FDCWD, "\x2f\x61", O_RDONLY|O_CLOEXEC) = 3`: {name: "openat", args: []string{"AT_FDCWD", `"\x2f\x61"`, "O_RDONLY|O_CLOEXEC"}, result: "3"},
		`sync()                                  = 0`:          {name: "sync", result: "0"},
		`unlinkat(3, "\x2f", 0) = -1 ENOENT (No such file)`:    {name: "unlinkat", args: []string{"3", `"\x2f"`, "0"}, result: "-1"},
		`fcntl(0, F_GETFL)   = 0x8002 (flags O_RDWR|O_LARGE)`:  {name: "fcntl", args: []string{"0", "F_GETFL"}, result: "0x8002"},
	} {
		got, ok := parseCall(text)
		if !ok || got.name != want.name || fmt.Sprint(got.args) != fmt.Sprint(want.args) || got.result != want.result {
			t.Errorf("%s: %+v", text, got)
		}
	}
	for _, text := range []string{"+++ exited with 0 +++", "exit_group(0)", ""} {
		if c, ok := parseCall(text); ok && c.name != "exit_group" {
			t.Errorf("%q is %+v", text, c)
		}
	}
	if b, err := unquote(`"\x00\xff"`); err != nil || string(b) != "\x00\xff" {
		t.Errorf("%q, %v", b, err)
	}
	for _, text := range []string{`"ab"`, `"\x0"`, `"\x00"...`, `\x00`, `"\xzz"`} {
		if b, err := unquote(text); err == nil {
			t.Errorf("%s is %q", text, b)
		}
	}
}
