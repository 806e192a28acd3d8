//go:build long

package train

import "testing"

func TestMoreTablesBeatAConstant(t *testing.T) {
	beatConstants(t, map[string]tableCase{
		"numbers": {spending(100), 1000, func(c *Config) { c.Loss, c.Range = "absolute", peopleRanges+",y=0..5000" }, .3},
		"numbers, wide": {spending(100), 3000, func(c *Config) {
			c.Loss, c.Range = "absolute", "age=0..120,height=0..300,income=0..1e6,kids=0..20,y=0..20000"
		}, .6},
		"quantile":        {spending(200), 2000, func(c *Config) { c.Loss, c.Range = "pinball:0.9", peopleRanges+",y=0..5000" }, .55},
		"a rare class":    {buyers(-3), 1000, func(c *Config) { c.Range = peopleRanges }, .85},
		"more of them":    {buyers(0), 3000, func(c *Config) { c.Range = peopleRanges }, .7},
		"classes":         {kinds(4, 6), 1000, func(c *Config) { c.Range = "*=-4..4" }, .75},
		"many features":   {kinds(2, 40), 1500, func(*Config) {}, .85},
		"sums":            {buyers(0), 1500, func(c *Config) { c.Range, c.Trust = peopleRanges, "vector-sum" }, .8},
		"one coordinate":  {buyers(0), 1500, func(c *Config) { c.Range, c.Randomizer = peopleRanges, "rinf" }, .7},
		"one sign":        {buyers(0), 1500, func(c *Config) { c.Range, c.Randomizer = peopleRanges, "r1" }, .75},
		"without privacy": {buyers(0), 500, func(c *Config) { c.Range, c.Trust = peopleRanges, "none" }, .7},
	})
}
