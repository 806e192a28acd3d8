package experiment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/run/solve"
	"github.com/riffle-dp/riffle/run/train"
)

// Files of an experiment's directory; a run's lie in SETTING/seed-S.
const (
	rowsFile    = "results.csv"
	tableFile   = "results.md"
	settingFile = "setting.json"
	resultFile  = "result.json" // result of a convex run; the other files are train's
	lockFile    = "lock"
)

// Options say how to run an experiment. Dir is required.
type Options struct {
	Dir     string
	Seeds   int      // 1 to Seeds; 0: 1
	Only    []string // settings, or beginnings of their names; none: all
	Data    string   // data set in place of MNIST
	Workers int64    // 0: one per CPU; results do not depend on it
}

// Observer holds functions that are called during Run. Any of them may be nil.
type Observer struct {
	// Begun is called before a run; finished says that the run exists already.
	Begun func(s Setting, seed int64, finished bool)
	// Training returns the observer of a training run, new or resumed.
	Training func(r *train.Run) train.Observer
	// Trained is called when a training run has ended in any way, with its summary
	// if it is finished.
	Trained func(r *train.Run, s *train.Summary) error
	Solved  func(s Setting, seed int64, excess, seconds float64)
}

// inputError returns an error that is the caller's fault.
func inputError(format string, args ...any) error {
	return fmt.Errorf("experiment: %w", fmt.Errorf(format+"%w", append(args, train.ErrInput)...))
}

// choose keeps the settings asked for.
func (e *Experiment) choose(only []string) error {
	if len(only) == 0 {
		return nil
	}
	var kept []Setting
	for _, s := range e.Settings {
		if slices.ContainsFunc(only, func(name string) bool { return s.key() == name || strings.HasPrefix(s.key(), name+"/") }) {
			kept = append(kept, s)
		}
	}
	for _, name := range only {
		if !slices.ContainsFunc(kept, func(s Setting) bool { return s.key() == name || strings.HasPrefix(s.key(), name+"/") }) {
			return inputError("%s has no setting %q", e.Name, name)
		}
	}
	e.Settings = kept
	return nil
}

// Run makes the missing runs one after the other, beginning with all settings at seed 1.
// Finished runs stay, and interrupted ones continue: the results are the same as without
// interruption. A convex run takes seconds and starts again. If ctx ends, the error wraps
// train.ErrInterrupted or context.Canceled, and nothing is lost.
func (e Experiment) Run(ctx context.Context, o Options, watch Observer) error {
	if err := e.choose(o.Only); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return inputError("out: %v", err)
	}
	unlock, err := durable.Lock(filepath.Join(o.Dir, lockFile))
	if err != nil {
		return inputError("out: %v", err)
	}
	defer unlock()
	for seed := int64(1); seed <= max(1, int64(o.Seeds)); seed++ {
		for _, s := range e.Settings {
			if err := s.run(ctx, o, seed, watch); err != nil {
				return fmt.Errorf("%s, seed %d: %w", s.key(), seed, err)
			}
		}
	}
	return nil
}

func (s Setting) run(ctx context.Context, o Options, seed int64, watch Observer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	top := filepath.Join(o.Dir, filepath.FromSlash(s.key()))
	if err := os.MkdirAll(top, 0o755); err != nil {
		return inputError("out: %v", err)
	}
	dir := filepath.Join(top, fmt.Sprintf("seed-%d", seed))
	if s.Solve != nil {
		return s.solve(ctx, o, seed, top, dir, watch)
	}
	return s.train(ctx, o, seed, top, dir, watch)
}

// mark says which setting a directory belongs to. Its digests cover everything that is
// computed except the seed: one of the setting as asked for, one with all that was chosen.
type mark struct {
	Asked    string `json:"asked"`
	Resolved string `json:"resolved,omitempty"`
}

// claim returns an error if the directory top holds runs of another setting. Otherwise it
// records m there, unless it is recorded already. An empty digest is not known yet.
func (m mark) claim(top string) error {
	path := filepath.Join(top, settingFile)
	var got mark
	raw, err := durable.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(raw, &got); err != nil {
			return inputError("%s: %v", path, err)
		}
		if got.Asked != m.Asked || got.Resolved != "" && m.Resolved != "" && got.Resolved != m.Resolved {
			return inputError("%s holds runs with other settings (or of other data); choose another --out", top)
		}
		if got.Resolved != "" || m.Resolved == "" {
			return nil
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(text, '\n'))
}

// digest returns a training run's digest, which does not depend on the seed.
func digest(c train.Config) string {
	c.Seed = 0
	sum := c.Fields().Digest()
	return hex.EncodeToString(sum[:])
}

