package coordinator

import (
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
)

// Why a charged round gave no step, in one word.
const (
	FailedRange    = "out-of-range"   // no valid reports of the round's clients give this sum
	FailedExcluded = "excluded"       // more reports could not be summed than the charge allows for
	FailedTooFew   = "too-few"        // fewer than n-min are left; with trust local, fewer than n-min came
	FailedUnequal  = "unequal"        // the aggregators' sums do not belong together
	FailedBatch    = "not-as-signed"  // a peer's answer is not valid
	FailedGone     = "gone"           // a peer no longer has the round
	FailedStep     = "no-valid-steps" // no report is valid, or the optimiser refuses the step
	FailedTokens   = "tokens"         // fewer than n-min have a token of their own
	FailedSecret   = "secret-lost"    // the key of the proofs, or noise, was stored and cannot be read
	FailedGuard    = "guard"          // the model would have become worse: see Guard
)

// FailureReasons lists all reasons.
var FailureReasons = []string{FailedRange, FailedExcluded, FailedTooFew, FailedUnequal, FailedBatch, FailedGone, FailedStep, FailedGuard, FailedTokens, FailedSecret}

// failure ends a charged round without a step. Its field why is public: it holds counts, and
// nothing about a client or a peer.
type failure struct {
	reason string
	why    string
	cause  error // for the log
}

func (f *failure) Error() string {
	if f.cause != nil {
		return fmt.Sprintf("coordinator: the round gives no step: %s: %v", f.why, f.cause)
	}
	return "coordinator: the round gives no step: " + f.why
}

func noStep(reason string, format string, args ...any) *failure {
	return &failure{reason: reason, why: fmt.Sprintf(format, args...)}
}

// asFailure returns the failure that a charged round ends in after err; nil if the round
// is to be tried again.
func asFailure(err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, batch.ErrLie):
		return &failure{FailedBatch, "what was fetched of the round is not what was signed", err}
	case gone(err):
		return &failure{FailedGone, "a peer no longer has the round", err}
	}
	return nil
}

// outcome is how a charged round ended.
type outcome struct {
	failed   *failure // nil: the step was taken
	accepted int64
	rejected map[wire.Reason]int64
	short    bool     // the step was made shorter
	best     *float64 // the guard's best measure, of this model or an earlier one
	held     bool     // the learner went back to its best model, as Guard.Private has it
}

// failed is the stored form of the last round that gave no step.
type failed struct {
	Round  int64  `json:"round"`
	Reason string `json:"reason"`
	Why    string `json:"why"`
}

// note enters a round's outcome into the state after it: the counts, and whether the task
// pauses because too many rounds in a row gave no step. Void rounds do not count there:
// nothing was charged, and more clients may come.
func (r *runner) note(next *record, round int64, o outcome) {
	next.Counts, next.Voids = cloned(next.Counts), 0
	for reason, n := range o.rejected {
		next.Counts.Rejected[reason] += n
	}
	if o.failed == nil {
		next.Counts.Released++
		next.Counts.Reports += o.accepted
		if o.short {
			next.Counts.Shortened++
			r.log.Warn("a step was longer than honest reports give and is made shorter", "round", round)
		}
		next.Barren = 0
		if o.best != nil {
			next.Best = o.best
		}
		return
	}
	f := o.failed
	next.Counts.Failed++
	next.Counts.FailedBy[f.reason]++
	next.Failed = &failed{round, f.reason, f.why}
	next.Barren++
	switch limit := r.s.config.PauseAfter; {
	case f.reason == FailedGuard && r.t.Guard != nil && r.t.Guard.Pause:
		next.Paused = fmt.Sprintf("round %d: %s", round, f.why)
	case limit > 0 && next.Barren >= limit:
		next.Paused = fmt.Sprintf("%d rounds in a row gave no step, the last one, %d: %s", next.Barren, round, f.why)
	}
}

// noteVoid enters a void round into the state after it. A task to which nobody comes pauses: it would go on
// asking its clients, each of whom has charged itself for every report that it sent.
func (r *runner) noteVoid(next *record, round int64, rejected []wire.Rejection) {
	next.Counts = cloned(next.Counts)
	next.Counts.Void++
	for _, x := range rejected {
		next.Counts.Rejected[x.Reason] += x.Count
	}
	next.Voids++
	if limit := r.s.config.PauseAfterVoid; limit > 0 && next.Voids >= limit {
		next.Paused = fmt.Sprintf("%d rounds in a row were void, the last one, %d: fewer than n-min = %d clients reported in each, or the shuffler has lost it, as its log says",
			next.Voids, round, r.task.MinReports)
	}
}
