package main

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/riffle-dp/riffle/run/train"
)

// programLines shows what a program writes to standard error, line by line, beside a progress
// bar if there is one.
type programLines struct {
	w   io.Writer
	bar atomic.Pointer[bar]
}

// programErrors returns where to show a program's standard error; nil with --quiet.
func programErrors(w io.Writer, show output) io.Writer {
	if show.quiet {
		return nil
	}
	return &programLines{w: w}
}

func (p *programLines) Write(line []byte) (int, error) {
	p.bar.Load().clear()
	fmt.Fprintf(p.w, "  | %s", line)
	return len(line), nil
}

// named returns the name of a run's model.
func named(r *train.Run) string {
	if r.Config.Gradients != "" {
		return r.Model.Name
	}
	return r.Config.Model
}
