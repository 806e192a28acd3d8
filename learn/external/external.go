// Package external lets a program of any language compute gradients and evaluate models. It
// starts the program or connects to it, asks, and checks what it answers; docs/SPEC.md, section
// "Gradients from a program", has the frames.
//
// A Session is one conversation. Its errors say which program, what was asked, and what the
// program last wrote to standard error. A Kept program has one session after the other, for
// clients, whose reports must not show what the program does.
//
// BUG(riffle): a program sees which of its clients are in a round, and when.
package external

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/internal/safetensors"
)

// version is that of the conversation.
const version = "1"

// Operations.
const (
	opOpen      = "open"
	opGradients = "gradients"
	opEvaluate  = "evaluate"
	opClose     = "close"
	opError     = "error"
)

// purpose says what a program is asked to serve.
type purpose string

const (
	Simulate purpose = "simulate" // all clients' data, and the evaluation's
	Client   purpose = "client"   // the data of the clients that it is asked for
	Evaluate purpose = "evaluate" // the evaluation's data only
)

// MaxDim is the largest number of parameters.
const MaxDim = 10_000_000

const (
	maxHeader     = 1 << 20  // bytes of an answer's header
	maxRows       = 256      // rows of an answer
	maxRowBytes   = 16 << 20 // bytes of an answer's rows, unless one row is longer
	maxUnanswered = 2        // requests that were sent and not yet answered
	batches       = 2        // answers in memory: one is read while workers have the other
	maxNumbers    = 32       // numbers of an evaluation
)

// DefaultTimeout is the time for one answer.
const DefaultTimeout = 120 * time.Second

// Config describes a program and what it is asked to open.
type Config struct {
	// Program is a command line, split into words as a shell does it and run without one, or
	// unix:PATH. Required.
	Program string
	Purpose purpose // Required.
	Task    string  // its name; empty in a simulation
	Clients int64   // n; 0: the program says it
	Seed    uint64
	Timeout time.Duration // for one answer; 0: DefaultTimeout
	// Stderr is where the standard error of a program that was started is shown, line by line.
	// nil: nowhere, and errors have its last lines.
	Stderr io.Writer
}

// About is what a program says about its model.
type About struct {
	Dim     int   // number of parameters
	Clients int64 // n; 0: the program does not say it
	// Delta says that rows are changes of the model by local steps. The session turns their
	// signs, so that all rows are gradients.
	Delta      bool
	Name       string // for people; may be empty
	Parameters []parameter
	Initial    []float32 // where learning starts
}

// parameter is a tensor of the model.
type parameter struct {
	Name  string
	Shape []int
}

// Fits refuses a task's model that is not the program's: with another number of parameters or,
// where both say them, with other names and shapes. Nothing is known of an empty text.
func (a About) Fits(dim int64, parameters string) error {
	if int64(a.Dim) != dim {
		return fmt.Errorf("the program's model has %d parameters, the task's %d", a.Dim, dim)
	}
	if parameters == "" || len(a.Parameters) == 1 && a.Parameters[0].Name == "theta" {
		return nil
	}
	want, err := Parameters(parameters, a.Dim)
	if err != nil {
		return fmt.Errorf("the task's %v", err)
	}
	for i, p := range want {
		if i >= len(a.Parameters) || p.Name != a.Parameters[i].Name || !slices.Equal(p.Shape, a.Parameters[i].Shape) {
			return fmt.Errorf("the program's model has other tensors than the task's, from number %d on, which the task calls %q, with shape %v", i+1, clipped(p.Name), p.Shape)
		}
	}
	return nil
}

// request encodes the head of a request; the tensors' data follow it.
func request(meta map[string]string, tensors ...safetensors.Tensor) ([]byte, error) {
	head, size, err := safetensors.Head(safetensors.File{Metadata: meta, Tensors: tensors})
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 8, 8+len(head))
	putUint64(frame, uint64(len(head)+size))
	return append(frame, head...), nil
}

func (c Config) openRequest() ([]byte, error) {
	meta := map[string]string{"op": opOpen, "version": version, "purpose": string(c.Purpose), "task": c.Task, "seed": strconv.FormatUint(c.Seed, 10)}
	if c.Clients != 0 {
		meta["clients"] = strconv.FormatInt(c.Clients, 10)
	}
	return request(meta)
}

