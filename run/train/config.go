// Package train runs a learning task from start to end: it resolves a configuration,
// simulates the rounds, and keeps a run directory. An interrupted run continues from it and
// gives the same bits.
package train

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/learn/dataset"
	learned "github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/setting"
)

// Config is a learning task, in four parts. Start from Default; Fields describes each
// setting. If a setting's row has no default, zero means "chosen for you".
type Config struct {
	DataConfig
	PrivacyConfig
	LearningConfig
	RunConfig
}

// DataConfig describes the data.
type DataConfig struct {
	Data         string // "mnist", a folder of IDX or CIFAR-10 files or pictures, or a CSV file
	Label        string // required for CSV
	Range        string // this, Categories, Missing, Drop and Classes: see dataset.CSVConfig.Declare
	Scale        string
	Categories   string
	Missing      string
	Drop         string
	Classes      string // "": those in the table
	ImageSize    string // of pictures, see dataset.PictureSize
	ImageColours string
	TestFraction float64
	PerClient    int64 // m examples of one client
	Validation   int64
	Public       int64
	Gradients    string // the program that computes gradients, see package external; "": riffle does
}

// PrivacyConfig describes the protection of reports: everything that an accountant needs.
type PrivacyConfig struct {
	Trust         dp.Trust // any but dp.Central
	Participation dp.Participation
	Population    int64   // n
	K             int64   // clients in a round; with participation once, the least number in a block
	Gamma         float64 // γ, each client's chance to take part; with Every the share 1/Every
	// Every, if not 0, is the number of rounds of which a client takes part in one at most, with
	// check-in; Strategy says how the aggregators' noise is correlated over rounds then, "": toeplitz.Band.
	Every    int64
	Strategy toeplitz.Kind
	Dropout  float64 // p′, the chance that a participant's report is lost
	NMin     int64
	// MinClients is n of every round's charge in a task over a network whose roster may change, and
	// the fewest that must be enrolled for a round; MaxClients are the most that a vector sum is made
	// for. 0: the roster stays.
	MinClients, MaxClients int64

	Messages   int64 // m of each client in a round; 0: one
	Receipts   bool  // whether clients can look up that their reports arrived; of tasks over a network
	Rounds     int64
	Randomizer string // see randomizers
	Bits       int64
	Tokens     bool    // whether each message needs a token of the registrar; of tasks over a network
	Encoding   string  // of a report of privunit or stepunit; "": values
	Steps      int64   // of stepunit
	Edges      string  // scores, ascending, separated by commas; see parseEdges
	Eps0       float64 // ε₀ of a report
	Sigma      float64 // σ of a client's noise in a vector sum, or of each aggregator's, in clip norms
	Noise      vecsum.NoiseKind
	NoiseBy    vecsum.NoiseBy // "": clients
	Proofs     string         // wire.ProofsPine, or "": none
	Transport  string         // "": the noise is drawn from the sum's law instead
	Honest     float64        // share of honest clients; 0: all
	Clip       float64        // C, radius of the gradient's ball
	ClipMode   client.ClipMode
	Epsilon    float64 // budget ε; 0: none
	Delta      float64
	Bound      string
}

// LearningConfig describes the model and how it is learned.
type LearningConfig struct {
	Model      string
	Dim        int64  // parameters of model external, where no program of this process says it
	Parameters string // their names and shapes, see external.Parameters; "": one tensor
	Initial    string // their start, a file; in a task initialPrefix and its digest; "": zeros
	Hidden     int64
	Loss       string  // see model.ParseLoss, and crossEntropy
	Lambda     float64 // λ
	Optimizer  string  // cldpSGD, or a method of package optimize
	LR         string
	Momentum   setting.Optional
	Average    float64
	Radius     float64 // of the ℓ2 ball about 0; 0: no projection
	Guard      string  // see parseGuard
	// Evaluate is privately, or "": the clients measure nothing. Holdout is the share of their rows
	// that they measure it on, LossLimit the largest loss of a row that counts, and EvaluateShare the
	// share of the clip's radius that the measurement takes: the gradient is clipped to √(1−share²)
	// of it.
	Evaluate                          string
	Holdout, EvaluateShare, LossLimit float64
	// ClassWeights are public weights of classes, see weightsOf; "": all are equal.
	ClassWeights string

	start *[]float32 // the parameters that Initial names; it is no setting
}

