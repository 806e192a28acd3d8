package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

// ownClients runs a demonstration of so many rounds with clients of one's own, each a process
// with the program that program returns.
func ownClients(t *testing.T, n, rounds, seconds int, model string, program func(i int) string, more ...string) demoResult {
	t.Helper()
	out := shortDir(t)
	demo := process(t, append([]string{"demo", "--external", fmt.Sprint(n), "--rounds", fmt.Sprint(rounds), "--gradients", model, "--out", out, "--json"}, more...)...)
	var stdout, stderr bytes.Buffer
	demo.Stdout, demo.Stderr = &stdout, &stderr
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- demo.Wait() }()
	defer func() { _ = demo.Process.Kill() }()
	until(t, "the demo waits for clients", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the demo has ended: %v\n%s", err, &stderr)
		default:
		}
		b, err := os.ReadFile(filepath.Join(out, ownName(int64(n-1)), "client.yaml"))
		return err == nil && bytes.Contains(b, []byte("tasks:\n"))
	})
	begun := time.Now()
	var clients []*exec.Cmd
	logs := make([]bytes.Buffer, n)
	for i := range n {
		c := process(t, "client", "--config", filepath.Join(out, ownName(int64(i)), "client.yaml"), "--gradients", program(i), "--answer-seconds", fmt.Sprint(seconds))
		c.Stderr = &logs[i]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		defer func() { _ = c.Process.Kill() }()
	}
	err := <-ended
	t.Logf("%d clients, %d rounds: %v", n, rounds, time.Since(begun).Round(time.Millisecond))
	for i, c := range clients {
		if err != nil {
			_ = c.Process.Signal(syscall.SIGTERM)
		}
		if ended := c.Wait(); ended != nil {
			t.Errorf("client %d: %v\n%s", i, ended, &logs[i])
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s\nclient 0:\n%s", err, &stderr, &logs[0])
	}
	var r demoResult
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, &stdout)
	}
	if r.Released != int64(rounds) || !r.Replayed || !r.Clean {
		t.Errorf("%+v\n%s", r, &stderr)
	}
	if r.Start["loss"] == r.End["loss"] {
		t.Errorf("the model has not moved: loss %v", r.End["loss"])
	}
	for i := range logs {
		failed := strings.Contains(logs[i].String(), "there is no gradient")
		if wrong := strings.Contains(program(i), "serve-gradients"); failed != wrong {
			t.Errorf("client %d, does its program fail: %t; its log:\n%s", i, wrong, &logs[i])
		}
	}
	return r
}

// TestOwnClients has clients that share a program, one beside them whose program dies, and two of the
// demo's own. All reports arrive.
func TestOwnClients(t *testing.T) {
	longtest.Only(t, "clients wait for seconds of the clock, whether or not their program answers")
	shared := externaltest.Listen(t, "learn")
	r := ownClients(t, 4, 3, 3, shared, func(i int) string {
		if i == 3 {
			return externaltest.Program("dies-open")
		}
		return shared
	}, "--clients", "2", "--trust", "vector-sum")
	if r.Accepted != 18 || r.Clients != 6 {
		t.Errorf("%+v", r)
	}
}

// TestFiftyOwnClients is what issue 17 asks for: 50 clients that share a program, and 50 processes
// with the numpy one.
func TestFiftyOwnClients(t *testing.T) {
	longtest.Only(t, "a hundred processes")
	t.Run("shared", func(t *testing.T) {
		shared := externaltest.Listen(t, "learn")
		if r := ownClients(t, 50, 3, 5, shared, func(int) string { return shared }); r.Accepted != 150 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("numpy", func(t *testing.T) {
		t.Setenv("OMP_NUM_THREADS", "1")
		program := example(t, pythonWith(t, "numpy"), "numpy_mlp.py", "--clients 50")
		if r := ownClients(t, 50, 3, 10, program, func(int) string { return program }); r.Accepted != 150 {
			t.Errorf("%+v", r)
		}
	})
}
