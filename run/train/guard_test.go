package train

import (
	"errors"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	for text, want := range map[string]Guard{
		"accuracy:0.05":   {"accuracy", .05, false},
		"loss:2:pause":    {"loss", 2, true},
		"loss:1e-3":       {"loss", 1e-3, false},
		"accuracy:.9":     {"accuracy", .9, false},
		"":                {},
		"accuracy":        {},
		"accuracy:0":      {},
		"accuracy:1":      {},
		"accuracy:-1":     {},
		"accuracy:NaN":    {},
		"loss:Inf":        {},
		"loss:x":          {},
		"f1:0.1":          {},
		"loss:1:stop":     {},
		"loss:1:pause:no": {},
	} {
		g, err := parseGuard(text)
		if g != want || (err == nil) != (want.Metric != "") {
			t.Errorf("%q is %+v, %v", text, g, err)
		}
	}
	c := Default()
	c.Guard = "accuracy:0.1"
	if _, err := Prepare(t.Context(), c); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "guard") {
		t.Errorf("a simulation with a guard: %v", err)
	}
	c.Guard = "accuracy:2"
	if err := c.Check(); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "guard") {
		t.Errorf("a guard that cannot be: %v", err)
	}
}
