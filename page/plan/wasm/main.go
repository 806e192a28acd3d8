//go:build js && wasm

// Command wasm is the accountant for a web page: it defines the global function riffleAnswer
// and waits to be called.
//
//	riffleAnswer(question, which, fresh, step) → text
//
// The question is JSON text with one or two keys. query is the query part of a document of
// riffle eps --json. report, if it is there, describes a randomizer, and the query then leaves
// out what follows from it: eps0 and what its reports are. The answer is such a document, or
// {"error": "…"}; with a report the document has the key report as well, with the edges that
// were chosen. With fresh the accountant forgets what it cached for earlier questions.
// step(method, done, of) is called before each method. Numbers cross as JSON text, which keeps
// all their digits.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall/js"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

func main() {
	accountant := new(account.Accountant)
	js.Global().Set("riffleAnswer", js.FuncOf(func(_ js.Value, args []js.Value) any {
		if args[2].Bool() {
			accountant = new(account.Accountant)
		}
		text, err := answer(accountant, args[0].String(), args[1].String(), args[3])
		if err != nil {
			text, _ = json.Marshal(map[string]string{"error": err.Error()}) // strings always have a JSON form
		}
		return string(text)
	}))
	select {}
}

// report describes a randomizer.
type report struct {
	Name     string    `json:"name"`
	Dim      int       `json:"dim"`
	Eps0     float64   `json:"eps0"`
	Steps    int       `json:"steps,omitempty"`
	Edges    []float64 `json:"edges,omitempty"` // empty: chosen
	Encoding string    `json:"encoding,omitempty"`
}

func answer(a *account.Accountant, text, which string, step js.Value) ([]byte, error) {
	var question struct {
		Query  json.RawMessage `json:"query"`
		Report *report         `json:"report"`
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&question); err != nil {
		return nil, fmt.Errorf("account: question: %w", err)
	}
	d, err := account.ParseDocumentQuery(question.Query)
	if err != nil {
		return nil, err
	}
	if question.Report != nil {
		if err := question.Report.apply(&d); err != nil {
			return nil, err
		}
	}
	var each func(method string, done, of int)
	if step.Type() == js.TypeFunction {
		each = func(method string, done, of int) { step.Invoke(method, done, of) }
	}
	r, err := a.Ask(context.Background(), d, which, each)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		account.Document
		Report *report `json:"report,omitempty"`
	}{r.Document(), question.Report})
}

// apply puts into the query what the randomizer's reports promise, and into r the edges that are
// chosen.
func (r *report) apply(d *account.DocumentQuery) error {
	if d.Randomizer != "" || d.Eps0 != 0 || d.Symbols != 0 || d.TV != 0 || d.Height != 0 || len(d.Shares) > 0 || d.Eta != 0 {
		return errors.New("account: a query with a report has no randomizer, eps0, symbols, tv, height, shares and eta of its own")
	}
	c := randomizer.Config{Dim: r.Dim, Radius: 1, Eps0: r.Eps0, Steps: r.Steps, Edges: r.Edges, Encoding: r.Encoding}
	m, err := randomizer.New(r.Name, c)
	if err != nil {
		return err
	}
	if r.Edges, err = randomizer.Edges(r.Name, c); err != nil {
		return err
	}
	e := m.Event()
	d.Randomizer, d.Symbols, d.TV, d.Eps0, d.Sigma = e.Class, e.Symbols, e.TV, e.Eps0, e.Sigma
	if e.Class == dp.Rising {
		d.Height, d.Shares, d.Eta = e.Steps.Height, e.Steps.Each(), e.Steps.Eta
	}
	return nil
}
