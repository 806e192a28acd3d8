//go:build js && wasm

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"syscall/js"

	"github.com/riffle-dp/riffle/learn/statistic"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// source returns the client's data: examples or a page that computes gradients, a row that answers
// questions, or both.
func (o options) source(gradient js.Value, tell *teller) (client.Source, error) {
	asks := gradient.Type() == js.TypeFunction
	var row statistic.Row
	if o.Row != nil {
		row = func(column string) string { return string(o.Row[column]) }
	}
	switch {
	case asks && o.Data != nil:
		return nil, errors.New("client: options: gradient and data contradict each other")
	case asks:
		return page{gradient, tell, row}, nil
	case o.Data != nil:
		return local{o.Data, row}, o.Data.check()
	case o.Row != nil:
		return client.Rows(row), nil
	}
	return nil, errors.New("client: options: gradient, data or row is required")
}

// local has examples for tasks that train, and maybe a row for those that ask.
type local struct {
	*examples
	row statistic.Row // nil: no questions are answered
}

// Open opens the one or the other.
func (l local) Open(task wire.Task) (client.Gradient, error) {
	if pure.Question(task) == "" {
		return l.examples.Open(task)
	}
	return openRow(l.row, task)
}

// openRow opens a question for a row; nil: there is none.
func openRow(row statistic.Row, task wire.Task) (client.Gradient, error) {
	if row == nil {
		return nil, errors.New("there is no row to answer questions with")
	}
	return client.Rows(row).Open(task)
}

// page asks the page for gradients. service/client waits until the time for the answer is over,
// whether or not it has come.
type page struct {
	gradient js.Value
	tell     *teller
	row      statistic.Row // nil: no questions are answered
}

// Open refuses questions if there is no row. It takes every other task: a gradient of another length
// counts as 0.
func (p page) Open(task wire.Task) (client.Gradient, error) {
	if pure.Question(task) == "" {
		return nil, nil
	}
	return openRow(p.row, task)
}

// Ask does not ask the page about a question: what Open returned answers it.
func (p page) Ask(ctx context.Context, task wire.Task, round int64, theta []float32) ([]float32, error) {
	if pure.Question(task) != "" {
		return nil, errors.ErrUnsupported
	}
	type answer struct {
		row []float32
		err error
	}
	came := make(chan answer, 1)
	go func() {
		v, err := await(p.gradient.Invoke(fmt.Sprintf("%x", wire.Digest(task)), round, floatsTo(theta), task.Mechanism.Dim))
		if err != nil {
			came <- answer{nil, err}
			return
		}
		row, err := floatsFrom(v, int(task.Mechanism.Dim))
		came <- answer{row, err}
	}()
	select {
	case a := <-came:
		if a.err != nil {
			p.failed(task, round, a.err)
		}
		return a.row, a.err
	case <-ctx.Done():
		p.failed(task, round, errors.New("no gradient came in time"))
		return nil, ctx.Err()
	}
}

// failed tells the page that the client reports a gradient of 0. Nobody else may know.
func (p page) failed(task wire.Task, round int64, err error) {
	p.tell.tell(event{Type: "no-gradient", Task: fmt.Sprintf("%x", wire.Digest(task)), Round: round, Message: err.Error()})
}

// floatsTo makes a Float32Array.
func floatsTo(x []float32) js.Value {
	b := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return js.Global().Get("Float32Array").New(arrayOf(b).Get("buffer"))
}

// floatsFrom copies a Float32Array of n elements.
func floatsFrom(v js.Value, n int) ([]float32, error) {
	if !v.InstanceOf(js.Global().Get("Float32Array")) || v.Length() != n {
		return nil, fmt.Errorf("client: gradient: want a Float32Array of %d", n)
	}
	b := bytesOf(js.Global().Get("Uint8Array").New(v.Get("buffer"), v.Get("byteOffset"), v.Get("byteLength")))
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x, nil
}
