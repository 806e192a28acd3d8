package train

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/run/setting"
)

// given is a number as if a flag had set it.
func given(x float64) setting.Optional { return setting.Optional{Value: x, Given: true} }

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigFileIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"epz0: 3\n":               `unknown key "epz0"`,
		"eps0: 0\n":               "0 must be above 0 and at most 50",
		"eps0: 51\n":              "51 must be above 0 and at most 50",
		"eps0: .nan\n":            "not a number",
		"eps0: nan\n":             "must be above 0",
		"eps0: 1\neps0: 2\n":      "given twice",
		"delta: 1\n":              "strictly between 0 and 1",
		"rounds: 1.5\n":           "not a whole number",
		"gamma: 1.1\n":            "at most 1",
		"model: resnet\n":         `"resnet" must be one of`,
		"eps0: [1, 2]\n":          "single value",
		"- eps0\n":                "name: value",
		"lr: 0.3,0.1\n":           "needs @step",
		"clip: -1\n":              "must be above 0",
		"momentum: 1\n":           "below 1",
		"population: 1e6\nk: x\n": "not a whole number",
	} {
		c := Default()
		err := c.ReadConfig(write(t, text), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
		if c != Default() {
			t.Errorf("%q was applied in part", text)
		}
	}
}

func TestConfigRoundTrip(t *testing.T) {
	c := Default()
	c.Population, c.Eps0, c.LR, c.Participation, c.Gamma = 1e6, 2.25, "0.3,0.18@420", "check-in", 1e-3
	c.Momentum, c.Data = given(0), "a: b # c"
	text, err := yaml.Marshal(c.Fields())
	if err != nil {
		t.Fatal(err)
	}
	got := Default()
	if err := got.ReadConfig(write(t, string(text)), nil); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got != c {
		t.Errorf("read back %+v, want %+v", got, c)
	}
}

func TestFlagsWinOverTheFile(t *testing.T) {
	c := Default()
	c.Eps0 = 4
	path := write(t, "eps0: 2\nrounds: 7\n")
	if err := c.ReadConfig(path, func(name string) bool { return name == "eps0" }); err != nil {
		t.Fatal(err)
	}
	if c.Eps0 != 4 || c.Rounds != 7 {
		t.Errorf("eps0 %v, rounds %d", c.Eps0, c.Rounds)
	}
	if err := c.ReadConfig(write(t, "eps0: -2\n"), func(string) bool { return true }); err == nil {
		t.Error("a broken value passed because a flag hides it")
	}
}

func TestDigestIsOfWhatIsComputed(t *testing.T) {
	a, b := Default(), Default()
	b.Workers, b.CheckpointEvery = 7, 3
	if a.Fields().Digest() != b.Fields().Digest() {
		t.Error("workers change the digest")
	}
	b.Seed++
	if a.Fields().Digest() == b.Fields().Digest() {
		t.Error("the seed does not change the digest")
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"needs k":                          func(c *Config) { c.Participation = "sampled" },
		"goes with participation sampled":  func(c *Config) { c.K = 5 },
		"needs gamma":                      func(c *Config) { c.Participation = "check-in" },
		"goes with participation check-in": func(c *Config) { c.Gamma = .5 },
		"rinf":                             func(c *Config) { c.ClipMode = "coordinate" },
		"needs radius":                     func(c *Config) { c.LR = "theorem3" },
		"budget":                           func(c *Config) { c.Trust, c.Epsilon = "none", 1 },
		"no meaning":                       func(c *Config) { c.Trust, c.Eps0 = "none", 1 },
		"privunit or stepunit":             func(c *Config) { c.Randomizer, c.Encoding = "r2", "seed" },
		"with randomizer privunit":         func(c *Config) { c.Trust, c.Encoding = "vector-sum", "seed" },
		"edges go with randomizer":         func(c *Config) { c.Randomizer, c.Edges = "privunit", "1" },
		"steps and edges":                  func(c *Config) { c.Steps = 2 },
		`"1.2.3" is not a number`:          func(c *Config) { c.Randomizer, c.Edges = "stepunit", "1,1.2.3" },
		"between 1 and 16":                 func(c *Config) { c.Randomizer, c.Steps = "stepunit", 17 },
		"at most 50":                       func(c *Config) { c.Eps0 = 99 },
		"at least":                         func(c *Config) { c.Dropout = -1 },
	} {
		c := Default()
		change(&c)
		if err := c.Check(); err == nil || !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := Default().Check(); err != nil {
		t.Errorf("the default is refused: %v", err)
	}
}

// Every randomizer that the flag takes is made for gradients; krr is the one of
// signed coordinates.
func TestRandomizersTakeGradients(t *testing.T) {
	norms := map[string]float64{"privunit": 2, "r2": 2, "rinf": math.Inf(1), "rr": math.Inf(1), "r1": 1, "laplace": 1, "krr": 1}
	for _, value := range randomizers() {
		name, _, _ := strings.Cut(value, "\t")
		want, known := norms[name]
		delete(norms, name)
		c := Default()
		c.Randomizer, c.Eps0, c.Clip = name, 2, 1
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		m, report, err := c.newMechanism(7)
		if err != nil {
			t.Fatal(err)
		}
		if m.Facts().Dim != 7 || known && c.norm() != want {
			t.Errorf("%s: dimension %d, norm %v", name, m.Facts().Dim, c.norm())
		}
		if want := (dp.Report{Class: dp.KRR, Eps0: 2, Symbols: 14}); name == "krr" && (report != want || m.Facts().Name != "signed-krr") {
			t.Errorf("krr is %s with %+v", m.Facts().Name, report)
		}
	}
	if len(norms) > 0 {
		t.Errorf("not among the randomizers: %v", norms)
	}
	c := Default()
	if c.Randomizer = "signed-krr"; c.Check() == nil {
		t.Error("signed-krr has two names")
	}
}
