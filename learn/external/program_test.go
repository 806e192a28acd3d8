package external

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is the program too: with the words "serve MODE" it answers as the mode says.
// It is written from docs/SPEC.md and shares no code with the package.

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "serve" {
		serve(os.Args[2], os.Stdin, os.Stdout)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// program returns the command line of a mode.
func program(mode string) string {
	return "'" + strings.ReplaceAll(os.Args[0], "'", `'\''`) + "' serve " + mode
}

const programDim, programClients = 5, 1000

// gradientOf is what the program computes for a client.
func gradientOf(theta []float32, id int64, j int) float32 {
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

// answer encodes a document with at most one tensor.
func answer(meta map[string]string, name, dtype string, shape []int, data []byte) []byte {
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

func floats(v []float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// serve answers requests as the mode says, until there are none.
func serve(mode string, r io.Reader, w io.Writer) {
	in := bufio.NewReader(r)
	dim := programDim
	say := func(text string) { _, _ = io.WriteString(w, text) }
	note := func(text string) { fmt.Fprintln(os.Stderr, text) }
	asked := 0
	for {
		if mode == "deaf" {
			time.Sleep(time.Hour)
		}
		ask, ok := readDocument(in)
		if !ok {
			if mode == "stays" {
				time.Sleep(time.Hour)
			}
			return
		}
		op := ask.meta["op"]
		meta := map[string]string{"op": op}
		switch op {
		case "open":
			meta["version"], meta["dim"] = "1", strconv.Itoa(dim)
			if meta["clients"] = strconv.Itoa(programClients); ask.meta["clients"] != "" && mode != "other-clients" {
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
			case "delta":
				meta["update"] = "delta"
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
				time.Sleep(time.Hour)
			}
			_, _ = w.Write(answer(meta, tensor, "F32", shape, initial))
		case "gradients":
			theta, ids := ask.f32["theta"], ask.i64["ids"]
			rows := make([]float32, 0, len(ids)*dim)
			for _, id := range ids {
				for j := range dim {
					g := gradientOf(theta, id, j)
					if mode == "delta" {
						g = -g
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
			case "none":
				_, _ = w.Write(answer(meta, "", "", nil, nil))
				continue
			case "dies":
				if asked == 2 {
					note("epoch 1")
					note("MemoryError: out of memory")
					os.Exit(1)
				}
			case "killed":
				if asked == 2 {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
					time.Sleep(time.Hour)
				}
			case "dies-inside":
				out := answer(meta, name, dtype, shape, floats(rows))
				_, _ = w.Write(out[:len(out)/2])
				note("half")
				os.Exit(1)
			case "hangs":
				note("waiting for a lock")
				time.Sleep(time.Hour)
			case "slow":
				time.Sleep(50 * time.Millisecond)
			case "prints-later":
				if asked == 2 {
					say("step 2, loss 0.31\n")
				}
			}
			_, _ = w.Write(answer(meta, name, dtype, shape, floats(rows)))
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
			}
			_, _ = w.Write(answer(meta, "", "", nil, nil))
		case "close":
			switch mode {
			case "stays":
				time.Sleep(time.Hour)
			case "stays-firmly":
				signal.Ignore(syscall.SIGTERM)
				time.Sleep(time.Hour)
			case "child": // leaves a child behind that holds the output open
				child := exec.Command(os.Args[0], "serve", "deaf")
				child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
				if err := child.Start(); err != nil {
					panic(err)
				}
			}
			return
		}
	}
}

// listen serves a mode on a socket, and returns unix:PATH.
func listen(t *testing.T, mode string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "riffle") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				serve(mode, conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return "unix:" + dir + "/s"
}
