package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// file returns header and data as a safetensors file.
func file(header string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func sample() File {
	return File{
		Metadata: map[string]string{"model": "hog-linear", "format": "riffle", "note": "ε₀ <3> \"&\" \\ \u2028 \x00"},
		Tensors: []Tensor{
			New("average", []int{2}, []float64{math.Pi, math.Inf(-1)}),
			int64Tensor("sums", []int{1, 2}, []int64{math.MinInt64, 7}),
			New("weight", []int{2, 3}, []float32{1, -2, 3.5, float32(math.NaN()), 0, math.MaxFloat32}),
			New("scalar", []int{}, []float32{5}),
			New[float32]("nothing", []int{3, 0}, nil),
			byteTensor("labels/ü \"x\"", []int{3}, []byte{1, 2, 255}),
		},
	}
}

func TestRoundTrip(t *testing.T) {
	for name, f := range map[string]File{
		"sample":         sample(),
		"empty":          {},
		"empty metadata": {Metadata: map[string]string{}},
		"metadata only":  {Metadata: map[string]string{"a": "b", "": ""}},
		"one tensor":     {Tensors: []Tensor{byteTensor("x", []int{1}, []byte{9})}},
		"empty tensors":  {Tensors: []Tensor{byteTensor("b", []int{0}, nil), byteTensor("a", []int{0}, nil), byteTensor("c", []int{1}, []byte{1})}},
	} {
		b, err := Marshal(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := binary.LittleEndian.Uint64(b); n%8 != 0 {
			t.Errorf("%s: header of %d bytes is not padded to 8", name, n)
		}
		got, err := Unmarshal(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(got.Tensors) != len(f.Tensors) || !reflect.DeepEqual(got.Metadata, f.Metadata) {
			t.Errorf("%s: reads back as %+v", name, got)
		}
		for i, want := range f.Tensors {
			g := got.Tensors[i]
			if g.Name != want.Name || g.DType != want.DType || !reflect.DeepEqual(g.Shape, want.Shape) || !bytes.Equal(g.Data, want.Data) {
				t.Errorf("%s: tensor %d reads back as %+v, want %+v", name, i, g, want)
			}
		}
		again, err := Marshal(got)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: other bytes the second time, %v", name, err)
		}
	}
}

// TestBytes holds the encoding fixed, byte by byte.
func TestBytes(t *testing.T) {
	got, err := Marshal(File{
		Metadata: map[string]string{"b": "2", "a": "<1>"},
		Tensors:  []Tensor{New("w", []int{1, 2}, []float32{1, -2}), byteTensor("u", []int{1}, []byte{7})},
	})
	if err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"a":"<1>","b":"2"},` +
		`"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},` +
		`"u":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := file(header, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 7)
	if !bytes.Equal(got, want) {
		t.Errorf("Marshal:\n%q\nwant\n%q", got, want)
	}
}

// TestIndependentWriter reads a file that testdata/make.py wrote from the
// format's description: other key order, odd spacing, data in another order
// than the header.
func TestIndependentWriter(t *testing.T) {
	b, err := os.ReadFile("testdata/independent.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if f.Metadata["framework"] != "nömpy" || len(f.Metadata) != 1 {
		t.Errorf("metadata %v", f.Metadata)
	}
	var names []string
	for _, x := range f.Tensors {
		names = append(names, x.Name)
	}
	if got := strings.Join(names, " "); got != "counts matrix empty scalar bytes" {
		t.Errorf("tensors in order %s", got)
	}
	counts, ok := f.Find("counts")
	if v, err := counts.int64s(); !ok || err != nil || !reflect.DeepEqual(v, []int64{-1, 1 << 40, math.MinInt64}) {
		t.Errorf("counts = %v, %v", v, err)
	}
	matrix, _ := f.Find("matrix")
	if v, err := Values[float32](matrix); err != nil || !reflect.DeepEqual(v, []float32{0, 1.5, -2.25, 3e38, 1e-45, 6}) || !reflect.DeepEqual(matrix.Shape, []int{2, 3}) {
		t.Errorf("matrix = %v %v, %v", matrix.Shape, v, err)
	}
	scalar, _ := f.Find("scalar")
	if v, err := Values[float64](scalar); err != nil || !reflect.DeepEqual(v, []float64{math.Pi}) || len(scalar.Shape) != 0 {
		t.Errorf("scalar = %v %v, %v", scalar.Shape, v, err)
	}
	raw, _ := f.Find("bytes")
	if raw.DType != U8 || !bytes.Equal(raw.Data, []byte{0, 127, 255}) {
		t.Errorf("bytes = %v", raw)
	}
	if _, ok := f.Find("none"); ok {
		t.Error("found a tensor that is not there")
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	const w = `"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}`
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"short", []byte{1, 2, 3}, "file of 3 bytes, want at least 8"},
		{"no header", file(""), "must begin with {"},
		{"header above limit", binary.LittleEndian.AppendUint64(nil, MaxHeader+1), "header length 16777217 above limit 16777216"},
		{"header of 2^63", binary.LittleEndian.AppendUint64(nil, 1<<63), "above limit"},
		{"header above file", file("{}")[:9], "header length 2, but only 1 bytes follow"},
		{"not UTF-8", file("{\"\xff\":1}"), "not valid UTF-8"},
		{"leading space", file(" {}"), "must begin with {"},
		{"an array", file("[]"), "must begin with {"},
		{"cut off", file("{" + w), "unexpected EOF"},
		{"newline after", file("{}\n"), "byte 0x0a after the object"},
		{"two objects", file("{}{}"), "after the object"},
		{"bad JSON", file(`{"w":}`), "header: "},
		{"not an object", file(`{"w":3}`), "3 where { is expected"},
		{"same name twice", file("{"+w+","+w+"}", 1, 2), `"w" occurs twice`},
		{"same name by escape", file(`{`+w+`,"\u0077":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}`, 1, 2), `"w" occurs twice`},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`), "occurs twice"},
		{"metadata key twice", file(`{"__metadata__":{"a":"1","a":"1"}}`), `"a" occurs twice`},
		{"metadata not text", file(`{"__metadata__":{"a":1}}`), "1 where a string is expected"},
		{"no name", file(`{"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`), "without a name"},
		{"field twice", file(`{"w":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1, 2), `"dtype" occurs twice`},
		{"unknown field", file(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1}}`, 1, 2), `unknown field "x"`},
		{"no dtype", file(`{"w":{"shape":[2],"data_offsets":[0,2]}}`, 1, 2), "2 fields, want"},
		{"no shape", file(`{"w":{"dtype":"U8","data_offsets":[0,2]}}`, 1, 2), "2 fields, want"},
		{"no offsets", file(`{"w":{"dtype":"U8","shape":[2]}}`, 1, 2), "2 fields, want"},
		{"unknown dtype", file(`{"w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`, 1, 2), `unknown dtype "F16"`},
		{"lower-case dtype", file(`{"w":{"dtype":"u8","shape":[2],"data_offsets":[0,2]}}`, 1, 2), `unknown dtype "u8"`},
		{"one offset", file(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0]}}`, 1, 2), "1 data_offsets, want 2"},
		{"three offsets", file(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,1,2]}}`, 1, 2), "more than 2 integers in an array"},
		{"negative dimension", file(`{"w":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}}`, 1, 2), "-2 must be a plain integer"},
		{"float dimension", file(`{"w":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}}`, 1, 2), "2.0 must be a plain integer"},
		{"exponent", file(`{"w":{"dtype":"U8","shape":[2e0],"data_offsets":[0,2]}}`, 1, 2), "2e0 must be a plain integer"},
		{"dimension of 2^63", file(`{"w":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,2]}}`, 1, 2), "must be a plain integer"},
		{"dimension as text", file(`{"w":{"dtype":"U8","shape":["2"],"data_offsets":[0,2]}}`, 1, 2), "in an array of integers"},
		{"product overflows", file(`{"w":{"dtype":"F64","shape":[2147483647,2147483647,2147483647],"data_offsets":[0,0]}}`), "overflows"},
		{"begin after end", file(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}}`, 1, 2), "offsets [2, 0] outside"},
		{"end after file", file("{"+w+"}", 1), "offsets [0, 2] outside the 1 bytes"},
		{"wrong length", file(`{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}}`, 1, 2), "hold 2 bytes, want 3 for U8 [3]"},
		{"overlap", file(`{`+w+`,"v":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 1, 2, 3), "overlaps"},
		{"same bytes twice", file(`{`+w+`,"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1, 2), "overlaps"},
		{"hole", file(`{`+w+`,"v":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}`, 1, 2, 3, 4), "hole between bytes 2 and 3"},
		{"hole at the start", file(`{"v":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 1, 2), "hole between bytes 0 and 1"},
		{"trailing", file("{"+w+"}", 1, 2, 3), "1 trailing bytes"},
		{"too many dimensions", file(`{"w":{"dtype":"U8","shape":[0` + strings.Repeat(",0", MaxDims) + `],"data_offsets":[0,0]}}`), "more than 64 integers in an array"},
		{"data without tensors", file("{}", 1), "1 trailing bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Unmarshal(c.b)
			if err == nil {
				t.Fatalf("accepted as %+v", f)
			}
			if !strings.HasPrefix(err.Error(), "safetensors: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want %q", err, c.want)
			}
		})
	}
}

