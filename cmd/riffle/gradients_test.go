package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

// pythonWith returns a Python that has a module, or skips the test.
func pythonWith(t *testing.T, module string) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import "+module).Run() == nil {
			return name
		}
	}
	t.Skipf("no python3 with %s: the example program is not run", module)
	return ""
}

// example returns the command line of an example program.
func example(t *testing.T, python, name, options string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "python", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return python + " '" + path + "' " + options
}

// jsonOf runs riffle in this process, and returns what it prints as JSON.
func jsonOf(t *testing.T, args ...string) map[string]any {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, &out, &errs); code != 0 {
		t.Fatalf("riffle %s: exit code %d\n%s", strings.Join(args, " "), code, errs.String())
	}
	var v map[string]any
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return v
}

// TestNumpyExample trains the example's network, started and over a socket.
func TestNumpyExample(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for long; TestOwnClients has the goroutines of programs")
	}
	python := pythonWith(t, "numpy")
	t.Setenv("OMP_NUM_THREADS", "1")
	program := example(t, python, "numpy_mlp.py", "--clients 1500")
	found := jsonOf(t, "gradients", "check", program, "--json", "--speed-seconds", "0")
	if found["ok"] != true || found["dim"] != 2410. || found["clients"] != 1500. || found["name"] != "numpy network" {
		t.Errorf("%v", found)
	}
	for _, f := range found["findings"].([]any) {
		if f.(map[string]any)["level"] != "ok" {
			t.Errorf("%v", f)
		}
	}
	// Every client asked for by itself, and all together, as a run does it.
	dir := t.TempDir()
	args := []string{"train", "--trust", "none", "--rounds", "40", "--eval-every", "20", "--json", "--quiet", "--gradients", program}
	s := jsonOf(t, append(args, "--out", filepath.Join(dir, "one"))...)
	if a := s["test_accuracy"].(float64); a < .9 || s["baseline_accuracy"].(float64) > .15 || s["model_parameters"] != 2410. {
		t.Errorf("%v", s)
	}
	page, err := os.ReadFile(filepath.Join(dir, "one", "report.html"))
	if err != nil || !strings.Contains(string(page), "numpy network by a program") || !strings.Contains(string(page), "2,000 test examples") {
		t.Errorf("the page, %v", err)
	}

	socket := filepath.Join(dir, "s")
	if len(socket) > 100 {
		t.Skip("the path of a socket would be too long")
	}
	server := exec.Command(python, filepath.Join("..", "..", "python", "examples", "numpy_mlp.py"), "--clients", "1500", "--listen", socket)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	until(t, "the program listens", func() bool { // the socket is there a moment before
		c, err := net.Dial("unix", socket)
		if err == nil {
			err = c.Close()
		}
		return err == nil
	})
	args[len(args)-1] = "unix:" + socket
	again := jsonOf(t, append(args, "--out", filepath.Join(dir, "two"))...)
	if again["test_loss"] != s["test_loss"] {
		t.Errorf("over a socket the loss is %v, want %v", again["test_loss"], s["test_loss"])
	}
}

