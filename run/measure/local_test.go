package measure

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// asking returns a task with a question.
func asking(q statistic.Question) wire.Task {
	return wire.Task{Config: q.JSON(), ModelDim: q.Parameters(), Mechanism: wire.Mechanism{Dim: int64(q.Dim()), Sum: wire.Sum{Users: 10, Ones: int64(q.Ones())}}}
}

// TestLocalRowsAnswer: each client answers with its own row. One whose data do not fit, for whatever
// reason, agrees to the same tasks as the others and reports an empty row; only its owner hears of it.
func TestLocalRowsAnswer(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	people := write("people.csv", "id,age,city\na,17,rome\nb,64,oslo\nc,x,rome\nd,64,\n")
	ages := asking(statistic.Question{Measure: "histogram", Column: "age", Edges: []float64{0, 18, 65}})
	romans := asking(statistic.Question{Measure: "count", Where: []statistic.Condition{{Column: "city", Is: "=", Value: "rome"}}})
	for _, c := range []struct {
		data   string
		client int64
		task   wire.Task
		want   []float32
		warned bool
	}{
		{people, 0, ages, []float32{1, 0}, true},
		{people, 1, ages, []float32{0, 1}, true},
		{people, 2, ages, []float32{0, 0}, true},
		{people, 9, ages, []float32{0, 0}, true},
		{people, -1, ages, []float32{0, 0}, true},
		{people, 0, romans, []float32{1}, false},
		{people, 1, romans, []float32{0}, false},
		{people, 2, romans, []float32{1}, false},
		{people, 3, romans, []float32{0}, false},
		{write("other.csv", "id,height\na,17\n"), 0, ages, []float32{0, 0}, true},
		{write("torn.csv", "age\n1,2,3\n"), 0, ages, []float32{0, 0}, true},
		{write("empty.csv", ""), 0, ages, []float32{0, 0}, true},
		{filepath.Join(dir, "none.csv"), 0, ages, []float32{0, 0}, true},
		{"mnist", 0, ages, []float32{0, 0}, true},
	} {
		warned := 0
		l := &Local{Data: c.data, Warn: func([32]byte, error) { warned++ }}
		for range 2 {
			encode, err := LocalClient{l, c.client}.Open(c.task)
			if err != nil {
				t.Fatalf("%s, client %d: %v", c.data, c.client, err)
			}
			x := []float32{7, 7}[:len(c.want)]
			if encode([]float32{0}, x); !slices.Equal(x, c.want) {
				t.Errorf("%s, client %d: reports %v, want %v", c.data, c.client, x, c.want)
			}
		}
		if (warned == 1) != c.warned || warned > 1 {
			t.Errorf("%s, client %d: %d warnings", c.data, c.client, warned)
		}
		LocalClient{l, c.client}.Close(c.task)
		if len(l.tasks) != 0 {
			t.Error("a task's data are kept after its end")
		}
	}
	l := &Local{Data: write("shoes.csv", "height\n17\n18\n"), Warn: func(_ [32]byte, err error) {
		if !strings.HasSuffix(err.Error(), `shoes.csv has no column "age", whose cells count as empty`) {
			t.Errorf("the owner reads %q", err)
		}
	}}
	if _, err := (LocalClient{l, 0}).Open(ages); err != nil {
		t.Error(err)
	}
	other := ages
	other.Mechanism.Dim = 3
	training := ages
	training.Config = []byte("config: {}\n")
	unknown := ages
	unknown.Config = []byte(`{"measure":"everything"}`)
	signs := ages
	signs.Mechanism.Sum.Ones = 0
	for name, task := range map[string]wire.Task{"another length": other, "training": training, "an unknown question": unknown, "reports that are no counts": signs} {
		if _, err := (LocalClient{&Local{Data: people}, 0}).Open(task); err == nil {
			t.Errorf("opened a task with %s", name)
		}
	}
}

// TestCellsCountAlike: riffle measure and a client over a network read the same out of a file, spaces
// around cells and a mark at its beginning included. What is no number is refused by the former, and
// counts as empty for the latter, whose owner is told.
func TestCellsCountAlike(t *testing.T) {
	data := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(data, []byte("\xef\xbb\xbfid, age ,city\r\na, 17\t,\" rome \"\r\nb,\u00a064 ,oslo \r\nc,  , \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    statistic.Question
		want [][]float32
	}{
		{statistic.Question{Measure: "histogram", Column: "age", Edges: []float64{0, 18, 65}}, [][]float32{{1, 0}, {0, 1}, {0, 0}}},
		{statistic.Question{Measure: "histogram", Column: "city", Categories: []string{"rome", "*"}}, [][]float32{{1, 0}, {0, 1}, {0, 0}}},
		{statistic.Question{Measure: "count", Where: []statistic.Condition{{Column: "city", Is: "=", Value: "oslo"}, {Column: "age", Is: ">", Value: "17"}}}, [][]float32{{0}, {1}, {0}}},
	} {
		rows, err := Read(data, c.q, "")
		if err != nil || rows.Rows != len(c.want) {
			t.Fatalf("%s: %v", c.q.JSON(), err)
		}
		e, err := statistic.NewEncoder(c.q)
		if err != nil {
			t.Fatal(err)
		}
		l := &Local{Data: data, Warn: func(_ [32]byte, err error) { t.Errorf("%s: the owner reads %v", c.q.JSON(), err) }}
		for i, want := range c.want {
			x, y := make([]float32, len(want)), make([]float32, len(want))
			e.Encode(func(column string) string { return rows.Cell(i, column) }, nil, x)
			encode, err := LocalClient{l, int64(i)}.Open(asking(c.q))
			if err != nil {
				t.Fatal(err)
			}
			if encode(nil, y); !slices.Equal(x, want) || !slices.Equal(y, want) {
				t.Errorf("%s, row %d: %v, over a network %v, want %v", c.q.JSON(), i, x, y, want)
			}
		}
	}
	if err := os.WriteFile(data, []byte("age\n0x10\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ages := statistic.Question{Measure: "histogram", Column: "age", Edges: []float64{0, 18, 65}}
	if _, err := Read(data, ages, ""); err == nil {
		t.Error("0x10 is a number")
	}
	told := ""
	encode, err := LocalClient{&Local{Data: data, Warn: func(_ [32]byte, err error) { told = err.Error() }}, 0}.Open(asking(ages))
	x := []float32{7, 7}
	if err == nil {
		encode(nil, x)
	}
	if err != nil || !slices.Equal(x, []float32{0, 0}) || !strings.Contains(told, "1 of 1 cells of ") {
		t.Errorf("0x10 counts as %v, the owner reads %q, %v", x, told, err)
	}
}
