package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/dataset/mnist"
	"github.com/riffle-dp/riffle/learn/external/externaltest"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/store/natstest"
)

func TestMain(m *testing.M) {
	externaltest.Main()
	testscript.Main(m, map[string]func(){"riffle": main, "riffle-node": func() {
		if err := natstest.Serve(os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}})
}

// digits is MNIST, read once.
var digits = sync.OnceValues(func() (sets [2]*dataset.Images, err error) {
	sets[0], sets[1], err = mnist.Load()
	return sets, err
})

// tiny writes a small data set cut from MNIST as an IDX folder.
func tiny(dir string, trainSize, testSize int, zipped bool) error {
	sets, err := digits()
	if err != nil {
		return err
	}
	cut := func(im *dataset.Images, n int) (*dataset.Images, error) {
		index := make([]int, n)
		for i := range index {
			index[i] = i
		}
		return im.Subset(index)
	}
	a, err := cut(sets[0], trainSize)
	if err != nil {
		return err
	}
	b, err := cut(sets[1], testSize)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return dataset.WriteFolder(dir, a, b, zipped)
}

func TestScripts(t *testing.T) { scripts(t, "testdata/script") }

// TestLongScripts runs what every trust, optimiser and bound can do.
func TestLongScripts(t *testing.T) {
	longtest.Only(t, "some hundred commands")
	scripts(t, "testdata/long")
}

func scripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// tiny DIR N [gz]: a data set of N and 200 images.
			"tiny": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(tiny(ts.MkAbs(args[0]), atoi(ts, args[1]), 200, len(args) > 2))
			},
			// exits CODE riffle args...: the exit code, exactly.
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				code := 0
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					code = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if want := args[0]; want != strconv.Itoa(code) {
					ts.Fatalf("exit code %d, want %s", code, want)
				}
			},
			// patch FILE OFFSET TEXT overwrites bytes; truncate FILE SIZE cuts.
			"patch": func(ts *testscript.TestScript, _ bool, args []string) {
				raw, err := os.ReadFile(ts.MkAbs(args[0]))
				ts.Check(err)
				copy(raw[atoi(ts, args[1]):], args[2])
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), raw, 0o600))
			},
			"truncate": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.Truncate(ts.MkAbs(args[0]), int64(atoi(ts, args[1]))))
			},
		},
	})
}

func atoi(ts *testscript.TestScript, s string) int {
	n, err := setting.ParseCount(s)
	ts.Check(err)
	return int(n)
}

// process starts the command line in a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("riffle")
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(path, args...)
}

func modelOf(t *testing.T, dir string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, train.ModelFile))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A run that is killed again and again, each time some rounds later, and resumed each time ends with
// the model of a run that was left alone.
func TestKillAndResume(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := tiny(data, 500, 200, false); err != nil {
		t.Fatal(err)
	}
	population := longtest.Pick3("500", "1500", "4000")
	who := longtest.Pick([]string{"--participation", "all"}, []string{"--participation", "check-in", "--gamma", "0.3"}) // whose costs take longer
	args := func(out string) []string {
		return append([]string{"train", "--data", data, "--rounds", longtest.Pick("16", "40"), "--population", population, "--dropout", "0.1",
			"--checkpoint-every", "3", "--eval-every", "1", "--no-progress", "--out", out}, who...)
	}
	whole := filepath.Join(t.TempDir(), "whole")
	if text, err := process(t, args(whole)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, signal := range longtest.Pick([]syscall.Signal{syscall.SIGKILL}, []syscall.Signal{syscall.SIGKILL, syscall.SIGINT}) {
		out := filepath.Join(t.TempDir(), "killed")
		random := rand.New(rand.NewPCG(uint64(signal), 1))
		next, kills := args(out), 0
		for {
			began := lines(filepath.Join(out, train.MetricsFile))
			cmd := process(t, next...)
			var text bytes.Buffer
			cmd.Stderr = &text
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			// It has made a checkpoint since it was resumed, so that the next try comes further.
			at, alive := began+6+random.IntN(8), true
			until(t, "the run has come further or has ended", func() bool {
				select {
				case err := <-ended:
					ended <- err
					alive = false
				default:
				}
				return !alive || lines(filepath.Join(out, train.MetricsFile)) >= at
			})
			_ = cmd.Process.Signal(signal) // it may have ended
			if err := <-ended; err == nil {
				break
			} else if state := cmd.ProcessState.Sys().(syscall.WaitStatus); !(signal == syscall.SIGKILL && state.Signaled() && state.Signal() == signal ||
				signal == syscall.SIGINT && cmd.ProcessState.ExitCode() == exitInterrupted) {
				t.Fatalf("%v: %v\n%s", signal, err, &text)
			}
			kills++
			next = []string{"train", "--resume", out, "--no-progress", "--workers", strconv.Itoa(1 + kills%3)}
		}
		if kills == 0 {
			t.Errorf("%v: never interrupted", signal)
		}
		if !bytes.Equal(modelOf(t, whole), modelOf(t, out)) {
			t.Errorf("%v: another model after %d interruptions", signal, kills)
		}
		t.Logf("%v: %d interruptions", signal, kills)
	}
}

// lines counts a file's lines; a file that is not there has none.
func lines(name string) int {
	raw, _ := os.ReadFile(name)
	return bytes.Count(raw, []byte("\n"))
}
