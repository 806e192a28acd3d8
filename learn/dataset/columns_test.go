package dataset

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// declared returns a configuration with declarations.
func declared(t testing.TB, c CSVConfig, categories, missing, drop string) CSVConfig {
	t.Helper()
	for what, text := range map[string]string{"categories": categories, "missing": missing, "drop": drop} {
		if err := c.Declare(what, text); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestDeclaredColumns(t *testing.T) {
	c := declared(t, CSVConfig{Label: "y", Scale: map[string]Scaling{"age": {Shift: 50, Unit: 50}}, Rest: Scaling{Unit: 10}},
		"city=berlin|paris|*,sex=f|m", "age=40+indicator,sex=m,*=5", "id,name")
	got := parse(t, "id,age,city,y,sex,name,x\n"+
		"1,100,paris,no,f,Ann,10\n"+
		"2,,rome,yes,,\"Bo, b\",\n"+
		"x,0,,no,m,,0\n", c)
	if want := []string{"age", "age missing", "city=berlin", "city=paris", "city=*", "sex=f", "sex=m", "x"}; !slices.Equal(got.Columns, want) {
		t.Errorf("columns %q, want %q", got.Columns, want)
	}
	want := []float32{
		1, 0, 0, 1, 0, 1, 0, 1,
		-.2, 1, 0, 0, 1, 0, 1, .5,
		-1, 0, 0, 0, 1, 0, 1, 0,
	}
	if got.Table.Dim != 8 || !slices.Equal(got.Table.X, want) || !slices.Equal(got.Table.Y, []int32{0, 1, 0}) {
		t.Errorf("table %+v, want features %v", got.Table, want)
	}
	if want := []bool{false, true, true, true, true, true, true, false}; !slices.Equal(got.Binary, want) || got.Ones != 3 {
		t.Errorf("binary %v with %d ones, want %v with 3", got.Binary, got.Ones, want)
	}
	if err := got.Table.validate(); err != nil {
		t.Error(err)
	}
}

// A model's columns are taken by their names: in any order, and others are not read.
func TestFeaturesByName(t *testing.T) {
	c := declared(t, CSVConfig{Label: "y", Rest: Scaling{Unit: 10}}, "city=berlin|paris|*", "age=40+indicator", "")
	want := parse(t, "age,city,y,x\n10,paris,no,1\n,berlin,yes,2\n30,rome,no,3\n", c)
	c.Features, c.Drop = want.Columns, []string{"id"}
	for _, text := range []string{
		"x,y,city,age\n1,no,paris,10\n2,yes,berlin,\n3,no,rome,30\n",
		"note,x,y,id,city,age,age missing \nfoo,1,no,a,paris,10,\n,2,yes,,berlin,,b\nbar,3,no,c,rome,30,?\n",
	} {
		got := parse(t, text, c)
		if !reflect.DeepEqual(got.Columns, want.Columns) || !reflect.DeepEqual(got.Table, want.Table) || !reflect.DeepEqual(got.Binary, want.Binary) || got.Ones != want.Ones || got.Square != want.Square {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	for text, missing := range map[string]string{"city,y,x\nparis,no,1\n": `missing cells of "age"`, "age,y,x,cities\n1,no,1,rome\n": `categories of "city"`, "age,city,y\n1,rome,no\n": `no column for the model's feature "x"`} {
		if _, err := parseCSV(strings.NewReader(text), "t", c); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("%q: %v, want %s", text, err, missing)
		}
	}
}

// In a table of one column a blank line is a row with an empty cell, wherever it stands, as with a second column.
func TestBlankLinesOfOneColumn(t *testing.T) {
	for text, want := range map[string][]float32{
		"x\n1\n\n8\n":            {1, 4, 8},
		"\n\nx\n\n\n1\n\n":       {4, 4, 1, 4},
		"x\r\n\r\n1\r\n\r\n2":    {4, 1, 4, 2},
		"\"x\"\n\"\"\n\"1\"\n\n": {4, 1, 4},
		"x\n\n":                  {4},
		"x\n1":                   {1},
	} {
		c := declared(t, CSVConfig{Label: "y", Unlabelled: true}, "", "x=4", "")
		if got := parse(t, text, c); !slices.Equal(got.Table.X, want) {
			t.Errorf("%q: %v, want %v", text, got.Table.X, want)
		}
		cells, err := parseCells(strings.NewReader(text), "t", CellsConfig{Columns: []string{"x"}, Numbers: []string{"x"}, Missing: c})
		if err != nil || cells.Rows != len(want) {
			t.Errorf("%q: %v, want %d rows", text, err, len(want))
		}
	}
	// A quoted cell of several lines does not hide a blank line, and errors name its line.
	c := CSVConfig{Label: "y", Unlabelled: true}
	if err := c.Declare("categories", "x=a\nb|*"); err != nil {
		t.Fatal(err)
	}
	if got := parse(t, "x\n\"a\nb\"\n\nc\n", declared(t, c, "x=a\nb|*", "x=*", "")); !slices.Equal(got.Table.X, []float32{1, 0, 0, 1, 0, 1}) {
		t.Errorf("%v", got.Table.X)
	}
	_, err := parseCSV(strings.NewReader("x\n1\n\n\n"), "t", CSVConfig{Label: "y", Unlabelled: true})
	if err == nil || !strings.Contains(err.Error(), `line 3, column "x": "" is an empty cell`) {
		t.Error(err)
	}
	// With two columns a blank line is none.
	if got := parse(t, "x,y\n1,a\n\n2,b\n\n", CSVConfig{Label: "y"}); got.Table.Len() != 2 {
		t.Errorf("%d rows, want 2", got.Table.Len())
	}
}

// A row has at most Ones ones among its binary features.
func TestOnesBoundsRows(t *testing.T) {
	got := parse(t, "a,b,y\n,,0\nu,v,1\n", declared(t, CSVConfig{Label: "y"}, "a=u|*,b=v|w", "a=u+indicator,b=w+indicator", ""))
	for i := range got.Table.Len() {
		n := 0
		for j, v := range got.Table.Row(i) {
			if got.Binary[j] && v == 1 {
				n++
			}
		}
		if n > got.Ones {
			t.Errorf("row %d has %d ones, the bound is %d", i, n, got.Ones)
		}
	}
	if got.Ones != 4 {
		t.Errorf("bound %d, want 4", got.Ones)
	}
}

// What a feature is follows from the header and the declarations: a table that differs in one
// row gives all other rows the same features, under the same names.
func TestNothingIsReadOffTheRows(t *testing.T) {
	c := declared(t, CSVConfig{Label: "y", Classes: []string{"no", "yes"}, Rest: Scaling{Shift: 1, Unit: 7}},
		"city=berlin|paris|*", "*=3+indicator,city=paris", "id")
	const head, others = "id,age,city,income,y\n", "2,30,paris,100,no\n3,,rome,,yes\n4,51,,7,no\n"
	want := parse(t, head+"1,20,berlin,5,no\n"+others, c)
	for _, row := range []string{
		"1,20,berlin,5,yes\n", "1,,,,no\n", "1,1e30,nowhere,-1e30,yes\n", "another,0,*,0,no\n", "9,20,\"a|b,c\",5,no\n",
	} {
		got := parse(t, head+row+others, c)
		if !slices.Equal(got.Columns, want.Columns) || !slices.Equal(got.Labels, want.Labels) || !slices.Equal(got.Binary, want.Binary) || got.Ones != want.Ones {
			t.Errorf("row %q: features %q and classes %q, want %q and %q", row, got.Columns, got.Labels, want.Columns, want.Labels)
		}
		d := want.Table.Dim
		if !slices.Equal(got.Table.X[d:], want.Table.X[d:]) || !slices.Equal(got.Table.Y[1:], want.Table.Y[1:]) {
			t.Errorf("row %q changes other rows: %v, want %v", row, got.Table.X[d:], want.Table.X[d:])
		}
	}
}

func TestDeclaredRefuses(t *testing.T) {
	for _, c := range []struct {
		categories, missing, drop string
		text, want                string
		kind                      error
	}{
		{"a=u|v", "", "", "a,y\nu,0\nw,1\n", `line 3, column "a": "w" is none of the column's categories`, ErrCategory},
		{"a=u|v", "", "", "a,y\nu,0\n,1\n", `"" is an empty cell, must be a category`, ErrMissing},
		{"", "", "", "a,y\nu,0\n", `"u" is not a number`, ErrText},
		{"", "b=1", "", "a,b,y\n,1,0\n", `column "a": "" is an empty cell, must be a number`, ErrMissing},
		{"z=u|v", "", "", "a,y\n1,0\n", `categories of "z", which is the label or no column`, nil},
		{"y=0|1", "", "", "a,y\n1,0\n", `categories of "y", which is the label`, nil},
		{"", "z=1", "", "a,y\n1,0\n", `missing cells of "z"`, nil},
		{"", "y=1", "", "a,y\n1,0\n", `missing cells of "y"`, nil},
		{"", "a=1", "a", "a,b,y\n1,1,0\n", `missing cells of "a", which is dropped`, nil},
		{"", "a=u", "", "a,y\n1,0\n", `missing cells of "a" count as "u", which is not a number`, nil},
		{"", "a=1e39", "", "a,y\n1,0\n", `"1e39", which is too large`, nil},
		{"", "*=NaN", "", "a,y\n1,0\n", `missing cells of "a" count as "NaN", which must be finite`, nil},
		{"a=u|v", "a=w", "", "a,y\nu,0\n", `count as "w", which is none of its categories`, nil},
		{"a=u|*", "a=w", "", "a,y\nu,0\n", `count as "w", which is none of its categories`, nil},
		{"", "", "z", "a,y\n1,0\n", `column "z", which is to be dropped, is the label or no column`, nil},
		{"", "", "y", "a,y\n1,0\n", `column "y", which is to be dropped, is the label`, nil},
		{"a=u|v", "", "a", "a,b,y\nu,1,0\n", `column "a" is dropped, and has a range or categories`, nil},
		{"", "", "a", "a,y\n1,0\n", `all columns but "y" are dropped`, nil},
		{"a=u|v", "", "", "a,a=u,y\nu,1,0\n", `two features would be named "a=u"`, nil},
	} {
		_, err := parseCSV(strings.NewReader(c.text), "f.csv", declared(t, CSVConfig{Label: "y"}, c.categories, c.missing, c.drop))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("categories %q, missing %q, drop %q: error %v, want %q", c.categories, c.missing, c.drop, err, c.want)
		}
		if c.kind != nil && !errors.Is(err, c.kind) || errors.Is(err, ErrRows) != (c.kind != nil) {
			t.Errorf("%v: want it to be %v", err, c.kind)
		}
	}
	ranged := declared(t, CSVConfig{Label: "y", Scale: map[string]Scaling{"a": {Unit: 2}}}, "a=u|v", "", "")
	if _, err := parseCSV(strings.NewReader("a,y\nu,0\n"), "f.csv", ranged); err == nil || !strings.Contains(err.Error(), `column "a" has categories, and a range too`) {
		t.Errorf("error %v", err)
	}
	given := CSVConfig{Label: "y", Classes: []string{"no", "yes"}}
	if _, err := parseCSV(strings.NewReader("a,y\n1,no\n1,maybe\n"), "f.csv", given); !errors.Is(err, ErrClass) {
		t.Errorf("error %v", err)
	}
}

// Without labels the label's column may be absent, and what is in it is not read.
func TestUnlabelledRows(t *testing.T) {
	c := declared(t, CSVConfig{Label: "y", Unlabelled: true}, "a=u|*", "b=1", "")
	want := parse(t, "a,b\nu,2\nv,\n", c)
	if !slices.Equal(want.Table.X, []float32{1, 0, 2, 0, 1, 1}) || !slices.Equal(want.Table.Targets, []float32{0, 0}) {
		t.Errorf("%+v", want.Table)
	}
	for _, text := range []string{"a,y,b\nu,,2\nv,?,\n", "y,a,b\n1,u,2\n,v,\n"} {
		if got := parse(t, text, c); !reflect.DeepEqual(got.Table, want.Table) || !slices.Equal(got.Columns, want.Columns) {
			t.Errorf("%q: %+v, want %+v", text, got.Table, want.Table)
		}
	}
	if _, err := parseCSV(strings.NewReader("a,b\nu,x\n"), "f.csv", c); !errors.Is(err, ErrText) {
		t.Errorf("error %v", err)
	}
}

// Rows that do not fit become blank where that is asked for, also if their first cells do.
func TestBlankRowsOfDeclaredColumns(t *testing.T) {
	c := declared(t, CSVConfig{Label: "y", Classes: []string{"0", "1"}, Blanks: true}, "a=u|v", "b=1+indicator", "")
	got := parse(t, "a,b,y\nu,2,0\nw,3,1\nv,x,1\nv,,1\n", c)
	want := []float32{1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}
	if !slices.Equal(got.Table.X, want) || !slices.Equal(got.Table.Blank, []bool{false, true, true, false}) {
		t.Errorf("features %v, blank %v, want %v", got.Table.X, got.Table.Blank, want)
	}
}

func TestDeclare(t *testing.T) {
	got := declared(t, CSVConfig{}, `city=a\,b|c\|d|x=1|*,k\=l=\\|n`, `age=-4.5,*=0+indicator`, `id,full\, name`)
	want := CSVConfig{
		Categories: map[string][]string{"city": {"a,b", "c|d", "x=1", "*"}, "k=l": {`\`, "n"}},
		Missing:    map[string]fill{"age": {text: "-4.5"}, "*": {text: "0", indicator: true}},
		Drop:       []string{"id", "full, name"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, c := range []struct{ categories, missing, drop, want string }{
		{"city", "", "", `"city" must be COLUMN=...`},
		{"=a|b", "", "", "must be COLUMN=..."},
		{"city=a|b,c", "", "", `"c" must be COLUMN=...; a comma inside`},
		{"city=a|b,city=c|d", "", "", `column "city" is declared twice`},
		{"city=a", "", "", "at least two categories"},
		{"city=a|", "", "", "an empty category; an empty cell is declared as missing"},
		{"city=a| b", "", "", "without spaces around it"},
		{"city=a|b|a", "", "", `category "a" twice`},
		{"city=*|a", "", "", "comes last"},
		{"*=a|b", "", "", "* is no column"},
		{"", "age", "", "must be COLUMN=..."},
		{"", "age=", "", `"age" has no value (as age=40)`},
		{"", "age=+indicator", "", "has no value"},
		{"", "age=1,age=2", "", "declared twice"},
		{"", "", "id,,x", `column "" is empty`},
		{"", "", "id,id", `column "id" is empty or named twice`},
	} {
		var d CSVConfig
		err := errors.Join(d.Declare("categories", c.categories), d.Declare("missing", c.missing), d.Declare("drop", c.drop))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %+v, error %v", c, d, err)
		}
	}
	if d := declared(t, CSVConfig{}, "", "", ""); !reflect.DeepEqual(d, CSVConfig{}) {
		t.Errorf("nothing declared: %+v", d)
	}
	if err := new(CSVConfig).Declare("colour", "red"); err == nil {
		t.Error("an unknown declaration is read")
	}
}

func TestDeclareClasses(t *testing.T) {
	var c CSVConfig
	if err := c.Declare("classes", `no|yes\|maybe`); err != nil || !slices.Equal(c.Classes, []string{"no", "yes|maybe"}) {
		t.Errorf("%q, %v", c.Classes, err)
	}
	for _, text := range []string{"no", "no|no", "no|", "no| yes", strings.Repeat("x|", MaxCSVClasses) + "y"} {
		if err := c.Declare("classes", text); err == nil {
			t.Errorf("%.20q gives %d classes", text, len(c.Classes))
		}
	}
}

func FuzzDeclared(f *testing.F) {
	f.Add("city=a|b|*", "x=1+indicator,*=0", "id", "id,city,x,y\n1,a,,0\n2,c,3,1\n")
	f.Add(`c\=d=u|v`, "", "", "c=d,y\nu,0\nv,1\n")
	f.Fuzz(func(t *testing.T, categories, missing, drop, text string) {
		c := CSVConfig{Label: "y"}
		if err := errors.Join(c.Declare("categories", categories), c.Declare("missing", missing), c.Declare("drop", drop)); err != nil {
			return
		}
		got, err := parseCSV(strings.NewReader(text), "f.csv", c)
		if err != nil {
			return
		}
		if err := got.Table.validate(); err != nil || len(got.Columns) != got.Table.Dim {
			t.Fatalf("%v, %d columns, %d features", err, len(got.Columns), got.Table.Dim)
		}
		for i := range got.Table.Len() {
			ones := 0.0
			for j, v := range got.Table.Row(i) {
				if got.Binary != nil && got.Binary[j] {
					if v != 0 && v != 1 {
						t.Fatalf("binary feature %v", v)
					}
					ones += float64(v)
				}
			}
			if ones > float64(got.Ones) || math.IsNaN(ones) {
				t.Fatalf("%v ones above %d", ones, got.Ones)
			}
		}
	})
}
