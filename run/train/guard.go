package train

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Guard says when a task's coordinator holds a step back: see LearningConfig.Guard.
type Guard struct {
	Metric string  // "accuracy" or "loss"
	Fall   float64 // how much worse than its best value the metric may become, in the metric's unit
	Pause  bool    // whether to pause instead of running the next round
}

// guardForm describes the form of a guard.
const guardForm = "accuracy:FALL or loss:RISE, with :pause"

// parseGuard reads a guard, such as "accuracy:0.05" or "loss:0.2:pause".
func parseGuard(text string) (g Guard, err error) {
	parts := strings.Split(text, ":")
	if len(parts) == 3 && parts[2] == "pause" {
		g.Pause, parts = true, parts[:2]
	}
	if len(parts) != 2 || parts[0] != "accuracy" && parts[0] != "loss" {
		return Guard{}, fmt.Errorf("%q must be %s", text, guardForm)
	}
	g.Metric = parts[0]
	if g.Fall, err = strconv.ParseFloat(parts[1], 64); err != nil {
		return Guard{}, fmt.Errorf("%q is not a number", parts[1])
	}
	if !(g.Fall > 0) || math.IsInf(g.Fall, 1) || g.Metric == "accuracy" && !(g.Fall < 1) {
		return Guard{}, fmt.Errorf("%s may fall by %v: it must be above 0 and finite, an accuracy's below 1", g.Metric, g.Fall)
	}
	return g, nil
}

func checkGuard(text string) error {
	_, err := parseGuard(text)
	return err
}

// checkGuarded refuses a guard whose metric the data do not have.
func (t *Setup) checkGuarded() error {
	if t.Guard != nil && t.Config.described() {
		return inputError("guard = %s: a program evaluates model external beside the rounds, and cannot hold a step back", t.Config.Guard)
	}
	if t.Guard != nil && t.Guard.Metric == "accuracy" && len(t.Data.Classes) == 0 {
		return inputError("guard = %s: a regression has no accuracy, guard its loss", t.Config.Guard)
	}
	return nil
}
