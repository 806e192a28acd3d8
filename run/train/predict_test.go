package train

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// trainedIn trains in a new directory, and returns it with the run and its summary.
func trainedIn(t *testing.T, c Config) (r *Run, s *Summary, dir string) {
	t.Helper()
	r, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "run")
	if err := r.Create(dir); err != nil {
		t.Fatal(err)
	}
	if s, err = r.Train(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	return r, s, dir
}

// ranFor returns a run's directory.
func ranFor(t *testing.T, c Config) string {
	t.Helper()
	_, _, dir := trainedIn(t, c)
	return dir
}

// Predictions are those from which eval counts, with or without the label's column.
func TestPredictClasses(t *testing.T) {
	c := bought(shoppers(t, 300, "u0,30,oslo,1,yes"))
	c.Trust, c.Rounds = "none", 30
	stored, err := ReadModel(ranFor(t, c))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := stored.Predict(c.Data, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows[0], []string{"bought", "probability no", "probability yes"}) || len(rows) != 301 {
		t.Fatalf("header %q, %d rows", rows[0], len(rows)-1)
	}
	raw, err := os.ReadFile(c.Data)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	right := 0
	unlabelled := []string{"id,age,city,spent"}
	for i, line := range lines[1:] {
		cut := strings.LastIndex(line, ",")
		unlabelled = append(unlabelled, line[:cut])
		if line[cut+1:] == rows[i+1][0] {
			right++
		}
		no, _ := strconv.ParseFloat(rows[i+1][1], 64)
		yes, _ := strconv.ParseFloat(rows[i+1][2], 64)
		if math.Abs(no+yes-1) > 1e-5 || (yes > no) != (rows[i+1][0] == "yes") {
			t.Fatalf("row %d: %q", i, rows[i+1])
		}
	}
	e, err := stored.Test(c.Data, true, 1)
	if err != nil || e.Correct != right {
		t.Errorf("%d right, eval counts %+v, %v", right, e, err)
	}
	other := filepath.Join(t.TempDir(), "new.csv")
	if err := os.WriteFile(other, []byte(strings.Join(unlabelled, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := stored.Predict(other, 1)
	if err != nil || len(again) != len(rows) {
		t.Fatalf("%d rows, %v", len(again), err)
	}
	for i := range rows {
		if !slices.Equal(again[i], rows[i]) {
			t.Fatalf("row %d without its label: %q, want %q", i, again[i], rows[i])
		}
	}
	// Columns are taken by name: in another order, with others beside them.
	turned := []string{"comment,spent,city,age"}
	for i, line := range unlabelled[1:] {
		cells := strings.Split(line, ",")
		turned = append(turned, strings.Join([]string{fmt.Sprint("no ", i), cells[3], cells[2], cells[1]}, ","))
	}
	if err := os.WriteFile(other, []byte(strings.Join(turned, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err = stored.Predict(other, 1); err != nil || !slices.EqualFunc(again, rows, slices.Equal) {
		t.Errorf("other columns, in another order: %v, or other predictions", err)
	}
	for _, bad := range []struct{ data, want string }{
		{"mnist", "the model takes a table"},
		{shoppers(t, 30, "u,x,rome,1,no"), `"x" is not a number`},
	} {
		if _, err := stored.Predict(bad.data, 1); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: error %v, want %q", bad.data, err, bad.want)
		}
	}
}

// A number is predicted in the column's own units.
func TestPredictNumbers(t *testing.T) {
	c := Default()
	c.Data, c.Label, c.Loss, c.Rounds, c.Trust, c.Range = spending(100).write(t, 200), "y", "absolute", 30, "none", "y=100..1100"
	stored, err := ReadModel(ranFor(t, c))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := stored.Predict(c.Data, 1)
	if err != nil {
		t.Fatal(err)
	}
	e, err := stored.Test(c.Data, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 201 || !slices.Equal(rows[0], []string{"y"}) {
		t.Fatalf("%d rows, header %q", len(rows)-1, rows[0])
	}
	for i, row := range rows[1:] {
		got, err := strconv.ParseFloat(row[0], 64)
		if want := 100 + 1000*e.Scores[i]; err != nil || math.Abs(got-want) > 1e-5*math.Abs(want) {
			t.Fatalf("row %d: %q, want %v", i, row[0], want)
		}
	}
}
