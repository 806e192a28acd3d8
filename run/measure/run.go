package measure

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/simulate"
)

// RunConfig says how a question is asked in this process.
type RunConfig struct {
	Rows     *dataset.Cells // a row for each client. Required.
	Seed     uint64         // equal seeds give the same question the same answer, and other questions other noise
	Workers  int            // 0 means one per CPU
	Ledger   *Ledger        // nil: the question has its own budget only
	Progress func(reports int64)
}

// Result is an answer and what it cost.
type Result struct {
	statistic.Answer
	Spent dp.Bound // by this question alone
	// All is what all questions of the ledger cost, this one included; without a ledger it is Spent.
	All dp.Bound
}

// Read reads the columns of a CSV file that a question looks at. missing says what empty cells count
// as, as dataset.CSVConfig declares it.
func Read(path string, q statistic.Question, missing string) (*dataset.Cells, error) {
	c := cellsOf(q)
	if err := c.Missing.Declare("missing", missing); err != nil {
		return nil, inputError("missing: %v", err)
	}
	rows, err := dataset.ReadCells(path, c)
	if err != nil {
		return nil, fmt.Errorf("measure: %w%w", err, ErrInput)
	}
	return rows, nil
}

// cellsOf says which cells a question looks at, and which of them must be numbers.
func cellsOf(q statistic.Question) (c dataset.CellsConfig) {
	c.Columns = q.Columns()
	if len(q.Edges) > 0 || q.High > q.Low {
		c.Numbers = append(c.Numbers, q.Column)
	}
	for _, f := range q.Features {
		c.Numbers = append(c.Numbers, f.Column)
	}
	return c
}

// Run asks the question. The ledger is charged, durably, before any report is opened; if it refuses,
// nothing is computed and the error wraps ledger.ErrBudget. What ends Run after the charge loses the
// answer, never the charge.
func (p *Plan) Run(ctx context.Context, c RunConfig) (*Result, error) {
	if int64(c.Rows.Rows) != p.Clients {
		return nil, fmt.Errorf("measure: %d rows of %d clients", c.Rows.Rows, p.Clients)
	}
	book, task, err := p.ledger(c.Ledger)
	if err != nil {
		return nil, err
	}
	m := p.simulated()
	out, err := p.newLearner()
	if err != nil {
		return nil, err
	}
	config := p.coordinator(out, m)
	config.Task, config.Ledger = task, book
	if config.Participation == dp.Once {
		if config.Blocks, err = p.blocks(); err != nil {
			return nil, err
		}
	}
	co, err := coordinator.New(config)
	if err != nil {
		return nil, err
	}
	cl, err := client.New(client.Config{Mechanism: m, ClipMode: client.ClipNorm, Clip: p.clip(), Norm: p.norm()})
	if err != nil {
		return nil, err
	}
	encoder, err := p.encoder()
	if err != nil {
		return nil, err
	}
	var round *statistic.Encoder // of the present round
	number := int64(0)
	if c.Ledger != nil {
		number = c.Ledger.Questions() + 1
	}
	sc := simulate.Config{Seed: p.seed(c.Seed, number), Clients: p.Clients, Client: cl, Coordinator: co, Mechanism: m, Workers: c.Workers, Blocks: config.Blocks}
	// Each worker has one closure for all its rows.
	rowOf := func() (row statistic.Row, id *int64) {
		id = new(int64)
		return func(column string) string { return c.Rows.Cell(int(*id), column) }, id
	}
	if p.Question.Ones() > 0 && p.messages == nil {
		sc.Ones = func() func(int64, []float32, []int) []int {
			row, at := rowOf()
			return func(id int64, theta []float32, places []int) []int {
				*at = id
				return round.Places(row, theta, places)
			}
		}
	} else {
		sc.Worker = func() func(int64, []float32, []float32) {
			row, at := rowOf()
			return func(id int64, theta, x []float32) {
				*at = id
				round.Encode(row, theta, x)
			}
		}
	}
	sim, err := simulate.New(sc)
	if err != nil {
		return nil, err
	}
	for range p.Question.Rounds() {
		round = encoder.At(co.Parameters)
		if _, err := sim.Round(ctx, c.Progress); err != nil {
			return nil, refusal(err, c.Ledger)
		}
	}
	r := &Result{}
	if r.Answer, err = out.answer(p); err != nil {
		return nil, err
	}
	if r.Spent, err = book.Spent(); err != nil {
		return nil, err
	}
	if r.All = r.Spent; c.Ledger != nil {
		r.All, err = c.Ledger.spent()
	}
	return r, err
}

// refusal words a refusal by a ledger's budget for those who ask: a ledger has entries, they have
// questions.
func refusal(err error, l *Ledger) error {
	_, text, found := strings.Cut(err.Error(), "ledger: entry ")
	if l == nil || !found || !errors.Is(err, ledger.ErrBudget) {
		return err
	}
	text, also, _ := strings.Cut(text, ": "+ledger.ErrBudget.Error())
	if also != "" { // said of tasks
		also = "; from the second question on all are counted as if chosen upon earlier answers"
	}
	return fmt.Errorf("measure: ledger %s: question %s: %w%s", l.path, text, ledger.ErrBudget, also)
}

// seed returns the seed of a question's noise. Different questions, and the same with other
// settings, have noise of their own, and so has one that is asked again in a ledger, as if nothing came
// from a seed.
func (p *Plan) seed(seed uint64, number int64) uint64 {
	h := sha256.New()
	fmt.Fprintf(h, "riffle measure\n%d\n%d\n%s\n%s\n%s\n%v\n%v\n%d\n%d\n%d", seed, number, p.Trust, p.Question.JSON(), p.NoiseBy, p.Epsilon, p.Delta, p.Clients, p.Sample, p.MinReports)
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

// ledger returns the ledger of the question and the name of its task. Each time that a question is
// asked is a task of its own.
func (p *Plan) ledger(l *Ledger) (coordinator.Ledger, [32]byte, error) {
	if l == nil {
		book, err := ledger.New(p.Limit)
		return book, [32]byte{}, err
	}
	if p.Delta != l.Budget.Delta {
		return nil, [32]byte{}, inputError("delta = %v, but the ledger counts at %v", p.Delta, l.Budget.Delta)
	}
	task, err := p.task(fmt.Sprintf("question %d", l.Questions()+1), wire.ID{})
	if err != nil {
		return nil, [32]byte{}, err
	}
	id := wire.Digest(task)
	book, err := l.open(id, ledgerLine{Question: p.Question.JSON(), Trust: p.Trust, Epsilon: p.Epsilon, Tail: p.Limit.Tail})
	return book, id, err
}
