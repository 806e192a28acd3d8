package statistic

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// seeds are questions of all kinds.
var seeds = []string{
	`{"measure":"count","column":"a","where":[{"column":"b","is":"<","value":"3"}]}`,
	`{"measure":"mean","column":"a","low":-1,"high":2}`,
	`{"measure":"mean","column":"a","high":1e+21,"everyone":true}`,
	`{"measure":"variance","column":"a","low":-100,"high":2}`,
	`{"measure":"variance","column":"a","high":1,"everyone":true}`,
	`{"measure":"histogram","column":"a","edges":[-1,0,0.5,1e+30]}`,
	`{"measure":"histogram","column":"a","categories":["x","y","*"]}`,
	`{"measure":"quantiles","column":"a","low":-1,"high":1,"ranks":[0.5,0.9],"levels":5}`,
	`{"measure":"quantiles","column":"a","high":100,"everyone":true,"ranks":[0.1],"levels":1}`,
	`{"measure":"heavy-hitters","column":"a","longest":3,"alphabet":"xy","share":0.2}`,
	`{"measure":"linear-regression","column":"a","high":10,"features":[{"column":"b","high":1},{"column":"c","low":-1,"high":1}]}`,
}

// cells are what may stand in a cell.
var cells = []string{"", " ", "0", "-0", "1", "0.5", "-3.7", "100", "1e21", "-1e300", "1e999", "NaN", "-Inf", "0x10", "x", "y", "xyx", "*", "é", "\xff", "ÿ y", "1,5"}

// checkEncoding checks what an encoded row promises, whatever is in the row.
func checkEncoding(t *testing.T, q Question, row Row) {
	t.Helper()
	e, err := NewEncoder(q)
	if err != nil {
		t.Fatalf("%s: %v", q.JSON(), err)
	}
	state := make([]float32, q.Parameters())
	if q.Measure == HeavyHitters {
		state = heavy{q}.mustTree().encode(heavy{q}.mustTree().begin())
	}
	x := make([]float32, q.Dim())
	e.Encode(row, state, x)
	var square float64
	ones := 0
	for _, v := range x {
		square += float64(v) * float64(v)
		if v != 0 {
			ones++
		}
		if !(v >= -1 && v <= 1) || q.Ones() > 0 && v != 0 && v != 1 {
			t.Fatalf("%s: %v in an encoded row", q.JSON(), v)
		}
	}
	if q.Ones() > 0 {
		if ones > q.Ones() {
			t.Fatalf("%s: %d ones, %d promised", q.JSON(), ones, q.Ones())
		}
		at := map[int]bool{}
		for _, j := range e.Places(row, state, nil) {
			if at[j] || x[j] != 1 {
				t.Fatalf("%s: place %d is twice, or no one", q.JSON(), j)
			}
			at[j] = true
		}
		if len(at) != ones {
			t.Fatalf("%s: %d places of %d ones", q.JSON(), len(at), ones)
		}
	}
	if r := q.Radius(); square > r*r*(1+1e-6) {
		t.Fatalf("%s: squared norm %v above %v", q.JSON(), square, r*r)
	}
}

func TestEncodingsOfAnything(t *testing.T) {
	src := rng.Replay(19, 41)
	for _, text := range seeds {
		q, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for range 200 {
			row := map[string]string{}
			for _, column := range []string{"a", "b", "c"} {
				row[column] = cells[sample.Uniform(src, uint64(len(cells)))]
			}
			checkEncoding(t, q, func(column string) string { return row[column] })
		}
	}
}

// A question that is read is canonical, can be encoded for any row, and its answer is JSON.
func FuzzQuestion(f *testing.F) {
	for i, text := range seeds {
		f.Add([]byte(text), cells[i%len(cells)], 3.5)
		f.Add([]byte(text), cells[i%len(cells)], 1e99)
		f.Add([]byte(text), cells[i%len(cells)], -1e60)
	}
	f.Fuzz(func(t *testing.T, text []byte, cell string, sum float64) {
		q, err := Parse(text)
		if err != nil {
			return
		}
		if !bytes.Equal(q.JSON(), text) {
			t.Fatalf("%s became %s", text, q.JSON())
		}
		if q.Dim() > 1<<14 {
			return // slow
		}
		checkEncoding(t, q, func(string) string { return cell })
		law, err := OfCurator(.5, 9, 10, false)
		if err != nil {
			t.Fatal(err)
		}
		sums := make([]float64, q.Dim())
		for i := range sums {
			sums[i] = sum
		}
		r := Release{Sums: sums, Reports: 10, Clients: 12, Law: law}
		if q.Measure == LinearRegression {
			r.Clients = 10 // it is not asked of a sample
		}
		a, err := q.Answer(r)
		if err != nil {
			return
		}
		if _, err := json.Marshal(a); err != nil {
			t.Fatalf("%s of %v: %v", text, sum, err)
		}
	})
}
