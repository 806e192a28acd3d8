package experiment

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/run/train"
)

// Collect reads the results in an experiment's directory, finished or not, and adds the
// source's own ε. An absent directory has no results.
func (e Experiment) Collect(ctx context.Context, dir string) ([]Row, error) {
	var rows []Row
	for _, s := range e.Settings {
		top := filepath.Join(dir, filepath.FromSlash(s.key()))
		entries, err := os.ReadDir(top)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, inputError("%v", err)
		}
		var seeds []int64
		for _, entry := range entries {
			if text, ok := strings.CutPrefix(entry.Name(), "seed-"); ok {
				if seed, err := strconv.ParseInt(text, 10, 64); err == nil {
					seeds = append(seeds, seed)
				}
			}
		}
		slices.Sort(seeds)
		costs := costs{}
		for _, seed := range seeds {
			more, err := s.collect(ctx, costs, filepath.Join(top, "seed-"+strconv.FormatInt(seed, 10)), seed)
			if err != nil {
				return nil, err
			}
			for i := range more {
				more[i].Experiment, more[i].Setting, more[i].Seed = e.Name, s.Name, seed
			}
			rows = append(rows, more...)
		}
	}
	return rows, nil
}

func (s Setting) collect(ctx context.Context, known costs, dir string, seed int64) ([]Row, error) {
	if s.Solve != nil {
		raw, err := durable.ReadFile(filepath.Join(dir, resultFile))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		var r solved
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, inputError("%s: %v", dir, err)
		}
		eps := float64(r.Epsilon)
		return []Row{{Round: r.Round, EpsProved: eps, EpsBest: eps, EpsPaper: math.NaN(), Value: r.Excess, Seconds: r.Seconds, Final: true,
			N: s.Solve.N, Dim: int64(s.Solve.Dim), Epsilon: s.Solve.Epsilon}}, nil
	}
	if !exists(filepath.Join(dir, train.ConfigFile)) {
		return nil, nil
	}
	c := train.Default()
	if err := c.ReadConfig(filepath.Join(dir, train.ConfigFile), nil); err != nil {
		return nil, inputError("%v", err)
	}
	raw, err := durable.ReadFile(filepath.Join(dir, train.MetricsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var rows []Row
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		var m train.Metrics
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			break // the line was cut off; the run will make it again
		}
		cost, err := known.of(ctx, s, c, m)
		if err != nil {
			return nil, err
		}
		rows = append(rows, Row{Round: m.Round, EpsProved: cost.proved, EpsBest: cost.proved, EpsPaper: cost.paper,
			Value: float64(m.Accuracy), Seconds: m.Seconds, Epsilon: math.NaN()})
	}
	if len(rows) > 0 {
		rows[len(rows)-1].Final = exists(filepath.Join(dir, train.SummaryFile))
	}
	return rows, lines.Err()
}

// costs holds by round two values of ε: one by the source's own formula, and the proved one
// under a setting's own trust mode. All seeds share them, because neither depends on the seed.
type costs map[int64]cost

type cost struct{ proved, paper float64 }

// of returns the cost of the rounds of an evaluation. Every bound in use is proved, so the
// best one is the best proved one.
func (k costs) of(ctx context.Context, s Setting, c train.Config, m train.Metrics) (cost, error) {
	known, ok := k[m.Round]
	if !ok {
		var err error
		if known, err = s.ask(ctx, c, m.Round); err != nil {
			return known, err
		}
		k[m.Round] = known
	}
	if s.Trust == "" {
		known.proved = float64(m.Epsilon) // as the run's own ledger computed it
	}
	return known, nil
}

func (s Setting) ask(ctx context.Context, c train.Config, rounds int64) (cost, error) {
	out := cost{math.NaN(), math.NaN()}
	if rounds == 0 {
		return out, nil // nothing was released yet
	}
	q, err := c.Query(rounds)
	if err != nil {
		return out, err
	}
	if s.Trust != "" {
		q.Trust, q.Delta = s.Trust, c.Delta
		r, err := account.Answer(ctx, q, "best")
		if err != nil {
			return out, err
		}
		if out.proved = math.Inf(1); r.Upper != nil {
			out.proved = r.Upper.Eps
		}
	}
	if s.Method == "" {
		return out, nil
	}
	r, err := account.Answer(ctx, q, s.Method)
	if err != nil {
		return out, err
	}
	for _, b := range r.Bounds {
		if b.Method == s.Method && b.Applies && b.Kind != dp.Lower {
			out.paper = b.Eps
		}
	}
	return out, nil
}
