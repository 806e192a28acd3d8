// Package train runs a learning task from start to end: it resolves a
// configuration, simulates the rounds, and keeps a run directory from which
// an interrupted run continues bit for bit.
package train

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/optimize"
)

// Config is a learning task. Start from Default: zero has the meaning stated
// with each field. Every field has the name of its flag and YAML key.
type Config struct {
	Data       string // "mnist", or a folder with four IDX files
	Population int64  // n; 0: one client per training example
	Validation int64  // examples held out of the training set; 0: evaluate on the test set
	Model      string // "hog-linear" or "softmax"

	Trust         string  // "shuffle", "local" or "none"
	Participation string  // "all", "sampled" or "check-in"
	K             int64   // clients a round; required if sampled
	Gamma         float64 // each client's chance to take part; required if check-in
	Dropout       float64 // p′: chance that a participant's report is lost
	NMin          int64   // fewer reports void a round
	Randomizer    string  // "privunit" or "rinf"
	Eps0          float64 // ε₀ per report; 0: solved for if Epsilon is set, else the default
	Clip          float64 // radius of the gradient's ball; 0: chosen for the model
	ClipMode      string  // "norm" or "coordinate"
	Epsilon       float64 // budget; 0: none
	Delta         float64
	Bound         string // "proved" or "best"

	Optimizer string  // "cldp-sgd"
	Rounds    int64   // 0: solved for if Epsilon and Eps0 are set, else the default
	LR        string  // "0.3,0.18@420", "theorem3", or "": chosen for ε₀
	Momentum  float64 // in [0, 1)
	Average   float64 // the last part of the iterates that is averaged, in [0, 1]; 0: none
	Radius    float64 // of the ℓ2 ball that parameters are projected on; 0: none

	Seed            int64
	Out             string // run directory; "": a fresh one under runs/
	EvalEvery       int64  // rounds; 0: about 40 evaluations a run
	CheckpointEvery int64  // rounds
	Workers         int64  // 0: one per CPU
}

// Default is the main job: MNIST, 60,000 clients, every client in every round.
// The learning parameters were chosen on a validation split of the training
// set; EXPERIMENTS.md has the search.
func Default() Config {
	return Config{
		Data: "mnist", Model: "hog-linear",
		Trust: string(dp.Shuffle), Participation: string(dp.All), NMin: 2,
		Randomizer: "privunit", ClipMode: "norm", Delta: 1e-5, Bound: "proved",
		Optimizer: "cldp-sgd", Momentum: 0.9, Average: 0.5,
		Seed: 1, CheckpointEvery: 10,
	}
}

const finite = math.MaxFloat64