// RunConfig describes the execution of a run.
type RunConfig struct {
	Seed            int64
	EvalEvery       int64 // rounds between evaluations
	CheckpointEvery int64 // rounds between checkpoints
	Workers         int64 // 0: one per CPU
	AnswerSeconds   int64 // for an answer of a program; 0: the default of package external
	// Stderr is where a program's standard error is shown; nil: nowhere. It is no setting.
	Stderr io.Writer
}

// Values of Scale, the interval to which Range maps a feature.
const (
	centred = "centred" // −1..1: gradient methods converge better than with features above 0
	unit    = "unit"    // 0..1
)

// Values of Transport, by which a simulation carries the messages of a vector sum; see
// mechanism/vecsum.
const (
	shares      = "shares"
	singleBits  = "bits"
	splitAndMix = "split-and-mix"
)

// Default is the main job: MNIST, 60,000 clients, every client in every round. The learning
// parameters were chosen on a validation split of the training set; docs/SEARCHES.md has the
// search.
func Default() (c Config) {
	c.Fields().Reset()
	return c
}

// Parts of a configuration, as help names them.
const (
	data     = "Data"
	privacy  = "Privacy"
	learning = "Learning"
	running  = "Run"
)

// Fields returns the table of settings, bound to c. Digests and stored files have its order.
// Config.Check checks the settings together.
func (c *Config) Fields() setting.Table {
	return setting.Table{
		{Name: "data", Part: data, Into: &c.Data, Default: "mnist", File: true, Help: "mnist, a folder with the four IDX files (plain or .gz), CIFAR-10's six or pictures (see image-size), or a CSV file"},
		{Name: "label", Part: data, Into: &c.Label, Help: "column of a CSV file to predict"},
		{Name: "range", Part: data, Into: &c.Range, Check: declares("range"), Help: "public ranges that CSV columns are scaled from, as age=0..120,*=0..10; a number to predict is scaled by its own name only, to 0..1"},
		{Name: "scale", Part: data, Into: &c.Scale, Values: []string{"centred\t-1..1, the default", "unit\t0..1"}, Help: "what --range maps a feature to: %s"},
		{Name: "gradients", Part: data, Into: &c.Gradients, Check: others, Local: true, Help: "a program that has the data, computes gradients and evaluates: a command line, as 'python3 grad.py', or unix:PATH (see riffle gradients); a file that names it does not start it"},
		{Name: "categories", Part: data, Into: &c.Categories, Check: declares("categories"), Help: "public categories of a CSV file's text columns, as 'city=berlin|paris|*,sex=f|m'; each becomes a feature of 0 or 1, * stands for all other texts"},
		{Name: "missing", Part: data, Into: &c.Missing, Check: declares("missing"), Help: "public constants that a CSV file's empty cells count as, in the column's own units, as 'age=40,*=0'; 'age=40+indicator' adds a feature that is 1 where the cell is empty"},
		{Name: "drop", Part: data, Into: &c.Drop, Check: declares("drop"), Help: "columns of a CSV file that are not used, as id,name"},
		{Name: "classes", Part: data, Into: &c.Classes, Check: declares("classes"), Help: "public classes of the column to predict, in order, as 'no|yes'; another one is refused (default: those in the file, which then are taken to be public)"},
		{Name: "image-size", Part: data, Into: &c.ImageSize, Check: checkSize, Help: "public size to which the PNG and JPEG files of a folder with a folder for each class are brought, as 28x28"},
		{Name: "image-colours", Part: data, Into: &c.ImageColours, Values: []string{"grey\tthe default", rgb + "\tthree channels"}, Help: "what is kept of a folder's PNG and JPEG files: %s"},
		{Name: "test-fraction", Part: data, Into: &c.TestFraction, Range: "(0, 1)", Help: "share of a CSV file's rows, or of pictures in a folder without train and test, for the test set (default 0.2)"},
		{Name: "population", Part: privacy, Into: &c.Population, Range: "[1, 1e12]", Help: "clients n, bootstrapped from the data if more than they give (default: as many as they give)"},
		{Name: "examples-per-client", Part: data, Into: &c.PerClient, Range: "[1, 1e9]", Help: "examples m of one client, whose gradient is their mean; privacy is the client's (default 1)"},
		{Name: "validation", Part: data, Into: &c.Validation, Default: "0", Range: "[0, 1e12]", Help: "training examples to hold out and evaluate on, in place of the test set"},
		{Name: "public", Part: data, Into: &c.Public, Range: "[2, 1e12]", Help: "training examples declared public, from which pca-mlp takes its axes; they are no clients (default 5000, at most a tenth)"},
		{Name: "model", Part: learning, Into: &c.Model, Values: []string{"ink-linear\thandwriting", "shape-linear\tthings as they lie", "hog-linear", "softmax", "cnn", "pca-mlp", "linear", "external\twith --gradients, or a task with --dim"}, Help: "%s (default: ink-linear for MNIST, shape-linear for other grey images, softmax for coloured ones, linear for CSV)"},
		{Name: "dim", Part: learning, Into: &c.Dim, Range: fmt.Sprintf("[1, %d]", learned.MaxDim), Help: "of a task over a network whose clients' programs compute the gradients: number of parameters of its model external"},
		{Name: "parameters", Part: learning, Into: &c.Parameters, Check: others, Help: "names and shapes of these parameters, in the programs' order, as 'conv.weight=8x1x5x5 conv.bias=8' (default: one tensor)"},
		{Name: "initial", Part: learning, Into: &c.Initial, Check: others, File: true, Help: "safetensors file with the values they start from (default: zeros)"},
		{Name: "hidden", Part: learning, Into: &c.Hidden, Range: "[1, 65536]", Help: "hidden units of pca-mlp (default 32)"},
		{Name: "loss", Part: learning, Into: &c.Loss, Check: checkLoss, Values: []string{crossEntropy, "logistic", "hinge", "absolute", "pinball:T"}, Help: "of model linear: %s (default: logistic for two classes, else cross-entropy)"},
		{Name: "lambda", Part: learning, Into: &c.Lambda, Range: "(0, 1e6]", Help: "ridge of model linear: lambda/2 times the squared norm of the parameters"},
		{Name: "trust", Part: privacy, Into: &c.Trust, Default: string(dp.DefaultTrust), Values: dp.DescribeTrusts(dp.Uncurated), Help: "what hides a report: %s"},
		{Name: "participation", Part: privacy, Into: &c.Participation, Values: []string{"all", "sampled\tk of n", "check-in\town coins", "once\tblocks of k; each client once an epoch"}, Help: "who reports in a round: %s (default all; with trust none and a network, sampled; with a convex optimizer but gd, once)"},
		{Name: "k", Part: privacy, Into: &c.K, Range: "[1, 1e12]", Help: "clients a round, with --participation sampled or once (default with a convex optimizer's one pass: by its bound)"},
		{Name: "gamma", Part: privacy, Into: &c.Gamma, Range: "(0, 1]", Help: "each client's chance to take part, with --participation check-in"},
		{Name: "every", Part: privacy, Into: &c.Every, Range: "[2, 1e6]", Help: "of a vector sum: each client takes part in at most one of so many consecutive rounds, by its own count, and the noise is correlated over rounds; participation is check-in without gamma"},
		{Name: "strategy", Part: privacy, Into: &c.Strategy, Values: toeplitz.Describe(), Help: "how the noise of --every is correlated: %s"},
		{Name: "dropout", Part: privacy, Into: &c.Dropout, Default: "0", Range: "[0, 1)", Help: "chance p' that a participant's report never arrives"},
		{Name: "n-min", Part: privacy, Into: &c.NMin, Range: "[1, 1e12]", Help: "a round with fewer reports is void, and rounds are charged as if they had no more (default: what comes to all but one of a thousand)"},
		{Name: "min-clients", Part: privacy, Into: &c.MinClients, Range: "[1, 1e12]", Help: "of a task over a network: the number of enrolled clients that each round's cost counts on; rounds wait while fewer are enrolled, and others may join and leave (default with --participation sampled: those enrolled now)"},
		{Name: "max-clients", Part: privacy, Into: &c.MaxClients, Range: "[1, 1e12]", Help: "with --min-clients, of a vector sum: the most clients that may be enrolled (default twice those enrolled now)"},
		{Name: "messages", Part: privacy, Into: &c.Messages, Range: fmt.Sprintf("[1, %d]", wire.MaxMessages), Help: "messages of each client in a round, each with eps0, which nobody can link: less noise for the same epsilon, more local epsilon (default 1)"},
		{Name: "receipts", Part: privacy, Into: &c.Receipts, Help: "of a task over a network: publish after each round which receipts arrived, so that a client whose report was dropped notices (16 bytes a message)"},
		{Name: "tokens", Part: privacy, Into: &c.Tokens, Help: "of a task over a network: each message needs a token of the registrar, so that nobody can stuff a round; it is charged for n-min clients (288 bytes a message)"},
		{Name: "randomizer", Part: privacy, Into: &c.Randomizer, Values: randomizers(), Help: "%s (default stepunit for models of gradient histograms with trust shuffle, else privunit)"},
		{Name: "bits", Part: privacy, Into: &c.Bits, Range: "[1, 1024]", Help: "coordinates of a report of rinf, or bits of r1 (default 1)"},
		{Name: "encoding", Part: privacy, Into: &c.Encoding, Values: []string{randomizer.Values, randomizer.Seed + "\t16 bytes, whatever the model"}, Help: "of a report of privunit or stepunit: %s (default values; over a network seed up to eps0 12)"},
		{Name: "steps", Part: privacy, Into: &c.Steps, Range: fmt.Sprintf("[1, %d]", randomizer.MaxSteps), Help: "caps of stepunit (default 3)"},
		{Name: "edges", Part: privacy, Into: &c.Edges, Check: checkEdges, Help: "scores at which the caps of stepunit begin, as 0.95,1.49,2.02 (default: chosen for eps0)"},
		{Name: "eps0", Part: privacy, Into: &c.Eps0, Range: fmt.Sprintf("(0, %d]", dp.MaxEps0), Help: "local privacy parameter of each report (default 2.5, of stepunit 2.8, or solved for --epsilon)"},
		{Name: "sigma", Part: privacy, Into: &c.Sigma, Range: fmt.Sprintf("(0, %g]", dp.MaxSigma), Help: "of a vector sum: noise of each client, or with noise-by aggregators of the sum, in clip norms (default: solved for --epsilon, which then is 1)"},
		{Name: "noise", Part: privacy, Into: &c.Noise, Values: []string{string(vecsum.Binomial) + "\tthe default", string(vecsum.Skellam) + "\tthe default if distributed", string(vecsum.DiscreteGaussian)}, Help: "of a vector sum: %s"},
		{Name: "noise-by", Part: privacy, Into: &c.NoiseBy, Values: []string{string(vecsum.ByClients) + "\tthe default, but with every", string(vecsum.ByAggregators) + "\teach of the two adds all of it, and drop-outs, n-min and liars weaken nothing; over a network with proofs"}, Help: "who adds a vector sum's noise: %s; of aggregators and with every, sigma is of the sum"},
		{Name: "proofs", Part: privacy, Into: &c.Proofs, Values: []string{wire.ProofsPine}, Help: "of a vector sum over a network: each report carries a proof, %s, that its norm is at most the clip's, so that one liar moves the sum by no more; its noise is by aggregators (default: none)"},
		{Name: "transport", Part: privacy, Into: &c.Transport, Values: []string{"shares\tadditive, to 2 aggregators", "bits\tone by one", "split-and-mix"}, Help: "of a vector sum: simulate every client's own noise and messages as %s (default: draw each sum by its law, which is faster)"},
		{Name: "honest", Part: privacy, Into: &c.Honest, Range: "(0, 1]", Help: "of a vector sum: share of all clients, and of every round's, whose noise is relied on (default 1)"},
		{Name: "clip", Part: privacy, Into: &c.Clip, Range: "(0, inf)", Help: "radius of the ball that gradients are clipped to (default: chosen for the model)"},
		{Name: "clip-mode", Part: privacy, Into: &c.ClipMode, Default: "norm", Values: []string{"norm\trescale", "coordinate\tproject each; rinf and rr only"}, Help: "%s"},
		{Name: "epsilon", Part: privacy, Into: &c.Epsilon, Range: "(0, inf)", Help: "privacy budget: eps0 or rounds not given are solved for, and training stops at it"},
		{Name: "delta", Part: privacy, Into: &c.Delta, Default: "1e-5", Range: "(0, 1)", Help: "delta of the guarantee"},
		{Name: "bound", Part: privacy, Into: &c.Bound, Default: "proved", Values: []string{"proved", "best"}, Help: "which bounds to count with, %s; every bound used today is proved, so both are the same"},
		{Name: "class-weights", Part: learning, Into: &c.ClassWeights, Check: declares("class-weights"), Help: "public weights of classes, as 'no=1|yes=13' for a rare yes: a gradient is scaled by its class's weight over the largest one, before it is clipped; other classes have 1"},
		{Name: "optimizer", Part: learning, Into: &c.Optimizer, Default: cldpSGD, Values: optimizers(), Help: "%s; those after adam are for models with a convex loss, with parameters that minimise a bound"},
		{Name: "rounds", Part: privacy, Into: &c.Rounds, Range: "[1, 1e9]", Help: "rounds of training (default 160, of a vector sum 120, or solved for --epsilon with --eps0; by the bound of a convex optimizer)"},
		{Name: "lr", Part: learning, Into: &c.LR, Check: checkLR, Values: []string{theorem3}, Help: "learning rate: a list such as 0.3,0.18@420, or theorem3 (D/(G√t), needs --radius) (default: chosen for eps0; one number, by its bound, with a convex optimizer)"},
		{Name: "momentum", Part: learning, Into: &c.Momentum, Range: "[0, 1)", Help: "momentum of cldp-sgd and adam (default 0.9; 0.5 for models of gradient histograms unless --lr is given)"},
		{Name: "average", Part: learning, Into: &c.Average, Default: "0.2", Range: "[0, 1]", Help: "of cldp-sgd: average the iterates of this last part of the rounds; 0 releases the last iterate"},
		{Name: "radius", Part: learning, Into: &c.Radius, Range: "(0, inf)", Help: "project parameters on the l2 ball of this radius (default: no projection; 8 with a convex optimizer)"},
		{Name: "guard", Part: learning, Into: &c.Guard, Check: checkGuard, Help: "of a task over a network, or with evaluate private: keep the last good model where its evaluation becomes worse by more, as accuracy:0.05 or loss:0.2; of a task, with :pause, wait for riffle task resume then (default: none)"},
		{Name: "evaluate", Part: learning, Into: &c.Evaluate, Values: []string{privately}, Help: "have clients measure loss and accuracy on rows that they hold out, as a part of their reports, with the same budget: %s, with trust vector-sum; the last round measures the model and takes no step (default: none)"},
		{Name: "holdout", Part: learning, Into: &c.Holdout, Range: "(0, 1)", Help: "with evaluate: share of clients' rows that are never trained on (default 0.2)"},
		{Name: "evaluate-share", Part: learning, Into: &c.EvaluateShare, Range: "(0, 1)", Help: "with evaluate: share s of the clip that the measurement takes; gradients are clipped to sqrt(1-s^2) of it (default 0.3)"},
		{Name: "loss-limit", Part: learning, Into: &c.LossLimit, Range: "(0, 1e6]", Help: "with evaluate: the largest loss of a row that counts, a public number (default twice the loss of a uniform guess among the classes)"},
		{Name: "seed", Part: running, Into: &c.Seed, Default: "1", Range: "[0, 9007199254740992]", Help: "seed of the simulation"},
		{Name: "eval-every", Part: running, Into: &c.EvalEvery, Range: "[1, 1e9]", Help: "rounds between evaluations (default: about 40 evaluations)"},
		{Name: "checkpoint-every", Part: running, Into: &c.CheckpointEvery, Default: "10", Range: "[1, 1e9]", Local: true, Help: "rounds between checkpoints"},
		{Name: "answer-seconds", Part: running, Into: &c.AnswerSeconds, Range: "[1, 86400]", Local: true, Help: "time for an answer of the program of --gradients (default 120)"},
		{Name: "workers", Part: running, Into: &c.Workers, Range: "[1, 4096]", Local: true, Help: "worker goroutines (default: one per CPU); results do not depend on it"},
	}
}

