package train

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// smallCSV writes a table of two classes.
func smallCSV(t *testing.T, rows int) string {
	t.Helper()
	return writeSmall(t.TempDir(), rows)
}

func writeSmall(dir string, rows int) string {
	var b strings.Builder
	b.WriteString("x,y,z,label\n")
	for i := range rows {
		b.WriteString([]string{"0.1,0.2,0.9,no\n", "0.8,0.7,0.1,yes\n", "0.3,0.1,0.6,no\n", "0.9,0.4,0.3,yes\n"}[i%4])
	}
	path := filepath.Join(dir, "small.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		panic(err)
	}
	return path
}

func csvConfig(path string) Config {
	c := Default()
	c.Data, c.Label, c.Model, c.Rounds = path, "label", "softmax", 3
	return c
}

var enrolled = Enrolled{Population: wire.ID{1}, Clients: 40, MinReports: 10}

func TestTaskIsMadeAgainFromWhatWasSigned(t *testing.T) {
	path := smallCSV(t, 80)
	for name, change := range map[string]func(*Config){
		"shuffle":     func(c *Config) {},
		"local":       func(c *Config) { c.Trust, c.Randomizer = "local", "r2" },
		"sampled":     func(c *Config) { c.Participation, c.K = "sampled", 30 },
		"check-in":    func(c *Config) { c.Participation, c.Gamma, c.Trust = "check-in", .8, "distributed" },
		"once":        func(c *Config) { c.Participation, c.K, c.Randomizer, c.ClipMode = "once", 20, "rinf", "coordinate" },
		"vector-sum":  func(c *Config) { c.Trust, c.Epsilon = "vector-sum", 20 },
		"receipts":    func(c *Config) { c.Receipts = true },
		"per-client":  func(c *Config) { c.PerClient, c.Eps0 = 2, 1.5 },
		"ranges":      func(c *Config) { c.Range = "*=0..2" },
		"steps":       func(c *Config) { c.Randomizer, c.Steps = "stepunit", 2 },
		"values":      func(c *Config) { c.Randomizer, c.Encoding, c.Edges = "stepunit", "values", "0.5,1.25" },
		"random list": func(c *Config) { c.LR, c.Seed, c.Workers = "0.3,0.1@2", 9, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := csvConfig(path)
			change(&c)
			made, err := NewTask(context.Background(), "test", c, enrolled)
			if err != nil {
				t.Fatal(err)
			}
			if made.Config.Population != 40 || made.Wire.MinReports < 10 || made.Wire.MinReports > 36 {
				t.Errorf("n = %d, n-min = %d", made.Config.Population, made.Wire.MinReports)
			}
			// Reports are seeds unless the task says otherwise, and the task states the edges.
			if w := made.Wire.Mechanism; c.Trust.Is(dp.LocallyPrivate) && made.Config.kind().Seeds && name != "values" {
				if w.Encoding != wire.EncodingSeed || len(w.Edges) == 0 || made.Config.Encoding != "seed" || made.Config.Edges != formatEdges(w.Edges) {
					t.Errorf("a task with %+v, configured as %+v", w, made.Config)
				}
			} else if w.Encoding != "" || len(w.Edges) != strings.Count(made.Config.Edges, ".") {
				t.Errorf("a task with %+v, configured as %+v", w, made.Config)
			}
			if made.Wire.Receipts != (name == "receipts") || bytes.Contains(made.Wire.Config, []byte("receipts")) != made.Wire.Receipts {
				t.Errorf("receipts %t in\n%s", made.Wire.Receipts, made.Wire.Config)
			}
			if bytes.Contains(made.Wire.Config, []byte(filepath.Dir(path))) {
				t.Error("the task shows a path of the coordinator's machine")
			}
			again, err := OpenTask(context.Background(), made.Wire, path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if wire.Digest(again.Wire) != wire.Digest(made.Wire) {
				t.Error("opened as another task")
			}
			a, err := made.Coordinator()
			if err != nil {
				t.Fatal(err)
			}
			b, err := again.Coordinator()
			if err != nil {
				t.Fatal(err)
			}
			if a.Report != b.Report || a.MinReports != b.MinReports || !slices.Equal(a.Optimizer.Point(), b.Optimizer.Point()) {
				t.Errorf("coordinators differ: %+v, %+v", a, b)
			}
		})
	}
}

