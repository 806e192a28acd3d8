//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/run/train"
)

// No command waits at a pipe into which nobody writes, whatever file it is in place of.
func TestPipesAreRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	for _, name := range []string{"pipe", "pipe.csv", "run/" + train.ConfigFile, "run/" + train.ModelFile, "half/" + train.CheckpointFile, "metrics/" + train.MetricsFile,
		"idx/" + dataset.TrainImages, "cifar/data_batch_1.bin", "named/classes.txt", "pictures/cats/1.png", "pictures/dogs/1.png", "demo/" + demoFile} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(name)), 0o700), syscall.Mkfifo(at(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	set := &dataset.Images{Width: 2, Height: 2, Channels: 1, Classes: 2, Pixels: make([]byte, 8), Labels: []uint8{0, 1}}
	if err := errors.Join(dataset.WriteFolder(at("named"), set, set, false), os.WriteFile(at("cifar/"+dataset.CIFARTest), nil, 0o600), os.WriteFile(at("t.csv"), []byte("x,y\n1,no\n2,yes\n3,no\n4,yes\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"half", "metrics"} {
		config := "data: " + at("t.csv") + "\nlabel: y\ntrust: none\nrounds: 2\n"
		if err := os.WriteFile(at(name+"/"+train.ConfigFile), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe, table := at("pipe"), at("pipe.csv")
	for _, args := range [][]string{
		{"eval", pipe}, {"eval", at("run")}, {"eval", "/dev/zero"}, {"predict", pipe, "--coefficients"}, {"predict", at("run"), "--data", at("t.csv")},
		{"data", "info", "--data", table, "--label", "y"}, {"data", "info", "--data", at("idx")}, {"data", "info", "--data", at("cifar")}, {"data", "info", "--data", at("named")},
		{"data", "info", "--data", at("pictures"), "--image-size", "4"},
		{"train", "--data", table, "--label", "y"}, {"train", "--data", at("idx")}, {"train", "--config", pipe}, {"train", "--resume", at("run")}, {"train", "--resume", at("half")},
		{"train", "--resume", at("metrics")},
		{"eps", "--verify", pipe},
		{"measure", "mean", "--data", table, "--column", "x", "--range", "0..9"}, {"measure", "mean", "--data", at("t.csv"), "--column", "x", "--range", "0..9", "--ledger", pipe, "--budget", "3"},
		{"solve", "--data", table, "--label", "y"},
		{"serve", "shuffler", "--config", pipe}, {"serve", "coordinator", "--config", pipe, "--check"}, {"client", "--config", pipe}, {"init", "coordinator", "--config", pipe},
		{"ledger", "verify", "--config", pipe}, {"fsck", "shuffler", "--config", pipe}, {"task", "create", "--config", pipe, "--name", "x"}, {"task", "create", "--socket", at("none"), "--name", "x", "--task", pipe},
		{"demo", "--resume", at("demo")},
	} {
		var out, errs bytes.Buffer
		code := make(chan int, 1)
		go func() { code <- run(args, &out, &errs) }()
		select {
		case got := <-code:
			if text := out.String() + errs.String(); got != exitUsage || !regexp.MustCompile("it is a (pipe|device): want a file|is not a regular file|not a file").MatchString(text) {
				t.Errorf("%q: exit %d, %s", args, got, text)
			}
		case <-time.After(patience):
			t.Fatalf("%q waits", args)
		}
	}
}
