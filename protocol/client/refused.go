package client

import "fmt"

// Cause says why a client does not take part. The set is closed.
type Cause string

// Causes.
const (
	CauseSignature  Cause = "signature"  // not signed by the right key
	CauseMessage    Cause = "message"    // malformed, or too large
	CauseTask       Cause = "task"       // the announcement differs from the task
	CauseEnrolment  Cause = "enrolment"  // n or n-min differ from those of the enrolment, or the enrolment is not valid now
	CauseKey        Cause = "key"        // expired, or not in the enrolment
	CauseMechanism  Cause = "mechanism"  // cannot be built, or its promise differs from the announced one
	CauseModel      Cause = "model"      // not the announced model
	CauseRound      Cause = "round"      // not above the last round of the task
	CauseEquivocate Cause = "equivocate" // another announcement of the same round
	CauseClock      Cause = "clock"      // a deadline that has passed or is too far
	CausePolicy     Cause = "policy"     // not allowed by this client's policy
	CauseBudget     Cause = "budget"     // would exceed the client's budget
	CauseSource     Cause = "source"     // no data for this task
	CauseLedger     Cause = "ledger"     // a ledger is shorter than it was, or another one: the coordinator's, or the client's own
	CauseTokens     Cause = "tokens"     // there are no tokens for this client, or none for this round
	CauseSession    Cause = "session"    // the shuffler gave no session that lasts for the round
)

// Refused is the error of a task or a round in which a client does not take part. It stays
// with the client: nobody else is told.
type Refused struct {
	Cause  Cause
	Task   [32]byte
	Round  int64 // 0 if the whole task is refused
	Detail string
}

// Error returns the cause, with the task named by the beginning of its digest.
func (r *Refused) Error() string {
	if r.Round == 0 {
		return fmt.Sprintf("client: task %x refused (%s): %s", r.Task[:4], r.Cause, r.Detail)
	}
	return fmt.Sprintf("client: round %d of task %x refused (%s): %s", r.Round, r.Task[:4], r.Cause, r.Detail)
}

// Refuse makes a refusal that does not yet name its task and round.
func Refuse(c Cause, format string, args ...any) *Refused {
	return &Refused{Cause: c, Detail: fmt.Sprintf(format, args...)}
}

// In adds the task and the round to r, and returns r.
func (r *Refused) In(task [32]byte, round int64) *Refused {
	r.Task, r.Round = task, round
	return r
}
