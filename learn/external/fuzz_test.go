package external

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"testing"
)

// FuzzAnswer reads arbitrary bytes as answers. Nothing may panic, what is accepted must be what
// was asked for, and memory must follow the bytes that came.
func FuzzAnswer(f *testing.F) {
	rows, err := binary.Append(nil, binary.LittleEndian, []float32{1, 2, 3, 4, 5, 6})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(answer(map[string]string{"op": "gradients"}, "gradients", "F32", []int{2, 3}, rows))
	f.Add(answer(map[string]string{"op": "open", "version": "1", "dim": "6", "clients": "3", "parameters": "w=2x3"}, "initial", "F32", []int{6}, rows))
	f.Add(answer(map[string]string{"op": "open", "version": "1", "dim": "10000000", "clients": "3", "update": "delta"}, "", "", nil, nil))
	f.Add(answer(map[string]string{"op": "evaluate", "loss": "1e-3", "auc": "nan"}, "", "", nil, nil))
	f.Add(answer(map[string]string{"op": "error", "message": "none"}, "", "", nil, nil))
	f.Add([]byte("Epoch 1\nEpoch 2\n"))
	huge := answer(map[string]string{"op": "open", "version": "1", "dim": "10000000", "clients": "3"}, "initial", "F32", []int{10000000}, nil)
	huge = bytes.Replace(huge, []byte(`"data_offsets":[0,0]`), []byte(`"data_offsets":[0,40000000]`), 1)
	binary.LittleEndian.PutUint64(huge, uint64(len(huge)-8+40000000))
	binary.LittleEndian.PutUint64(huge[8:], uint64(len(huge)-16))
	f.Add(huge)
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		accepted := 0
		for _, op := range []string{opOpen, opGradients, opEvaluate} {
			s := &Session{config: Config{Purpose: Simulate}, answers: newReader(bytes.NewReader(b))}
			s.About.Dim = 3
			switch op {
			case opOpen:
				head, err := s.answers.head(op, 4*MaxDim)
				if err != nil {
					break
				}
				about, err := s.config.about(head)
				if err != nil {
					break
				}
				if about.Dim < 1 || about.Dim > MaxDim || about.Clients < 1 {
					t.Fatalf("accepted %+v", about)
				}
				total := 0
				for _, p := range about.Parameters {
					size := 1
					for _, n := range p.Shape {
						size *= n
					}
					total += size
				}
				if total != about.Dim {
					t.Fatalf("parameters of %d values, dim is %d", total, about.Dim)
				}
				accepted++
				if len(head.Tensors) > 0 {
					if v, _, err := s.answers.grown(about.Dim); err == nil && len(v) != about.Dim {
						t.Fatalf("%d initial values of %d", len(v), about.Dim)
					}
				}
			case opGradients:
				c := &conversation{Session: s}
				got := &batch{ids: []int64{4, 5}, rows: make([]float32, 6)}
				c.config.Timeout = DefaultTimeout
				if err := c.answer(got); err != nil {
					break
				}
				accepted++
				for _, x := range got.rows {
					if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
						t.Fatalf("accepted %v", got.rows)
					}
				}
			case opEvaluate:
				head, err := s.answers.head(op, 0)
				if err != nil {
					break
				}
				numbers, err := numbersOf(head.Metadata)
				if err != nil {
					break
				}
				if _, ok := numbers["loss"]; !ok {
					t.Fatal("accepted without a loss")
				}
				accepted++
			}
			if left, _ := io.Copy(io.Discard, s.answers.in); left < 0 {
				t.Fatal("it read what is not there")
			}
		}
		if accepted > 1 {
			t.Fatal("one answer answers two requests")
		}
		runtime.ReadMemStats(&after)
		// Three readers have 64 KiB, and 128 KiB for values; JSON costs some tens of bytes a byte.
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20+200*uint64(len(b)) {
			t.Fatalf("%d bytes allocated for %d", got, len(b))
		}
	})
}
