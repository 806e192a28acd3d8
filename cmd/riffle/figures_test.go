package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runFigures runs the command with a planning page, or with none.
func runFigures(plan sitePlan, args ...string) (string, error) {
	cmd := newFigures(nil, plan)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func TestFiguresSite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "site")
	var planned string
	plan := func(_ context.Context, d string, _ output, _ io.Writer) error {
		planned = d
		if err := os.MkdirAll(filepath.Join(d, "plan"), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(d, "plan", "index.html"), []byte("plan"), 0o644)
	}
	if out, err := runFigures(plan, "--site", dir, "--only", "eab-4"); err != nil || planned != dir {
		t.Fatalf("%v, planned %q: %s", err, planned, out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || !strings.Contains(string(page), `href="plan/index.html"`) {
		t.Errorf("the index does not link the planning page: %v", err)
	}
	if _, err := runFigures(plan, "--site", dir, "--out", dir); exitCode(err) != exitUsage {
		t.Errorf("--site with --out: %v", err)
	}
	failed := errors.New("disk full")
	if _, err := runFigures(func(context.Context, string, output, io.Writer) error { return failed }, "--site", dir, "--only", "eab-4"); !errors.Is(err, failed) {
		t.Errorf("a planning page that fails: %v", err)
	}
	if _, err := runFigures(nil, "--site", dir); err == nil || !strings.Contains(err.Error(), "unknown flag") {
		t.Errorf("--site without a planning page: %v", err)
	}
}
