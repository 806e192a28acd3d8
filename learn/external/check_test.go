package external

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

func checked(t *testing.T, mode string) *Checked {
	t.Helper()
	c, err := Check(t.Context(), Config{Program: externaltest.Program(mode), Timeout: 20 * time.Second}, 50*time.Millisecond)
	if err != nil {
		t.Fatalf("%s: %v", mode, err)
	}
	return c
}

// level returns how bad a check's finding is.
func level(c *Checked, check string) (grade, string) {
	for _, f := range c.Findings {
		if f.Check == check {
			return f.Level, f.Text
		}
	}
	return "missing", ""
}

func TestCheckOfGoodPrograms(t *testing.T) {
	for _, mode := range []string{"learn", "learn-delta"} {
		c := checked(t, mode)
		for _, f := range c.Findings {
			if f.Level != Fine {
				t.Errorf("%s: %+v", mode, f)
			}
		}
		if !c.OK() || c.PerSecond <= 0 || c.Norms[0] <= 0 || c.Norms[3] < c.Norms[2] || c.Norms[2] < c.Norms[1] || c.Numbers["loss"] != 5 || len(c.Findings) != 12 {
			t.Errorf("%s: %+v", mode, c)
		}
	}
}

// TestCheckFinds has a program for each fault that answers of the right form can have.
func TestCheckFinds(t *testing.T) {
	for mode, want := range map[string]struct {
		check string
		level grade
		text  string
	}{
		"mixes":    {"own data", Failed, "it has their data in it"},
		"random":   {"repeated", Warning, "another answer"},
		"equal":    {"norms", Failed, "the same row"},
		"fast":     {"norms", Failed, "all rows are 0"},
		"ascent":   {"direction", Warning, "lowers the loss"},
		"restless": {"opened again", Failed, "another start"},
		"nan":      {"values", Warning, " of 1280 values are NaN or infinite"},
		"good":     {"initial", Warning, "no initial parameters"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := checked(t, mode)
			if l, text := level(c, want.check); l != want.level || !strings.Contains(text, want.text) {
				t.Errorf("%s: %s %q, want %s %q", want.check, l, text, want.level, want.text)
			}
			if c.OK() != (want.level != Failed) {
				t.Errorf("%+v", c.Findings)
			}
		})
	}
	c, err := Check(t.Context(), Config{Program: externaltest.Program("wrong-dim"), Timeout: 20 * time.Second}, 0)
	if err == nil || !strings.Contains(err.Error(), "[256 4]") || len(c.Findings) == 0 {
		t.Errorf("%+v, %v", c, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Check(ctx, Config{Program: externaltest.Program("learn")}, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
