package client

import (
	"context"
	"errors"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// sumClass returns the class that the reports of a vector sum have; false if m is no sum.
func sumClass(m randomizer.Mechanism) (dp.Class, bool) {
	switch m.(type) {
	case *mechanism.VectorSum:
		return dp.Gaussian, true
	case *mechanism.AggregatedSum:
		return dp.GaussianSum, true
	}
	return "", false
}

// agreeSum checks a task of which only sums are seen. It returns the number of reports for which
// a report is charged, and sets the tail.
func (t *Terms) agreeSum(ctx context.Context) (crowd int64, refused *Refused) {
	p, task := t.Policy, t.Task
	if task.PerClient() > 1 {
		return 0, Refuse(CauseTask, "%d messages of each client of a sum", task.PerClient())
	}
	if dp.CheckDelta(task.Delta) != nil || task.Rounds < 1 {
		return 0, Refuse(CauseTask, "delta = %v, %d rounds", task.Delta, task.Rounds)
	}
	by := vecsum.ByClients
	if task.Mechanism.Sum.NoiseBy != "" {
		by = vecsum.NoiseBy(task.Mechanism.Sum.NoiseBy)
	}
	if len(p.NoiseBy) > 0 && !slices.Contains(p.NoiseBy, by) {
		return 0, Refuse(CausePolicy, "noise by %s is not allowed", by)
	}
	if p.RequireProofs && !task.Mechanism.Sum.Proved() {
		return 0, Refuse(CausePolicy, "reports of the sum carry no proofs")
	}
	var err error
	switch m := t.Mechanism.(type) {
	case *mechanism.VectorSum:
		if r := t.agreeNoise(m.Params.MinUsers, m.Params.Honest); r != nil {
			return 0, r
		}
		crowd = task.MinReports // agreeNoise counts colluders among the clients that are not honest
		// CheckSigma divides δ among the task's rounds. A client cannot tell which rounds
		// were void, and may report in all that are announced.
		announced := max(1, float64(task.LastRound())/float64(task.Rounds))
		t.Tail = vecsum.TailShare * task.Delta * announced * (1 + 0x1p-49)
	case *mechanism.AggregatedSum:
		// The noise of one honest aggregator, or of the clients that agreeNoise counts, hides the client.
		if m.ByClients() {
			if r := t.agreeNoise(m.MinUsers, m.Honest); r != nil {
				return 0, r
			}
		}
		crowd = 1
		if t.Tail, err = m.Tail(max(task.Rounds, task.LastRound())); err != nil {
			return 0, Refuse(CauseMechanism, "%v", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.MaxWork)
	defer cancel()
	if err := mechanism.CheckSigma(ctx, task.Mechanism, task.Delta, task.Rounds); errors.Is(err, context.DeadlineExceeded) {
		return 0, Refuse(CausePolicy, "what its noise is worth takes more than %v to check", p.MaxWork)
	} else if err != nil {
		return 0, Refuse(CauseMechanism, "%v", err)
	}
	return crowd, nil
}

// agreeNoise checks that every opened sum contains the noise that the task relies on, that of a share honest of
// minUsers clients, in spite of colluders.
func (t *Terms) agreeNoise(minUsers int64, honest float64) *Refused {
	p, task := t.Policy, t.Task
	if minUsers > task.MinReports {
		return Refuse(CauseTask, "noise is counted on for %d clients, rounds are opened with %d", minUsers, task.MinReports)
	}
	if honest == 0 {
		honest = 1
	}
	if !(honest*float64(minUsers) <= float64(minUsers-p.Colluders)) {
		return Refuse(CausePolicy, "noise of a share %v of %d clients leaves no room for %d colluders", honest, minUsers, p.Colluders)
	}
	return nil
}