// about reads the metadata of the answer to open, and checks the tensors' shapes. Initial is
// left nil.
func (c Config) about(f safetensors.File) (a About, err error) {
	for key := range f.Metadata {
		switch key {
		case "op", "version", "dim", "clients", "update", "name", "parameters":
		default:
			return a, fmt.Errorf("its metadata have %q, which is not known (known are dim, clients, update, name and parameters)", key)
		}
	}
	if v := f.Metadata["version"]; v != version {
		return a, fmt.Errorf("it speaks version %q, not %s", v, version)
	}
	dim, err := count(f.Metadata, "dim", MaxDim)
	if err != nil {
		return a, err
	}
	if dim < 1 {
		return a, errors.New("its metadata lack dim, the number of parameters")
	}
	a.Dim = int(dim)
	if a.Clients, err = count(f.Metadata, "clients", 1e12); err != nil {
		return a, err
	}
	switch {
	case a.Clients == 0 && c.Purpose == Simulate:
		return a, errors.New("its metadata lack clients, the number of clients whose data it has")
	case a.Clients != 0 && c.Clients != 0 && a.Clients != c.Clients:
		return a, fmt.Errorf("it has %d clients, asked for are %d", a.Clients, c.Clients)
	}
	switch update := f.Metadata["update"]; update {
	case "delta":
		a.Delta = true
	case "", "gradient":
	default:
		return a, fmt.Errorf("update = %q must be gradient or delta", update)
	}
	a.Name = f.Metadata["name"]
	if len([]rune(a.Name)) > 64 || strings.ContainsFunc(a.Name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return a, fmt.Errorf("name = %q must be at most 64 printable characters", a.Name)
	}
	if a.Parameters, err = Parameters(f.Metadata["parameters"], a.Dim); err != nil {
		return a, err
	}
	for _, t := range f.Tensors {
		if t.Name != "initial" {
			return a, fmt.Errorf("it sends a tensor %q, which is not known (known is initial)", t.Name)
		}
		if t.DType != safetensors.F32 || len(t.Shape) != 1 || t.Shape[0] != a.Dim {
			return a, fmt.Errorf("initial is %s %v, want F32 [%d]", t.DType, t.Shape, a.Dim)
		}
	}
	return a, nil
}

// count reads a whole number from 1 to most; 0 if there is none.
func count(meta map[string]string, key string, most int64) (int64, error) {
	text, ok := meta[key]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s = %q must be a whole number from 1 to %d", key, text, most)
	}
	return n, nil
}

// maxParameters is the largest number of a model's tensors.
const maxParameters = 1 << 14

// Parameters reads the names and shapes of a model's tensors, such as "w=10x4 b=10", which
// together have dim values. The empty text stands for one tensor, theta.
func Parameters(text string, dim int) (out []parameter, err error) {
	if text == "" {
		return []parameter{{"theta", []int{dim}}}, nil
	}
	seen := map[string]bool{}
	total := 0
	for word := range strings.SplitSeq(text, " ") {
		name, sizes, ok := strings.Cut(word, "=")
		p := parameter{Name: name, Shape: []int{}}
		odd := func(r rune) bool { return r <= ' ' || r > '~' }
		if !ok || name == "" || len(name) > 200 || strings.ContainsFunc(name, odd) || name == "__metadata__" {
			return nil, fmt.Errorf("parameters have the word %q, want name=shape, as conv.weight=8x1x5x5", clipped(word))
		}
		if seen[name] {
			return nil, fmt.Errorf("two parameters are named %q", name)
		}
		seen[name] = true
		size := 1
		for part := range strings.SplitSeq(sizes, "x") {
			if sizes == "" {
				break
			}
			n, err := strconv.ParseUint(part, 10, 31)
			if err != nil || n > MaxDim {
				return nil, fmt.Errorf("parameter %q has the shape %q, want whole numbers as 8x1x5x5", name, clipped(sizes))
			}
			p.Shape = append(p.Shape, int(n))
			if size *= int(n); size > MaxDim {
				return nil, fmt.Errorf("parameter %q is larger than a model may be", name)
			}
		}
		if total += size; total > dim || len(out) == maxParameters {
			return nil, fmt.Errorf("parameters have more than dim = %d values, or are more than %d", dim, maxParameters)
		}
		out = append(out, p)
	}
	if total != dim {
		return nil, fmt.Errorf("parameters have %d values, dim is %d", total, dim)
	}
	return out, nil
}

func clipped(text string) string {
	if len(text) > 80 {
		return text[:80] + "…"
	}
	return text
}
