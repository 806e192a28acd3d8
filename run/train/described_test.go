package train

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// startFile writes a model of a matrix and a vector, in the order that is given.
func startFile(t *testing.T, names ...string) string {
	t.Helper()
	var f safetensors.File
	for _, name := range names {
		tensor := safetensors.New(name, []int{2, 3}, []float32{1, 2, 3, 4, 5, 6})
		if name == "bias" {
			tensor = safetensors.New(name, []int{2}, []float32{7, 8})
		}
		f.Tensors = append(f.Tensors, tensor)
	}
	raw, err := safetensors.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return written(t, raw)
}

func written(t *testing.T, raw []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "start.safetensors")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func describedConfig(change func(*Config)) Config {
	c := Default()
	c.Model, c.Dim, c.Parameters, c.Rounds = external, 8, "weight=2x3 bias=2", 3
	if change != nil {
		change(&c)
	}
	return c
}

func TestDescribedTask(t *testing.T) {
	c := describedConfig(func(c *Config) { c.Initial = startFile(t, "bias", "weight") }) // another order than the programs'
	raw, err := c.ReadInitial()
	if err != nil {
		t.Fatal(err)
	}
	if want := []float32{1, 2, 3, 4, 5, 6, 7, 8}; fmt.Sprint(floats(raw)) != fmt.Sprint(want) {
		t.Fatalf("it starts from %v", floats(raw))
	}
	e := enrolled
	e.Initial = raw
	task, err := NewTask(t.Context(), "own", c, e)
	if err != nil {
		t.Fatal(err)
	}
	if task.Wire.Mechanism.Dim != 8 || task.Wire.Mechanism.Encoding != wire.EncodingSeed || strings.Contains(string(task.Wire.Config), "start.safetensors") {
		t.Errorf("mechanism %+v of\n%s", task.Wire.Mechanism, task.Wire.Config)
	}
	asked := 0
	again, err := OpenTask(t.Context(), task.Wire, "mnist", func(_ context.Context, digest [32]byte) ([]byte, error) {
		asked++
		if want, ok := task.Config.initialDigest(); !ok || digest != want {
			t.Errorf("asked for %x", digest)
		}
		return raw, nil
	})
	if err != nil || asked != 1 {
		t.Fatalf("%d reads, %v", asked, err)
	}
	config, err := again.Coordinator()
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Optimizer.Point(); got[0] != 1 || got[7] != 8 {
		t.Errorf("the optimiser starts at %v", got)
	}
	read, err := ReadTask(task.Wire)
	if err != nil || read.Config.Parameters != c.Parameters || read.Config.Dim != 8 {
		t.Errorf("clients read %+v, %v", read, err)
	}
	if _, err := again.Evaluate(make([]float32, 8)); err == nil {
		t.Error("it was evaluated by nobody's program")
	}
	local := &Local{Data: "mnist"}
	if _, err := (LocalClient{Local: local}).Open(task.Wire); err == nil || !strings.Contains(err.Error(), "a program computes the gradients") {
		t.Errorf("a client with data of its own: %v", err)
	}
	file, err := again.ModelFile(2, make([]float32, 8), 1.5, "pld", [32]byte{0xab})
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Unmarshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if w, ok := f.Find("weight"); !ok || fmt.Sprint(w.Shape) != "[2 3]" || f.Metadata["riffle.task"] != "own" || f.Metadata["riffle.round"] != "2" ||
		f.Metadata["riffle.epsilon"] != "1.5" || f.Metadata["riffle.delta"] != "1e-05" || f.Metadata["riffle.bound"] != "pld" || !strings.HasPrefix(f.Metadata["riffle.ledger-head"], "ab00") {
		t.Errorf("the model file says %v", f.Metadata)
	}
}

// Without a file the model starts from zeros, as one tensor.
func TestDescribedTaskFromZeros(t *testing.T) {
	task, err := NewTask(t.Context(), "own", describedConfig(func(c *Config) { c.Parameters, c.Optimizer, c.Trust = "", adam, "local" }), enrolled)
	if err != nil {
		t.Fatal(err)
	}
	if theta := task.Model.Init(7); len(theta) != 8 || theta[0] != 0 || theta[7] != 0 {
		t.Errorf("it starts from %v", theta)
	}
	if tensors, err := task.Model.Tensors(make([]float32, 8)); err != nil || len(tensors) != 1 || tensors[0].Name != "theta" {
		t.Errorf("tensors %v, %v", tensors, err)
	}
	if _, err := OpenTask(t.Context(), task.Wire, "", nil); err != nil {
		t.Error(err)
	}
}

