package train

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/learn/dataset"
)

func rate(t *testing.T, change func(*Config)) float64 {
	t.Helper()
	c := Default()
	c.Model, c.Population, c.Randomizer, c.Eps0, c.Rounds = "ink-linear", 60000, "privunit", 2.5, 10
	change(&c)
	c.fill()
	c.resolveLearning(nil)
	m, _, err := c.newMechanism(1930)
	if err != nil {
		t.Fatal(err)
	}
	r, err := strconv.ParseFloat(c.defaultRate(m), 64)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The rate is the tuned one for the noise it was tuned at, goes as one over the
// noise, and is capped where there is hardly any.
func TestDefaultRate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   float64
	}{
		"as tuned":                 {func(*Config) {}, 20},
		"a quarter of the clients": {func(c *Config) { c.Population /= 4 }, 10},
		"a quarter of them asked":  {func(c *Config) { c.Participation, c.K = "sampled", c.Population/4 }, 10},
		"four times as many":       {func(c *Config) { c.Population *= 4 }, 40},
		"very many":                {func(c *Config) { c.Population = 1e12 }, 80},
		"no noise":                 {func(c *Config) { c.Trust, c.Eps0 = "none", 0 }, 80},
		"half the clip":            {func(c *Config) { c.Clip = 0.1 }, 40},
		"steps":                    {func(c *Config) { c.Randomizer, c.Eps0 = "stepunit", 2.8 }, 20},
		"no momentum":              {func(c *Config) { c.Momentum = given(0) }, 40},
		"pixels":                   {func(c *Config) { c.Model = "softmax" }, 4},
		"the papers' network":      {func(c *Config) { c.Model, c.Population = "cnn", 1e12 }, 0.05},
		"more noise for it":        {func(c *Config) { c.Model = "cnn" }, 0.05 * math.Sqrt(5.9/17.5)},
		"shapes":                   {func(c *Config) { c.Model = "shape-linear" }, 40},
		"one bit":                  {func(c *Config) { c.Randomizer, c.Eps0, c.Population = "rinf", 20, 1e12 }, 2},
	} {
		// Two digits are kept.
		if got := rate(t, c.change); math.Abs(got/c.want-1) > 0.05 {
			t.Errorf("%s: rate %v, want %v", name, got, c.want)
		}
	}
}

// A momentum that is given is taken, also one that is the default of other models; what is
// chosen is written like what is given.
func TestMomentumIsTakenAsGiven(t *testing.T) {
	of := func(change func(*Config)) Config {
		c := Default()
		c.Model, c.Population, c.Randomizer, c.Eps0, c.Rounds = "ink-linear", 60000, "privunit", 2.5, 10
		change(&c)
		c.fill()
		return c
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   float64
	}{
		"nothing":                     {func(*Config) {}, .5},
		"the others' default":         {func(c *Config) { c.Momentum = given(.9) }, .9},
		"none":                        {func(c *Config) { c.Momentum = given(0) }, 0},
		"a rate":                      {func(c *Config) { c.LR = "4" }, .9},
		"a rate and a momentum":       {func(c *Config) { c.LR, c.Momentum = "4", given(.5) }, .5},
		"another model":               {func(c *Config) { c.Model = "softmax" }, .9},
		"another model's momentum":    {func(c *Config) { c.Model, c.Momentum = "softmax", given(.5) }, .5},
		"an optimiser that has none":  {func(c *Config) { c.Optimizer = "psgd" }, 0},
		"the same, and so it was set": {func(c *Config) { c.Optimizer, c.Momentum = "psgd", given(0) }, 0},
	} {
		got := of(c.change)
		if got.Momentum != given(c.want) {
			t.Errorf("%s: %+v, want %v", name, got.Momentum, c.want)
		}
		text, err := yaml.Marshal(got.Fields())
		if line := "\nmomentum: " + strconv.FormatFloat(c.want, 'g', -1, 64) + "\n"; err != nil || !strings.Contains(string(text), line) {
			t.Errorf("%s: no%sin\n%s%v", name, line, text, err)
		}
	}
	chosen, asked := of(func(*Config) {}), of(func(c *Config) { c.Momentum = given(.5) })
	if chosen.Fields().Digest() != asked.Fields().Digest() {
		t.Error("the digest tells what was chosen from what was given")
	}
	if got := rate(t, func(c *Config) { c.Momentum = given(.9) }); got != 4 {
		t.Errorf("the rate for momentum .9 is %v, want 4: a step acts for ten rounds, not two", got)
	}
	c := convex(people(t, 100), "psgd", "shuffle")
	c.Momentum = given(.9)
	if _, err := Prepare(t.Context(), c); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "momentum = 0.9") {
		t.Errorf("an optimiser without momentum took one: %v", err)
	}
}

// Every model of gradient histograms has features of the norm that is taken as
// their public bound, and refuses what has colours.
func TestHistogramsKeepTheirNorm(t *testing.T) {
	images := &dataset.Images{Width: 12, Height: 12, Channels: 1, Classes: 2}
	for i := range 20 {
		for p := range 144 {
			images.Pixels = append(images.Pixels, byte((p*p*(i+3)+p*i)%251))
		}
		images.Labels = append(images.Labels, uint8(i%2))
	}
	seen := map[string]bool{}
	for _, name := range []string{inkLinear, shapeLinear, hogLinear, softmax, cnn, pcaMLP, linear} {
		c := LearningConfig{Model: name}
		if !c.histograms() {
			continue
		}
		e, err := extractor(name, images)
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Name] = true
		table, err := images.Table(e, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range table.Len() {
			var square float64
			for _, v := range table.Row(i) {
				square += float64(v) * float64(v)
			}
			if math.Abs(math.Sqrt(square)-3) > 1e-4 {
				t.Errorf("%s: row %d has norm %v, want 3", name, i, math.Sqrt(square))
			}
		}
		coloured := *images
		coloured.Channels = 3
		if _, err := extractor(name, &coloured); err == nil {
			t.Errorf("%s takes colours", name)
		}
	}
	if len(seen) != 3 {
		t.Errorf("features %v, want three kinds", seen)
	}
}

// Only MNIST, whatever its folder is called and whether it is zipped, gets the model
// for handwriting without being asked for.
func TestModelOfImages(t *testing.T) {
	digits, test, err := LoadImages(Config{DataConfig: DataConfig{Data: "mnist"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	few := make([]int, 50)
	for i := range few {
		few[i] = i
	}
	part, err := digits.Subset(few)
	if err != nil {
		t.Fatal(err)
	}
	known, other, coloured := filepath.Join(dir, "known"), filepath.Join(dir, "other"), filepath.Join(dir, "coloured")
	blank := &dataset.Images{Width: 1, Height: 1, Channels: 1, Classes: 10, Pixels: make([]byte, digits.Len()), Labels: digits.Labels}
	err = errors.Join(dataset.WriteFolder(known, blank, test, true), dataset.WriteFolder(other, part, part, false), os.Mkdir(coloured, 0o700),
		os.WriteFile(filepath.Join(coloured, dataset.CIFARTest), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]string{"mnist": "ink-linear", known: "ink-linear", other: "shape-linear", coloured: "softmax",
		filepath.Join(dir, "nothing"): "shape-linear", "people.csv": "linear"} {
		c := Default()
		c.Data = data
		if c.fill(); c.Model != want {
			t.Errorf("%s: model %s, want %s", data, c.Model, want)
		}
	}
}
