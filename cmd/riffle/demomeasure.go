package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	sums "github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// demoPeople is the file with a row for each client of a demo with a question.
const demoPeople = "people.csv"

// question is what a demo with --measure asks, of everybody.
func (d *demo) question() measure.TaskConfig {
	var c measure.TaskConfig
	c.Fields().Reset()
	c.Measure, c.Column, c.Bins, c.NMin, c.Receipts, c.Tokens = "histogram", "age", "0..100:10", d.population(), d.Receipts, d.Config.Tokens
	if d.Config.Proofs != "" {
		c.NoiseBy = vecsum.ByAggregators
	}
	return c
}

// people returns the clients' ages, which are drawn from a fixed seed: more of them are young.
func (d *demo) people() []int64 {
	src := rng.Replay(1)
	out := make([]int64, d.population())
	for i := range out {
		out[i] = int64(src.Uint64()%50 + src.Uint64()%50)
		if src.Uint64()%3 == 0 {
			out[i] = int64(src.Uint64() % 30)
		}
	}
	return out
}

// writePeople writes the rows.
func (d *demo) writePeople() error {
	if !d.Measure {
		return nil
	}
	text := "age\n"
	for _, age := range d.people() {
		text += fmt.Sprintln(age)
	}
	return durable.WriteFile(filepath.Join(d.dir, demoPeople), []byte(text))
}

// ask creates the question's task.
func (d *demo) ask(ctx context.Context, api operatorv1.OperatorServiceClient) error {
	q := d.question()
	text, err := yaml.Marshal(q.Fields())
	if err != nil {
		return err
	}
	resp, err := api.CreateTask(ctx, connect.NewRequest(&operatorv1.CreateTaskRequest{Name: "ages", Config: string(text), RoundSeconds: 60}))
	if err == nil {
		d.Question = resp.Msg.Task.Id
	}
	return err
}

// demoAnswer is the answer to the demo's question. The demo has everybody's rows, so it knows the truth
// as well.
type demoAnswer struct {
	*operate.Answer
	True   []float64 `json:"true_counts"`
	Inside int64     `json:"inside"` // bins whose interval holds the true count
}

// answer computes the answer again from what was recorded, and compares it with the truth.
func (d *demo) answer(ctx context.Context) (*demoAnswer, error) {
	id, err := hex.DecodeString(d.Question)
	if err != nil || len(id) != 32 {
		return nil, fmt.Errorf("no task %q", d.Question)
	}
	a, err := operate.ReplayQuestion(ctx, d.loopback().Config(operate.RoleCoordinator), [32]byte(id))
	if err != nil {
		return nil, err
	}
	out := &demoAnswer{Answer: a, True: make([]float64, len(a.Bins))}
	for _, age := range d.people() {
		for i, b := range a.Bins {
			if float64(age) >= *b.Lower && (float64(age) < *b.Upper || i == len(a.Bins)-1) {
				out.True[i]++
				break
			}
		}
	}
	for i, b := range a.Bins {
		if b.Low95 <= out.True[i] && out.True[i] <= b.High95 {
			out.Inside++
		}
	}
	return out, nil
}

func (a *demoAnswer) print(p *printer) {
	p.line("")
	p.line("how many clients are of what age: %s", counted(a.Reports, "report"))
	printAnswer(p, a.Answer.Answer)
	var words []string
	for _, n := range a.True {
		words = append(words, fmt.Sprintf("%.0f", n))
	}
	p.row("in truth", "%s", strings.Join(words, ", "))
	p.row("", "%d of %d intervals hold it", a.Inside, len(a.True))
	p.row("epsilon", "%s at delta = %g (%s, proved; replace one client), charged to the same budget", roundUp(float64(a.Epsilon)), a.Delta, a.Bound)
	p.row("answer", "the recorded reports give it again, bit for bit")
}

// sums names the trust mode of the demo's question.
func (d *demo) sums() dp.Trust { return dp.Trust(d.question().Trust) }

// budget fixes the population's budget with room for both tasks: what several tasks have cost together is
// known no more precisely than the budget.
func (d *demo) budget(ctx context.Context) error {
	const room = 4
	t, err := train.NewTask(ctx, "demo", d.Config, train.Enrolled{Clients: d.population(), MinReports: 2})
	if err != nil {
		return err
	}
	cost, err := t.Planned(ctx)
	if err != nil {
		return err
	}
	d.Budget = min(sums.MostEps, room*math.Ceil(cost.Eps+d.question().Epsilon))
	return nil
}
