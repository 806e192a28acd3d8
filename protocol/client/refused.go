package client

import "fmt"

// Cause says why a client does not take part. The set is closed.
type Cause string

// Causes.
const (
	CauseSignature  Cause = "signature"  // not signed by whom it must be
	CauseMessage    Cause = "message"    // malformed, or larger than it may be
	CauseTask       Cause = "task"       // the announcement is not what the task says
	CauseEnrolment  Cause = "enrolment"  // n or n-min are not the enrolment's, or it does not hold now
	CauseKey        Cause = "key"        // expired, or not of the enrolment
	CauseMechanism  Cause = "mechanism"  // cannot be built, or promises something else than is announced
	CauseModel      Cause = "model"      // not the model that was announced
	CauseRound      Cause = "round"      // not above the last round of the task
	CauseEquivocate Cause = "equivocate" // another announcement of a round that was announced
	CauseClock      Cause = "clock"      // a deadline that has passed or is too far
	CausePolicy     Cause = "policy"     // outside what this client's policy allows
	CauseBudget     Cause = "budget"     // would exceed what this client will spend
	CauseSource     Cause = "source"     // no data for this task
	CauseSession    Cause = "session"    // the shuffler gave none that lasts for the round
)

// Causes lists all, in the order they are shown.
func Causes() []Cause {
	return []Cause{CauseSignature, CauseMessage, CauseTask, CauseEnrolment, CauseKey, CauseMechanism, CauseModel,
		CauseRound, CauseEquivocate, CauseClock, CausePolicy, CauseBudget, CauseSource, CauseSession}
}

// Refused is the error of a task or a round that a client does not take part
// in. It stays with the client: nobody is told.
type Refused struct {
	Cause  Cause
	Task   [32]byte
	Round  int64 // 0 where the whole task is refused
	Detail string
}

// Error names the task by the beginning of its digest.
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

// In names the task and the round, and returns r.
func (r *Refused) In(task [32]byte, round int64) *Refused {
	r.Task, r.Round = task, round
	return r
}
