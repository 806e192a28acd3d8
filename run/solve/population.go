package solve

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// Streams of the seed. Data sets draw from the same seed.
const (
	domainOrder = iota + 0x736f6c7665
	domainClients
	domainRelease
	domainCoins
)

// population is the rows over which the loss is a mean, and the clients that hold them.
type population struct {
	rows      *dataset.Table
	clients   int64
	row       func(place int64) int // row of the client at that place of the order
	intercept bool
	features  []string // of a CSV file
	classes   []string
	// norm is a public bound on the ℓ2 norm of a row's features; 0 if there is
	// none.
	norm float64
}

// newPopulation reads or makes the rows, and fills in c.Rows.
func newPopulation(c *Config, loss model.Loss) (*population, error) {
	if c.Data != "" {
		return readPopulation(*c, loss)
	}
	if c.N < 1 || c.N > maxClients {
		return nil, fmt.Errorf("solve: n = %d must lie between 1 and 2^32", c.N)
	}
	if c.Dim < 1 || c.Dim > maxDim {
		return nil, fmt.Errorf("solve: dim = %d must lie between 1 and %d", c.Dim, maxDim)
	}
	if c.Rows == 0 {
		// The optimum takes rows·d² per step.
		c.Rows = int(min(c.N, max(2000, min(100000, 250000000/(int64(c.Dim)*int64(c.Dim))))))
	}
	if c.Rows < 1 || c.Rows > maxCells/c.Dim {
		return nil, fmt.Errorf("solve: rows = %d must lie between 1 and %d, 2^28 numbers in all", c.Rows, maxCells/c.Dim)
	}
	kind := dataset.SyntheticKind(c.Synthetic)
	if regression := kind == dataset.SyntheticAbsolute; regression == loss.Binary {
		return nil, fmt.Errorf("solve: loss %s does not go with synthetic %s: its targets are %s", loss.Name, kind,
			map[bool]string{true: "real numbers", false: "classes"}[regression])
	}
	p := &population{clients: c.N, norm: 1}
	var err error
	if p.rows, _, err = dataset.NewSynthetic(dataset.SyntheticConfig{Kind: kind, Dim: c.Dim, Rows: c.Rows, Seed: c.Seed}); err != nil {
		return nil, err
	}
	// deal says which client holds which row.
	deal, err := dataset.NewPopulation(dataset.PopulationConfig{Clients: c.N, Examples: c.Rows, Seed: c.Seed})
	if err != nil {
		return nil, err
	}
	p.row = func(place int64) int { return deal.Example(place, 0) }
	return p, nil
}

// readPopulation reads a CSV file.
func readPopulation(c Config, loss model.Loss) (*population, error) {
	if c.Label == "" {
		return nil, fmt.Errorf("solve: data %s needs label, the column to predict", c.Data)
	}
	columns := c.Columns
	columns.Label, columns.Regression = c.Label, !loss.Binary
	file, err := dataset.ReadCSV(c.Data, columns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("solve: data %s: no such file", c.Data)
	}
	if err != nil {
		return nil, err
	}
	if loss.Binary && len(file.Labels) != 2 {
		return nil, fmt.Errorf("solve: data %s: label %s has %d classes, must be 2 for %s loss", c.Data, c.Label, len(file.Labels), loss.Name)
	}
	if file.Table.Dim >= maxDim {
		return nil, fmt.Errorf("solve: data %s: %d columns besides label must be below %d", c.Data, file.Table.Dim, maxDim)
	}
	p := &population{rows: file.Table, clients: int64(file.Table.Len()), intercept: true, features: file.Columns, classes: file.Labels}
	ranged := true
	for j, column := range file.Columns {
		number := file.Binary == nil || !file.Binary[j]
		if _, ok := columns.Scale[column]; number && !ok && columns.Rest == (dataset.Scaling{}) {
			ranged = false
		}
	}
	if ranged {
		p.norm = math.Sqrt(file.Square)
	}
	// A file may be sorted; batches must not be.
	order := make([]int, p.clients)
	for i := range order {
		order[i] = i
	}
	sample.Shuffle(rng.Replay(c.Seed, domainOrder), order)
	p.row = func(place int64) int { return order[place] }
	return p, nil
}