const theorem3 = "theorem3"

// rgb is a value of ImageColours.
const rgb = "rgb"

func checkSize(text string) error {
	_, _, err := dataset.PictureSize(text)
	return err
}

// others accepts any text, which is checked where it is used.
func others(string) error { return nil }

func checkEdges(text string) error {
	if text == "" {
		return errors.New(`"" must be scores such as 0.95,1.49,2.02`)
	}
	_, err := parseEdges(text)
	return err
}

// parseEdges reads a list of scores.
func parseEdges(text string) (edges []float64, err error) {
	if text == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		z, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", word)
		}
		edges = append(edges, z)
	}
	return edges, nil
}

func formatEdges(edges []float64) string {
	var words []string
	for _, z := range edges {
		words = append(words, strconv.FormatFloat(z, 'g', -1, 64))
	}
	return strings.Join(words, ",")
}

func checkLR(text string) error {
	if text == theorem3 {
		return nil
	}
	_, err := optimize.ParseSchedule(text)
	return err
}

// ReadConfig applies a YAML file to c, except for the settings that skip names. A file may be a
// stranger's: the program that it names is refused, unless it is c's already or skip names
// gradients.
func (c *Config) ReadConfig(path string, skip func(name string) bool) error {
	raw, err := durable.ReadFile(path)
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if err := c.parse(raw, skip); err != nil {
		return fmt.Errorf("train: %s: %w", path, err)
	}
	return nil
}

