package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/run/train"
)

// output says how a command prints: results to stdout, everything else to stderr.
type output struct {
	json       bool
	quiet      bool
	noProgress bool
}

func (o *output) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.json, "json", false, "print the result as one JSON document")
	fs.BoolVar(&o.quiet, "quiet", false, "print nothing but the result and errors")
	fs.BoolVar(&o.noProgress, "no-progress", false, "no progress bar; a line per evaluation instead")
}

func (o output) note(w io.Writer, format string, args ...any) {
	if !o.quiet {
		fmt.Fprintln(w, "riffle:", visible(fmt.Sprintf(format, args...)))
	}
}

// roundUp writes ε with four significant digits, rounded up.
func roundUp(eps float64) string { return roundUpTo(eps, 4) }

// roundUpTo writes ε with the given significant digits, rounded up.
func roundUpTo(eps float64, digits int) string {
	if math.IsNaN(eps) {
		return "not known"
	}
	if eps == 0 || math.IsInf(eps, 0) {
		return fmt.Sprint(eps)
	}
	if text := fmt.Sprintf("%.*g", digits, eps); parse(text) >= eps {
		return text
	}
	unit := math.Pow(10, math.Floor(math.Log10(eps))-float64(digits-1))
	return fmt.Sprintf("%.*g", digits, (math.Floor(eps/unit)+1)*unit)
}

// alone writes what a message promises by itself: the ε₀ that it is charged with, and the asked
// one if that differs.
func alone(eps0, asked float64) string {
	charged := roundUpTo(eps0, 8)
	text := fmt.Sprintf("epsilon %s by itself", charged)
	if a := fmt.Sprintf("%.8g", asked); asked > 0 && a != charged {
		text += fmt.Sprintf(" (eps0 %s, and what covers rounding)", a)
	}
	return text
}

// roundDown writes a lower bound with four significant digits, rounded down.
func roundDown(eps float64) string {
	if text := fmt.Sprintf("%.4g", eps); eps == 0 || parse(text) <= eps {
		return text
	}
	unit := math.Pow(10, math.Floor(math.Log10(eps))-3)
	return fmt.Sprintf("%.4g", (math.Ceil(eps/unit)-1)*unit)
}

func parse(text string) float64 {
	var x float64
	_, _ = fmt.Sscan(text, &x) // cannot fail: text was printed from a number
	return x
}

// printer writes aligned label and value rows and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, visible(fmt.Sprintf(format, args...)))
	}
}

func (p *printer) row(label, format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, "%-20s %s\n", visible(oneLine(label)), visible(oneLine(fmt.Sprintf(format, args...))))
	}
}

// progress shows a run: a bar on a terminal, otherwise a line per evaluation.
type progress struct {
	w     io.Writer
	quiet bool
	run   *train.Run
	bar   *bar // nil: no terminal

	mu         sync.Mutex
	last       train.Metrics
	roundsDone int64
}

func newProgress(w io.Writer, show output, r *train.Run) *progress {
	p := &progress{w: w, quiet: show.quiet, run: r, roundsDone: r.Resumed}
	if n := len(r.Metrics); n > 0 {
		p.last = r.Metrics[n-1]
	}
	reports := func(rounds int64) int64 { return int64(math.Ceil(r.ExpectedReports * float64(rounds))) }
	p.bar = newBar(w, show, p.name(), "reports", reports(r.Resumed), reports(r.Config.Rounds))
	p.describe()
	return p
}

func (p *progress) name() string {
	return fmt.Sprintf("round %d/%d", p.roundsDone, p.run.Config.Rounds)
}

func (p *progress) describe() {
	if p.last.Round == 0 {
		p.bar.set(p.name())
		return
	}
	facts := []string{fmt.Sprintf("loss %.4f", p.last.Loss), "epsilon " + roundUp(float64(p.last.Epsilon))}
	if !math.IsNaN(float64(p.last.Accuracy)) {
		facts = []string{fmt.Sprintf("accuracy %.2f %%", 100*p.last.Accuracy), facts[1], facts[0]}
	}
	p.bar.set(p.name(), facts...)
}

// measured describes an evaluation in words; a regression has no accuracy.
func measured(m train.Metrics) string {
	loss := strings.Join(append([]string{fmt.Sprintf("loss %.4f", m.Loss)}, briefly(m.Numbers)...), "  ")
	if math.IsNaN(float64(m.Accuracy)) {
		return loss
	}
	return fmt.Sprintf("accuracy %.2f %%  %s", 100*m.Accuracy, loss)
}

func (p *progress) reports(n int64) { p.bar.add(n) }

func (p *progress) round(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roundsDone = n
	p.describe()
}

func (p *progress) evaluated(m train.Metrics) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = m
	switch {
	case p.bar != nil:
		p.describe()
	case !p.quiet:
		fmt.Fprintf(p.w, "riffle: round %d/%d  %s %s  epsilon %s  %.0f s\n",
			m.Round, p.run.Config.Rounds, p.run.Data.EvalName, measured(m), roundUp(float64(m.Epsilon)), m.Seconds)
	}
}

func (p *progress) line(format string, args ...any) {
	if p.quiet {
		return
	}
	p.bar.clear()
	fmt.Fprintln(p.w, "riffle:", visible(fmt.Sprintf(format, args...)))
}

func (p *progress) finish() { p.bar.clear() }

// counted writes a number with its noun: 1 entry, 2 entries.
func counted[N int | int64](n N, noun string) string {
	if n != 1 {
		if stem, ok := strings.CutSuffix(noun, "y"); ok {
			noun = stem + "ie"
		}
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
