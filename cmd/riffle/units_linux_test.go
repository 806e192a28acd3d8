package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// riffleProgram is the program under test.
func riffleProgram(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("riffle")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// systemd's own checker takes each unit, and finds little that a role may do beyond its work.
func TestUnitsVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze")
	}
	units, err := filepath.Glob(filepath.Join(deployDir, "*.service"))
	if err != nil || len(units) < 4 {
		t.Fatalf("%d units, %v", len(units), err)
	}
	dir, program := t.TempDir(), riffleProgram(t)
	for _, u := range units {
		at := filepath.Join(dir, filepath.Base(u))
		edit(t, u, at, "/usr/local/bin/riffle ", program+" ")
		for _, args := range [][]string{{"verify", "--man=no", at}, {"security", "--offline=yes", "--threshold=20", "--no-pager", at}} {
			cmd := exec.Command(analyze, args...)
			cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":", "SYSTEMD_LOG_LEVEL=notice")
			out, err := cmd.CombinedOutput()
			if text := string(out); err != nil || args[0] == "verify" && strings.Contains(text, filepath.Base(u)) {
				t.Errorf("%s %s: %v\n%s", filepath.Base(u), args[0], err, text)
			}
		}
	}
}