// entries joins n entries of an object, whose names are numbers.
func entries(n int, format string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(all, ",")
}

// Empty tensors cost their reader more than their bytes, so their number is limited: with a limit of a hundred
// megabytes alone a file of 1.5 million of them took a gigabyte.
func TestManyEmptyTensors(t *testing.T) {
	const empty = `"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`
	for _, c := range []struct {
		n    int
		want string
	}{{400_000, "above limit"}, {MaxEntries + 2, "more than 65537 entries"}} {
		b := file("{" + entries(c.n, empty) + "}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Unmarshal(b)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d tensors: %v, want %q", c.n, err, c.want)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 200<<20 {
			t.Errorf("%d tensors: %d bytes were allocated", c.n, used)
		}
	}
	many := File{Metadata: map[string]string{}}
	for i := range MaxEntries + 1 {
		many.Metadata[fmt.Sprint(i)] = ""
	}
	if _, err := Marshal(many); err == nil {
		t.Error("a file is written that is not read")
	}
}

// What a file of a stranger says is quoted in errors, and not at length.
func TestErrorsAreShortAndPlain(t *testing.T) {
	long := strings.Repeat(`\u001b[2J`, 100_000)
	for _, header := range []string{
		`{"` + long + `":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}}`,
		`{"` + long + `":1,"` + long + `":1}`,
		`{"w":"` + long + `"}`,
		`{"w":{"dtype":"` + long + `","shape":[],"data_offsets":[0,0]}}`,
		`{"w":{"dtype":"U8","shape":["` + long + `"],"data_offsets":[0,0]}}`,
		`{"w":{"` + long + `":1}}`,
		`{"w":{"dtype":"U8","shape":[` + strings.Repeat("9", 1_000_000) + `],"data_offsets":[0,0]}}`,
		`{"w":{"dtype":"U8","shape":[1` + strings.Repeat(",1", 500_000) + `],"data_offsets":[0,0]}}`,
		`{"w":{"dtype":"U8","shape":[9` + strings.Repeat(",9", 500_000) + `],"data_offsets":[0,0]}}`,
	} {
		_, err := Unmarshal(file(header))
		if err == nil || len(err.Error()) > 700 || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%.60s: error of %d bytes: %.800q", header, len(err.Error()), err)
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	ok := byteTensor("x", []int{1}, []byte{1})
	for want, f := range map[string]File{
		"cannot name a tensor":       {Tensors: []Tensor{byteTensor("", []int{0}, nil)}},
		`"__metadata__" cannot name`: {Tensors: []Tensor{byteTensor("__metadata__", []int{0}, nil)}},
		`two tensors named "x"`:      {Tensors: []Tensor{ok, ok}},
		"not valid UTF-8":            {Tensors: []Tensor{byteTensor("\xff", []int{0}, nil)}},
		"metadata key":               {Metadata: map[string]string{"\xff": ""}},
		`metadata "k": "\xff"`:       {Metadata: map[string]string{"k": "\xff"}},
		`unknown dtype "BF16"`:       {Tensors: []Tensor{{Name: "x", DType: "BF16"}}},
		"1 bytes of data, want 2":    {Tensors: []Tensor{byteTensor("x", []int{2}, []byte{1})}},
		"dimension -1":               {Tensors: []Tensor{byteTensor("x", []int{-1}, nil)}},
		"8 bytes of data, want 12":   {Tensors: []Tensor{New("x", []int{3}, []float32{1, 2})}},
	} {
		if _, err := Marshal(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := Values[float32](ok); err == nil || err.Error() != `safetensors: tensor "x" is U8, want F32` {
		t.Errorf("U8 read as F32: %v", err)
	}
	short := Tensor{Name: "x", DType: F64, Shape: []int{2}, Data: make([]byte, 8)}
	if _, err := Values[float64](short); err == nil {
		t.Error("read a tensor whose data is too short")
	}
}

func FuzzUnmarshal(f *testing.F) {
	b, err := Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(file("{}"))
	f.Add(file(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"__metadata__":{"a":"b"}}  `, 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		first, err := Unmarshal(b)
		readsHead(t, b, first, err)
		if err != nil {
			return
		}
		// What is read can be written, reads back the same, and the written
		// form is a fixed point.
		out, err := Marshal(first)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", first, err)
		}
		second, err := Unmarshal(out)
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("%+v reads back as %+v, %v", first, second, err)
		}
		again, err := Marshal(second)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("two encodings of one file, %v", err)
		}
	})
}

// readsHead checks that ReadHead finds in a file what Unmarshal found.
func readsHead(t *testing.T, b []byte, want File, wantErr error) {
	r := bytes.NewReader(b)
	f, n, size, err := ReadHead(r, MaxHeader)
	if err != nil {
		if wantErr == nil {
			t.Fatalf("ReadHead: %v", err)
		}
		return
	}
	if n != len(b)-r.Len() {
		t.Fatalf("ReadHead says it took %d bytes, and took %d", n, len(b)-r.Len())
	}
	if fits := size == r.Len(); fits != (wantErr == nil) {
		t.Fatalf("ReadHead says %d bytes of data, there are %d; Unmarshal: %v", size, r.Len(), wantErr)
	}
	if wantErr != nil {
		return
	}
	want.Tensors = slices.Clone(want.Tensors)
	for i := range want.Tensors {
		want.Tensors[i].Data = nil
	}
	if !reflect.DeepEqual(f, want) {
		t.Fatalf("ReadHead: %+v, want %+v", f, want)
	}
	again, total, err := Head(f)
	if err != nil || total != size {
		t.Fatalf("Head: %d bytes of data, want %d, %v", total, size, err)
	}
	if second, n, size, err := ReadHead(bytes.NewReader(again), MaxHeader); err != nil || n != len(again) || size != total || !reflect.DeepEqual(second, f) {
		t.Fatalf("%+v reads back as %+v, %d of %d bytes, %d of data, %v", f, second, n, len(again), size, err)
	}
}

// TestReadHead cuts a file short, and limits its header.
func TestReadHead(t *testing.T) {
	b, err := Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	head, size, err := Head(sample())
	if err != nil || len(head)+size != len(b) || !bytes.HasPrefix(b, head) {
		t.Fatalf("Head: %d bytes and %d of data, the file has %d, %v", len(head), size, len(b), err)
	}
	for cut := range len(head) {
		_, n, _, err := ReadHead(bytes.NewReader(b[:cut]), MaxHeader)
		if n != cut || err == nil {
			t.Fatalf("%d bytes: took %d, %v", cut, n, err)
		}
	}
	r := bytes.NewReader(b)
	if _, n, _, err := ReadHead(r, len(head)-9); n != 8 || err == nil || r.Len() != len(b)-8 {
		t.Errorf("header above the limit: took %d bytes, %v", n, err)
	}
	if _, _, _, err := ReadHead(bytes.NewReader(b), len(head)-8); err != nil {
		t.Errorf("header at the limit: %v", err)
	}
	// A short file that promises much costs nothing.
	huge := binary.LittleEndian.AppendUint64(nil, MaxHeader)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _, _ = ReadHead(bytes.NewReader(huge), MaxHeader)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<16 {
		t.Errorf("%d bytes allocated for a file of 8", got)
	}
}

func BenchmarkMarshal(b *testing.B) {
	f := File{Tensors: []Tensor{New("weight", []int{441, 10}, make([]float32, 4410))}}
	b.SetBytes(4 * 4410)
	for b.Loop() {
		if _, err := Marshal(f); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	data, err := Marshal(File{Tensors: []Tensor{New("weight", []int{441, 10}, make([]float32, 4410))}})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Unmarshal(data); err != nil {
			b.Fatal(err)
		}
	}
}

// int64Tensor returns an I64 tensor with a copy of v.
func int64Tensor(name string, shape []int, v []int64) Tensor {
	data := make([]byte, 0, 8*len(v))
	for _, i := range v {
		data = binary.LittleEndian.AppendUint64(data, uint64(i))
	}
	return Tensor{name, I64, slices.Clone(shape), data}
}

// byteTensor returns a U8 tensor with a copy of v.
func byteTensor(name string, shape []int, v []byte) Tensor {
	return Tensor{name, U8, slices.Clone(shape), slices.Clone(v)}
}

// int64s returns the elements of an I64 tensor.
func (t Tensor) int64s() ([]int64, error) {
	if err := t.check(I64); err != nil {
		return nil, err
	}
	v := make([]int64, len(t.Data)/8)
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
	}
	return v, nil
}
