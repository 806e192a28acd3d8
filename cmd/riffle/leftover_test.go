//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childOf returns a process that another has started with an argument.
func childOf(parent int, argument string) (pid int, ok bool) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		return 0, false
	}
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for _, text := range strings.Fields(string(b)) {
			line, err := os.ReadFile("/proc/" + text + "/cmdline")
			if err != nil || !bytes.Contains(line, []byte("\x00"+argument+"\x00")) {
				continue
			}
			pid, err := strconv.Atoi(text)
			return pid, err == nil
		}
	}
	return 0, false
}

// What a demo leaves behind when it is interrupted, or a process of it is killed, can
// be resumed, and the demo says where it is. A demo that gets SIGTERM leaves nothing, unless
// it was given a directory. All of its processes have ended.
func TestDemoLeavesNothingUnnamed(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	data := filepath.Join(t.TempDir(), "images")
	if err := tiny(data, 120, 60, false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string    // that the directory has when it happens
		victim     string    // of kill -9; "": the demo gets a signal
		signal     os.Signal // nil: Ctrl-C
		out        bool      // the directory is not a temporary one
		code       int
		twice      bool // the signal comes again
	}{
		{name: "at once", code: exitInterrupted},
		{name: "while keys are made", file: "shuffler", code: exitInterrupted},
		{name: "when it has begun", file: demoFile, code: exitInterrupted},
		{name: "terminated", file: filepath.Join("logs", "clients-0.log"), signal: syscall.SIGTERM, code: exitInterrupted},
		{name: "terminated twice", file: filepath.Join("logs", "clients-0.log"), signal: syscall.SIGTERM, code: exitInterrupted, twice: true},
		{name: "terminated in a directory", file: filepath.Join("logs", "clients-0.log"), signal: syscall.SIGTERM, out: true, code: exitInterrupted},
		{name: "shuffler killed", file: filepath.Join("logs", "clients-0.log"), victim: "shuffler", code: exitFailed},
		{name: "clients killed", file: filepath.Join("logs", "clients-1.log"), victim: "client", code: exitFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			temp := shortDir(t)
			args := []string{"demo", "--clients", "12", "--rounds", "100000", "--data", data, "--quiet"}
			if c.out {
				args = append(args, "--out", filepath.Join(temp, "riffle-demo-given"))
			}
			cmd := process(t, args...)
			cmd.Env = append(os.Environ(), "TMPDIR="+temp)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			until(t, c.file+" is there", func() bool {
				found, err := filepath.Glob(filepath.Join(temp, "riffle-demo-*", c.file))
				return err == nil && len(found) == 1
			})
			var pids []int
			for _, argument := range []string{"shuffler", "coordinator", "client"} {
				if pid, ok := childOf(cmd.Process.Pid, argument); ok {
					pids = append(pids, pid)
				}
			}
			if c.victim == "" {
				signal := c.signal
				if signal == nil {
					signal = os.Interrupt
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				if c.twice { // as timeout sends it
					_ = cmd.Process.Signal(signal)
				}
			} else {
				pid, ok := childOf(cmd.Process.Pid, c.victim)
				if !ok {
					t.Fatalf("the demo has no %s", c.victim)
				}
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait() // the exit code says it
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("it does not end")
			}
			text := stderr.String()
			if got := cmd.ProcessState.ExitCode(); got != c.code {
				t.Errorf("exit %d, want %d: %s", got, c.code, text)
			}
			left, err := os.ReadDir(temp)
			if err != nil {
				t.Fatal(err)
			}
			if c.signal != nil && len(left) > 0 != c.out {
				t.Errorf("%d directories are left: %s", len(left), text)
			}
			for _, e := range left {
				dir := filepath.Join(temp, e.Name())
				if _, err := os.Stat(filepath.Join(dir, demoFile)); err != nil || !strings.Contains(text, "--resume "+dir) {
					t.Errorf("%s is left and not named, or cannot be resumed (%v): %s", dir, err, text)
				}
			}
			if c.victim != "" && !strings.Contains(text, "killed") {
				t.Errorf("the killed process is not named: %s", text)
			}
			for _, pid := range pids {
				if syscall.Kill(pid, 0) == nil {
					t.Errorf("process %d runs on", pid)
				}
			}
			t.Logf("%d directories left: %s", len(left), strings.TrimSpace(text))
		})
	}
}
