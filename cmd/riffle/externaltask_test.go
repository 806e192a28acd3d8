package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/external/externaltest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// TestTaskOfAProgramsModel runs a task whose model only programs know: it starts from a file, the
// clients' program computes gradients, the coordinator's evaluates, and the model comes out with its
// names, shapes and provenance, also after a restart.
func TestTaskOfAProgramsModel(t *testing.T) {
	longtest.Only(t, "its clients wait for seconds of the clock")
	dir := shortDir(t)
	l := operate.Loopback{Dir: dir, Clients: 4, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 100, Delta: 1e-5, Data: "mnist",
		Policy: config.Policy{MaxEps0: 3, MaxEps: 100, MaxTaskEps: 50, Delta: 1e-5, MinReports: 2, MaxTasks: 3}, Spread: -1}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := l.Config("coordinator")
	raw, err := safetensors.Marshal(safetensors.File{Tensors: []safetensors.Tensor{
		safetensors.New("offset", []int{}, []float32{-1}), safetensors.New("slope", []int{2, 2}, []float32{1, 2, 3, 4})}})
	if err != nil {
		t.Fatal(err)
	}
	start := filepath.Join(dir, "start.safetensors")
	if err := os.WriteFile(start, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	task := filepath.Join(dir, "task.yaml") // which names the file beside it
	if err := os.WriteFile(task, []byte("model: external\nparameters: slope=2x2 offset=\ninitial: start.safetensors\nrounds: 2\neps0: 2\nn-min: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := externaltest.Program("learn")
	background(t, "serve", "shuffler", "--config", l.Config("shuffler"))
	servers := []string{"serve", "coordinator", "--config", file, "--evaluate", program}
	cmd, log := background(t, servers...)
	c, err := config.Load[config.Coordinator](file)
	if err != nil {
		t.Fatal(err)
	}
	ready := func() bool { return get(t, "http://"+c.Admin+"/readyz") == http.StatusOK }
	until(t, "the coordinator is ready", func() bool {
		code, _, _ := outcome(t, "task", "list", "--config", file)
		return code == exitDone && ready()
	})
	create := []string{"task", "create", "--config", file, "--name", "own", "--task", task, "--round", "10m", "--quiet"}
	want(t, exitUsage, "no such file", append(create, "--initial", filepath.Join(dir, "none"))...)
	want(t, exitUsage, "5 values, dim is 6", append(create, "--dim", "6")...)
	want(t, exitUsage, "cannot hold a step back", append(create, "--guard", "loss:0.1")...)
	want(t, exitDone, "", create...)
	want(t, exitUsage, "no model yet", "task", "model", "own", "--config", file, "--out", filepath.Join(dir, "m"))
	background(t, "client", "--config", l.Config("clients-0"), "--gradients", program, "--answer-seconds", "1")
	until(t, "the last model is evaluated", func() bool {
		_, out, _ := outcome(t, "task", "show", "own", "--config", file, "--json")
		var m map[string]any
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return m["state"] == "done" && m["evaluated_round"] == 2.0
	})
	text := want(t, exitDone, "auc", "task", "show", "own", "--config", file)
	if !strings.Contains(text, "accuracy             50.00 %") || !strings.Contains(text, "examples             100") {
		t.Error(text)
	}
	resp, err := http.Get("http://" + c.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || !bytes.Contains(page, []byte(`number="accuracy"} 0.5`)) {
		t.Errorf("metrics: %v", err)
	}
	out := filepath.Join(dir, "model.safetensors")
	want(t, exitDone, "round 2 of task own", "task", "model", "own", "--config", file, "--out", out)
	want(t, exitUsage, "already exists", "task", "model", "own", "--config", file, "--out", out)
	first, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Unmarshal(first)
	if err != nil || len(f.Tensors) != 2 || f.Tensors[0].Name != "slope" || fmt.Sprint(f.Tensors[0].Shape) != "[2 2]" || f.Tensors[1].Name != "offset" {
		t.Fatalf("%+v, %v", f.Tensors, err)
	}
	for _, key := range []string{"task", "task-id", "round", "epsilon", "delta", "bound", "ledger-head"} {
		if f.Metadata["riffle."+key] == "" {
			t.Errorf("the model's file lacks %s: %v", key, f.Metadata)
		}
	}
	want(t, exitDone, "test loss", "eval", out, "--gradients", program)
	end(t, cmd, log, syscall.SIGTERM, exitDone)
	want(t, exitDone, "the mark agrees", "ledger", "verify", "--config", file)
	want(t, exitDone, "clean", "fsck", "coordinator", "--config", file)
	background(t, servers...)
	until(t, "the coordinator is ready again", func() bool {
		code, _, _ := outcome(t, "task", "model", "own", "--config", file, "--out", out, "--overwrite")
		return code == exitDone
	})
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(again, first) {
		t.Errorf("after a restart the model's file is another, %v", err)
	}
}
