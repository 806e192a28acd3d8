package operate

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
	"github.com/riffle-dp/riffle/service/store"
)

// ledgerReport is a ledger with its totals. Its keys are part of the command line's contract.
type ledgerReport struct {
	Population string        `json:"population"`
	Entries    int64         `json:"entries"`
	Digest     string        `json:"digest"` // digest of the last entry
	Epsilon    dp.Number     `json:"epsilon"`
	Delta      float64       `json:"delta"`
	Method     string        `json:"method"`
	Basis      string        `json:"basis"` // the theorem behind the method
	Budget     float64       `json:"budget"`
	Marked     int64         `json:"marked"` // number of entries that the mark records
	Tasks      []ledgerTask  `json:"tasks"`
	Lines      []ledgerEntry `json:"ledger,omitempty"`
}

// ledgerTask is the cost of one task by itself, at the population's δ.
type ledgerTask struct {
	Task    string    `json:"task"`
	Entries int64     `json:"entries"`
	Round   int64     `json:"round"`
	Epsilon dp.Number `json:"epsilon"`
	Method  string    `json:"method"`
}

// ledgerEntry is one charge.
type ledgerEntry struct {
	Task         string `json:"task"`
	Round        int64  `json:"round"`
	Announcement string `json:"announcement"`
	Batch        string `json:"batch"`
	Event        string `json:"event"`
}

// ReadLedger opens a coordinator's store, verifies the ledger's chain and its mark, and adds it
// up. If ask is set and the coordinator runs, the coordinator is asked instead; its answer
// lacks what each task costs. With a ledger above its budget, or a mark that lags, the report comes with an error.
func ReadLedger(ctx context.Context, path string, ask bool) (*ledgerReport, error) {
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		return nil, err
	}
	s, err := openCoordinatorStore(ctx, c)
	if ask && errors.Is(err, store.ErrLocked) {
		return askLedger(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	book, marked, err := verifyLedger(ctx, c, s)
	if err != nil {
		return nil, err
	}
	r, err := addUp(c, book)
	if r != nil {
		r.Marked = marked.Entries
		err = errors.Join(err, lag(book, marked))
	}
	return r, err
}

func askLedger(ctx context.Context, c config.Coordinator) (*ledgerReport, error) {
	resp, err := OperatorClient(c.Operator).GetLedger(ctx, connect.NewRequest(&operatorv1.GetLedgerRequest{}))
	if err != nil {
		return nil, err
	}
	marked, err := coordinator.MarkFile(c.Mark).Load()
	if err != nil {
		return nil, err
	}
	m := resp.Msg
	r := &ledgerReport{Population: c.Population, Entries: int64(len(m.Entries)), Epsilon: dp.Number(m.Epsilon), Delta: m.Delta, Method: m.Method, Basis: m.Basis,
		Budget: c.Budget.Epsilon, Marked: marked.Entries, Tasks: []ledgerTask{}}
	for _, e := range m.Entries {
		r.Lines = append(r.Lines, ledgerEntry{Task: e.Task, Round: e.Round, Announcement: e.Announcement, Batch: e.Batch, Event: e.Event})
	}
	return r, nil
}

func addUp(c config.Coordinator, book *ledger.Book) (*ledgerReport, error) {
	statement, err := ledger.Show(book, populationLimit(c), nil)
	if err != nil {
		return nil, err
	}
	r := &ledgerReport{Population: hex.EncodeToString(statement.Population[:]), Entries: statement.Entries,
		Digest: hex.EncodeToString(statement.Digest[:]), Epsilon: dp.Number(statement.Spent.Eps), Delta: c.Budget.Delta,
		Method: statement.Spent.Method, Basis: statement.Spent.Source, Budget: c.Budget.Epsilon, Tasks: []ledgerTask{}}
	for _, t := range statement.Tasks {
		r.Tasks = append(r.Tasks, ledgerTask{Task: hex.EncodeToString(t.Task[:]), Entries: t.Entries, Round: t.Last,
			Epsilon: dp.Number(t.Spent.Eps), Method: t.Spent.Method})
	}
	for _, e := range book.Entries() {
		r.Lines = append(r.Lines, entryLine(e))
	}
	if !(statement.Spent.Eps <= r.Budget) {
		return r, fmt.Errorf("%w: epsilon is %.6g (%s), the budget %.6g", ledger.ErrBudget, statement.Spent.Eps, r.Method, r.Budget)
	}
	return r, nil
}

func entryLine(e wire.Entry) ledgerEntry {
	return ledgerEntry{Task: hex.EncodeToString(e.Task[:]), Round: e.Round, Announcement: hex.EncodeToString(e.Announcement[:]),
		Batch: hex.EncodeToString(e.Batch[:]), Event: DescribeCharge(e.Event, e.Times)}
}

// compareLedger compares the ledger with what the shuffler was told, before the tasks' data are read: that may
// take long. If the shuffler does not answer, each task compares before it does anything.
func (r *coordinatorProcess) compareLedger(ctx context.Context) error {
	soon, done := context.WithTimeout(ctx, peerTime)
	defer done()
	if err := r.service.CompareLedger(soon, r.population); errors.Is(err, coordinator.ErrFatal) {
		return err
	}
	return nil
}

// ready says why the coordinator cannot work now. While its mark lags no batch is fetched.
func (r *coordinatorProcess) ready(ctx context.Context) error {
	if _, err := r.store.List(ctx, store.Values, createdPrefix); err != nil {
		return errors.New("the store does not answer")
	}
	marked, err := coordinator.MarkFile(r.config.Mark).Load()
	if err == nil {
		r.journal.View(func(b *ledger.Book) { err = lag(b, marked) })
	}
	return err
}

// Migrate moves a role's store for good to the place that another configuration of the same
// role names. The old store takes no writes from then on. Neither store may be in use. After
// an interruption Migrate can be run again.
func Migrate(ctx context.Context, role, from, to string) (store.Inventory, error) {
	a, err := storeOf(role, from)
	if err != nil {
		return store.Inventory{}, err
	}
	b, err := storeOf(role, to)
	if err != nil {
		return store.Inventory{}, err
	}
	return store.Migrate(ctx, a, b)
}

func storeOf(role, path string) (store.Config, error) {
	switch role {
	case RoleShuffler:
		c, err := config.Load[config.Shuffler](path)
		return c.Store, err
	case RoleCoordinator:
		c, err := config.Load[config.Coordinator](path)
		return c.Store, err
	case RoleAggregator:
		c, err := config.Load[config.Aggregator](path)
		return c.Store, err
	case RoleRegistrar:
		c, err := config.Load[config.Registrar](path)
		return c.Store, err
	}
	return store.Config{}, config.Errorf("no role %q with a store", role)
}
