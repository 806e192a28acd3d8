package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
)

// replaceData puts a program, and the time for gradients, in place of what the configuration of
// clients says.
func replaceData(c *config.Client, program string, answer time.Duration) {
	if program != "" {
		c.Data, c.Gradients = "", program
	}
	if answer != 0 {
		c.Answer = answer
	}
}

// program is a program that computes the gradients of a process's clients. What goes wrong with it
// goes to this machine's log, and nowhere else.
type program struct {
	*external.Kept
	log *slog.Logger

	mu   sync.Mutex
	said map[string]bool // what was logged of the last round
	last int64
}

// openProgram opens it. Its error is one that is there whatever the data are.
func openProgram(ctx context.Context, c config.Client, log *slog.Logger) (*program, error) {
	p := &program{log: log}
	var err error
	p.Kept, err = external.Keep(ctx, programConfig(c), p.failed)
	if err != nil && ctx.Err() == nil {
		text, _ := told(err)
		err = config.Errorf("gradients: %s", text)
	}
	return p, err
}

func programConfig(c config.Client) external.Config {
	return external.Config{Program: c.Gradients, Purpose: external.Client, Timeout: max(c.Answer, external.DefaultTimeout)}
}

// failed logs an error between rounds.
func (p *program) failed(err error) {
	text, lines := told(err)
	p.log.Error("the program fails: reports are of a gradient of 0, so that nobody else sees it, until it works", "error", text, "lines", lines)
}

// told splits an error of a program into a line and the program's last lines.
func told(err error) (text string, lines []string) {
	text, rest, more := strings.Cut(strings.TrimPrefix(err.Error(), "external: "), "\n")
	for line := range strings.Lines(rest) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "  | "))
	}
	if more {
		text = strings.TrimSuffix(text, "; its last lines:")
	}
	return text, lines
}

// once says whether a text is new in a round.
func (p *program) once(round int64, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if round != p.last || p.said == nil {
		p.last, p.said = round, map[string]bool{}
	}
	again := p.said[text]
	p.said[text] = true
	return !again
}

// programClient is a client whose data the program has; service/client says what its methods do.
type programClient struct {
	*program
	id int64
}

// Open refuses a task with another number of parameters than the program's, or with others, which
// is no secret.
func (c programClient) Open(task wire.Task) (client.Gradient, error) {
	parameters := ""
	if t, err := train.ReadTask(task); err == nil {
		parameters = t.Config.Parameters
	}
	if task.Parameters() != task.Mechanism.Dim {
		return nil, fmt.Errorf("operate: the task publishes %d parameters, its reports have %d", task.Parameters(), task.Mechanism.Dim)
	}
	if err := c.Fits(task.Mechanism.Dim, parameters); err != nil {
		return nil, fmt.Errorf("operate: %w", err)
	}
	return nil, nil
}

// Ask asks the program, and logs why there is no gradient.
func (c programClient) Ask(ctx context.Context, task wire.Task, round int64, theta []float32) ([]float32, error) {
	row, odd, err := c.Gradient(ctx, task.Name, round, theta, c.id)
	if odd > 0 && c.once(round, "odd") {
		c.log.Warn("values of a gradient are not finite, and count as 0", "round", round, "values", odd)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		if text, lines := told(err); c.once(round, text) {
			c.log.Warn("there is no gradient: the report is of a gradient of 0, so that nobody else sees it", "round", round, "error", text, "lines", lines)
		}
	}
	return row, err
}

// program tries the program.
func (n *inspection) program(ctx context.Context, c config.Client) {
	var failed error
	k, err := external.Keep(ctx, programConfig(c), func(err error) { failed = err })
	if err != nil {
		n.wrong("program", err)
		return
	}
	defer k.Close()
	if failed != nil {
		text, lines := told(failed)
		n.wrong("program", errors.New(strings.Join(append([]string{text}, lines...), " | ")))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(c.Answer, external.DefaultTimeout))
	defer cancel()
	begun := time.Now()
	_, odd, err := k.Gradient(ctx, "", 1, make([]float32, k.Dim()), c.First)
	if err == nil && odd > 0 {
		err = fmt.Errorf("%d values of its gradient are not finite, and would count as 0", odd)
	}
	if took := time.Since(begun); err == nil && c.Answer > 0 && took > c.Answer {
		err = fmt.Errorf("its gradient took %v, answer allows %v", took.Round(time.Millisecond), c.Answer)
	}
	if err != nil {
		text, lines := told(err)
		err = errors.New(strings.Join(append([]string{text}, lines...), " | "))
	}
	n.wrong(fmt.Sprintf("program, %d parameters", k.Dim()), err)
}