// A file of one tensor says its name and shape.
func TestInitialOfOneTensor(t *testing.T) {
	c := Default()
	c.Initial = startFile(t, "weight")
	if _, err := c.ReadInitial(); err != nil || c.Model != external || c.Dim != 6 || c.Parameters != "weight=2x3" {
		t.Errorf("%s, %d, %q, %v", c.Model, c.Dim, c.Parameters, err)
	}
}

func TestInitialRefused(t *testing.T) {
	good, err := os.ReadFile(startFile(t, "weight", "bias"))
	if err != nil {
		t.Fatal(err)
	}
	odd := func(v float32) string {
		raw := bytes.Clone(good)
		binary.LittleEndian.PutUint32(raw[len(raw)-4:], math.Float32bits(v))
		return written(t, raw)
	}
	header := func(text string, data int) string {
		raw := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
		return written(t, append(append(raw, text...), make([]byte, data)...))
	}
	large := written(t, nil)
	if err := os.Truncate(large, maxInitial+1); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		path, want string
		change     func(*Config)
	}{
		"none":            {"nowhere.safetensors", "no such file", nil},
		"directory":       {t.TempDir(), "is a directory", nil},
		"text":            {written(t, []byte("hello there, this is no model")), "header length", nil},
		"a huge header":   {written(t, binary.LittleEndian.AppendUint64(nil, 1<<62)), "above limit", nil},
		"cut off":         {written(t, good[:len(good)-1]), "outside the", nil},
		"longer":          {written(t, append(bytes.Clone(good), 0)), "trailing", nil},
		"two names":       {header(`{"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"weight":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), `"weight" occurs twice`, nil},
		"a huge shape":    {header(`{"weight":{"dtype":"F32","shape":[1000000000,1000000000],"data_offsets":[0,4]}}`, 4), "weight", nil},
		"a device":        {"/dev/zero", "it is a device", nil},
		"too large":       {large, "larger than", nil},
		"NaN":             {odd(float32(math.NaN())), "not finite", nil},
		"infinite":        {odd(float32(math.Inf(-1))), "not finite", nil},
		"other type":      {header(`{"weight":{"dtype":"F64","shape":[4],"data_offsets":[0,32]}}`, 32), "F64, want F32", nil},
		"nothing":         {header(`{}`, 0), "no values", nil},
		"other dim":       {startFile(t, "weight", "bias"), "8 values, dim is 9", func(c *Config) { c.Dim, c.Parameters = 9, "" }},
		"no order":        {startFile(t, "bias", "weight"), `"bias=2 weight=2x3"`, func(c *Config) { c.Parameters = "" }},
		"other names":     {startFile(t, "weight", "bias"), `no tensor "scale"`, func(c *Config) { c.Parameters = "weight=2x3 scale=2" }},
		"other shapes":    {startFile(t, "weight", "bias"), "shape [2 3]", func(c *Config) { c.Parameters = "weight=3x2 bias=2" }},
		"more parameters": {startFile(t, "weight", "bias"), "2 tensors, parameters has 3", func(c *Config) { c.Parameters = "weight=2x3 bias=2 more=0" }},
		"too many":        {startFile(t, "weight", "bias"), "more than dim", func(c *Config) { c.Parameters = "weight=2x3 bias=3" }},
	} {
		t.Run(name, func(t *testing.T) {
			c := describedConfig(of.change)
			c.Initial = of.path
			before := c
			if raw, err := c.ReadInitial(); err == nil || !strings.Contains(err.Error(), of.want) || raw != nil {
				t.Errorf("%v, want %s", err, of.want)
			} else if c.Initial != before.Initial {
				t.Errorf("initial became %s", c.Initial)
			}
		})
	}
}

// What a coordinator is sent, or finds in its store, must be what the task names.
func TestDescribedTaskRefused(t *testing.T) {
	zeros := make([]byte, 32)
	digest := "sha256:66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"
	odd := bytes.Clone(zeros)
	odd[3], odd[2] = 0x7f, 0x80
	for name, of := range map[string]struct {
		want    string
		initial []byte
		change  func(*Config)
	}{
		"not sent":      {"missing", nil, func(c *Config) { c.Initial = digest }},
		"not named":     {"does not name", zeros, nil},
		"a path":        {"must be sha256:", zeros, func(c *Config) { c.Initial = "/etc/passwd" }},
		"other digest":  {"have the digest", append(bytes.Clone(zeros[:31]), 1), func(c *Config) { c.Initial = digest }},
		"shorter":       {"has 28 bytes", zeros[:28], func(c *Config) { c.Initial = digest }},
		"not finite":    {"not finite", odd, func(c *Config) { c.Initial = "sha256:" + sum(odd) }},
		"no dim":        {"the task says dim", nil, func(c *Config) { c.Dim = 0 }},
		"huge":          {"must lie between 1 and 10000000", nil, func(c *Config) { c.Dim = 1e18 }},
		"other model":   {"go with model external", nil, func(c *Config) { c.Model = "softmax" }},
		"parameters":    {"parameters have 6 values, dim is 8", nil, func(c *Config) { c.Parameters = "weight=2x3" }},
		"nonsense":      {"want name=shape", nil, func(c *Config) { c.Parameters = "\x1b[2J" }},
		"twice":         {"two parameters are named", nil, func(c *Config) { c.Parameters = "w=4 w=4" }},
		"overflow":      {"larger than a model may be", nil, func(c *Config) { c.Parameters = "w=4000000x4000000x4000000" }},
		"a guard":       {"cannot hold a step back", nil, func(c *Config) { c.Guard = "loss:0.1" }},
		"an optimum":    {"convex loss", nil, func(c *Config) { c.Optimizer = "agd" }},
		"data":          {"it has the data", nil, func(c *Config) { c.Data = "table.csv"; c.Label = "y" }},
		"its programs":  {"each client has its own program", nil, func(c *Config) { c.Gradients = "true" }},
		"trust none":    {"trust none", nil, func(c *Config) { c.Trust = dp.None }},
		"answers' time": {"answer-seconds", nil, func(c *Config) { c.AnswerSeconds = 3 }},
	} {
		t.Run(name, func(t *testing.T) {
			e := enrolled
			e.Initial = of.initial
			if _, err := NewTask(t.Context(), "own", describedConfig(of.change), e); err == nil || !strings.Contains(err.Error(), of.want) {
				t.Errorf("%v, want %s", err, of.want)
			}
		})
	}
	if _, err := Prepare(t.Context(), describedConfig(nil)); err == nil || !strings.Contains(err.Error(), "riffle task create") {
		t.Errorf("a simulation: %v", err)
	}
	if _, err := Prepare(t.Context(), bowl("learn", func(c *Config) { c.Dim = 5 })); err == nil || !strings.Contains(err.Error(), "the program of gradients says them") {
		t.Errorf("a simulation with a program: %v", err)
	}
}

// A client reads nothing into a task whose parts contradict each other.
func TestReadTaskRefusesAnotherDim(t *testing.T) {
	task, err := NewTask(t.Context(), "own", describedConfig(nil), enrolled)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*wire.Task){
		"mechanism":  func(w *wire.Task) { w.Mechanism.Dim = 9 },
		"parameters": func(w *wire.Task) { w.Config = bytes.Replace(w.Config, []byte("bias=2"), []byte("bias=3"), 1) },
		"dim": func(w *wire.Task) {
			w.Config = bytes.Replace(w.Config, []byte("dim: 8"), []byte("dim: 1000000000000000000"), 1)
		},
		"inputs": func(w *wire.Task) { w.Config = bytes.Replace(w.Config, []byte("inputs: 0"), []byte("inputs: 3"), 1) },
		"key":    func(w *wire.Task) { w.Config = append(bytes.Clone(w.Config), "more: 1\n"...) },
		"initial": func(w *wire.Task) {
			w.Config = bytes.Replace(w.Config, []byte("dim: 8"), []byte("dim: 8\n    initial: start.safetensors"), 1)
		},
	} {
		w := task.Wire
		change(&w)
		if bytes.Equal(w.Config, task.Wire.Config) && w.Mechanism.Dim == 8 {
			t.Fatalf("%s changes nothing of\n%s", name, w.Config)
		}
		if _, err := ReadTask(w); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}

func sum(raw []byte) string { return fmt.Sprintf("%x", sha256.Sum256(raw)) }
