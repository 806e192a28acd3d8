package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
)

func named[T any](t *testing.T, name string) T {
	t.Helper()
	for _, m := range messages() {
		if m.name == name {
			return m.value.(T)
		}
	}
	t.Fatalf("no message %s", name)
	panic("unreachable")
}

// u64s writes numbers, each in 8 bytes.
func u64s(v ...int64) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// A task says how its noise is correlated in one way, which has at most as many weights as rounds that a
// client stays away.
func TestWeights(t *testing.T) {
	task := named[Task](t, "task-weights")
	b := Encode(task)
	plain := task
	plain.Every, plain.Mechanism.WeightBits, plain.Mechanism.Weights = 0, 0, nil
	part := append([]byte{tagWeights, 48, 0, 0, 0}, u64s(3, 4, 3, 16, 9, 5)...)
	if !bytes.HasSuffix(b, part) || Digest(task) == Digest(plain) {
		t.Fatalf("encoded as %x", b)
	}
	base := b[:len(b)-len(part)]
	long := make([]int64, MaxWeights+1)
	for i := range long {
		long[i] = 1
	}
	for name, c := range map[string]struct {
		content []byte
		want    string // "": it is read
	}{
		"as it is":                {u64s(3, 4, 3, 16, 9, 5), ""},
		"one weight":              {u64s(2, 0, 1, 1), ""},
		"as many as rounds":       {u64s(2, 4, 2, 16, 9), ""},
		"a client in each round":  {u64s(1, 4, 1, 16), "1 weights, a client in one of 1 rounds"},
		"in none":                 {u64s(0, 4, 1, 16), "in one of 0 rounds"},
		"every below 0":           {u64s(-3, 4, 1, 16), "every = -3"},
		"more weights":            {u64s(2, 4, 3, 16, 9, 5), "3 weights, a client in one of 2 rounds"},
		"no weights":              {u64s(3, 4, 0), "0 weights"},
		"nothing":                 {u64s(0, 0, 0), "0 weights"},
		"a weight below 0":        {u64s(3, 4, 2, 16, -1), "weight = -1"},
		"bits below 0":            {u64s(3, math.MinInt64, 1, 16), "weight bits"},
		"fewer than it says":      {u64s(3, 4, 3, 16, 9), "3 weights in 16 bytes"},
		"more than it says":       {u64s(3, 4, 1, 16, 9), "1 weights in 16 bytes"},
		"half a weight":           {u64s(3, 4, 1, 16)[:28], "1 weights in 4 bytes"},
		"a huge number":           {u64s(math.MaxInt64, 4, math.MaxInt64/8), "weights in 0 bytes"},
		"a number below 0":        {u64s(3, 4, -1), "weights = -1"},
		"as many as there may be": {u64s(append([]int64{5000, 4, MaxWeights}, long[:MaxWeights]...)...), ""},
		"too many":                {u64s(append([]int64{5000, 4, MaxWeights + 1}, long...)...), "8 bytes left over"},
		"empty":                   {nil, "0 bytes where 8 are needed"},
	} {
		b := append(bytes.Clone(base), tagWeights)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(c.content)))
		b = append(b, c.content...)
		got, err := Decode[Task](b)
		switch {
		case c.want == "" && (err != nil || !bytes.Equal(Encode(got), b)):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// An exclusion names earlier rounds, each by 32 bytes.
func TestEarlierRounds(t *testing.T) {
	e := named[Exclusion](t, "exclusion-earlier")
	b := Encode(e)
	plain := e
	plain.Earlier = nil
	other := e
	other.Earlier = [][32]byte{e.Earlier[1], e.Earlier[0]}
	if Encode(plain)[0] != Version || Digest(e) == Digest(plain) || Digest(e) == Digest(other) {
		t.Errorf("encoded as %x", b)
	}
	none := plain
	none.Earlier = [][32]byte{}
	if !bytes.Equal(Encode(none), Encode(plain)) {
		t.Error("no earlier rounds have two encodings")
	}
	base := b[:len(b)-1-4-8-64]
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"as it is":           {append(u64s(2), make([]byte, 64)...), ""},
		"none":               {u64s(0), "says what its absence says"},
		"fewer than it says": {append(u64s(3), make([]byte, 64)...), "3 earlier rounds in 64 bytes"},
		"half of one":        {append(u64s(1), make([]byte, 48)...), "1 earlier rounds in 48 bytes"},
		"a huge number":      {u64s(math.MaxInt64 / 32), "earlier rounds in 0 bytes"},
		"a number below 0":   {u64s(-1), "earlier rounds = -1"},
		"too many":           {append(u64s(MaxWeights+1), make([]byte, 32*(MaxWeights+1))...), "32 bytes left over"},
	} {
		b := append(bytes.Clone(base), tagEarlier)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(c.content)))
		b = append(b, c.content...)
		got, err := Decode[Exclusion](b)
		switch {
		case c.want == "" && (err != nil || !bytes.Equal(Encode(got), b)):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// Memory follows the bytes that came, not the number that they name.
func TestCountsTakeNoMemory(t *testing.T) {
	task, e := Encode(named[Task](t, "task-weights")), Encode(named[Exclusion](t, "exclusion-earlier"))
	for _, n := range []int64{5, 1 << 20, 1 << 40, math.MaxInt64} {
		binary.LittleEndian.PutUint64(task[len(task)-32:], uint64(n))
		binary.LittleEndian.PutUint64(e[len(e)-72:], uint64(n))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode[Task](task)
		_, err2 := Decode[Exclusion](e)
		runtime.ReadMemStats(&after)
		if err == nil || err2 == nil {
			t.Errorf("a count of %d is read", n)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<10 {
			t.Errorf("a count of %d took %d bytes", n, used)
		}
	}
}
