package train

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/dataset"
	learned "github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/run/setting"
)

// program is a program that has all clients' data, computes their gradients and evaluates the
// model. A nil program is none.
type program struct {
	session *learned.Session
	start   map[string]float64 // the evaluation of the initial parameters
}

// fillExternal chooses settings of a run whose gradients a program computes.
func (c *Config) fillExternal() {
	if c.Model == "" {
		c.Model = external
	}
	if c.Data == Default().Data {
		c.Data = "" // the program has the data
	}
}

// checkExternal refuses settings that do not go with a program, or only with one.
func (c Config) checkExternal() error {
	described := c.Dim != 0 || c.Parameters != "" || c.Initial != ""
	switch {
	case c.Gradients != "" && described:
		return inputError("dim, parameters and initial are of a task over a network; here the program of gradients says them")
	case c.Gradients != "":
	case c.AnswerSeconds != 0, c.Model == external && c.Dim == 0:
		return inputError("model external and answer-seconds go with gradients, the program that computes them (in a task over a network clients have one each, and the task says dim)")
	case c.Model != external && described:
		return inputError("dim, parameters and initial go with model external, not %s, whose shape riffle knows", c.Model)
	case c.Model != external:
		return nil
	}
	switch {
	case c.Model != external:
		return inputError("gradients of a program go with model external, not %s, which riffle computes", c.Model)
	case c.Data != "" || c.Label != "" || c.Range != "" || c.Scale != "" || c.TestFraction != 0 || c.Categories != "" || c.Missing != "" || c.Drop != "" || c.Classes != "" || c.ImageSize != "" || c.ImageColours != "":
		return inputError("gradients of a program: it has the data, so data, label, test-fraction and what describes columns (range, scale, categories, missing, drop, classes) say nothing")
	case c.PerClient > 1 || c.Validation != 0 || c.Public != 0:
		return inputError("gradients of a program: it decides what a client holds and what is evaluated, so examples-per-client, validation and public say nothing")
	case c.planned():
		return inputError("optimizer %s needs a convex loss that riffle knows; gradients of a program go with %s or %s", c.Optimizer, cldpSGD, adam)
	case c.LR == theorem3:
		return inputError("lr %s needs a convex loss; gradients of a program take a list of rates", c.LR)
	}
	return nil
}

