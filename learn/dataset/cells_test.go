package dataset

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func cellsOf(t *testing.T, text string, c CellsConfig) (*Cells, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return ReadCells(path, c)
}

func TestReadCells(t *testing.T) {
	var filled CSVConfig
	if err := filled.Declare("missing", "city=rome"); err != nil {
		t.Fatal(err)
	}
	c, err := cellsOf(t, "\xef\xbb\xbfid, age,city\nx,40,paris \n y,, \nz,\t-1.5e1,paris\n", CellsConfig{
		Columns: []string{"age", "city", "age"}, Numbers: []string{"age"}, Missing: filled})
	if err != nil {
		t.Fatal(err)
	}
	if c.Rows != 3 {
		t.Fatalf("%d rows", c.Rows)
	}
	for i, want := range [][2]string{{"40", "paris"}, {"", "rome"}, {"-1.5e1", "paris"}} {
		if got := [2]string{c.Cell(i, "age"), c.Cell(i, "city")}; got != want || c.Cell(i, "id") != "" {
			t.Errorf("row %d: %q, want %q", i, got, want)
		}
	}
}

func TestReadCellsRefuses(t *testing.T) {
	age := CellsConfig{Columns: []string{"age"}, Numbers: []string{"age"}}
	for _, test := range []struct {
		text   string
		config CellsConfig
		want   string
		is     error
	}{
		{"", age, "empty file", nil},
		{"age\n", age, "no rows", ErrRows},
		{"Age\n1\n", age, `no column "age" among the columns "Age"`, nil},
		{"age,age\n1,2\n", age, `two columns are named "age"`, nil},
		{"age\nold\n", age, `line 2, column "age": "old" is not a number`, ErrText},
		{"age\n1,2\n", age, "line 2 has 2 cells, the header 1", ErrRows},
		{"age\n1e999\n", age, `"1e999" is too large`, ErrRows},
		{"id;age\n1;2\n", age, `no column "age" among the columns "id;age"; commas separate cells`, nil},
		{"id\tage\n1\t2\n", age, "commas separate cells", nil},
		{"\xff\xfea\x00g\x00e\x00\n\x00", age, "UTF-16", nil},
		{"age\nNaN\n", age, "must be finite", ErrRows},
		{"c, c\n1,2\n", CellsConfig{Columns: []string{"c"}}, `two columns are named "c"`, nil},
		{"c\n\xff\n", CellsConfig{Columns: []string{"c"}}, "UTF-8", ErrRows},
	} {
		_, err := cellsOf(t, test.text, test.config)
		if err == nil || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
	for _, missing := range []string{"b=1", "age=x", "age=1+indicator"} {
		c := age
		if err := c.Missing.Declare("missing", missing); err != nil {
			t.Fatal(err)
		}
		if _, err := cellsOf(t, "age,b\n1,2\n", c); err == nil {
			t.Errorf("missing %s is accepted", missing)
		}
	}
}

// TestReadCellsLenient: what does not fit is empty and counted, and the rest stands.
func TestReadCellsLenient(t *testing.T) {
	c, err := cellsOf(t, "age,city\n40,paris\nmany,rome\n", CellsConfig{Columns: []string{"age", "city", "income"}, Numbers: []string{"age"}, Lenient: true})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Cell(0, "age"), c.Cell(0, "city"), c.Cell(0, "income"), c.Cell(1, "age"), c.Cell(1, "city"), c.Cell(1, "income")}
	if want := []string{"40", "paris", "", "", "rome", ""}; !slices.Equal(got, want) || c.Rows != 2 || c.Odd != 3 {
		t.Errorf("%q, %d odd of %d rows, want %q and 3 of 2", got, c.Odd, c.Rows, want)
	}
	if want := []string{"income"}; !slices.Equal(c.Absent, want) {
		t.Errorf("not there are %q, want %q", c.Absent, want)
	}
}
