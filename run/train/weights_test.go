package train

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// A client's gradient is scaled by its class's weight over the largest one, the ridge's part is
// not, and one coordinate is that of the whole gradient.
func TestClassWeightsScaleGradients(t *testing.T) {
	c := bought(shoppers(t, 200, "u0,30,oslo,1,yes"))
	c.Lambda = .5
	run := func(weights string) *Run {
		t.Helper()
		c.ClassWeights = weights
		r, err := Prepare(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain, weighed := run(""), run("no=2|yes=8")
	if got := weighed.clients.weights; !slices.Equal(got, []float64{.25, 1}) {
		t.Fatalf("factors %v", got)
	}
	if plain.Config.Clip != weighed.Config.Clip || plain.clients.weights != nil {
		t.Errorf("clip %v with weights, %v without", weighed.Config.Clip, plain.Config.Clip)
	}
	theta := make([]float32, plain.Model.Params)
	for j := range theta {
		theta[j] = float32(j) - 2.5
	}
	a, b := make([]float32, len(theta)), make([]float32, len(theta))
	of, ofWeighed, coordinate := plain.clients.worker(), weighed.clients.worker(), weighed.clients.coordinateWorker()
	seen := map[int32]int{}
	for id := range int64(100) {
		of(id, theta, a)
		ofWeighed(id, theta, b)
		y := plain.Data.Train.Y[id]
		seen[y]++
		for j := range a {
			ridge := .5 * float64(theta[j])
			want := ridge + []float64{.25, 1}[y]*(float64(a[j])-ridge)
			if math.Abs(float64(b[j])-want) > 1e-5 || math.Abs(float64(coordinate(id, theta, j)-b[j])) > 1e-5 {
				t.Fatalf("client %d of class %d, coordinate %d: %v, want %v", id, y, j, b[j], want)
			}
		}
	}
	if seen[0] == 0 || seen[1] == 0 {
		t.Errorf("classes seen: %v", seen)
	}
}

// A rare class is found with weights, the figures say what a constant has, and the model's file
// keeps the weights.
func TestClassWeightsFindARareClass(t *testing.T) {
	path := buyers(-3).write(t, 1500)
	run := func(weights string) (*Summary, *Stored) {
		t.Helper()
		c := Default()
		c.Data, c.Label, c.Range, c.Trust, c.Rounds, c.ClassWeights = path, "y", peopleRanges, dp.VectorSum, 60, weights
		_, s, dir := trainedIn(t, c)
		stored, err := ReadModel(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s, stored
	}
	plain, _ := run("")
	weighed, stored := run("yes=9")
	if _, ok := plain.Numbers["weighted_accuracy"]; ok || !(weighed.Numbers["recall_yes"] > plain.Numbers["recall_yes"]+.2) {
		t.Errorf("recall of yes %v with weights, %v without", weighed.Numbers["recall_yes"], plain.Numbers["recall_yes"])
	}
	// Worse by plain accuracy, as intended, and not warned of.
	if a, b := weighed.Numbers["weighted_accuracy"], weighed.Numbers["baseline_weighted_accuracy"]; !(a > b) || len(weighed.Warnings) > 0 {
		t.Errorf("weighted accuracy %v, of a constant %v, warnings %q", a, b, weighed.Warnings)
	}
	got, err := stored.Test(path, false, 1)
	if err != nil || dp.Number(got.Numbers["weighted_accuracy"]) != weighed.Numbers["weighted_accuracy"] || got.Warning != "" {
		t.Errorf("stored: %v %v", got, err)
	}
	// A model that always says one class is warned of.
	c := Default()
	c.Data, c.Label, c.Range, c.Trust, c.Rounds, c.LR, c.ClassWeights = path, "y", peopleRanges, dp.None, 1, "1e-300", "yes=9"
	r, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Create(filepath.Join(t.TempDir(), "run")); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Train(context.Background(), Observer{}); err != nil || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "with the class weights the accuracy is") {
		t.Errorf("warnings %q, %v", s.Warnings, err)
	}
	if weightedWarning(.5, .5) == "" || weightedWarning(dp.Number(math.NaN()), .5) == "" || weightedWarning(.6, .5) != "" {
		t.Error("warnings of weighted figures")
	}
}

func TestWeightedAccuracy(t *testing.T) {
	// 10 of the first class, 8 right; 2 of the second, 1 right; these count five times.
	if a, b := weighted([][]int{{8, 2}, {1, 1}}, []float64{.2, 1}); math.Abs(a-2.6/4) > 1e-12 || math.Abs(b-.5) > 1e-12 {
		t.Errorf("accuracy %v, of a constant %v", a, b)
	}
}

func TestClassWeightsRefuse(t *testing.T) {
	path := shoppers(t, 60, "u0,30,oslo,1,yes")
	for _, c := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.ClassWeights = "maybe=2" }, `"maybe" is none of the classes no, yes`},
		{func(c *Config) { c.ClassWeights = "yes" }, `"yes" must be CLASS=...`},
		{func(c *Config) { c.ClassWeights = "yes=0" }, `"0" of class "yes" must be a number from 1e-6 to 1e6`},
		{func(c *Config) { c.ClassWeights = "yes=NaN" }, `"NaN" of class "yes" must be a number`},
		{func(c *Config) { c.ClassWeights = "yes=1|yes=2" }, `class "yes" is declared twice`},
		{func(c *Config) { c.ClassWeights, c.Label, c.Loss = "yes=2", "spent", "absolute" }, "class-weights go with classes, and loss absolute predicts numbers"},
		{func(c *Config) { c.ClassWeights, c.Optimizer, c.Average = "yes=2", "agd", 0 }, "class-weights go with optimizer cldp-sgd or adam"},
	} {
		config := bought(path)
		c.change(&config)
		if _, err := Prepare(context.Background(), config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// Clients of a task scale their gradients as the simulation does.
func TestClientsWeighAsTheTaskSays(t *testing.T) {
	path := shoppers(t, 100, "u0,30,oslo,1,yes")
	gradients := func(weights string) (out [][]float32, y []int32) {
		t.Helper()
		c := bought(path)
		c.Population, c.NMin, c.ClassWeights, c.Trust = 40, 20, weights, dp.VectorSum
		task, err := NewTask(context.Background(), "weighed", c, enrolled)
		if err != nil {
			t.Fatal(err)
		}
		l, theta := &Local{Data: path}, task.Model.Init(3)
		dealt, err := task.Config.newClients(task.Data.Train, task.parts.stages)
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(40) {
			g, err := LocalClient{Local: l, Client: i}.Open(task.Wire)
			if err != nil {
				t.Fatal(err)
			}
			grad := make([]float32, len(theta))
			g(theta, grad)
			out, y = append(out, grad), append(y, task.Data.Train.Y[dealt.population.Example(i, 0)])
		}
		return out, y
	}
	plain, y := gradients("")
	weighed, _ := gradients("yes=4")
	for i := range plain {
		for j, g := range plain[i] {
			if want := float64(g) * []float64{.25, 1}[y[i]]; math.Abs(float64(weighed[i][j])-want) > 1e-6 {
				t.Fatalf("client %d of class %d: %v, want %v", i, y[i], weighed[i][j], want)
			}
		}
	}
}
