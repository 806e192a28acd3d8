package dataset

import (
	"bytes"
	"slices"
	"testing"
)

func TestWriteCSVReadsBack(t *testing.T) {
	for _, kind := range []SyntheticKind{SyntheticLogistic, SyntheticAbsolute} {
		want, _ := synthetic(t, SyntheticConfig{Kind: kind, Dim: 3, Rows: 50, Seed: 4})
		var text bytes.Buffer
		if err := WriteCSV(&text, want); err != nil {
			t.Fatal(err)
		}
		got, err := parseCSV(&text, "rows", CSVConfig{Label: "y", Regression: want.Targets != nil})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Columns, []string{"x1", "x2", "x3"}) || !slices.Equal(got.Table.X, want.X) ||
			!slices.Equal(got.Table.Y, want.Y) || !slices.Equal(got.Table.Targets, want.Targets) {
			t.Errorf("%s: what was read back differs", kind)
		}
	}
}