// TestTrainShowsPrograms looks at what train prints of a program and its figures.
func TestTrainShowsPrograms(t *testing.T) {
	var out, errs bytes.Buffer
	dir := filepath.Join(t.TempDir(), "r")
	if code := run([]string{"train", "--gradients", externaltest.Program("nan"), "--rounds", "2", "--trust", "none", "--out", dir}, &out, &errs); code != 0 {
		t.Fatal(code, errs.String())
	}
	for _, want := range []string{"auc                  NaN", "baseline             the program gives none", "test accuracy        50.00 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in %s", want, out.String())
		}
	}
	if want := "round 1: 200 values of the program's gradients NaN or infinite, counted as 0"; !strings.Contains(errs.String(), want) {
		t.Errorf("%q is missing in %s", want, errs.String())
	}
	out.Reset()
	errs.Reset()
	if code := run([]string{"eval", dir, "--gradients", externaltest.Program("nan")}, &out, &errs); code != 0 || !strings.Contains(out.String(), "model                external, 5 parameters\ntest accuracy        50.00 % of 100\n") ||
		!strings.Contains(out.String(), "auc                  NaN\n") || !strings.Contains(out.String(), "the program gives none") {
		t.Errorf("%d: %s%s", code, out.String(), errs.String())
	}
	if e := jsonOf(t, "eval", filepath.Join(dir, "model.safetensors"), "--json", "--gradients", externaltest.Program("slow")); e["examples"] != 100. || e["model"] != "external" {
		t.Errorf("%v", e)
	}
	for want, args := range map[string][]string{
		"name it with --gradients": {filepath.Join(dir, "model.safetensors")},
		"no program is started, and no socket is opened, that only a file names": {dir},
		"it has the data":    {dir, "--data", "mnist", "--gradients", externaltest.Program("slow")},
		"must be at least 1": {dir, "--answer-seconds", "0", "--gradients", externaltest.Program("slow")},
		"has 9 parameters":   {dir, "--gradients", externaltest.Program("fast=9")},
	} {
		errs.Reset()
		if code := run(append([]string{"eval"}, args...), &out, &errs); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: %d, %s, want %q", args, code, errs.String(), want)
		}
	}
	errs.Reset()
	if code := run([]string{"train", "--gradients", externaltest.Program("dies"), "--rounds", "2", "--trust", "none", "--out", dir + "2"}, &out, &errs); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"it has ended with exit status 1; what it wrote to standard error is above", "  | epoch 1\n  | MemoryError: out of memory\n", "riffle train --resume"} {
		if strings.Count(errs.String(), want) != 1 {
			t.Errorf("%q is not there once in %s", want, errs.String())
		}
	}
	errs.Reset()
	if code := run([]string{"train", "--quiet", "--gradients", externaltest.Program("dies"), "--rounds", "2", "--trust", "none", "--out", dir + "3"}, &out, &errs); code != 1 ||
		!strings.Contains(errs.String(), "it has ended with exit status 1; its last lines:\n  | epoch 1\n  | MemoryError") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	errs.Reset()
	if code := run([]string{"gradients", "check", externaltest.Program("mixes"), "--speed-seconds", "0"}, &out, &errs); code != 1 || !strings.Contains(out.String(), "failed: the row of client") {
		t.Errorf("%d: %s", code, out.String())
	}
	for want, args := range map[string][]string{
		"no program is named": {"gradients", "check"},
		"put it in quotes":    {"gradients", "check", "python3", "grad.py"},
		"must be at least 1":  {"gradients", "check", "x", "--answer-seconds", "0"},
		"it has the data":     {"train", "--gradients", "x", "--data", "other.csv"},
		"names no program":    {"train", "--gradients", " "},
	} {
		errs.Reset()
		if code := run(args, &out, &errs); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: %d, %s, want %q", args, code, errs.String(), want)
		}
	}
}

// TestTorchExample trains the convolutional network of the example, for few clients.
func TestTorchExample(t *testing.T) {
	python := pythonWith(t, "torch")
	if testing.Short() {
		t.Skip("PyTorch takes seconds to start")
	}
	dir := t.TempDir()
	if err := tiny(filepath.Join(dir, "data"), 400, 200, false); err != nil {
		t.Fatal(err)
	}
	program := example(t, python, "fashion_torch.py", "--threads 1 --data '"+filepath.Join(dir, "data")+"'")
	s := jsonOf(t, "train", "--trust", "none", "--rounds", "6", "--eval-every", "6", "--clip", "10", "--lr", "0.02", "--average", "0",
		"--json", "--quiet", "--gradients", program, "--out", filepath.Join(dir, "run"))
	if s["test_accuracy"].(float64) < .4 || s["model_parameters"] != 24330. || s["client_gradients"] != 2400. {
		t.Errorf("%v", s)
	}
}

