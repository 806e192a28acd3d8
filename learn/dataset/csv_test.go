package dataset

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func parse(t testing.TB, text string, c CSVConfig) *CSV {
	t.Helper()
	out, err := parseCSV(strings.NewReader(text), "f.csv", c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCSVClasses(t *testing.T) {
	got := parse(t, "\xef\xbb\xbfa,\"kind, of\",b\r\n1,dog,-2.5e1\r\n\r\n.5,cat,+3\n\"7\",dog,0\n", CSVConfig{Label: "kind, of"})
	want := &CSV{
		Name: "f.csv", Columns: []string{"a", "b"}, Labels: []string{"cat", "dog"}, Square: 2,
		Table: &Table{Dim: 2, Classes: 2, X: []float32{1, -25, .5, 3, 7, 0}, Y: []int32{1, 0, 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %+v, want %+v %+v", got, got.Table, want, want.Table)
	}
	if err := got.Table.validate(); err != nil {
		t.Error(err)
	}
}

// Integers by value, then everything else by bytes; 01 and 1.0 are texts.
func TestCSVLabelOrder(t *testing.T) {
	got := parse(t, "y,x\n10,0\n9,0\nb,0\n-3,0\n01,0\n1.0,0\nB,0\n9,0\n", CSVConfig{Label: "y"})
	if want := []string{"-3", "9", "10", "01", "1.0", "B", "b"}; !slices.Equal(got.Labels, want) {
		t.Errorf("labels %q, want %q", got.Labels, want)
	}
	if want := []int32{2, 1, 6, 0, 3, 4, 5, 1}; !slices.Equal(got.Table.Y, want) {
		t.Errorf("classes %v, want %v", got.Table.Y, want)
	}
}

func TestCSVRegressionAndScale(t *testing.T) {
	c := CSVConfig{
		Label: "y", Regression: true, Rest: Scaling{Unit: 255},
		Scale: map[string]Scaling{"b": {Shift: 10}, "y": {Shift: 1, Unit: 2}},
	}
	got := parse(t, "a,y,b\n51,3,11\n255,-1,10\n", c)
	if want := (&Table{Dim: 2, X: []float32{.2, 1, 1, 0}, Targets: []float32{1, -1}}); !reflect.DeepEqual(got.Table, want) {
		t.Errorf("table %+v, want %+v", got.Table, want)
	}
	if err := got.Table.validate(); err != nil || got.Labels != nil {
		t.Errorf("regression %v, labels %q, %v", got.Table.Targets != nil, got.Labels, err)
	}
	// The label of a regression does not take the scaling of the rest.
	c.Scale = nil
	if got := parse(t, "a,y\n51,3\n", c); got.Table.Targets[0] != 3 {
		t.Errorf("target %v, want 3", got.Table.Targets[0])
	}
	got.Table.Targets[1] = float32(math.Inf(1))
	if err := got.Table.validate(); err == nil || !strings.Contains(err.Error(), "target of row 1") {
		t.Errorf("error %v", err)
	}
	got.Table.Y = []int32{0, 0}
	if err := got.Table.validate(); err == nil || !strings.Contains(err.Error(), "must have none") {
		t.Errorf("error %v", err)
	}
}

func TestCSVRefuses(t *testing.T) {
	y := CSVConfig{Label: "y"}
	real := CSVConfig{Label: "y", Regression: true}
	for _, c := range []struct {
		text   string
		config CSVConfig
		want   string
	}{
		{"", y, "f.csv: empty file, want a header line"},
		{"\n\n", y, "empty file"},
		{"a,y\n", y, "f.csv: no rows behind the header"},
		{"a,b\n1,2\n", y, `no label column "y" among the columns "a,b"`},
		{"a,b\n1,2\n", CSVConfig{}, `no label column ""`},
		{"y\n1\n", y, "at least one feature"},
		{"a,y,a\n1,2,3\n", y, `line 1: columns 1 and 3 are both named "a"`},
		{"a,,y\n1,2,3\n", y, `line 1: name "" of column 2`},
		{"a,y\n1,0\n2\n", y, "f.csv: line 3 has 1 cells, the header 2"},
		{"a,y\n1,0\n2,1,3\n", y, "f.csv: line 3 has 3 cells, the header 2"},
		{"a,y\n1,0\n\n\nNaN,1\n", y, `f.csv: line 5, column "a": "NaN" must be finite`},
		{"a,y\n1,0\n-Inf,1\n", y, `line 3, column "a": "-Inf" must be finite`},
		{"a,y\n1,0\ninfinity,1\n", y, `"infinity" must be finite`},
		{"a,y\n1,0\nfish,1\n", y, `line 3, column "a": "fish" is not a number`},
		{"a,y\n1,0\n0x10,1\n", y, `"0x10" is not a number`},
		{"a,y\n1,0\n1_0,1\n", y, `"1_0" is not a number`},
		{"a,y\n1,0\n 1,1\n", y, `" 1" is not a number`},
		{"a,y\n1,0\n--1,1\n", y, `"--1" is not a number`},
		{"a,y\n1,0\n,1\n", y, "is an empty cell, must be a number"},
		{"a,y\n1,0\n1e39,1\n", y, `"1e39" is too large for a float32`},
		{"a,y\n1,0\n1e999,1\n", y, `"1e999" is too large for a float32`},
		{"a,y\n1,0\n2,0\n", y, `column "y" holds one class only, "0", want at least 2`},
		{"a,y\n1,\n2,0\n", y, `line 2, column "y": "" is an empty cell, must name a class`},
		{"a,y\n1,b \n2,b\n", y, `class "b " must not have spaces`},
		{"a,y\n1,\xff\n2,b\n", y, `class "\xff" must be UTF-8`},
		{"a,y\n1,\"0\n2,1\n", y, "line 3, byte 5"},
		{"a,y\n1,x\"0\n2,1\n", y, "line 2, byte 4"},
		{"a,y\n1,none\n", real, `column "y": "none" is not a number`},
		{"a,y\n1,NaN\n", real, `column "y": "NaN" must be finite`},
		{"a,y\n1,0\n", CSVConfig{Label: "y", Scale: map[string]Scaling{"z": {}}}, `scaling of "z", which is not a column`},
		{"a,y\n1,0\n", CSVConfig{Label: "y", Scale: map[string]Scaling{"y": {Unit: 2}}}, "which holds classes"},
		{"a,y\n1,0\n", CSVConfig{Label: "y", Scale: map[string]Scaling{"a": {Unit: -2}}}, "unit = -2 must be"},
		{"a,y\n1,0\n", CSVConfig{Label: "y", Rest: Scaling{Unit: math.NaN()}}, "unit = NaN must be"},
		{"a,y\n1,0\n", CSVConfig{Label: "y", Rest: Scaling{Shift: math.Inf(1)}}, "shift = +Inf must be"},
		{"a,y\n1,0\n1,1\n", CSVConfig{Label: "y", Rest: Scaling{Unit: 1e-300}}, "too large for a float32"},
	} {
		_, err := parseCSV(strings.NewReader(c.text), "f.csv", c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "dataset: ") {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
}

func TestCSVTooManyClasses(t *testing.T) {
	var b strings.Builder
	b.WriteString("y,x\n")
	for i := range MaxCSVClasses + 1 {
		fmt.Fprintf(&b, "%d,0\n", i)
	}
	_, err := parseCSV(strings.NewReader(b.String()), "f.csv", CSVConfig{Label: "y"})
	if err == nil || !strings.Contains(err.Error(), `line 1026, column "y": "1024" would be class 1025`) {
		t.Errorf("error %v", err)
	}
}

// endless is a cell that never ends.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	e.read += len(b)
	return len(b), nil
}

func TestCSVBoundsARecord(t *testing.T) {
	for _, start := range []string{"", "a,y\n1,0\n", "a,y\n1,0\n\"", "a,y\n\n\n1,\"0\n"} {
		e := &endless{}
		_, err := parseCSV(io.MultiReader(strings.NewReader(start), e), "f.csv", CSVConfig{Label: "y"})
		if err == nil || !strings.Contains(err.Error(), "has more than 1048576 bytes") {
			t.Errorf("after %q: error %v", start, err)
		}
		if e.read > 2*(MaxCSVRecord+csvReadAhead) {
			t.Errorf("after %q: read %d bytes of an endless record", start, e.read)
		}
	}
	// Many short records are no long one.
	long := "a,y\n" + strings.Repeat("1,0\n2,1\n", MaxCSVRecord/4)
	if got := parse(t, long, CSVConfig{Label: "y"}); got.Table.Len() != MaxCSVRecord/2 {
		t.Errorf("%d rows", got.Table.Len())
	}
	wide := "a,y\n" + strings.Repeat("0", MaxCSVRecord-10) + "1,0\n2,1\n"
	if got := parse(t, wide, CSVConfig{Label: "y"}); got.Table.X[0] != 1 {
		t.Errorf("first cell %v, want 1", got.Table.X[0])
	}
}

func TestReadCSVFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.csv")
	if err := os.WriteFile(path, []byte("a,y\n1,0\n2,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ReadCSV(path, CSVConfig{Label: "y"})
	if err != nil || c.Name != path || c.Table.Len() != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ReadCSV(dir, CSVConfig{Label: "y"}); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("folder: %v", err)
	}
	if _, err := ReadCSV(path+"x", CSVConfig{Label: "y"}); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("missing file: %v", err)
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok || os.IsNotExist(err) {
			return err
		}
		err = u.Unwrap()
	}
}

func TestCSVSplit(t *testing.T) {
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range 100 {
		fmt.Fprintf(&b, "%d,%d\n", i, i%3)
	}
	c := parse(t, b.String(), CSVConfig{Label: "y"})
	train, test, err := c.Split(.25, 7)
	if err != nil {
		t.Fatal(err)
	}
	if train.Len() != 75 || test.Len() != 25 || test.Classes != 3 {
		t.Errorf("parts of %d and %d", train.Len(), test.Len())
	}
	all := slices.Sorted(slices.Values(append(slices.Clone(train.X), test.X...)))
	for i, v := range all {
		if v != float32(i) {
			t.Fatalf("parts do not cover the rows once: %v", all)
		}
	}
	for i := range test.Len() { // rows keep their class
		if int(test.X[i])%3 != int(test.Y[i]) {
			t.Fatalf("row %v has class %d", test.X[i], test.Y[i])
		}
	}
	again, _, err := c.Split(.25, 7)
	if err != nil || !reflect.DeepEqual(again, train) {
		t.Error("the same seed gives another split")
	}
	if other, _, err := c.Split(.25, 8); err != nil || reflect.DeepEqual(other, train) {
		t.Error("another seed gives the same split")
	}
	for _, f := range []float64{0, 1, -1, math.NaN(), math.Inf(1), .999} {
		if _, _, err := c.Split(f, 7); err == nil {
			t.Errorf("accepted the fraction %v", f)
		}
	}
	two := parse(t, "x,y\n1,a\n2,b\n", CSVConfig{Label: "y"})
	if _, _, err := two.Split(.5, 1); err == nil || !strings.Contains(err.Error(), "one class only") {
		t.Errorf("training part of one row: %v", err)
	}
	real := parse(t, "x,y\n1,4\n2,5\n", CSVConfig{Label: "y", Regression: true})
	train, test, err = real.Split(.5, 1)
	if err != nil || len(train.Targets) != 1 || len(test.Targets) != 1 || train.Targets[0]+test.Targets[0] != 9 {
		t.Errorf("%+v %+v %v", train, test, err)
	}
}

// FuzzParseCSV: no panic, errors name the file, and what is read is valid.
func FuzzParseCSV(f *testing.F) {
	for _, s := range []string{
		"a,y\n1,0\n2,1\n", "", "a,y\n1,\"0\n", "\xef\xbb\xbfy,\"a\"\"b\"\nx,1\nz,2e3\n", "a,y\nNaN,0\n", "y,a,a\n", "a,y\r\n1,0\r2,1",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, regression bool) {
		c, err := parseCSV(strings.NewReader(text), "f.csv", CSVConfig{Label: "y", Regression: regression})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "dataset: f.csv: ") {
				t.Errorf("error %q does not name the file", err)
			}
			return
		}
		if err := c.Table.validate(); err != nil {
			t.Error(err)
		}
		if len(c.Columns) != c.Table.Dim || len(c.Labels) != c.Table.Classes || !regression && len(c.Labels) < 2 {
			t.Errorf("%d columns of %d, %d labels of %d classes", len(c.Columns), c.Table.Dim, len(c.Labels), c.Table.Classes)
		}
	})
}

func BenchmarkParseCSV(b *testing.B) {
	var s strings.Builder
	s.WriteString("y")
	for j := range 100 {
		fmt.Fprintf(&s, ",x%d", j)
	}
	for i := range 1000 {
		fmt.Fprintf(&s, "\n%d", i%10)
		for j := range 100 {
			fmt.Fprintf(&s, ",%d.%d", i%7, j)
		}
	}
	text := s.String()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		parse(b, text, CSVConfig{Label: "y"})
	}
}
