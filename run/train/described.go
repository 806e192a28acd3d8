package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/dataset"
	learned "github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// This file has tasks over a network whose model only the clients' programs know: the task
// describes its parameters.

// initialPrefix begins the name of parameters in a task: the SHA-256 of their float32 values,
// little endian, follows. It is the digest of the model of round 1.
const initialPrefix = "sha256:"

// maxInitial is the largest size of a file of initial parameters.
const maxInitial = 4*learned.MaxDim + 1<<20

// described says whether the task describes a model that programs compute.
func (c Config) described() bool { return c.Model == external && c.Gradients == "" }

// initialDigest returns the digest of the parameters that a task starts from; false if it starts
// from zeros.
func (c LearningConfig) initialDigest() (digest [32]byte, ok bool) {
	text, ok := strings.CutPrefix(c.Initial, initialPrefix)
	raw, err := hex.DecodeString(text)
	if !ok || err != nil || len(raw) != len(digest) || strings.ToLower(text) != text {
		return digest, false
	}
	return [32]byte(raw), true
}

// begins takes the parameters that the configuration names; nil: there are none.
func (c *LearningConfig) begins(raw []byte) error {
	digest, ok := c.initialDigest()
	switch {
	case c.Initial == "" && raw == nil:
		return nil
	case c.Initial == "":
		return inputError("parameters were sent that initial does not name")
	case !ok:
		return inputError("initial = %q must be %s and 64 hexadecimal digits", clipped(c.Initial), initialPrefix)
	case raw == nil:
		return inputError("initial = %s: these parameters are missing", c.Initial)
	case int64(len(raw)) != 4*c.Dim:
		return inputError("initial has %d bytes, dim = %d parameters have %d", len(raw), c.Dim, 4*c.Dim)
	case sha256.Sum256(raw) != digest:
		return inputError("initial: the parameters that were sent have the digest %x, not %x", sha256.Sum256(raw), digest)
	}
	start := floats(raw)
	for _, x := range start {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return inputError("initial has a value that is not finite: %v", x)
		}
	}
	c.start = &start
	return nil
}

// floats decodes little-endian float32.
func floats(raw []byte) []float32 {
	v, err := safetensors.Values[float32](safetensors.Tensor{Name: "theta", DType: safetensors.F32, Shape: []int{len(raw) / 4}, Data: raw})
	if err != nil {
		panic(err) // raw has whole values
	}
	return v
}

