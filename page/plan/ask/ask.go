// Package ask answers the questions of the page /plan. The page's program for browsers and the process that a
// server asks share it.
package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// Question is what the page asks. Query is the query of a document of riffle eps --json. Report, if it
// is there, describes a randomizer, and Query then leaves out what follows from it: eps0 and what its
// reports are. Which says which bounds are wanted, as for [account.Answer].
type Question struct {
	Query  account.DocumentQuery `json:"query"`
	Report *Report               `json:"report,omitempty"`
	Which  string                `json:"which"`
}

// Report describes a randomizer.
type Report struct {
	Name     string    `json:"name"`
	Dim      int       `json:"dim"`
	Eps0     float64   `json:"eps0"`
	Steps    int       `json:"steps,omitempty"`
	Edges    []float64 `json:"edges,omitempty"` // empty: chosen
	Encoding string    `json:"encoding,omitempty"`
}

// Parse reads a question. It refuses unknown keys.
func Parse(text []byte) (Question, error) {
	var q struct {
		Query  json.RawMessage `json:"query"`
		Report *Report         `json:"report"`
		Which  string          `json:"which"`
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return Question{}, fmt.Errorf("account: question: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Question{}, errors.New("account: question: more than one JSON value")
	}
	d, err := account.ParseDocumentQuery(q.Query)
	return Question{d, q.Report, q.Which}, err
}

// Answer returns a document of riffle eps --json as JSON text, or {"error": "…"}. To a question with a
// report, the document has the key report as well, with the edges that were chosen. each is that of
// [account.Accountant.Ask].
func (q Question) Answer(ctx context.Context, a *account.Accountant, each func(method string, done, of int)) []byte {
	text, err := q.answer(ctx, a, each)
	if err != nil {
		text, _ = json.Marshal(map[string]string{"error": err.Error()}) // strings always have a JSON form
	}
	return text
}

func (q Question) answer(ctx context.Context, a *account.Accountant, each func(method string, done, of int)) ([]byte, error) {
	if q.Report != nil {
		if err := q.Report.apply(&q.Query); err != nil {
			return nil, err
		}
	}
	r, err := a.Ask(ctx, q.Query, q.Which, each)
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		account.Document
		Report *Report `json:"report,omitempty"`
	}{r.Document(), q.Report})
}

// apply puts into the query what the randomizer's reports promise, and into r the edges that are
// chosen.
func (r *Report) apply(d *account.DocumentQuery) error {
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
