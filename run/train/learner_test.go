package train

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
)

// Clients of several examples hold disjoint ones, scattered, where there are
// enough, and bootstrapped ones otherwise, up to the largest population.
func TestClientsOfSeveralExamples(t *testing.T) {
	table := &dataset.Table{X: make([]float32, 10), Y: make([]int32, 10), Dim: 1, Classes: 2}
	for n, bootstrapped := range map[int64]bool{1: false, 3: false, 4: true, math.MaxInt64: true} {
		c, err := Config{PrivacyConfig: PrivacyConfig{Population: n}, DataConfig: DataConfig{PerClient: 3}, RunConfig: RunConfig{Seed: 1}}.newClients(table, []*model.Model{nil})
		if err != nil {
			t.Fatal(err)
		}
		if c.population.Bootstrapped != bootstrapped {
			t.Errorf("n = %d: bootstrapped %v", n, c.population.Bootstrapped)
		}
		if n == 3 && c.population.Example(0, 0) == 0 && c.population.Example(0, 1) == 1 && c.population.Example(1, 0) == 3 {
			t.Error("the examples are not scattered")
		}
	}
}
