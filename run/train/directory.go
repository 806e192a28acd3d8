package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
)

// Files of a run directory.
const (
	ConfigFile     = "config.yaml"
	MetricsFile    = "metrics.jsonl"
	CheckpointFile = "checkpoint/state.safetensors"
	ModelFile      = "model.safetensors"
	SummaryFile    = "summary.json"
	ReportFile     = "report.html"
)

// ErrInput is wrapped by errors in the caller's input. It has no text of its own: the error
// around it says what is wrong.
var ErrInput = errors.New("")

func inputError(format string, args ...any) error {
	return fmt.Errorf("train: %s%w", fmt.Sprintf(format, args...), ErrInput)
}

// createDirectory makes a run directory and writes its configuration. It refuses a directory
// with any content, which may be another run.
func createDirectory(dir string, c Config) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return inputError("out: %v", err)
	}
	if len(entries) > 0 {
		what := "files"
		if _, err := os.Stat(filepath.Join(dir, ConfigFile)); err == nil {
			what = "another run"
		}
		return inputError("out: %s already holds %s; choose a new directory, or continue that run with --resume", dir, what)
	}
	if err := durable.MkdirAll(filepath.Join(dir, filepath.Dir(CheckpointFile)), 0o755); err != nil {
		return inputError("out: %v", err)
	}
	text, err := yaml.Marshal(c.Fields())
	if err != nil {
		return err
	}
	head := "# A riffle run. Continue it with: riffle train --resume DIR\n"
	return durable.WriteFile(filepath.Join(dir, ConfigFile), append([]byte(head), text...))
}

// Metrics is one evaluation, which is one line of metrics.jsonl.
type Metrics struct {
	Round    int64     `json:"round"`
	Epsilon  dp.Number `json:"epsilon"`
	Loss     float64   `json:"loss"`
	Accuracy dp.Number `json:"accuracy"` // NaN for a regression
	Seconds  float64   `json:"seconds"`
	// The best constant's result, the same in every line; absent if a program that evaluates gave none.
	BaselineLoss     *float64 `json:"baseline_loss,omitempty"`
	BaselineAccuracy *float64 `json:"baseline_accuracy,omitempty"` // absent for a regression
	// Numbers are other figures, of a program or a table; see model.Evaluation.Metrics.
	Numbers map[string]dp.Number `json:"metrics,omitempty"`
	// Private is what clients measured in this round: of the model that the round began with.
	Private *Measured `json:"private,omitempty"`
}

// readMetrics returns the lines up to the given round. Lines after them were written after
// the last checkpoint, or cut off; the run makes them again.
func readMetrics(path string, upTo int64) ([]Metrics, error) {
	raw, err := durable.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Metrics
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		var m Metrics
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.Round > upTo {
			break
		}
		out = append(out, m)
	}
	return out, lines.Err()
}

func marshalMetrics(all []Metrics) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, m := range all {
		if err := enc.Encode(m); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
