package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/coordinator"
)

// This file shows what clients measure of a task's model on rows of their own.

// measured returns what clients measured in a task's last released round; nil if nothing. Of a task that
// had ended when this process began, it is read from the store, once.
func (r *coordinatorProcess) measured(s wire.Status) *train.Measured {
	if m, ok := s.Measured.(*train.Measured); ok {
		return m
	}
	r.mu.Lock()
	made, known := r.tasks[s.ID], r.readMeasured[s.ID]
	r.mu.Unlock()
	if known != nil || made == nil || made.Config.Evaluate == "" || s.State != coordinator.Done && s.State != coordinator.Stopped && s.State != coordinator.Refused || s.Released == 0 {
		return known
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	state, _, err := r.service.Learned(ctx, s.ID)
	if err != nil {
		return nil
	}
	m, err := made.MeasuredIn(state)
	if err != nil || m == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readMeasured == nil {
		r.readMeasured = map[[32]byte]*train.Measured{}
	}
	r.readMeasured[s.ID] = m
	return m
}

// eachMeasured calls do for each number, with its name for people and for scripts.
func eachMeasured(m *train.Measured, do func(name, key string, n statistic.Number)) {
	if m.Accuracy != nil {
		do("accuracy", "private_accuracy", *m.Accuracy)
	}
	do("loss", "private_loss", m.Loss)
	do("clients who measured", "private_clients", m.Clients)
}

// measuredNumbers returns the numbers by name; _low95 and _high95 end the names of an interval's ends.
func measuredNumbers(m *train.Measured) map[string]float64 {
	out := map[string]float64{}
	eachMeasured(m, func(_, key string, n statistic.Number) {
		out[key], out[key+"_low95"], out[key+"_high95"] = n.Value, n.Low95, n.High95
	})
	return out
}

// shownMeasured returns the numbers as the page shows them. round measured them.
func shownMeasured(m *train.Measured, round int64) *dashboard.Answer {
	out := &dashboard.Answer{What: "Measured by clients", Note: fmt.Sprintf("Round %d measured the model that it began with, on the share %v of clients' rows, which are never trained on. A loss above %.4g counts as that.", round, m.Holdout, m.LossLimit)}
	eachMeasured(m, func(name, _ string, n statistic.Number) {
		out.Rows = append(out.Rows, dashboard.Figure{Name: name, Value: dp.Number(n.Value), Low: dp.Number(n.Low95), High: dp.Number(n.High95), JointLow: dp.Number(n.JointLow95), JointHigh: dp.Number(n.JointHigh95)})
	})
	return out
}
