package main

import (
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/run/train"
)

func TestWarnings(t *testing.T) {
	stuffed := func(c train.Config) string {
		var b strings.Builder
		warnStuffed(&b, c)
		return b.String()
	}
	var c train.Config
	c.Every, c.NoiseBy = 10, vecsum.ByClients
	if s := stuffed(c); !strings.Contains(s, "tokens: true") {
		t.Errorf("clients' noise that is correlated, without tokens: %q", s)
	}
	for _, f := range []func(*train.Config){
		func(c *train.Config) { c.Tokens = true },
		func(c *train.Config) { c.NoiseBy = vecsum.ByAggregators },
		func(c *train.Config) { c.NoiseBy = "" },
		func(c *train.Config) { c.Every = 0 },
	} {
		other := c
		if f(&other); stuffed(other) != "" {
			t.Errorf("%+v: %q", other, stuffed(other))
		}
	}
	for eps, want := range map[float64]string{20: "", 25: "protects next to nobody"} {
		var b strings.Builder
		if warnLargeEps(&b, eps); (b.Len() > 0) != (want != "") || !strings.Contains(b.String(), want) {
			t.Errorf("epsilon %v: %q", eps, &b)
		}
	}
}
