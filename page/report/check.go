package report

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// check returns an error that names the first value out of range.
func (r Run) check() error {
	if r.Title == "" {
		return errors.New("report: title must not be empty")
	}
	if r.Command == "" {
		return errors.New("report: command must not be empty")
	}
	if r.Void < 0 || r.Void > r.Privacy.Rounds {
		return fmt.Errorf("report: %d void rounds must be at most the %d there were", r.Void, r.Privacy.Rounds)
	}
	if r.TestAccuracy < 0 || r.TestAccuracy > 1 {
		return fmt.Errorf("report: test accuracy = %v must lie in [0, 1]", r.TestAccuracy)
	}
	if err := r.Privacy.check(); err != nil {
		return err
	}
	for i, p := range r.Points {
		if p.Round < 0 {
			return fmt.Errorf("report: point %d has round %d, must not be negative", i, p.Round)
		}
		if i > 0 && p.Round <= r.Points[i-1].Round {
			return fmt.Errorf("report: point %d has round %d, must be above the point before it, %d",
				i, p.Round, r.Points[i-1].Round)
		}
	}
	return r.checkClasses()
}

func (r Run) checkClasses() error {
	classes := len(r.Classes)
	if len(r.Confusion) != 0 && len(r.Confusion) != classes {
		return fmt.Errorf("report: confusion matrix has %d rows, must have one per class, %d", len(r.Confusion), classes)
	}
	for i, row := range r.Confusion {
		if len(row) != classes {
			return fmt.Errorf("report: confusion matrix row %d has %d entries, must have one per class, %d", i, len(row), classes)
		}
		for j, n := range row {
			if n < 0 {
				return fmt.Errorf("report: confusion matrix [%d][%d] = %d must not be negative", i, j, n)
			}
		}
	}
	for i, s := range r.Samples {
		if s.Label < 0 || s.Label >= classes || s.Predicted < 0 || s.Predicted >= classes {
			return fmt.Errorf("report: sample %d has label %d, predicted %d, must be below the number of classes, %d",
				i, s.Label, s.Predicted, classes)
		}
	}
	return nil
}

func (p Privacy) check() error {
	if p.Population < 1 {
		return fmt.Errorf("report: population = %d must be at least 1", p.Population)
	}
	if p.Rounds < 0 || p.PlannedRounds < 0 {
		return fmt.Errorf("report: rounds = %d of %d must not be negative", p.Rounds, p.PlannedRounds)
	}
	if !(p.ReportsPerRound >= 0) || math.IsInf(p.ReportsPerRound, 0) {
		return fmt.Errorf("report: reports per round = %v must be at least 0 and finite", p.ReportsPerRound)
	}
	if !(p.Epsilon >= 0) {
		return fmt.Errorf("report: epsilon = %v must be at least 0", p.Epsilon)
	}
	if !p.Trust.Is(dp.Protecting) {
		if !math.IsInf(p.Epsilon, 1) {
			return fmt.Errorf("report: epsilon = %v must be infinite when trust is %q", p.Epsilon, p.Trust)
		}
		return nil
	}
	if !p.Trust.Is(dp.InEvents) {
		return fmt.Errorf("report: unknown trust %q", p.Trust)
	}
	switch p.Participation {
	case dp.All, dp.Sampled, dp.CheckIn, dp.Once:
	default:
		return fmt.Errorf("report: unknown participation %q", p.Participation)
	}
	if p.Adjacency != dp.ReplaceOne && p.Adjacency != dp.AddRemoveOne {
		return fmt.Errorf("report: unknown adjacency %q", p.Adjacency)
	}
	own := dp.CheckEps0(p.Eps0)
	if p.Trust.Is(dp.SumsOnly) {
		own = dp.CheckSigma(p.Sigma)
	}
	if own != nil {
		return fmt.Errorf("report: %w", own)
	}
	if p.SumNoise && !p.Trust.Is(dp.SumsOnly) {
		return fmt.Errorf("report: noise of a sum with trust %s", p.Trust)
	}
	if p.Every != 0 && (p.Every < 2 || !p.SumNoise || p.Participation != dp.CheckIn) {
		return fmt.Errorf("report: a client in one of %d rounds: at least 2, with participation %s and noise of a sum", p.Every, dp.CheckIn)
	}
	if p.Honest < 0 || p.Honest > 0 && p.Every == 0 {
		return fmt.Errorf("report: the noise of %d clients apart from their vectors goes with clients in one of several rounds", p.Honest)
	}
	if p.Messages < 0 || p.Messages > 1 && p.Trust.Is(dp.SumsOnly) {
		return fmt.Errorf("report: %d messages of each client with trust %s", p.Messages, p.Trust)
	}
	if math.IsInf(p.Epsilon, 1) {
		return nil
	}
	switch p.Status {
	case dp.Proved, dp.Numeric, dp.Approximation:
	default:
		return fmt.Errorf("report: unknown status of the bound %q", p.Status)
	}
	if err := dp.CheckDelta(p.Delta); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