// Clients scale their rows as the task says: about the middle of ranges, or to 0..1.
func TestClientsScaleAsTheTaskSays(t *testing.T) {
	path := smallCSV(t, 80)
	c := csvConfig(path)
	c.Range, c.Population, c.NMin = "*=0..2", 40, 20
	middle, err := NewTask(context.Background(), "middle", c, enrolled)
	if err != nil {
		t.Fatal(err)
	}
	c.Scale = unit
	above, err := NewTask(context.Background(), "above", c, enrolled)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range []struct {
		*Setup
		scale string
		first float32 // of .1 in 0..2
	}{{above, unit, .05}, {middle, centred, -.9}} {
		if !bytes.Contains(task.Wire.Config, []byte("scale: "+task.scale)) {
			t.Errorf("%s", task.Wire.Config)
		}
		opened, err := OpenTask(context.Background(), task.Wire, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if opened.Config.Scale != task.scale {
			t.Errorf("opened with scale %q, made with %q", opened.Config.Scale, task.scale)
		}
		l := &Local{Data: path}
		theta := opened.Model.Init(3)
		want, got := make([]float32, len(theta)), make([]float32, len(theta))
		answer, scratch := answers(opened.Data.Train), opened.Model.NewScratch()
		dealt, err := opened.Config.newClients(opened.Data.Train, opened.parts.stages)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for i := range int64(40) {
			g, err := LocalClient{Local: l, Client: i}.Open(task.Wire)
			if err != nil {
				t.Fatal(err)
			}
			row := dealt.population.Example(i, 0)
			opened.Model.Grad(theta, opened.Data.Train.Row(row), answer(row), want, scratch)
			g(theta, got)
			if !slices.Equal(want, got) {
				t.Fatalf("scale %q: client %d has another gradient than the coordinator's rows give", task.scale, i)
			}
			found = found || opened.Data.Train.Row(row)[0] == task.first
		}
		if !found {
			t.Errorf("scale %q: no row begins with %v", task.scale, task.first)
		}
	}
}

func TestTaskRefusesWhatANetworkCannotDo(t *testing.T) {
	path := smallCSV(t, 80)
	for want, change := range map[string]func(*Config){
		"trust none":                func(c *Config) { c.Trust = "none" },
		"pca-mlp":                   func(c *Config) { c.Model = "pca-mlp" },
		"transport bits":            func(c *Config) { c.Trust, c.Transport = "vector-sum", "bits" },
		"population = 41":           func(c *Config) { c.Population = 41 },
		"below the enrolment's 10":  func(c *Config) { c.NMin = 9 },
		"sampled needs k":           func(c *Config) { c.Participation = "sampled" },
		"check-in needs gamma":      func(c *Config) { c.Participation = "check-in" },
		"k = 41 must be at most n ": func(c *Config) { c.Participation, c.K, c.NMin = "sampled", 41, 20 },
	} {
		c := csvConfig(path)
		change(&c)
		if _, err := NewTask(context.Background(), "test", c, enrolled); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestOpenTaskRefusesOtherData(t *testing.T) {
	made, err := NewTask(context.Background(), "test", csvConfig(smallCSV(t, 80)), enrolled)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.csv")
	if err := os.WriteFile(other, []byte("x,y,label\n"+strings.Repeat("0.1,0.2,no\n0.3,0.4,yes\n", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTask(context.Background(), made.Wire, other, nil); err == nil {
		t.Error("opened with data of another shape")
	}
	for _, config := range []string{"", "inputs: 3", "config: {}\ninputs: 3\nextra: 1", "config: {out: /tmp/x}\ninputs: 3", "config: [1]\ninputs: 3", "config: {workers: -1}\ninputs: 3"} {
		w := made.Wire
		w.Config = []byte(config)
		if _, err := OpenTask(context.Background(), w, other, nil); err == nil {
			t.Errorf("opened a task with config %q", config)
		}
	}
}

// The parts of a population hold what a simulation's clients hold.
func TestLocalGradientsAreTheSimulations(t *testing.T) {
	path := smallCSV(t, 80)
	c := csvConfig(path)
	made, err := NewTask(context.Background(), "test", c, enrolled)
	if err != nil {
		t.Fatal(err)
	}
	c = made.Config
	run, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	l := &Local{Data: path}
	theta := run.Model.Init(3)
	dim := run.Model.Params
	want, got := make([]float32, dim), make([]float32, dim)
	for i := range c.Population {
		g, err := LocalClient{Local: l, Client: i}.Open(made.Wire)
		if err != nil {
			t.Fatal(err)
		}
		run.clients.worker()(i, theta, want)
		g(theta, got)
		if !slices.Equal(want, got) {
			t.Fatalf("client %d has another gradient than in a simulation", i)
		}
	}
	if _, err := (LocalClient{Local: l, Client: -1}).Open(made.Wire); err == nil {
		t.Error("a client before the first opened the task")
	}
	if _, err := (LocalClient{Local: l, Client: c.Population}).Open(made.Wire); err == nil {
		t.Error("a client beyond the population")
	}
	for i := range c.Population {
		(LocalClient{Local: l, Client: i}).Close(made.Wire)
	}
	if len(l.tasks) != 0 {
		t.Errorf("data of %d tasks are held after the last has ended", len(l.tasks))
	}

	// Rows may come in another order of classes, and with one class only.
	mine := filepath.Join(t.TempDir(), "mine.csv")
	if err := os.WriteFile(mine, []byte("x,y,z,label\n0.8,0.7,0.1,yes\n0.9,0.4,0.3,yes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := LocalClient{Local: &Local{Data: mine}, Client: 0}.Open(made.Wire)
	if err != nil {
		t.Fatal(err)
	}
	g(theta, got)
	answer, scratch := answers(run.Data.Train), run.Model.NewScratch()
	found := false
	for _, x := range []float32{.8, .9} {
		i := 0
		for run.Data.Train.Row(i)[0] != x {
			i++
		}
		run.Model.Grad(theta, run.Data.Train.Row(i), answer(i), want, scratch)
		found = found || slices.Equal(want, got)
	}
	if !found {
		t.Errorf("gradient %v of no row", got)
	}
	if err := os.WriteFile(mine, []byte("x,y,label\n0.1,0.2,yes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (LocalClient{Local: &Local{Data: mine}, Client: 0}).Open(made.Wire); err == nil {
		t.Error("opened data of another kind")
	}
}

// Rows that do not fit a task change nothing for other clients, and their own clients
// report like all others: a task must not find out whose rows they are.
func TestRowsThatDoNotFitReportNothing(t *testing.T) {
	path := smallCSV(t, 80)
	made, err := NewTask(context.Background(), "test", csvConfig(path), enrolled)
	if err != nil {
		t.Fatal(err)
	}
	good := &Local{Data: path}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for i, bad := range []string{"0.1,0.2,0.3,perhaps", "0.1,0.2,1e39,yes", "0.1,,0.3,yes", "0.1,yes", "x,y,z,label", "0.1,0.2,0.3, yes"} {
		lines[1+9*i] = bad
	}
	odd := filepath.Join(t.TempDir(), "odd.csv")
	if err := os.WriteFile(odd, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mine := &Local{Data: odd}
	var told []string
	mine.Warn = func(task [32]byte, what error) { told = append(told, what.Error()) }
	dim := int(made.Wire.Mechanism.Dim)
	theta, want, got := make([]float32, dim), make([]float32, dim), make([]float32, dim)
	for j := range theta {
		theta[j] = .1 * float32(j+1)
	}
	none := 0
	for i := range made.Config.Population {
		g, err := LocalClient{Local: good, Client: i}.Open(made.Wire)
		if err != nil {
			t.Fatal(err)
		}
		g(theta, want)
		if g, err = (LocalClient{Local: mine, Client: i}).Open(made.Wire); err != nil {
			t.Fatalf("client %d stays away: %v", i, err)
		}
		got[0] = 1
		g(theta, got)
		if !slices.ContainsFunc(got, func(v float32) bool { return v != 0 }) {
			none++
		} else if !slices.Equal(got, want) {
			t.Errorf("client %d has another gradient", i)
		}
	}
	if none == 0 || none > 6 {
		t.Errorf("%d clients have no gradient, of 6 rows", none)
	}
	if len(told) != 1 || !strings.Contains(told[0], "6 of 80 rows") || !strings.Contains(told[0], "perhaps") {
		t.Errorf("told %q", told)
	}
	// A file without a row that fits, one without rows, and one that cannot be read as rows.
	for _, text := range []string{"x,y,z,label\n1,2,3,4\n5,6,7,8\n", "x,y,z,label\n", "x,y,z,label\n\"1,2\n"} {
		if err := os.WriteFile(odd, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := LocalClient{Local: &Local{Data: odd}, Client: 1}.Open(made.Wire)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got[0] = 1
		if g(theta, got); slices.ContainsFunc(got, func(v float32) bool { return v != 0 }) {
			t.Errorf("%q: gradient %v, want none", text, got)
		}
	}
	if _, err := (LocalClient{Local: &Local{Data: odd}, Client: made.Config.Population}).Open(made.Wire); err == nil {
		t.Error("a client beyond the population")
	}
}

// FuzzDocument reads what a coordinator may send: what is taken has one meaning.
func FuzzDocument(f *testing.F) {
	made, err := NewTask(context.Background(), "test", csvConfig(writeSmall(f.TempDir(), 80)), enrolled)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(made.Wire.Config)
	f.Add([]byte("config: {trust: none}\ninputs: 1"))
	f.Add([]byte("config: &a {data: mnist}\ninputs: 784\nclasses: [a, b]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := readDocument(raw)
		if err != nil {
			return
		}
		if d.config.Trust == "none" || d.inputs < 1 {
			t.Errorf("took %+v", d)
		}
		if err := d.config.Check(); err != nil {
			t.Errorf("took what does not check: %v", err)
		}
	})
}
