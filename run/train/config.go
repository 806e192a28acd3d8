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
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// Config is a learning task. Start from Default: zero has the meaning stated
// with each field. Every field has the name of its flag and YAML key.
type Config struct {
	Data         string  // "mnist", a folder of IDX or CIFAR-10 files, or a CSV file
	Label        string  // column to predict; required for CSV
	Range        string  // public ranges of CSV columns, as "age=0..120,*=0..1"; "": as they are
	Scale        string  // what Range maps a feature to: "centred", −1..1, or "unit", 0..1; "": centred, but unit in what was stored
	TestFraction float64 // share of a CSV file's rows that are the test set; 0: a fifth
	Population   int64   // n; 0: as many as the examples give
	PerClient    int64   // m examples of one client; 0: one
	Validation   int64   // examples held out of the training set; 0: evaluate on the test set
	Public       int64   // training examples taken as public, for pca-mlp; 0: chosen
	Hidden       int64   // hidden units of pca-mlp; 0: 32
	Model        string  // see models; "": by the data
	Loss         string  // of model linear; "": by the data
	Lambda       float64 // ridge of model linear

	Trust         dp.Trust // any but a curator's
	Participation string   // "all", "sampled", "check-in" or "once"; "": chosen
	K             int64    // clients a round; required if sampled, least size of a block if once
	Gamma         float64  // each client's chance to take part; required if check-in
	Dropout       float64  // p′: chance that a participant's report is lost
	NMin          int64    // fewer reports void a round; 0: chosen
	Randomizer    string   // see randomizers
	Bits          int64    // coordinates or bits of a report of rinf or r1; 0: 1
	Eps0          float64  // ε₀ per report; 0: solved for if Epsilon is set, else the default
	Sigma         float64  // noise of a client of a vector sum, in clip norms; 0: solved for Epsilon
	Noise         string   // law of a vector sum's noise; "": binomial, skellam if distributed
	Transport     string   // "shares", "bits" or "split-and-mix": each client's own messages; "": the sum's law
	Honest        float64  // share of clients whose noise is relied on in a vector sum; 0: all
	Clip          float64  // radius of the gradient's ball; 0: chosen for the model
	ClipMode      string   // "norm" or "coordinate"
	Epsilon       float64  // budget; 0: none
	Delta         float64
	Bound         string // "proved" or "best"

	Optimizer string  // "cldp-sgd", or a method of package optimize for convex losses
	Rounds    int64   // 0: solved for if Epsilon and Eps0 are set, else the default
	LR        string  // "0.3,0.18@420", "theorem3", or "": chosen for ε₀
	Momentum  float64 // in [0, 1)
	Average   float64 // the last part of the iterates that is averaged, in [0, 1]; 0: none
	Radius    float64 // of the ℓ2 ball that parameters are projected on; 0: none

	// Guard has a task's coordinator hold back a step after which its evaluation is
	// worse, as "accuracy:0.05"; see parseGuard. "": none.
	Guard string

	Seed            int64
	Out             string // run directory; "": a fresh one under runs/
	EvalEvery       int64  // rounds; 0: about 40 evaluations a run
	CheckpointEvery int64  // number of rounds charged
	Workers         int64  // 0: one per CPU
}

