package train

import (
	"cmp"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/learn/statistic"
)

// defaultHidden is the number of hidden units of pca-mlp. It is small because the noise grows
// with the parameters.
const defaultHidden = 32

// newModel returns the model of a configuration for a table.
func (c LearningConfig) newModel(t *dataset.Table) (*model.Model, error) {
	classes := max(2, t.Classes)
	switch c.Model {
	case cnn:
		m := model.NewCNN()
		if classes > m.Classes {
			return nil, fmt.Errorf("model cnn has %d classes, the data have %d", m.Classes, classes)
		}
		return m, nil
	case pcaMLP:
		return model.NewMLP(model.MLPConfig{Inputs: t.Dim, Hidden: int(cmp.Or(c.Hidden, defaultHidden)), Classes: classes})
	case linear:
		if c.Loss != crossEntropy {
			return c.newLinear(t)
		}
	}
	return model.NewSoftmax(t.Dim, classes)
}

func (c LearningConfig) newLinear(t *dataset.Table) (*model.Model, error) {
	loss, err := model.ParseLoss(c.Loss)
	if err != nil {
		return nil, err
	}
	switch {
	case !loss.Binary && t.Targets == nil:
		return nil, fmt.Errorf("loss %s needs real targets: a CSV file's column", loss.Name)
	case loss.Binary && t.Classes != 2:
		return nil, fmt.Errorf("loss %s needs 2 classes, the data have %d", loss.Name, t.Classes)
	}
	return model.NewLinear(model.LinearConfig{Inputs: t.Dim, Loss: loss, Ridge: c.Lambda})
}

// resolveLoss chooses the loss of model linear by the number of classes.
func (c *LearningConfig) resolveLoss(t *dataset.Table) {
	if c.Model == linear && c.Loss == "" {
		c.Loss = crossEntropy
		if t.Classes == 2 {
			c.Loss = "logistic"
		}
	}
}

// answers returns a function that gives a row's true answer: the number of its class, or its
// target.
func answers(t *dataset.Table) func(row int) float64 {
	if t.Targets != nil {
		return t.Target
	}
	return func(row int) float64 { return float64(t.Y[row]) }
}

// clients gives every simulated client its examples and its gradient.
type clients struct {
	population *dataset.Population
	table      *dataset.Table
	stages     []*model.Model // models whose gradients are sent, one after the other
	stage      *int           // index of the current one; it changes between rounds only
	weights    []float64      // factors of the classes' gradients; nil: none
	lambda     float64
	evaluation *statistic.Evaluation // nil: clients measure nothing
	heldOut    *holdouts             // rows that are measured on and never trained on
	clip       float64               // of the gradient, with evaluation
}

func (c Config) newClients(t *dataset.Table, stages []*model.Model) (clients, error) {
	out := clients{table: t, stages: stages, stage: new(int), lambda: c.Lambda}
	var err error
	population := dataset.PopulationConfig{Clients: c.Population, Examples: t.Len(), Seed: uint64(c.Seed)}
	if c.PerClient > 1 {
		population.PerClient = int(c.PerClient)
		population.Scattered = c.Population <= int64(t.Len())/c.PerClient // if there are more clients they are bootstrapped
	}
	if out.evaluation = c.evaluation(stages[0]); out.evaluation != nil {
		out.clip = c.Clip * math.Sqrt(1-c.EvaluateShare*c.EvaluateShare)
	}
	if out.population, err = dataset.NewPopulation(population); err == nil && out.evaluation != nil {
		out.heldOut = c.heldOut(t, out.population)
	}
	return out, err
}

// worker returns a function that computes a client's gradient: its example's, or the mean
// over its examples, so that the clip afterwards covers all that the client holds.
func (c clients) worker() func(id int64, theta, grad []float32) {
	scratch, answer := c.stages[0].NewScratch(), answers(c.table)
	one := func(row int, theta, grad []float32) {
		if c.table.Blank != nil && c.table.Blank[row] {
			clear(grad)
			return
		}
		c.stages[*c.stage].Grad(theta, c.table.Row(row), answer(row), grad, scratch)
		if c.weights != nil {
			weighting(grad, theta, c.weights[c.table.Y[row]], c.lambda)
		}
	}
	if c.evaluation != nil {
		return c.measuring(one)
	}
	if c.population.PerClient == 1 {
		return func(id int64, theta, grad []float32) { one(c.population.Example(id, 0), theta, grad) }
	}
	sum := make([]float64, c.stages[0].Params)
	return func(id int64, theta, grad []float32) {
		clear(sum)
		for i := range c.population.PerClient {
			one(c.population.Example(id, i), theta, grad)
			for j, g := range grad {
				sum[j] += float64(g)
			}
		}
		for j, s := range sum {
			grad[j] = float32(s / float64(c.population.PerClient))
		}
	}
}

// measuring is worker for clients who also measure the model. one computes the gradient of a row. A
// client's gradient is the mean over the rows that it has not held out, clipped so that what is
// measured has room behind it.
func (c clients) measuring(one func(row int, theta, grad []float32)) func(id int64, theta, report []float32) {
	m, answer, params := c.stages[0], answers(c.table), c.stages[0].Params
	scratch, sum, held := m.NewScratch(), make([]float64, params), make([]bool, c.population.PerClient)
	return func(id int64, theta, report []float32) {
		grad := report[:params]
		clear(sum)
		c.heldOut.of(id, held)
		var trained, measured int
		var loss, correct float64
		for i := range c.population.PerClient {
			row := c.population.Example(id, i)
			if held[i] {
				l, right := m.Judge(theta, c.table.Row(row), answer(row), scratch)
				loss += c.evaluation.Clip(l)
				if right {
					correct++
				}
				measured++
				continue
			}
			one(row, theta, grad)
			for j, g := range grad {
				sum[j] += float64(g)
			}
			trained++
		}
		for j, s := range sum {
			grad[j] = float32(s / float64(max(1, trained)))
		}
		clipTo(grad, c.clip)
		n := float64(max(1, measured))
		c.evaluation.Encode(measured, loss/n, correct/n, report[params:])
	}
}

// coordinateWorker returns a function that computes one coordinate of worker's gradient.
func (c clients) coordinateWorker() func(id int64, theta []float32, j int) float32 {
	scratch, answer := c.stages[0].NewScratch(), answers(c.table)
	one := func(row int, theta []float32, j int) float32 {
		if c.table.Blank != nil && c.table.Blank[row] {
			return 0
		}
		g, _ := c.stages[*c.stage].GradCoord(theta, c.table.Row(row), answer(row), j, scratch)
		if c.weights != nil {
			one := [1]float32{g}
			weighting(one[:], theta[j:j+1], c.weights[c.table.Y[row]], c.lambda)
			g = one[0]
		}
		return g
	}
	if c.population.PerClient == 1 {
		return func(id int64, theta []float32, j int) float32 { return one(c.population.Example(id, 0), theta, j) }
	}
	return func(id int64, theta []float32, j int) float32 {
		var sum float64
		for i := range c.population.PerClient {
			sum += float64(one(c.population.Example(id, i), theta, j))
		}
		return float32(sum / float64(c.population.PerClient))
	}
}
