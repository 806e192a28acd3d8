//go:build js && wasm

package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// examples are a client's data for tasks of one model: Data in index.d.ts. The client's gradient is the
// mean of theirs.
type examples struct {
	Model   string    `json:"model"`   // softmax or linear
	Classes int       `json:"classes"` // of softmax
	Loss    string    `json:"loss"`    // of linear
	Ridge   float64   `json:"ridge"`   // of linear
	Width   int       `json:"width"`   // number of features
	Inputs  []float32 `json:"inputs"`  // row after row
	Targets []float64 `json:"targets"` // one for each row

	of *model.Model
}

// check makes the model, and refuses examples that do not fit it.
func (e *examples) check() (err error) {
	switch e.Model {
	case "softmax":
		if e.Loss != "" || e.Ridge != 0 {
			return errors.New("client: options: data: loss and ridge are for the model linear")
		}
		e.of, err = model.NewSoftmax(e.Width, e.Classes)
	case "linear":
		if e.Classes != 0 {
			return errors.New("client: options: data: classes are for the model softmax")
		}
		loss, lossErr := model.ParseLoss(e.Loss)
		if lossErr != nil {
			return fmt.Errorf("client: options: data: %v", lossErr)
		}
		e.of, err = model.NewLinear(model.LinearConfig{Inputs: e.Width, Loss: loss, Ridge: e.Ridge})
	default:
		return fmt.Errorf("client: options: data: model %.40q must be softmax or linear", e.Model)
	}
	if err != nil {
		return fmt.Errorf("client: options: data: %v", err)
	}
	if n := len(e.Targets); n < 1 || len(e.Inputs)/e.Width != n || len(e.Inputs)%e.Width != 0 {
		return fmt.Errorf("client: options: data: %d targets for %d inputs in rows of %d", n, len(e.Inputs), e.Width)
	}
	for _, y := range e.Targets {
		if e.Model == "softmax" && !(y >= 0 && y < float64(e.Classes) && y == math.Trunc(y)) {
			return fmt.Errorf("client: options: data: a target is no class from 0 to %d", e.Classes-1)
		}
	}
	return nil
}

// Open takes the tasks whose model has as many parameters. A page knows which model they train.
func (e *examples) Open(task wire.Task) (client.Gradient, error) {
	if n := int64(e.of.Params); task.Mechanism.Dim != n || task.Parameters() != n {
		return nil, fmt.Errorf("the model %s has %d parameters, the task %d and reports of %d", e.Model, n, task.Parameters(), task.Mechanism.Dim)
	}
	scratch, sum := e.of.NewScratch(), make([]float64, e.of.Params)
	return func(theta, grad []float32) {
		clear(sum)
		for i, y := range e.Targets {
			e.of.Grad(theta, e.Inputs[i*e.Width:(i+1)*e.Width], y, grad, scratch)
			for j, g := range grad {
				sum[j] += float64(g)
			}
		}
		for j, s := range sum {
			grad[j] = float32(s / float64(len(e.Targets)))
		}
	}, nil
}
