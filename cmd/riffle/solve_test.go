package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// An interrupted run ends at once, with its own exit code and without a result.
func TestInterruptSolve(t *testing.T) {
	cmd := process(t, "solve", "--n", "1e7", "--dim", "5", "--rows", "100", "--optimizer", "gd", "--json")
	var result strings.Builder
	cmd.Stdout = &result
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "optimum without privacy") {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(pipe)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted || result.Len() > 0 {
		t.Errorf("%v, printed %q, %s", err, result.String(), rest)
	}
}
