package dataset

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Whatever stands in one cell of one row, in a column of any kind, the other rows and all that
// describes the features stay the same, and no error comes: a row that does not fit is blank.
func TestOneCellChangesNoOtherRow(t *testing.T) {
	head := []string{"id", "age", "height", "city", "sex", "y"}
	good := []string{"7", "30", "170", "paris", "f", "yes"}
	cells := []string{"", "0", "-1e9", "1e30", "1e39", "1e999", "NaN", "Inf", "0x10", "1_0", "text", " 30", "paris ", "*", "berlin", "yes", "no", "maybe", "x,y", "a|b", "\xff", strings.Repeat("z", 1000)}
	line := func(cells []string) string {
		var out []string
		for _, cell := range cells {
			out = append(out, `"`+cell+`"`)
		}
		return strings.Join(out, ",") + "\n"
	}
	others := "2,40,180,berlin,m,no\n3,,150,rome,f,yes\n4,50,160,,f,no\n"
	for _, regression := range []bool{false, true} {
		c := CSVConfig{Label: "y", Blanks: true, Regression: regression}
		declare := map[string]string{"range": "age=0..100,*=100..200", "categories": "city=berlin|paris|*,sex=f|m", "missing": "age=40+indicator,sex=f", "drop": "id"}
		if good[5] = "yes"; regression {
			declare["range"] += ",y=0..10"
			others = strings.NewReplacer(",no\n", ",3\n", ",yes\n", ",4\n").Replace(others)
			good[5] = "5"
		} else {
			declare["classes"] = "no|yes"
		}
		for what, text := range declare {
			if err := c.Declare(what, text); err != nil {
				t.Fatal(err)
			}
		}
		want := parse(t, line(head)+line(good)+others, c)
		if want.Blanks != 0 {
			t.Fatal(want.Why)
		}
		d, blank := want.Table.Dim, 0
		for j := range head {
			for _, cell := range cells {
				row := slices.Clone(good)
				row[j] = cell
				got := parse(t, line(head)+line(row)+others, c)
				if !slices.Equal(got.Columns, want.Columns) || !slices.Equal(got.Labels, want.Labels) || got.Square != want.Square || got.Table.Len() != 4 ||
					!slices.Equal(got.Table.X[d:], want.Table.X[d:]) || got.Blanks > 1 ||
					!regression && !slices.Equal(got.Table.Y[1:], want.Table.Y[1:]) || regression && !slices.Equal(got.Table.Targets[1:], want.Table.Targets[1:]) {
					t.Errorf("column %s with %.20q: %+v, want %+v", head[j], cell, got.Table, want.Table)
				}
				if blank += got.Blanks; got.Blanks == 1 && (!got.Table.Blank[0] || slices.ContainsFunc(got.Table.Row(0), func(x float32) bool { return x != 0 })) {
					t.Errorf("column %s with %.20q: a blank row %v", head[j], cell, got.Table.Row(0))
				}
				if j == 0 && got.Blanks > 0 {
					t.Errorf("%.20q in a dropped column: %v", cell, got.Why)
				}
				if err := got.Table.validate(); err != nil {
					t.Errorf("column %s with %.20q: %v", head[j], cell, err)
				}
			}
		}
		for _, row := range []string{"", "1,2", strings.Repeat("9,", 9)} { // too few and too many cells
			got := parse(t, line(head)+row+"\n"+others, c)
			if n := got.Table.Len(); !slices.Equal(got.Table.X[(n-3)*d:], want.Table.X[d:]) {
				t.Errorf("row %q: %v", row, got.Table.X)
			}
		}
		if blank < 20 {
			t.Errorf("only %d rows did not fit", blank)
		}
	}
}

// Square bounds every row whose cells keep to their ranges, for random declarations.
func TestSquareBoundsRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	tight := 0
	for range 200 {
		c := CSVConfig{Label: "y", Rest: Scaling{Shift: 5, Unit: 5}}
		c.Categories, c.Missing = map[string][]string{}, map[string]fill{}
		var head []string
		for j := range 1 + r.IntN(5) {
			name := fmt.Sprint("c", j)
			head = append(head, name)
			text := r.IntN(2) == 0
			if text {
				c.Categories[name] = []string{"u", "v", Others}
			}
			if r.IntN(2) == 0 {
				f := fill{fmt.Sprint(r.IntN(40) - 20), r.IntN(2) == 0} // in −5..3 once it is scaled
				if text {
					f.text = "v"
				}
				c.Missing[name] = f
			}
		}
		text := strings.Join(head, ",") + ",y\n"
		for i := range 60 {
			for _, name := range head {
				cell := fmt.Sprint(r.IntN(2) * 10)
				if c.Categories[name] != nil {
					cell = []string{"u", "v", "w"}[r.IntN(3)]
				}
				if c.Missing[name] != (fill{}) && r.IntN(2) == 0 {
					cell = ""
				}
				text += cell + ","
			}
			text += fmt.Sprint(i%2) + "\n"
		}
		got, most := parse(t, text, c), 0.0
		for i := range got.Table.Len() {
			sum := 0.0
			for _, x := range got.Table.Row(i) {
				sum += float64(x) * float64(x)
			}
			most = max(most, sum)
		}
		if most > got.Square*(1+1e-6) {
			t.Fatalf("a row has the square %v, the bound is %v: %v, %v", most, got.Square, c.Categories, c.Missing)
		}
		if math.Abs(most-got.Square) < 1e-3 {
			tight++
		}
	}
	if tight < 50 {
		t.Errorf("the bound is reached in %d of 200 tables only", tight)
	}
}
