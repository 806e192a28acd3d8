// Package externaltest is a program for tests that answers riffle's requests for gradients, rightly
// or wrongly. It is written from docs/SPEC.md and shares no code with package external.
package externaltest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Main makes a test's binary the program: called first in TestMain, it answers as a mode says
// and exits if the binary was started by the command line that Program returns.
func Main() {
	if len(os.Args) > 2 && os.Args[1] == "serve-gradients" {
		serve(os.Args[2], os.Stdin, os.Stdout)
		os.Exit(0)
	}
}

// Program returns a command line that runs this binary in a mode.
func Program(mode string) string {
	return "'" + strings.ReplaceAll(os.Args[0], "'", `'\''`) + "' serve-gradients " + mode
}

// Dim and Clients are the size of the program's model and the number of clients it has data of, if
// it is not asked for another number.
const Dim, Clients = 5, 1000

// Gradient is coordinate j of what the program computes for client id.
func Gradient(theta []float32, id int64, j int) float32 {
	return theta[j]*float32(j+1) + float32(id)
}

// document is a request or an answer.
type document struct {
	meta map[string]string
	f32  map[string][]float32
	i64  map[string][]int64
}

func readDocument(r io.Reader) (d document, ok bool) {
	var n [8]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return d, false
	}
	b := make([]byte, binary.LittleEndian.Uint64(n[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return d, false
	}
	h := 8 + binary.LittleEndian.Uint64(b)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:h], &header); err != nil {
		panic(err)
	}
	d = document{map[string]string{}, map[string][]float32{}, map[string][]int64{}}
	for name, raw := range header {
		if name == "__metadata__" {
			if err := json.Unmarshal(raw, &d.meta); err != nil {
				panic(err)
			}
			continue
		}
		var t struct {
			DType   string
			Shape   []int
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &t); err != nil {
			panic(err)
		}
		data := b[int(h)+t.Offsets[0] : int(h)+t.Offsets[1]]
		for len(data) > 0 {
			if t.DType == "F32" {
				d.f32[name] = append(d.f32[name], math.Float32frombits(binary.LittleEndian.Uint32(data)))
				data = data[4:]
			} else {
				d.i64[name] = append(d.i64[name], int64(binary.LittleEndian.Uint64(data)))
				data = data[8:]
			}
		}
	}
	return d, true
}

// Answer encodes a document with at most one tensor, and its length.
func Answer(meta map[string]string, name, dtype string, shape []int, data []byte) []byte {
	header := map[string]any{"__metadata__": meta}
	if name != "" {
		header[name] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": []int{0, len(data)}}
	}
	h, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(8+len(h)+len(data)))
	out = binary.LittleEndian.AppendUint64(out, uint64(len(h)))
	return append(append(out, h...), data...)
}

// floats encodes a tensor of float32.
func floats(v []float32) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, v) // cannot fail: its size is known
	return b
}

// Learnable is coordinate j of the gradients of the modes learn and learn-delta: of the squared
// distance to a point near 0, another one for each client.
func Learnable(theta []float32, id int64, j int) float32 {
	return 2 * (theta[j] - .1*float32((id+int64(j))%3-1))
}

// pause is what a program does that is slow, late or hangs.
func pause(d time.Duration) { time.Sleep(d) }

