package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// taskSettings are the flags of riffle task create, and the settings of its file: those of a training,
// or those of a question. Some names are in both tables.
type taskSettings struct {
	train    train.Config
	question measure.TaskConfig
	wrong    map[string][2]error // what is wrong with a flag: for a training, for a question
}

// eitherFlag is a flag that both kinds of tasks have, each with its own meaning.
type eitherFlag struct {
	setting.Field // of a training
	question      setting.Field
	wrong         map[string][2]error
}

// Set keeps what one of the two kinds takes; which of them is asked for is known later.
func (f eitherFlag) Set(text string) error {
	both := [2]error{f.Field.Set(text), f.question.Set(text)}
	if f.wrong[f.Name] = both; both[0] != nil && both[1] != nil {
		return both[0]
	}
	return nil
}

func inTable(t setting.Table, name string) int {
	return slices.IndexFunc(t, func(f setting.Field) bool { return f.Name == name })
}

// ofQuestions is what help adds to flags that are written in another way for a question.
var ofQuestions = map[string]string{"range": "; of a question LOW..HIGH, without the column", "categories": "; of a question berlin|paris|*, without the column"}

// bind adds the flags.
func (s *taskSettings) bind(cmd *cobra.Command) {
	s.train, s.wrong = train.Default(), map[string][2]error{}
	training := slices.DeleteFunc(s.train.Fields(), func(f setting.Field) bool { return f.Local })
	asking := s.question.Fields()
	asking.Reset()
	bind(cmd, slices.DeleteFunc(slices.Clone(asking), func(f setting.Field) bool { return inTable(training, f.Name) >= 0 }))
	bind(cmd, training)
	for _, f := range training {
		if i := inTable(asking, f.Name); i >= 0 {
			flag := cmd.Flags().Lookup(f.Name)
			flag.Value = eitherFlag{f, asking[i], s.wrong}
			flag.Usage += ofQuestions[f.Name]
		}
	}
}

// read reads the file, if one is named, and checks that the flags go together. asks says that the task
// asks a question.
func (s *taskSettings) read(cmd *cobra.Command, file string) (asks bool, err error) {
	given := cmd.Flags().Changed
	asks = given("measure")
	var raw []byte
	if file != "" {
		if raw, err = durable.ReadFile(file); err != nil {
			return false, usage("--task %v", err)
		}
		asks = asks || measure.Asks(raw)
	}
	own, other, at := s.train.Fields(), s.question.Fields(), 0
	if asks {
		own, other, at = other, own, 1
	}
	for _, f := range other {
		if !given(f.Name) || inTable(own, f.Name) >= 0 {
			continue
		}
		if asks {
			return asks, usage("--%s is of a training, and --measure asks a question", f.Name)
		}
		return asks, usage("--%s goes with --measure", f.Name)
	}
	for name, errs := range s.wrong {
		if errs[at] != nil {
			return asks, usage("--%s: %v", name, errs[at])
		}
	}
	if !asks {
		if file != "" {
			if err := s.train.ReadConfig(file, given); err != nil {
				return asks, usageError(err)
			}
		}
		return asks, nil
	}
	if err := own.Parse(raw, given); err != nil {
		return asks, usage("--task %s: %v", file, err)
	}
	if _, err := s.question.Question(); err != nil {
		return asks, usageError(err)
	}
	return asks, nil
}

// text returns the settings as they are sent.
func (s *taskSettings) text(asks bool) ([]byte, error) {
	if asks {
		return yaml.Marshal(s.question.Fields())
	}
	return yaml.Marshal(s.train.Fields())
}

func newTaskAnswer() *cobra.Command {
	var f operatorFlags
	var show output
	var plot, out string
	var overwrite bool
	cmd := &cobra.Command{
		Use: "answer TASK", Short: "Show the answer to a task's question",
		Long: `Answer shows the numbers that a task with a question (riffle task create --measure) has
released, each with its 95 % interval and a wider one that holds for all numbers together,
and what they cost. It shows them as often as you like: the answer is charged once, when the
clients answer.`,
		Example: `  riffle task create --config docs/deploy/coordinator.yaml --name ages --measure histogram \
    --column age --bins 0..100:20 --epsilon 1
  riffle task answer ages --config docs/deploy/coordinator.yaml --plot ages.svg`,
		Args: taskArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			picture := plotFlags{file: plot}
			if err := picture.check(); err != nil {
				return err
			}
			if out != "" {
				if err := inFolder("out", out); err != nil {
					return err
				}
			}
			for _, file := range []string{out, plot} {
				if _, err := os.Stat(file); file != "" && err == nil && !overwrite {
					return usage("%s already exists; --overwrite replaces it", file)
				}
			}
			c, err := f.client()
			if err != nil {
				return err
			}
			resp, err := c.GetAnswer(cmd.Context(), connect.NewRequest(&operatorv1.GetAnswerRequest{Task: args[0]}))
			if err != nil {
				return operateError(err)
			}
			var a operate.Answer
			if err := json.Unmarshal(resp.Msg.Json, &a); err != nil {
				return fmt.Errorf("the coordinator's answer cannot be read: %w", err)
			}
			if err := writeAnswer(a, a.Answer, out, plot); err != nil {
				return err
			}
			if show.json {
				return printJSON(cmd.OutOrStdout(), a)
			}
			p := printer{w: cmd.OutOrStdout()}
			printTaskAnswer(&p, a)
			printWritten(&p, out, plot)
			return p.err
		},
	}
	cmd.Flags().StringVar(&plot, "plot", "", "draw the answer with its intervals to a .svg or .png `FILE`")
	cmd.Flags().StringVar(&out, "out", "", "write the JSON to this `FILE`, too")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace files that exist")
	f.flags(cmd)
	show.flags(cmd.Flags())
	return cmd
}

// printTaskAnswer prints an answer and what it cost.
func printTaskAnswer(p *printer, a operate.Answer) {
	printAnswer(p, a.Answer)
	p.row("task", "%.16s… (%s), round %d", a.Task, a.Name, a.Round)
	printCovered(p, a.Answer)
	p.row("epsilon", "%s at delta = %g (%s one client), by trust %s", roundUp(float64(a.Epsilon)), a.Delta, a.Adjacency, a.Trust)
	if a.TooLong {
		p.row("warning", "the sums are longer than honest reports give: somebody lied")
	}
}