// Parse applies YAML like ReadConfig.
func (c *Config) Parse(raw []byte) error {
	if err := c.parse(raw, nil); err != nil {
		return inputError("%v", err)
	}
	return nil
}

func (c *Config) parse(raw []byte, skip func(name string) bool) error {
	read := *c
	if err := read.Fields().Parse(raw, skip); err != nil {
		return err
	}
	if read.Gradients != c.Gradients {
		return onlyNamed(read.Gradients)
	}
	*c = read
	return nil
}

// onlyNamed refuses a program that only a file names.
func onlyNamed(program string) error {
	return fmt.Errorf("gradients: %q: no program is started, and no socket is opened, that only a file names; if it is yours, repeat it: --gradients%w", program, ErrInput)
}

// randomizers lists the values of Randomizer: those whose input is a gradient, each followed
// by a tab and a note that names its ball.
func randomizers() (out []string) {
	balls := map[float64]string{1: "l1 ball", 2: "l2 ball", math.Inf(1): "l-infinity ball"}
	for _, k := range randomizer.Kinds() {
		switch k.Trained {
		case "":
		case k.Name:
			out = append(out, k.Name+"\t"+balls[k.Norm])
		default: // a stored name
			out = append(out, k.Trained+"\t"+k.Name+", "+balls[k.Norm])
		}
	}
	return out
}