// serve answers requests as the mode says, until there are none. The mode fast=DIM answers with
// zeros at once.
func serve(mode string, r io.Reader, w io.Writer) {
	in := bufio.NewReaderSize(r, 1<<16)
	dim := Dim
	mode, size, _ := strings.Cut(mode, "=")
	if n, err := strconv.Atoi(size); err == nil {
		dim = n
	}
	var ready []byte // an answer that is sent again
	rowsReady := 0
	say := func(text string) { _, _ = io.WriteString(w, text) }
	note := func(text string) { fmt.Fprintln(os.Stderr, text) }
	asked := 0
	for {
		if mode == "deaf" {
			pause(time.Hour)
		}
		ask, ok := readDocument(in)
		if !ok {
			if mode == "stays" {
				pause(time.Hour)
			}
			return
		}
		op := ask.meta["op"]
		meta := map[string]string{"op": op}
		switch op {
		case "open":
			meta["version"], meta["dim"] = "1", strconv.Itoa(dim)
			if meta["clients"] = strconv.Itoa(Clients); ask.meta["clients"] != "" && mode != "other-clients" {
				meta["clients"] = ask.meta["clients"]
			}
			tensor, shape, initial := "", []int(nil), []byte(nil)
			switch mode {
			case "dies-open":
				note("Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'")
				os.Exit(3)
			case "quiet-end":
				return
			case "newline":
				say("\n")
			case "prints":
				say("Downloading 100%\n")
			case "prints-short":
				say("ok\n")
			case "prints-unended":
				say("loading the data")
			case "other-op":
				meta["op"] = "gradients"
			case "says":
				meta = map[string]string{"op": "error", "message": "no such\nfile: data.npz"}
			case "steers":
				note("\x1b]0;title\a\x1b[31mred\x1b[0m \u009b2J\u202enwod")
				meta = map[string]string{"op": "error", "message": "no \x1b[2J\x1b[Hdata"}
			case "old":
				meta["version"] = "0"
			case "no-dim":
				delete(meta, "dim")
			case "large":
				meta["dim"] = "10000001"
			case "no-clients":
				delete(meta, "clients")
			case "misspelt":
				meta["client"] = "7"
			case "delta", "longest-delta":
				meta["update"] = "delta"
			case "learn", "learn-delta", "mixes", "random", "equal", "ascent", "restless":
				if meta["name"] = "bowl"; mode == "learn-delta" {
					meta["update"] = "delta"
				}
				meta["parameters"] = "slope=2x2 offset="
				start := []float32{1, -1, 1, -1, 1}
				if mode == "restless" {
					start[0] += float32(time.Now().UnixNano()%1000) / 1000
				}
				tensor, shape, initial = "initial", []int{dim}, floats(start)
			case "other-update":
				meta["update"] = "deltas"
			case "parameters":
				meta["parameters"], meta["name"] = "w=2x2 b=", "tiny"
				tensor, shape, initial = "initial", []int{dim}, floats([]float32{1, 2, 3, 4, 5})
			case "parameters-few":
				meta["parameters"] = "w=2x2"
			case "nan-initial":
				tensor, shape, initial = "initial", []int{dim}, floats([]float32{1, 2, 3, float32(math.NaN()), 5})
			case "short-initial":
				tensor, shape, initial = "initial", []int{4}, floats([]float32{1, 2, 3, 4})
			case "other-tensor":
				tensor, shape, initial = "theta", []int{dim}, floats(make([]float32, dim))
			case "huge-frame":
				say(string(binary.LittleEndian.AppendUint64(nil, 1<<40)))
			case "huge-header":
				say(string(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 2<<20), 1<<20+1)))
				pause(time.Hour)
			}
			_, _ = w.Write(Answer(meta, tensor, "F32", shape, initial))
		case "gradients":
			theta, ids := ask.f32["theta"], ask.i64["ids"]
			if mode == "fast" {
				if rowsReady != len(ids) {
					rowsReady, ready = len(ids), Answer(meta, "gradients", "F32", []int{len(ids), dim}, make([]byte, 4*len(ids)*dim))
				}
				_, _ = w.Write(ready)
				continue
			}
			rows := make([]float32, 0, len(ids)*dim)
			for _, id := range ids {
				for j := range dim {
					g := Gradient(theta, id, j)
					switch mode {
					case "learn":
						g = Learnable(theta, id, j)
					case "mixes": // something of the others
						g = Learnable(theta, id, j) + .01*float32(len(ids))
					case "random":
						g = Learnable(theta, id, j) + float32(time.Now().UnixNano()%1000)
					case "equal":
						g = Learnable(theta, 0, j)
					case "ascent":
						g = -Learnable(theta, id, j)
					case "learn-delta": // three steps of rate 0.1
						moved := append([]float32(nil), theta...)
						for range 3 {
							moved[j] -= .1 * Learnable(moved, id, j)
						}
						g = moved[j] - theta[j]
					}
					if mode == "delta" {
						g = -g
					}
					if mode == "longest" || mode == "longest-delta" { // as long as float32 allows, or longer
						g = []float32{math.MaxFloat32, float32(math.Inf(1)), 1e38}[j%3]
					}
					if mode == "nan" && id%10 == 0 && j == 2 {
						g = float32(math.NaN())
					}
					if mode == "nan" && id%10 == 0 && j == 3 {
						g = float32(math.Inf(-1))
					}
					rows = append(rows, g)
				}
			}
			dtype, shape, name := "F32", []int{len(ids), dim}, "gradients"
			asked++
			switch mode {
			case "wrong-dim":
				shape[1], rows = dim-1, rows[:len(ids)*(dim-1)]
			case "wrong-rows":
				shape[0], rows = len(ids)-1, rows[dim:]
			case "flat":
				shape = []int{len(rows)}
			case "wrong-type":
				dtype, shape = "I64", []int{len(ids), 2}
				rows = rows[:4*len(ids)]
			case "wrong-name":
				name = "grads"
			case "more-words":
				meta["loss"] = "1"
			case "too-much":
				shape[0]++
				rows = append(rows, rows[:dim]...)
			case "nothing":
				_, _ = w.Write(Answer(meta, "", "", nil, nil))
				continue
			case "dies":
				if asked == 2 {
					note("epoch 1")
					note("MemoryError: out of memory")
					os.Exit(1)
				}
			case "killed":
				if asked == 2 {
					if self, err := os.FindProcess(os.Getpid()); err == nil {
						_ = self.Kill()
					}
					pause(time.Hour)
				}
			case "dies-inside":
				out := Answer(meta, name, dtype, shape, floats(rows))
				_, _ = w.Write(out[:len(out)/2])
				note("half")
				os.Exit(1)
			case "hangs":
				note("waiting for a lock")
				pause(time.Hour)
			case "slow":
				pause(50 * time.Millisecond)
			case "late":
				pause(5 * time.Second)
			case "floods":
				for range 1 << 20 {
					say("step 2, loss 0.31\n")
					note("step 2")
				}
				os.Exit(1)
			case "forks": // ends, and leaves a child behind that holds all pipes open
				child := exec.Command(os.Args[0], "serve-gradients", "deaf")
				child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
				if err := child.Start(); err != nil {
					panic(err)
				}
				os.Exit(1)
			case "prints-later":
				if asked == 2 {
					say("step 2, loss 0.31\n")
				}
			}
			_, _ = w.Write(Answer(meta, name, dtype, shape, floats(rows)))
		case "evaluate":
			sum := 0.0
			for _, x := range ask.f32["theta"] {
				sum += float64(x) * float64(x)
			}
			meta["loss"], meta["accuracy"], meta["auc"], meta["examples"] = strconv.FormatFloat(sum, 'g', -1, 64), "0.5", "nan", "100"
			switch mode {
			case "no-loss":
				delete(meta, "loss")
			case "percent":
				meta["accuracy"] = "84.5"
			case "no-number":
				meta["auc"] = "good"
			case "odd-name":
				meta["AUC"] = "1"
			case "baseline":
				meta["baseline_accuracy"], meta["baseline_loss"] = "0.75", "inf"
			case "nan-loss":
				meta["loss"] = "nan"
			case "evaluation-dies":
				note("FileNotFoundError: test.npz")
				os.Exit(1)
			case "evaluation-hangs":
				pause(time.Hour)
			}
			_, _ = w.Write(Answer(meta, "", "", nil, nil))
			if mode == "evaluates-once" {
				os.Exit(0)
			}
		case "close":
			switch mode {
			case "stays":
				pause(time.Hour)
			case "stays-firmly":
				signal.Ignore(syscall.SIGTERM)
				pause(time.Hour)
			case "child": // leaves a child behind that holds the output open
				child := exec.Command(os.Args[0], "serve-gradients", "deaf")
				child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
				if err := child.Start(); err != nil {
					panic(err)
				}
			}
			return
		}
	}
}
