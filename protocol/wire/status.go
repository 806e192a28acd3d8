package wire

import (
	"time"

	"github.com/riffle-dp/riffle/dp"
)

// Status is what anyone may know of a task that runs or has ended. A coordinator keeps it;
// the page, the operator API and the public status all show it. Its JSON is the page's.
type Status struct {
	Task  Task     `json:"-"` // what never changes
	ID    [32]byte `json:"-"` // Task's digest
	State string   `json:"state"`
	Why   string   `json:"why,omitempty"`   // the reason of its end, or its trouble
	Phase string   `json:"phase,omitempty"` // what the task is doing
	Round int64    `json:"round"`           // the last round that ended
	Until int64    `json:"rounds"`          // number of the last round, if no round to come is void
	Model [32]byte `json:"-"`               // digest of the last released model

	Eps     dp.Number `json:"epsilon"`          // bounds at Task.Delta the cost of what was charged, in nats; NaN: not known; +Inf: no privacy
	Method  string    `json:"method,omitempty"` // id of the bound
	Source  string    `json:"source,omitempty"` // the bound's theorem
	Charged int64     `json:"charged"`          // number of ledger entries
	Counts

	// Word is the shuffler's word on the last round; nil: there is none yet. Receipts heads the
	// list of its receipts; nil: it has none.
	Word     *RoundClosed `json:"-"`
	Receipts *Receipts    `json:"-"`
	// Spare is the number of a vector sum's n-min reports that may be left out: the
	// number of colluders plus the clients that the honest fraction leaves out. If more reports
	// are left out, the round gives no step.
	Spare int64 `json:"-"`
	// Failure says why FailedRound, the last charged round without a step, gave none.
	FailedRound int64              `json:"-"`
	Failure     string             `json:"-"`
	Evaluation  any                `json:"-"` // what the coordinator's evaluation returned last
	EvaluatedAt int64              `json:"-"` // the round of Evaluation
	Measured    any                `json:"-"` // what clients measured in the last released round
	Spent       map[string]float64 `json:"-"` // seconds spent, by phase
	Error       string             `json:"-"` // the last error of something that is tried again
	Since       time.Time          `json:"-"` // when the phase began
}

// Counts are totals over a task's rounds.
type Counts struct {
	Released int64 `json:"released"` // rounds whose step was taken
	Void     int64 `json:"void"`     // rounds with too few reports, or that the shuffler no longer had
	Failed   int64 `json:"failed"`   // rounds that were charged but gave no step
	Reports  int64 `json:"reports"`  // reports in released models
	// Shortened counts steps that were shortened to the most that honest reports can give.
	Shortened int64 `json:"shortened,omitempty"`
	// FailedBy counts charged rounds without a step, by reason.
	FailedBy map[string]int64 `json:"failed_by,omitempty"`
	// Rejected counts refused reports by reason, those that the shuffler refused and those
	// that the coordinator refused.
	Rejected map[Reason]int64 `json:"rejected"`
}