// Default is the main job: MNIST, 60,000 clients, every client in every round.
// The learning parameters were chosen on a validation split of the training
// set; EXPERIMENTS.md has the search.
func Default() Config {
	return Config{
		Data: "mnist", Trust: dp.DefaultTrust, ClipMode: "norm", Delta: 1e-5, Bound: "proved",
		Optimizer: cldpSGD, Momentum: 0.9, Average: 0.2,
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
		{Name: "data", Value: textValue{p: &c.Data}, Usage: "mnist, a folder with the four IDX files (plain or .gz) or CIFAR-10's six, or a CSV file"},
		{Name: "label", Value: textValue{p: &c.Label}, Usage: "column of a CSV file to predict"},
		{Name: "range", Value: textValue{&c.Range, checkRange}, Usage: "public ranges that CSV columns are scaled from, as age=0..120,*=0..10; a number to predict is scaled by its own name only, to 0..1"},
		{Name: "scale", Value: textValue{&c.Scale, oneOf(centred, "unit")}, Usage: "what --range maps a feature to: centred (-1..1, the default) or unit (0..1)"},
		{Name: "test-fraction", Value: floatValue{&c.TestFraction, below(0, 1, true), true}, Usage: "share of a CSV file's rows for the test set (default 0.2)"},
		{Name: "population", Value: countValue{&c.Population, 1, 1e12, true}, Usage: "clients n, bootstrapped from the data if more than they give (default: as many as they give)"},
		{Name: "examples-per-client", Value: countValue{&c.PerClient, 1, 1e9, true}, Usage: "examples m of one client, whose gradient is their mean; privacy is the client's (default 1)"},
		{Name: "validation", Value: countValue{&c.Validation, 0, 1e12, false}, Usage: "training examples to hold out and evaluate on, in place of the test set"},
		{Name: "public", Value: countValue{&c.Public, 2, 1e12, true}, Usage: "training examples declared public, from which pca-mlp takes its axes; they are no clients (default 5000, at most a tenth)"},
		{Name: "model", Value: textValue{&c.Model, oneOf(models...)}, Usage: "ink-linear (handwriting), shape-linear (things as they lie), hog-linear, softmax, cnn, pca-mlp or linear (default: ink-linear for MNIST, shape-linear for other grey images, softmax for coloured ones, linear for CSV)"},
		{Name: "hidden", Value: countValue{&c.Hidden, 1, 1 << 16, true}, Usage: "hidden units of pca-mlp (default 32)"},
		{Name: "loss", Value: textValue{&c.Loss, checkLoss}, Usage: "of model linear: cross-entropy, logistic, hinge, absolute or pinball:T (default: logistic for two classes, else cross-entropy)"},
		{Name: "lambda", Value: floatValue{&c.Lambda, within(0, 1e6, false), true}, Usage: "ridge of model linear: lambda/2 times the squared norm of the parameters"},
		{Name: "trust", Value: textValue{(*string)(&c.Trust), oneOf(dp.TrustNames(simulated)...)}, Usage: "what hides a report: " + dp.DescribeTrusts(simulated)},
		{Name: "participation", Value: textValue{&c.Participation, oneOf("all", "sampled", "check-in", "once")}, Usage: "who reports in a round: all, sampled (k of n), check-in (own coins) or once (blocks of k; each client once an epoch) (default all; with trust none and a network, sampled; with a convex optimizer but gd, once)"},
		{Name: "k", Value: countValue{&c.K, 1, 1e12, true}, Usage: "clients a round, with --participation sampled or once (default with a convex optimizer's one pass: by its bound)"},
		{Name: "gamma", Value: floatValue{&c.Gamma, within(0, 1, false), true}, Usage: "each client's chance to take part, with --participation check-in"},
		{Name: "dropout", Value: floatValue{&c.Dropout, below(0, 1, false), false}, Usage: "chance p' that a participant's report never arrives"},
		{Name: "n-min", Value: countValue{&c.NMin, 1, 1e12, true}, Usage: "a round with fewer reports is void (default 2; with --participation once what a block surely has)"},
		{Name: "randomizer", Value: textValue{&c.Randomizer, oneOf(randomizers()...)}, Usage: "privunit or r2 (l2 ball), rinf or rr (l-infinity ball), r1, laplace or krr (l1 ball; krr: a random coordinate's sign)"},
		{Name: "bits", Value: countValue{&c.Bits, 1, 1024, true}, Usage: "coordinates of a report of rinf, or bits of r1 (default 1)"},
		{Name: "eps0", Value: floatValue{&c.Eps0, eps0, true}, Usage: "local privacy parameter of each report (default 2.5, or solved for --epsilon)"},
		{Name: "sigma", Value: floatValue{&c.Sigma, within(0, dp.MaxSigma, false), true}, Usage: "of a vector sum: noise of each client in clip norms (default: solved for --epsilon, which then is 1)"},
		{Name: "noise", Value: textValue{&c.Noise, oneOf("binomial", "skellam", "discrete-gaussian")}, Usage: "of a vector sum: binomial (default), skellam (default if distributed) or discrete-gaussian"},
		{Name: "transport", Value: textValue{&c.Transport, oneOf("shares", "bits", splitAndMix)}, Usage: "of a vector sum: simulate every client's own noise and messages, as additive shares to 2 aggregators, bit by bit, or by split-and-mix (default: draw each sum by its law, which is faster)"},
		{Name: "honest", Value: floatValue{&c.Honest, within(0, 1, false), true}, Usage: "of a vector sum: share of all clients, and of every round's, whose noise is relied on (default 1)"},
		{Name: "clip", Value: floatValue{&c.Clip, within(0, finite, false), true}, Usage: "radius of the ball that gradients are clipped to (default: chosen for the model)"},
		{Name: "clip-mode", Value: textValue{&c.ClipMode, oneOf("norm", "coordinate")}, Usage: "norm (rescale) or coordinate (project each; rinf and rr only)"},
		{Name: "epsilon", Value: floatValue{&c.Epsilon, within(0, finite, false), true}, Usage: "privacy budget: eps0 or rounds not given are solved for, and training stops at it"},
		{Name: "delta", Value: floatValue{&c.Delta, below(0, 1, true), false}, Usage: "delta of the guarantee"},
		{Name: "bound", Value: textValue{&c.Bound, oneOf("proved", "best")}, Usage: "which bounds to count with; every bound used today is proved, so both are the same"},
		{Name: "optimizer", Value: textValue{&c.Optimizer, oneOf(optimizers()...)}, Usage: "cldp-sgd; or, for models with a convex loss, with parameters that minimise a bound: psgd, agd, agd-smooth, agd-phases, gd or pan-private"},
		{Name: "rounds", Value: countValue{&c.Rounds, 1, 1e9, true}, Usage: "rounds of training (default 160, of a vector sum 120, or solved for --epsilon with --eps0; by the bound of a convex optimizer)"},
		{Name: "lr", Value: textValue{&c.LR, checkLR}, Usage: "learning rate: a list such as 0.3,0.18@420, or theorem3 (D/(G√t), needs --radius) (default: chosen for eps0; one number, by its bound, with a convex optimizer)"},
		{Name: "momentum", Value: floatValue{&c.Momentum, below(0, 1, false), false}, Usage: "momentum of cldp-sgd"},
		{Name: "average", Value: floatValue{&c.Average, within(0, 1, true), false}, Usage: "of cldp-sgd: average the iterates of this last part of the rounds; 0 releases the last iterate"},
		{Name: "radius", Value: floatValue{&c.Radius, within(0, finite, false), true}, Usage: "project parameters on the l2 ball of this radius (default: no projection; 8 with a convex optimizer)"},
		{Name: "guard", Value: textValue{&c.Guard, checkGuard}, Usage: "of a task over a network: keep the last good model where the coordinator's evaluation becomes worse by more, as accuracy:0.05 or loss:0.2, with :pause to wait for riffle task resume then (default: none)"},
		{Name: "seed", Value: countValue{&c.Seed, 0, 1 << 53, false}, Usage: "seed of the simulation"},
		{Name: "eval-every", Value: countValue{&c.EvalEvery, 1, 1e9, true}, Usage: "rounds between evaluations (default: about 40 evaluations)"},
		{Name: "checkpoint-every", Value: countValue{&c.CheckpointEvery, 1, 1e9, false}, Local: true, Usage: "rounds between checkpoints"},
		{Name: "workers", Value: countValue{&c.Workers, 1, 4096, true}, Local: true, Usage: "worker goroutines (default: one per CPU); results do not depend on it"},
	}
}

// simulated says that a run can have the trust: clients report, and no curator is asked.
func simulated(t dp.Trust) bool { return !t.Curated() }

// randomizers are those whose input is a gradient: randomizer.Names, where krr
// is that of signed coordinates and not the one of distributions.
func randomizers() []string {
	return slices.DeleteFunc(randomizer.Names(), func(name string) bool { return name == "signed-krr" })
}

// mechanism is the name that package randomizer has for c.Randomizer.
func (c Config) mechanism() string {
	if c.Randomizer == "krr" {
		return "signed-krr"
	}
	return c.Randomizer
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
	return c.setNode(doc.Content[0], skip)
}

// setNode applies a mapping of settings; on an error some may be set.
func (c *Config) setNode(root *yaml.Node, skip func(string) bool) error {
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
		// What is not set is left out, so that a new setting changes no digest.
		if text := f.Value.String(); !f.Local && text != "" {
			fmt.Fprintf(h, "%q=%q\n", f.Name, text)
		}
	}
	var d [32]byte
	h.Sum(d[:0])
	return d
}
