// Package golden reads the tables in testdata that tests compare with and that
// independent programs wrote. For tests only.
package golden

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Rows returns the tab-separated fields of each line of testdata/name that is neither empty nor
// a comment. The test fails if there are fewer such lines than least.
func Rows(t testing.TB, name string, least int) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && line[0] != '#' {
			rows = append(rows, strings.Split(line, "\t"))
		}
	}
	if len(rows) < least {
		t.Fatalf("%s: %d rows, want at least %d", name, len(rows), least)
	}
	return rows
}

// Table returns the rows of a file of numbers.
func Table(t testing.TB, name string, least int) (rows [][]float64) {
	t.Helper()
	for _, row := range Rows(t, name, least) {
		rows = append(rows, Numbers(t, row))
	}
	return rows
}

// Numbers parses the fields of a row as numbers.
func Numbers(t testing.TB, fields []string) []float64 {
	t.Helper()
	out := make([]float64, len(fields))
	for i, s := range fields {
		var err error
		if out[i], err = strconv.ParseFloat(s, 64); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