// Fields lists the settings in the order they are shown. Setting one writes to
// c and refuses what is out of range by itself; Resolve checks them together.
func (c *Config) Fields() []Field {
	eps0 := func(x float64) error {
		if dp.CheckEps0(x) != nil {
			return fmt.Errorf("%v must be above 0 and at most %d", x, dp.MaxEps0)
		}
		return nil
	}
	return []Field{
		{Name: "data", Value: textValue{p: &c.Data}, Usage: "mnist, or a folder with the four IDX files (plain or .gz)"},
		{Name: "population", Value: countValue{&c.Population, 1, 1e12, true}, Usage: "clients n, bootstrapped from the data (default: one per example)"},
		{Name: "validation", Value: countValue{&c.Validation, 0, 1e12, false}, Usage: "training examples to hold out and evaluate on, in place of the test set"},
		{Name: "model", Value: textValue{&c.Model, oneOf(models...)}, Usage: "hog-linear or softmax"},
		{Name: "trust", Value: textValue{&c.Trust, oneOf("shuffle", "local", "none")}, Usage: "what hides a sender: shuffle, local (nothing), or none (no privacy at all)"},
		{Name: "participation", Value: textValue{&c.Participation, oneOf("all", "sampled", "check-in")}, Usage: "who reports in a round: all, sampled (k of n) or check-in (own coins)"},
		{Name: "k", Value: countValue{&c.K, 1, 1e12, true}, Usage: "clients a round, with --participation sampled"},
		{Name: "gamma", Value: floatValue{&c.Gamma, within(0, 1, false), true}, Usage: "each client's chance to take part, with --participation check-in"},
		{Name: "dropout", Value: floatValue{&c.Dropout, below(0, 1, false), false}, Usage: "chance p' that a participant's report never arrives"},
		{Name: "n-min", Value: countValue{&c.NMin, 1, 1e12, false}, Usage: "a round with fewer reports is void"},
		{Name: "randomizer", Value: textValue{&c.Randomizer, oneOf("privunit", "rinf")}, Usage: "privunit (l2 ball) or rinf (one bit of one coordinate)"},
		{Name: "eps0", Value: floatValue{&c.Eps0, eps0, true}, Usage: "local privacy parameter of each report (default 3, or solved for --epsilon)"},
		{Name: "clip", Value: floatValue{&c.Clip, within(0, finite, false), true}, Usage: "radius of the ball that gradients are clipped to (default: chosen for the model)"},
		{Name: "clip-mode", Value: textValue{&c.ClipMode, oneOf("norm", "coordinate")}, Usage: "norm (rescale) or coordinate (project each; rinf only)"},
		{Name: "epsilon", Value: floatValue{&c.Epsilon, within(0, finite, false), true}, Usage: "privacy budget: eps0 or rounds not given are solved for, and training stops at it"},
		{Name: "delta", Value: floatValue{&c.Delta, below(0, 1, true), false}, Usage: "delta of the guarantee"},
		{Name: "bound", Value: textValue{&c.Bound, oneOf("proved", "best")}, Usage: "which bounds to count with; every bound used today is proved, so both are the same"},
		{Name: "optimizer", Value: textValue{&c.Optimizer, oneOf("cldp-sgd")}, Usage: "cldp-sgd"},
		{Name: "rounds", Value: countValue{&c.Rounds, 1, 1e9, true}, Usage: "rounds of training (default 80, or solved for --epsilon with --eps0)"},
		{Name: "lr", Value: textValue{&c.LR, checkLR}, Usage: "learning rate: a list such as 0.3,0.18@420, or theorem3 (D/(G√t), needs --radius) (default: chosen for eps0)"},
		{Name: "momentum", Value: floatValue{&c.Momentum, below(0, 1, false), false}, Usage: "momentum"},
		{Name: "average", Value: floatValue{&c.Average, within(0, 1, true), false}, Usage: "average the iterates of this last part of the rounds; 0 releases the last iterate"},
		{Name: "radius", Value: floatValue{&c.Radius, within(0, finite, false), true}, Usage: "project parameters on the l2 ball of this radius (default: no projection)"},
		{Name: "seed", Value: countValue{&c.Seed, 0, 1 << 53, false}, Usage: "seed of the simulation"},
		{Name: "eval-every", Value: countValue{&c.EvalEvery, 1, 1e9, true}, Usage: "rounds between evaluations (default: about 40 evaluations)"},
		{Name: "checkpoint-every", Value: countValue{&c.CheckpointEvery, 1, 1e9, false}, Local: true, Usage: "rounds between checkpoints"},
		{Name: "workers", Value: countValue{&c.Workers, 1, 4096, true}, Local: true, Usage: "worker goroutines (default: one per CPU); results do not depend on it"},
	}
}

const theorem3 = "theorem3"

func checkLR(text string) error {
	if text == theorem3 {
		return nil
	}
	_, err := optimize.ParsePiecewise(text)
	return err
}

// MarshalYAML writes every setting that is not left to be chosen.
func (c Config) MarshalYAML() (any, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range c.Fields() {
		text := f.Value.String()
		if text == "" {
			continue
		}
		value := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
		if f.Value.Type() == "text" {
			value.Tag = "!!str"
		}
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.Name}, value)
	}
	return node, nil
}

// ReadConfig applies a YAML file to the settings that skip does not name.
// Unknown keys, keys given twice and values out of range are refused, and then
// nothing was applied.
func (c *Config) ReadConfig(path string, skip func(name string) bool) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("train: %v", err)
	}
	next := *c
	if err := next.parseYAML(raw, skip); err != nil {
		return fmt.Errorf("train: %s: %v", path, err)
	}
	*c = next
	return nil
}

func (c *Config) parseYAML(raw []byte, skip func(string) bool) error {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&doc); err != nil {
		if len(bytes.TrimSpace(raw)) == 0 {
			return nil
		}
		return err
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: want `name: value` lines", root.Line)
	}
	fields := map[string]Field{}
	for _, f := range c.Fields() {
		fields[f.Name] = f
	}
	seen := map[string]bool{}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		f, ok := fields[key.Value]
		switch {
		case !ok:
			return fmt.Errorf("line %d: unknown key %q", key.Line, key.Value)
		case seen[key.Value]:
			return fmt.Errorf("line %d: key %q given twice", key.Line, key.Value)
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: %s: want a single value", value.Line, key.Value)
		}
		seen[key.Value] = true
		// A skipped value is checked as well: a broken file is broken.
		into := f.Value
		if skip != nil && skip(key.Value) {
			var scratch Config
			for _, s := range scratch.Fields() {
				if s.Name == key.Value {
					into = s.Value
				}
			}
		}
		if err := into.Set(value.Value); err != nil {
			return fmt.Errorf("line %d: %s: %v", value.Line, key.Value, err)
		}
	}
	return nil
}

// Digest identifies what a configuration computes: all fields but local ones.
func (c Config) Digest() [32]byte {
	h := sha256.New()
	for _, f := range c.Fields() {
		if !f.Local {
			fmt.Fprintf(h, "%q=%q\n", f.Name, f.Value.String())
		}
	}
	var d [32]byte
	h.Sum(d[:0])
	return d
}
