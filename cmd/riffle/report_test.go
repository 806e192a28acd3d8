package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/run/simulate"
	"github.com/riffle-dp/riffle/run/train"
)

// A run that was interrupted leaves a page that says so, of the rounds that ran and
// how many were void, and how to go on. No path is in its title.
func TestReportOfAnInterruptedRun(t *testing.T) {
	data := filepath.Join(t.TempDir(), "images")
	if err := tiny(data, 200, 50, false); err != nil {
		t.Fatal(err)
	}
	c := train.Default()
	c.Data, c.Rounds, c.Eps0, c.Dropout, c.NMin, c.Model = data, 12, 1.23456789, .5, 100, "softmax"
	r, err := train.Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Create(filepath.Join(t.TempDir(), "run")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	void := int64(0)
	if _, err = r.Train(ctx, train.Observer{Round: func(result simulate.Result) {
		if result.Void {
			void++
		}
		if result.Round == 7 {
			cancel()
		}
	}}); !errors.Is(err, train.ErrInterrupted) {
		t.Fatal(err)
	}
	s, err := r.Summary()
	if err != nil || s.Rounds != r.Round || s.Rounds < 7 || void == 0 || s.Rounds-r.Steps < void {
		t.Fatalf("%+v, %d steps, %d void: %v", s, r.Steps, void, err)
	}
	for _, name := range []string{train.ModelFile, train.SummaryFile} {
		if _, err := os.Stat(filepath.Join(r.Dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of a run that has not ended: %v", name, err)
		}
	}
	if err := writeReport(r, s, true); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.Dir, train.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, want := range []string{"<bdi>softmax on images</bdi>", "This run was stopped after ", " of 12 rounds", "<span>--resume</span> <span>" + r.Dir + "</span>", " void</dd>", "<dd>1.2345745 (eps0 1.2345679, and what covers rounding)</dd>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	title, _, _ := strings.Cut(page[strings.Index(page, "<title>"):], "</title>")
	if strings.Contains(title, "/") {
		t.Errorf("a path is in the title: %s", title)
	}
}

func TestCounted(t *testing.T) {
	for n, want := range map[int64]string{0: "0 entries", 1: "1 entry", 2: "2 entries"} {
		if got := counted(n, "entry"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := counted(1, "round") + ", " + counted(2, "round"); got != "1 round, 2 rounds" {
		t.Error(got)
	}
}