// TestOwnModelDocument runs the programs that docs/your-own-model.md shows.
func TestOwnModelDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector is slow, and other tests run the same code")
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "your-own-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(raw), "```python\n")
	if len(blocks) != 3 {
		t.Fatalf("%d programs", len(blocks)-1)
	}
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```")
	}
	data, _, ok := strings.Cut(blocks[1], "def initial")
	if !ok {
		t.Fatal("the first program has no initial")
	}
	library, err := filepath.Abs(filepath.Join("..", "..", "python"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", library)
	for _, c := range []struct {
		module, program string
		dim, least      float64
	}{
		{"numpy", blocks[1], 65, .84},
		{"torch", strings.Replace(data, "import riffle\n", "import torch\nimport riffle, riffle.torch\n", 1) + blocks[2], 82, .84},
	} {
		t.Run(c.module, func(t *testing.T) {
			python := pythonWith(t, c.module)
			file := filepath.Join(t.TempDir(), "moons.py")
			if err := os.WriteFile(file, []byte(c.program), 0o600); err != nil {
				t.Fatal(err)
			}
			program := python + " '" + file + "'"
			if found := jsonOf(t, "gradients", "check", program, "--json", "--speed-seconds", "0"); found["ok"] != true || found["dim"] != c.dim {
				t.Errorf("%v", found)
			}
			s := jsonOf(t, "train", "--gradients", program, "--trust", "vector-sum", "--epsilon", "1", "--rounds", "100", "--eval-every", "100", "--out", filepath.Join(t.TempDir(), "run"), "--json", "--quiet")
			if a := s["test_accuracy"].(float64); a < c.least {
				t.Errorf("accuracy %v", a)
			}
		})
	}
}

// A run directory and a configuration may be a stranger's: the program that only they name is not started, and
// no socket is opened. Before this was refused, all of these commands ran touch.
func TestFilesStartNoProgram(t *testing.T) {
	dir := t.TempDir()
	touched := filepath.Join(dir, "touched")
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Skip(err) // the path is too long
	}
	defer l.Close()
	var called atomic.Bool
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			called.Store(true)
			c.Close()
		}
	}()
	own := filepath.Join(dir, "own")
	program := externaltest.Program("learn")
	if code := run([]string{"train", "--gradients", program, "--rounds", "2", "--trust", "none", "--out", own, "--quiet"}, io.Discard, io.Discard); code != 0 {
		t.Fatal("exit code", code)
	}
	text, err := os.ReadFile(filepath.Join(own, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []string{"touch " + touched, "unix:" + socket} {
		var lines []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "gradients:") {
				line = fmt.Sprintf("gradients: %q\n", foreign)
			}
			lines = append(lines, line)
		}
		config := strings.Join(lines, "")
		if err := os.WriteFile(filepath.Join(own, "config.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		demo := filepath.Join(t.TempDir(), "demo")
		if err := os.Mkdir(demo, 0o700); err != nil {
			t.Fatal(err)
		}
		settings, err := json.Marshal(map[string]any{"gradients": foreign, "suite": "x25519", "settings": "rounds: 2\n"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(demo, demoFile), settings, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"train", "--resume", own},
			{"train", "--resume", own, "--workers", "1"},
			{"train", "--config", filepath.Join(own, "config.yaml"), "--out", filepath.Join(dir, "new")},
			{"eval", own},
			{"demo", "--resume", demo},
			{"demo", "--resume", demo, "--gradients", program},
		} {
			var errs bytes.Buffer
			if code := run(args, io.Discard, &errs); code != exitUsage || !strings.Contains(errs.String(), "that only a file names") {
				t.Errorf("%q: %d, %s", args, code, errs.String())
			}
		}
	}
	if _, err := os.Stat(touched); err == nil || called.Load() {
		t.Errorf("the command was started: %v; the socket was opened: %v", err == nil, called.Load())
	}
	// What the command line names is run, wherever it lies now.
	var errs bytes.Buffer
	for _, args := range [][]string{{"train", "--resume", own, "--gradients", program, "--quiet"}, {"eval", own, "--gradients", program}} {
		if code := run(args, io.Discard, &errs); code != 0 {
			t.Errorf("%q: %d, %s", args, code, errs.String())
		}
	}
	if code := run([]string{"train", "--resume", own, "--gradients", externaltest.Program("fast=9")}, io.Discard, &errs); code != exitUsage || !strings.Contains(errs.String(), "is of other data") {
		t.Errorf("another program: %d, %s", code, errs.String())
	}
}
