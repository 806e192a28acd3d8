package experiment

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/run/solve"
	"github.com/riffle-dp/riffle/run/train"
)

// small is an experiment of two training settings and a convex one.
func small(t *testing.T) Experiment {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.csv")
	rows := []string{"0.1,0.2,0.9,no\n", "0.8,0.7,0.1,yes\n", "0.3,0.1,0.6,no\n", "0.9,0.4,0.3,yes\n", "0.6,0.4,0.5,no\n"}
	if err := os.WriteFile(path, []byte("x,y,z,label\n"+strings.Repeat(strings.Join(rows, ""), 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	shuffled := with(func(c *train.Config) {
		c.Data, c.Label, c.Model, c.Rounds, c.Eps0, c.EvalEvery, c.CheckpointEvery = path, "label", "softmax", 12, 2, 2, 3
	})
	summed := *shuffled
	summed.Trust, summed.Noise, summed.Sigma, summed.Eps0 = "distributed", "binomial", 2, 0
	return Experiment{
		Name: "small", Claims: []claim{{Value: .9, Eps: 5}},
		Settings: []Setting{
			{Name: "shuffled", Paper: true, Method: "girgis-thm1", Train: shuffled},
			{Name: "summed", Trust: dp.Shuffle, Train: &summed},
			{Name: "agd/vector-sum/logistic", Solve: &solve.Config{Synthetic: "logistic", Optimizer: "agd", Trust: "vector-sum", N: 3000, Dim: 3,
				Epsilon: 1, Delta: 1e-6, Radius: 4}},
		},
	}
}

// state is every file of a directory but those that hold times.
func state(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch filepath.Base(path) {
		case train.ModelFile, train.ConfigFile, settingFile:
			raw, err := os.ReadFile(path)
			name, _ := filepath.Rel(dir, path)
			out[name] = string(raw)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// timeless are an experiment's rows without times.
func timeless(t *testing.T, e Experiment, dir string) string {
	t.Helper()
	rows, err := e.Collect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].Seconds = 0
	}
	return string(marshalRows(rows))
}

func TestInterruptedExperimentEndsAlike(t *testing.T) {
	longtest.Only(t, "runs an experiment twice")
	e := small(t)
	whole := filepath.Join(t.TempDir(), "whole")
	if err := e.Run(t.Context(), Options{Dir: whole, Seeds: 2, Workers: 1}, Observer{}); err != nil {
		t.Fatal(err)
	}
	want := state(t, whole)
	if len(want) != 4*2+3 {
		t.Fatalf("%d files", len(want))
	}
	for _, killed := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "parts")
		stops, saved := 0, ""
		for try := 0; ; try++ {
			if try > 60 {
				t.Fatal("it does not end")
			}
			ctx, cancel := context.WithCancel(t.Context())
			seen := 0
			watch := Observer{Training: func(*train.Run) train.Observer {
				return train.Observer{Evaluated: func(train.Metrics) {
					// The directory as a kill at this moment would leave it: after an
					// evaluation, before the checkpoint that covers it.
					if seen++; seen == 2+try%3 && killed {
						saved = filepath.Join(t.TempDir(), "saved")
						if err := os.CopyFS(saved, os.DirFS(dir)); err != nil {
							t.Error(err)
						}
					}
					if seen == 2+try%3 {
						cancel()
					}
				}}
			}}
			saved = ""
			err := e.Run(ctx, Options{Dir: dir, Seeds: 2, Workers: int64(1 + try%2)}, watch)
			cancel()
			if err == nil {
				break
			}
			if !errors.Is(err, train.ErrInterrupted) && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			stops++
			if saved != "" {
				dir = saved
			}
		}
		if stops < 4 {
			t.Errorf("%d interruptions only", stops)
		}
		got := state(t, dir)
		for name, text := range want {
			// Workers are the process's own and part of config.yaml.
			if filepath.Base(name) != train.ConfigFile && got[name] != text {
				t.Errorf("killed %v: %s differs", killed, name)
			}
		}
		if a, b := timeless(t, e, whole), timeless(t, e, dir); a != b {
			t.Errorf("killed %v: rows differ:\n%s\n%s", killed, a, b)
		}
	}
}

func TestMoreSeedsAddOnlyTheNew(t *testing.T) {
	e := small(t)
	dir := t.TempDir()
	if err := e.Run(t.Context(), Options{Dir: dir, Only: []string{"shuffled", "agd"}}, Observer{}); err != nil {
		t.Fatal(err)
	}
	first := timeless(t, e, dir)
	var begun []string
	watch := Observer{Begun: func(s Setting, seed int64, finished bool) {
		begun = append(begun, strings.Join([]string{s.Name, string(rune('0' + seed)), map[bool]string{true: "there"}[finished]}, " "))
	}}
	if err := e.Run(t.Context(), Options{Dir: dir, Only: []string{"shuffled", "agd"}, Seeds: 2}, watch); err != nil {
		t.Fatal(err)
	}
	want := []string{"shuffled 1 there", "agd/vector-sum/logistic 1 there", "shuffled 2 ", "agd/vector-sum/logistic 2 "}
	if !slices.Equal(begun, want) {
		t.Errorf("begun %q", begun)
	}
	second := timeless(t, e, dir)
	for _, line := range strings.Split(strings.TrimSpace(first), "\n") {
		if !strings.Contains(second, line+"\n") {
			t.Errorf("lost %s", line)
		}
	}

	// Another setting of the same name is not mixed in, nor other data.
	other := e
	other.Settings = slices.Clone(e.Settings)
	c := *e.Settings[0].Train
	c.Eps0 = 1
	other.Settings[0].Train = &c
	if err := other.Run(t.Context(), Options{Dir: dir, Seeds: 3}, Observer{}); !errors.Is(err, train.ErrInput) || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("other settings: %v", err)
	}
	s := *e.Settings[2].Solve
	s.Lambda = .1
	other = e
	other.Settings = []Setting{{Name: e.Settings[2].Name, Solve: &s}}
	if err := other.Run(t.Context(), Options{Dir: dir}, Observer{}); !errors.Is(err, train.ErrInput) {
		t.Errorf("other problem: %v", err)
	}
	if err := e.Run(t.Context(), Options{Dir: dir, Only: []string{"shuff"}}, Observer{}); !errors.Is(err, train.ErrInput) {
		t.Errorf("unknown setting: %v", err)
	}
}