// resolveExternal is resolve for a run whose gradients a program computes: it starts the
// program.
func (c Config) resolveExternal(ctx context.Context) (_ Config, d *Data, m *model.Model, err error) {
	p := &program{}
	p.session, err = learned.Open(ctx, learned.Config{
		Program: c.Gradients, Purpose: learned.Simulate, Clients: c.Population, Seed: uint64(c.Seed),
		Timeout: time.Duration(c.AnswerSeconds) * time.Second, Stderr: c.Stderr,
	})
	if err != nil {
		return c, nil, nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	about := p.session.About
	if m, err = externalModel(about); err != nil {
		return c, nil, nil, err
	}
	c.Population = about.Clients
	if about.Clients > 1<<40 {
		return c, nil, nil, inputError("gradients: the program has %d clients", about.Clients)
	}
	if err = c.resolvePopulation(int(about.Clients)); err != nil {
		return c, nil, nil, err
	}
	if err = c.resolvePrivacy(ctx, m.Params); err != nil {
		return c, nil, nil, err
	}
	if !c.Momentum.Given {
		c.Momentum = setting.Optional{Value: usualMomentum, Given: true}
		if about.Delta && c.Optimizer != adam {
			c.Momentum.Value = 0
		}
	}
	if about.Delta && c.LR == "" && c.Optimizer != adam { // federated averaging, where a step acts for 1/(1 − momentum) rounds
		c.LR = strconv.FormatFloat(1-c.Momentum.Value, 'g', 3, 64)
	}
	c.resolveLearning(m)
	// Before any budget is spent the program shows that it can evaluate.
	if p.start, err = p.session.Evaluate(ctx, m.Init(uint64(c.Seed))); err != nil {
		return c, nil, nil, err
	}
	d = &Data{Train: &dataset.Table{}, Eval: &dataset.Table{}, EvalName: "test", Examples: int64(p.start["examples"]), program: p}
	if d.digest, err = identity(about); err != nil {
		return c, nil, nil, err
	}
	if _, ok := p.start["accuracy"]; ok {
		d.Classes = []string{}
	}
	return c, d, m, nil
}

// identity is what identifies a program's model and its clients. Their data are the program's.
func identity(about learned.About) ([]byte, error) {
	raw := fmt.Appendf(nil, "%d %d %v %v %d\n", about.Dim, about.Clients, about.Delta, about.Parameters, len(about.Initial))
	return binary.Append(raw, binary.LittleEndian, about.Initial)
}

// externalModel returns the model that a program describes.
func externalModel(about learned.About) (*model.Model, error) {
	var names []string
	var shapes [][]int
	for _, t := range about.Parameters {
		names, shapes = append(names, t.Name), append(shapes, t.Shape)
	}
	m, err := model.NewExternal(cmp.Or(about.Name, external), names, shapes, about.Initial)
	if err != nil {
		return nil, inputError("%v", err)
	}
	return m, nil
}

// readExternal reads the tensors of a model that a program computed: their names and shapes are
// the program's.
func (s *Stored) readExternal(tensors []safetensors.Tensor) (err error) {
	var names []string
	var shapes [][]int
	for _, t := range tensors {
		names, shapes = append(names, t.Name), append(shapes, t.Shape)
	}
	if s.Model, err = model.NewExternal(external, names, shapes, nil); err == nil {
		s.Theta, err = s.Model.Theta(tensors)
	}
	return err
}

// TestBy lets a program evaluate the model, which must have the tensors of the program's own.
// answerSeconds is the time for an answer, 0 the usual one; stderr is as in Config.
func (s *Stored) TestBy(ctx context.Context, command string, answerSeconds int64, stderr io.Writer) (*Tested, error) {
	if s.Name != external {
		return nil, inputError("riffle evaluates model %s itself: gradients names the program of a model that a program computed", s.Name)
	}
	session, err := learned.Open(ctx, learned.Config{
		Program: command, Purpose: learned.Evaluate, Timeout: time.Duration(answerSeconds) * time.Second, Stderr: stderr,
	})
	if err != nil {
		return nil, err
	}
	p := &program{session: session}
	defer p.close()
	if dim := session.About.Dim; dim != len(s.Theta) {
		return nil, inputError("the program's model has %d parameters, this one %d: another program, or other options of it, computed this model", dim, len(s.Theta))
	}
	own, err := externalModel(session.About)
	if err != nil {
		return nil, err
	}
	theta, err := s.inOrder(own)
	if err != nil {
		return nil, err
	}
	if p.start, err = session.Evaluate(ctx, theta); err != nil {
		return nil, err
	}
	out := &Tested{Evaluation: evaluation(p.start), Baseline: p.baseline(), Set: "test", LabelUnit: 1}
	out.Numbers = nil
	for name, x := range numbers(&model.Evaluation{Numbers: p.start}) {
		if out.Numbers == nil {
			out.Numbers = map[string]float64{}
		}
		out.Numbers[name] = float64(x)
	}
	out.Warning = out.Baseline.NotBeaten(out.Accuracy, out.Loss)
	return out, nil
}

// inOrder returns the parameters in the order of a program's own model, whose tensors must have
// the same names and shapes.
func (s *Stored) inOrder(own *model.Model) ([]float32, error) {
	tensors, err := s.Model.Tensors(s.Theta)
	if err != nil {
		return nil, err
	}
	theta, err := own.Theta(tensors)
	if err != nil {
		return nil, inputError("another program, or other options of it, computed this model: %v", err)
	}
	return theta, nil
}

func (p *program) close() {
	if p != nil {
		p.session.Close()
	}
}

// each returns the simulation's way to gradients; nil if there is no program.
func (p *program) each() func(context.Context, int64, []float32, []int64, int, func(int, int64, []float32) error) error {
	if p == nil {
		return nil
	}
	return p.session.Each
}

// evaluate returns the program's figures. A loss that is not finite is an error: the model is
// lost, and further rounds would only cost.
func (p *program) evaluate(theta []float32) (*model.Evaluation, error) {
	numbers, err := p.session.Evaluate(context.Background(), theta)
	if err != nil {
		return nil, err
	}
	e := evaluation(numbers)
	if math.IsNaN(e.Loss) || math.IsInf(e.Loss, 0) {
		return nil, inputError("the program's loss is %v: the model has diverged, try a smaller lr", e.Loss)
	}
	return e, nil
}

// evaluation returns a program's numbers as an evaluation.
func evaluation(numbers map[string]float64) *model.Evaluation {
	e := &model.Evaluation{Examples: int(numbers["examples"]), Accuracy: math.NaN(), Loss: numbers["loss"], Numbers: numbers}
	if a, ok := numbers["accuracy"]; ok {
		e.Accuracy = a
	}
	return e
}

// baseline returns the program's figures of the best constant answer.
func (p *program) baseline() Baseline {
	b := unmeasured()
	b.Text = "the program gives none"
	if x, ok := p.start["baseline_loss"]; ok && !math.IsInf(x, 0) && !math.IsNaN(x) {
		b.Loss = x
		b.Short = fmt.Sprintf("%.4g", x)
		b.Text = fmt.Sprintf("%.4f, the best constant, as the program says", x)
	}
	if x, ok := p.start["baseline_accuracy"]; ok {
		b.Accuracy, b.Class = x, 0
		b.Short = fmt.Sprintf("%.2f %%", 100*x)
		b.Text = b.Short + ", the best constant, as the program says"
	}
	return b
}

// unknown says that nothing is known of constants.
func (b Baseline) unknown() bool { return b.Class < 0 && math.IsNaN(b.Loss) }

// figures returns the figures that there are.
func (b *Baseline) figures() (loss, accuracy *float64) {
	if !math.IsNaN(b.Loss) {
		loss = &b.Loss
	}
	if b.Class >= 0 {
		accuracy = &b.Accuracy
	}
	return loss, accuracy
}

// numbers returns the figures of an evaluation that have no place of their own; nil if there
// are none.
func numbers(e *model.Evaluation) map[string]dp.Number {
	var out map[string]dp.Number
	for name, x := range e.Numbers {
		if slices.Contains([]string{"loss", "accuracy", "examples", "baseline_loss", "baseline_accuracy"}, name) {
			continue
		}
		if out == nil {
			out = map[string]dp.Number{}
		}
		out[name] = dp.Number(x)
	}
	return out
}

// Odd returns how many values of a program's gradients were NaN or infinite, and counted as 0.
func (r *Run) Odd() int64 {
	if r.Data.program == nil {
		return 0
	}
	return r.Data.program.session.Odd()
}
