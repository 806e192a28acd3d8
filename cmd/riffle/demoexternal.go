package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/run/train"
)

// This file has demonstrations in which the user's own clients take part, and in which a program
// of the user's has the model.

// initialFile has the parameters that a program's model begins with.
const initialFile = "initial.safetensors"

// evaluator opens the demonstration's program for evaluations.
func (d *demo) evaluator(ctx context.Context) (*external.Session, error) {
	return external.Open(ctx, external.Config{Program: d.Gradients, Purpose: external.Evaluate, Seed: 1})
}

// describe fills in a task's description of the program's model, and keeps its first parameters.
func (d *demo) describe(ctx context.Context, c *train.Config) error {
	s, err := d.evaluator(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	var words []string
	for _, p := range s.About.Parameters {
		var sizes []string
		for _, n := range p.Shape {
			sizes = append(sizes, strconv.Itoa(n))
		}
		words = append(words, p.Name+"="+strings.Join(sizes, "x"))
	}
	c.Model, c.Data, c.Dim, c.Parameters = "external", "", int64(s.About.Dim), strings.Join(words, " ")
	if s.About.Initial != nil {
		file := safetensors.File{}
		rest := s.About.Initial
		for _, p := range s.About.Parameters {
			n := 1
			for _, size := range p.Shape {
				n *= size
			}
			file.Tensors = append(file.Tensors, safetensors.New(p.Name, p.Shape, rest[:n]))
			rest = rest[n:]
		}
		d.initial, err = safetensors.Marshal(file)
	}
	return err
}

// begin writes the program's first parameters into the demonstration's directory, and names them
// in the task's settings.
func (d *demo) begin() error {
	if d.initial == nil {
		return nil
	}
	if err := durable.WriteFile(filepath.Join(d.dir, initialFile), d.initial); err != nil {
		return err
	}
	c := d.Config
	if _, err := d.readInitial(&c); err != nil {
		return err
	}
	return d.fix(c)
}

// readInitial reads these parameters and names them in c; nil if there are none.
func (d *demo) readInitial(c *train.Config) ([]byte, error) {
	path := filepath.Join(d.dir, initialFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	c.Initial = path
	return c.ReadInitial()
}

// ownName is the directory of one of the user's clients.
func ownName(i int64) string { return fmt.Sprint("external-", i) }

func (d *demo) readyFile(i int64) string { return filepath.Join(d.dir, ownName(i), "ready") }

// ready counts the user's clients that are ready.
func (d *demo) ready() (n int64) {
	for i := range d.External {
		if _, err := os.Stat(d.readyFile(i)); err == nil {
			n++
		}
	}
	return n
}

// invite says how the user's clients are started, and waits until all are ready.
func (d *demo) invite(ctx context.Context, c *children, show output, stderr io.Writer) error {
	program := d.Gradients
	if program == "" {
		program = "python3 grad.py"
	}
	word := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	show.note(stderr, "your %s: a directory each, external-0 to external-%d, with a key, a ledger and client.yaml", counted(d.External, "client"), d.External-1)
	show.note(stderr, "external-I is client %d + I to its program, whose model must have the task's number of parameters", d.Clients)
	show.note(stderr, "start them in another terminal, with a program that has their data:\n  for i in $(seq 0 %d); do %s client --config %s/external-$i/client.yaml --gradients %s --answer-seconds 5 & done; wait",
		d.External-1, os.Args[0], word(d.dir), word(program))
	if d.Gradients == "" {
		show.note(stderr, "without --gradients such a client learns from the demo's data")
	}
	shown := int64(-1)
	for {
		if n := d.ready(); n != shown {
			shown = n
			show.note(stderr, "%d of your %s ready", n, counted(d.External, "client"))
		}
		if shown == d.External {
			return nil
		}
		if err := c.failed(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// farewell waits, not for ever, until the user's clients have heard that the task has ended.
func (d *demo) farewell(ctx context.Context, show output, stderr io.Writer) {
	for deadline := time.Now().Add(30 * time.Second); d.ready() > 0 && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			show.note(stderr, "%d of your clients still run: stop them", d.ready())
			return
		}
	}
}

// evaluate returns what the program says of its model, before and after.
func (d *demo) evaluate(ctx context.Context, theta []float32) (before, after map[string]dp.Number, err error) {
	s, err := d.evaluator(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	start := s.About.Initial
	if start == nil {
		start = make([]float32, len(theta))
	}
	of := func(theta []float32) map[string]dp.Number {
		out := map[string]dp.Number{}
		var numbers map[string]float64
		if err == nil {
			numbers, err = s.Evaluate(ctx, theta)
		}
		for name, x := range numbers {
			out[name] = dp.Number(x)
		}
		return out
	}
	before, after = of(start), of(theta)
	return before, after, err
}