// The ε of a setting whose reports are seen by more than the simulated trust shows
// is that of those who see them, and more.
func TestTrustOfASettingIsWhatCounts(t *testing.T) {
	e := small(t)
	dir := t.TempDir()
	if err := e.Run(t.Context(), Options{Dir: dir, Only: []string{"summed"}}, Observer{}); err != nil {
		t.Fatal(err)
	}
	apart, err := e.Collect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	e.Settings[1].Trust = ""
	sums, err := e.Collect(t.Context(), dir)
	if err != nil || len(sums) == 0 || len(sums) != len(apart) {
		t.Fatal(len(sums), len(apart), err)
	}
	for i := range sums {
		if !(apart[i].EpsProved > 3*sums[i].EpsProved) {
			t.Errorf("round %d: %v shuffled, %v summed", sums[i].Round, apart[i].EpsProved, sums[i].EpsProved)
		}
	}
}

func TestRowsKeepTheirMeaning(t *testing.T) {
	nan := math.NaN()
	rows := []Row{
		{Experiment: "e1", Setting: "a/b", Seed: 1, Round: 30, EpsProved: .12345678901, EpsBest: math.Inf(1), EpsPaper: nan, Value: .5, Seconds: 12.3456},
		{Experiment: "e1", Setting: "a,b", Seed: 2, Round: 60, EpsProved: 0, EpsBest: 1e-9, EpsPaper: 3, Value: nan, N: 1e6, Dim: 50, Epsilon: .1},
	}
	raw := marshalRows(rows)
	back, err := parseRows(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(raw, marshalRows(back)) {
		t.Errorf("not stable:\n%s%s", raw, marshalRows(back))
	}
	if got := back[0].EpsProved; got < rows[0].EpsProved || got > rows[0].EpsProved*(1+1e-4) {
		t.Errorf("ε = %v of %v", got, rows[0].EpsProved)
	}
	if !math.IsInf(back[0].EpsBest, 1) || !math.IsNaN(back[0].EpsPaper) || back[1].N != 1e6 || back[1].Epsilon != .1 || back[1].Setting != "a,b" {
		t.Errorf("%+v", back)
	}
	for x := 1e-7; x < 1e7; x *= 1.37 {
		r, err := parseRows(marshalRows([]Row{{EpsProved: x, EpsBest: x, EpsPaper: nan}}))
		if err != nil || r[0].EpsProved < x || r[0].EpsProved > x*(1+2e-5) {
			t.Errorf("%v became %v, %v", x, r, err)
		}
	}
	for _, broken := range []string{"", "a,b\n", strings.Replace(string(raw), "0.5", "half", 1), strings.Replace(string(raw), "round", "rounds", 1),
		string(raw) + "e1\n"} {
		if _, err := parseRows([]byte(broken)); err == nil {
			t.Errorf("accepted %q", broken)
		}
	}
}

func TestRecordedResults(t *testing.T) {
	for _, e := range List() {
		rows, err := Recorded(e.Name)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		raw, err := recorded.ReadFile("recorded/" + e.Name + ".csv")
		if err == nil && (len(raw) > 200<<10 || !bytes.Equal(raw, marshalRows(rows))) {
			t.Errorf("%s: %d bytes, or not as it would be written", e.Name, len(raw))
		}
		type run struct {
			setting string
			seed    int64
			n, dim  int64
			epsilon float64
		}
		last := map[run]Row{}
		for _, r := range rows {
			i := slices.IndexFunc(e.Settings, func(s Setting) bool { return s.Name == r.Setting })
			if r.Experiment != e.Name || i < 0 {
				t.Errorf("%s: row of %s, %s", e.Name, r.Experiment, r.Setting)
				continue
			}
			key := run{r.Setting, r.Seed, r.N, r.Dim, r.Epsilon}
			if r.N == 0 {
				key.epsilon = 0
			}
			p, ok := last[key]
			last[key] = r
			switch {
			case r.Seed < 1 || r.Round < 1 || !(r.EpsProved >= r.EpsBest) || !(r.Seconds >= 0):
				t.Errorf("%+v", r)
			case r.N == 0 && !(r.Value >= 0 && r.Value <= 1) || r.N > 0 && !(r.Value > -1e-6):
				t.Errorf("value of %+v", r)
			case ok && (p.Round >= r.Round || p.EpsProved > r.EpsProved || p.EpsPaper > r.EpsPaper || p.Seconds > r.Seconds):
				t.Errorf("%+v after %+v", r, p)
			}
		}
		if len(rows) > 0 && len(NewTable(e, rows, nil).Outcomes) == 0 {
			t.Errorf("%s: recorded rows make no table", e.Name)
		}
	}
	if _, err := Recorded("e0"); err == nil {
		t.Error("there is no e0")
	}
}

func TestSettings(t *testing.T) {
	for _, e := range List() {
		if found := List(e.Name); len(found) != 1 || found[0].Title != e.Title {
			t.Errorf("%s is not found", e.Name)
		}
		keys := map[string]bool{}
		for _, s := range append(e.Settings, e.Quick().Settings...) {
			if (s.Train == nil) == (s.Solve == nil) {
				t.Errorf("%s: %s is not one of both", e.Name, s.Name)
				continue
			}
			if strings.Trim(s.key(), "abcdefghijklmnopqrstuvwxyz0123456789-/.") != "" {
				t.Errorf("%s: %q is no directory's name everywhere", e.Name, s.key())
			}
			keys[s.key()] = true
			if s.Train != nil {
				if err := s.Train.Check(); err != nil && s.Train.Model != "" {
					t.Errorf("%s: %s: %v", e.Name, s.Name, err)
				}
				if s.Train.Rounds == 0 {
					t.Errorf("%s: %s does not say how many rounds", e.Name, s.Name)
				}
			}
		}
		for _, s := range e.Settings {
			if s.Train == nil {
				continue
			}
			if _, err := Recorded(e.Name); err != nil {
				t.Error(err)
			}
		}
	}
}