// ReadInitial reads the file that Initial names, which has the tensors of Parameters under any
// order, and returns their values in the order of Parameters. Initial becomes the values' digest,
// and Dim and Parameters what the file says where they say nothing. It does nothing if there is no
// file.
func (c *LearningConfig) ReadInitial() ([]byte, error) {
	if c.Initial == "" || c.Model != external && c.Model != "" {
		return nil, nil // Check refuses another model
	}
	path := c.Initial
	fail := func(format string, args ...any) ([]byte, error) {
		return nil, inputError("initial %s: %s", path, fmt.Sprintf(format, args...))
	}
	file, err := durable.Open(path)
	if err != nil {
		return nil, inputError("initial: %v", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxInitial+1))
	switch {
	case err != nil:
		return nil, inputError("initial: %v", err)
	case len(raw) > maxInitial:
		return fail("it is larger than %d bytes, the most that a model of %d parameters needs", maxInitial, learned.MaxDim)
	}
	f, err := safetensors.Unmarshal(raw)
	if err != nil {
		return fail("%v", strings.TrimPrefix(err.Error(), "safetensors: "))
	}
	dim := 0
	var text []string
	for _, t := range f.Tensors {
		if t.DType != safetensors.F32 {
			return fail("tensor %q is %s, want F32", clipped(t.Name), clipped(string(t.DType)))
		}
		dim += len(t.Data) / 4
		text = append(text, t.Name+"="+strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Shape), " ", "x"), "[]"))
	}
	switch {
	case dim == 0:
		return fail("it has no values")
	case c.Dim == 0:
		c.Dim = int64(dim)
	case c.Dim != int64(dim):
		return fail("its tensors have %d values, dim is %d", dim, c.Dim)
	}
	if c.Parameters == "" && len(f.Tensors) == 1 {
		c.Parameters = text[0]
	} else if c.Parameters == "" {
		return fail("it has %d tensors, and their order must be the programs': say it with parameters; in the file's order it is %q", len(f.Tensors), clipped(strings.Join(text, " ")))
	}
	want, err := learned.Parameters(c.Parameters, dim)
	if err != nil {
		return nil, inputError("%v", err)
	}
	if len(want) != len(f.Tensors) {
		return fail("it has %d tensors, parameters has %d", len(f.Tensors), len(want))
	}
	byName := map[string]safetensors.Tensor{}
	for _, t := range f.Tensors {
		byName[t.Name] = t
	}
	values := make([]byte, 0, 4*dim)
	for _, p := range want {
		t, ok := byName[p.Name]
		switch {
		case !ok:
			return fail("it has no tensor %q, which parameters names", p.Name)
		case fmt.Sprint(t.Shape) != fmt.Sprint(p.Shape):
			return fail("tensor %q has the shape %v, parameters says %v", p.Name, t.Shape, p.Shape)
		}
		values = append(values, t.Data...)
	}
	named := *c
	named.Initial = fmt.Sprintf("%s%x", initialPrefix, sha256.Sum256(values))
	if err := named.begins(values); err != nil {
		return fail("%v", strings.TrimPrefix(err.Error(), "train: initial "))
	}
	c.Model, c.Initial = external, named.Initial
	return values, nil
}

func clipped(text string) string {
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}

// checkDescribed refuses the description of a model that cannot be, or is not that of the task.
func (c LearningConfig) checkDescribed(task wire.Task) error {
	if c.Dim != task.Mechanism.Dim {
		return inputError("task: dim = %d, its mechanism has %d", c.Dim, task.Mechanism.Dim)
	}
	if _, ok := c.initialDigest(); !ok && c.Initial != "" {
		return inputError("task: initial = %q must be %s and 64 hexadecimal digits", clipped(c.Initial), initialPrefix)
	}
	if _, err := learned.Parameters(c.Parameters, int(c.Dim)); err != nil {
		return inputError("task: %v", err)
	}
	return nil
}

// newDescribed returns the model that the configuration describes.
func (c LearningConfig) newDescribed() (*model.Model, error) {
	list, err := learned.Parameters(c.Parameters, int(c.Dim))
	if err != nil {
		return nil, inputError("%v", err)
	}
	var names []string
	var shapes [][]int
	for _, p := range list {
		names, shapes = append(names, p.Name), append(shapes, p.Shape)
	}
	if _, ok := c.initialDigest(); ok != (c.start != nil) || !ok && c.Initial != "" {
		return nil, inputError("initial = %q: these parameters are missing", clipped(c.Initial))
	}
	var start []float32
	if c.start != nil {
		start = *c.start
	}
	m, err := model.NewExternal(external, names, shapes, start)
	if err != nil {
		return nil, inputError("%v", err)
	}
	return m, nil
}

// resolveDescribed is resolve for a task that describes a model.
func (c Config) resolveDescribed(ctx context.Context) (Config, *Data, *model.Model, error) {
	m, err := c.newDescribed()
	if err == nil {
		err = c.resolvePopulation(int(c.Population))
	}
	if err == nil {
		err = c.resolvePrivacy(ctx, m.Params)
	}
	if err != nil {
		return c, nil, nil, err
	}
	c.resolveLearning(m)
	c.start = nil // the model has them
	return c, &Data{Train: &dataset.Table{}, Eval: &dataset.Table{}, EvalName: "test"}, m, nil
}

// unmeasured is the baseline of a model that is not evaluated.
func unmeasured() Baseline {
	return Baseline{Baseline: model.Baseline{Accuracy: math.NaN(), Class: -1, Loss: math.NaN()}, Short: "not measured", Text: "none is measured"}
}