// solveDigest returns a convex run's digest. Of the columns it has their scaling: no experiment
// declares more.
func solveDigest(c solve.Config) (string, error) {
	text, err := json.Marshal(struct {
		solve.Config
		Scale map[string]dataset.Scaling
		Rest  dataset.Scaling
	}{c, c.Columns.Scale, c.Columns.Rest})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Asked returns the configuration that a training run of the setting is given, without what the
// caller of Run decides.
func (s Setting) Asked() train.Config {
	c := *s.Train
	c.Randomizer = s.randomizer()
	return c
}

// randomizer returns the setting's randomizer: those that name none are of PrivUnit.
func (s Setting) randomizer() string {
	if s.Train.Randomizer == "" && s.Train.Trust.Is(dp.LocallyPrivate) {
		return "privunit"
	}
	return s.Train.Randomizer
}

func (s Setting) train(ctx context.Context, o Options, seed int64, top, dir string, watch Observer) error {
	c := *s.Train
	c.Workers = o.Workers
	if o.Data != "" {
		c.Data = o.Data
	}
	own := mark{Asked: digest(c)}
	if err := own.claim(top); err != nil {
		return err
	}
	c.Randomizer = s.randomizer()
	c.Seed = seed
	finished := exists(filepath.Join(dir, train.SummaryFile))
	if watch.Begun != nil {
		watch.Begun(s, seed, finished)
	}
	if finished {
		c := train.Default()
		if err := c.ReadConfig(filepath.Join(dir, train.ConfigFile), nil); err != nil {
			return inputError("%v", err)
		}
		own.Resolved = digest(c)
		return own.claim(top)
	}
	r, err := own.open(ctx, c, top, dir)
	if err != nil {
		return err
	}
	var observer train.Observer
	if watch.Training != nil {
		observer = watch.Training(r)
	}
	summary, err := r.Train(ctx, observer)
	if watch.Trained != nil {
		err = errors.Join(err, watch.Trained(r, summary))
	}
	return err
}

// open resumes the run in dir, or begins it.
func (m mark) open(ctx context.Context, c train.Config, top, dir string) (*train.Run, error) {
	if exists(filepath.Join(dir, train.ConfigFile)) {
		r, err := train.Resume(ctx, dir, func(local *train.Config) { local.Workers = c.Workers })
		if err != nil {
			return nil, err
		}
		m.Resolved = digest(r.Config)
		return r, m.claim(top)
	}
	r, err := train.Prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	m.Resolved = digest(r.Config)
	if err := m.claim(top); err != nil {
		return nil, err
	}
	// A process that was killed here may have left the empty beginnings of a run.
	for _, empty := range []string{filepath.Join(dir, filepath.Dir(train.CheckpointFile)), dir} {
		_ = os.Remove(empty) // a directory that is not empty stays, and Create refuses it
	}
	return r, r.Create(dir)
}

// solved is a convex run's result file.
type solved struct {
	Round   int64     `json:"rounds"`
	Excess  float64   `json:"excess_loss"`
	Loss    float64   `json:"loss"`
	Optimum float64   `json:"optimum"`
	Gap     float64   `json:"optimum_gap"`
	Epsilon dp.Number `json:"epsilon"`
	Delta   float64   `json:"delta"`
	Seconds float64   `json:"seconds"`
	Seed    int64     `json:"seed"`
}

func (s Setting) solve(ctx context.Context, o Options, seed int64, top, dir string, watch Observer) error {
	c := *s.Solve
	asked, err := solveDigest(c)
	if err != nil {
		return err
	}
	if err := (mark{Asked: asked}).claim(top); err != nil {
		return err
	}
	path := filepath.Join(dir, resultFile)
	done := exists(path)
	if watch.Begun != nil {
		watch.Begun(s, seed, done)
	}
	if done {
		return nil
	}
	c.Seed, c.Workers = uint64(seed), int(o.Workers)
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	start := time.Now()
	task, err := solve.Prepare(ctx, c)
	if err != nil {
		return err
	}
	r, err := task.Run(ctx, solve.Observer{})
	if err != nil {
		return err
	}
	out := solved{task.Rounds, r.Excess, r.Loss, r.Optimum, r.Gap, dp.Number(task.Epsilon), task.Delta, time.Since(start).Seconds(), seed}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(text, '\n')); err != nil {
		return err
	}
	if watch.Solved != nil {
		watch.Solved(s, seed, out.Excess, out.Seconds)
	}
	return nil
}
