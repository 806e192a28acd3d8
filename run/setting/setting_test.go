package setting

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type mode string

// ship is something with settings of every type.
type ship struct {
	name  string
	mode  mode
	speed float64
	crew  int
	seed  uint64
	spare int64
	depth Optional
	flag  bool
}

func (s *ship) table() Table {
	return Table{
		{Name: "name", Into: &s.name, Check: func(text string) error {
			if text == "nobody" {
				return fmt.Errorf("%q is taken", text)
			}
			return nil
		}, Values: []string{"anna"}, Help: "as %s"},
		{Name: "mode", Into: &s.mode, Default: "sail", Values: []string{"sail\tby wind", "steam", "oar"}, Help: "goes by %s"},
		{Name: "speed", Into: &s.speed, Range: "(0, 40]", Help: "knots"},
		{Name: "crew", Into: &s.crew, Default: "5", Range: "[1, inf)"},
		{Name: "seed", Into: &s.seed, Default: "0", Range: "[0, 100]"},
		{Name: "spare", Into: &s.spare, Range: "[1, 10]", Local: true},
		{Name: "depth", Into: &s.depth, Range: "[0, 9)"},
		{Name: "flag", Into: &s.flag},
	}
}

func find(t Table, name string) Field {
	return t[slices.IndexFunc(t, func(f Field) bool { return f.Name == name })]
}

func TestFieldsRefuse(t *testing.T) {
	var s ship
	table := s.table()
	table.Reset()
	before := s
	for _, c := range []struct{ name, text, want string }{
		{"name", "nobody", `"nobody" is taken`},
		{"mode", "rail", `"rail" must be one of sail, steam, oar`},
		{"speed", "0", "0 must be above 0 and at most 40"},
		{"speed", "40.5", "40.5 must be above 0 and at most 40"},
		{"speed", "NaN", "NaN must be above 0 and at most 40"},
		{"speed", "fast", `"fast" is not a number`},
		{"crew", "0", "0 must be at least 1"},
		{"crew", "1.5", `"1.5" is not a whole number (as 60000 or 6e4)`},
		{"flag", "yes", `"yes" must be true or false`},
		{"flag", "", `"" must be true or false`},
		{"seed", "-1", "-1 must lie between 0 and 100"},
		{"spare", "11", "11 must lie between 1 and 10"},
		{"depth", "9", "9 must be at least 0 and below 9"},
		{"depth", "nan", "NaN must be at least 0 and below 9"},
		{"depth", "", `"" is not a number`},
	} {
		if err := find(table, c.name).Set(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%s = %s: %v, want %s", c.name, c.text, err, c.want)
		}
	}
	if s != before {
		t.Errorf("a refused value was set: %+v", s)
	}
	for _, c := range []struct{ interval, text, want string }{
		{"(0, 1)", "1", "1 must lie strictly between 0 and 1"},
		{"[0, 1)", "1", "1 must be at least 0 and below 1"},
		{"[0, 1]", "-1", "-1 must be at least 0 and at most 1"},
		{"(0, inf)", "NaN", "NaN must be above 0 and finite"},
		{"(0, inf)", "Inf", "+Inf must be above 0 and finite"},
	} {
		f := Field{Into: new(float64), Range: c.interval}
		if err := f.Set(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%s in %s: %v, want %s", c.text, c.interval, err, c.want)
		}
	}
}

// Counts are exact beyond what a float64 holds.
func TestLargeCounts(t *testing.T) {
	f := Field{Into: new(int64), Range: "[0, 9007199254740992]"}
	if err := f.Set("9007199254740992"); err != nil {
		t.Error(err)
	}
	if err := f.Set("9007199254740993"); err == nil {
		t.Error("a count above the range was set")
	}
}

func TestFieldsAreWritten(t *testing.T) {
	var s ship
	table := s.table()
	table.Reset()
	if s != (ship{mode: "sail", crew: 5}) {
		t.Errorf("the default is %+v", s)
	}
	text, err := yaml.Marshal(table)
	if err != nil || string(text) != "mode: sail\ncrew: 5\nseed: 0\n" {
		t.Errorf("the default is written as %q, %v", text, err)
	}
	for name, text := range map[string]string{"name": "a: b # c", "mode": "oar", "speed": "2.5", "crew": "1e3", "seed": "7", "spare": "2", "depth": "0"} {
		if err := find(table, name).Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if s != (ship{"a: b # c", "oar", 2.5, 1000, 7, 2, Optional{0, true}, false}) {
		t.Errorf("set: %+v", s)
	}
	if text, err = yaml.Marshal(table); err != nil {
		t.Fatal(err)
	}
	var other ship
	if err := other.table().Parse(text, nil); err != nil || other != s {
		t.Errorf("%+v read from\n%s%v", other, text, err)
	}
}

// What is local or left to be chosen is not in a digest, and the digest of a table is
// the same in every version.
func TestDigest(t *testing.T) {
	var s ship
	table := s.table()
	table.Reset()
	before := table.Digest()
	if got := fmt.Sprintf("%x", before[:4]); got != "52a6d427" {
		t.Errorf("the digest begins with %s", got)
	}
	if s.spare = 3; table.Digest() != before {
		t.Error("a local setting changes the digest")
	}
	if s.depth = (Optional{0, true}); table.Digest() == before {
		t.Error("a number that was given as 0 is not in the digest")
	}
	before = table.Digest()
	if s.speed = 3; table.Digest() == before {
		t.Error("a setting does not change the digest")
	}
}

func TestFilesAreReadWhollyOrNotAtAll(t *testing.T) {
	for text, want := range map[string]string{
		"crew: 3\nsale: 1\n":     `line 2: unknown key "sale"`,
		"crew: 3\ncrew: 4\n":     `line 2: key "crew" given twice`,
		"crew: 3\n\nspeed: 41\n": "line 3: speed: 41 must be above 0",
		"crew: 3\nmode: [oar]\n": "line 2: mode: want a single value",
		"- crew\n":               "line 1: want `name: value` lines",
		"seed: -1\ncrew: 3\n":    "line 1: seed: -1",
	} {
		var s ship
		// A value that is not taken is checked as well.
		err := s.table().Parse([]byte(text), func(name string) bool { return name == "seed" })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		if s != (ship{}) {
			t.Errorf("%q was applied in part: %+v", text, s)
		}
	}
	var s ship
	if err := s.table().Parse([]byte(" \n"), nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestUsage(t *testing.T) {
	table := new(ship).table()
	for name, want := range map[string]string{"name": "as anna", "mode": "goes by sail (by wind), steam or oar", "speed": "knots", "crew": ""} {
		if got := find(table, name).Usage(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"name": "text", "mode": "text", "speed": "number", "crew": "count", "seed": "count"} {
		if got := find(table, name).Type(); got != want {
			t.Errorf("%s is a %s, want %s", name, got, want)
		}
	}
	if (Field{}).String() != "" {
		t.Error("a flag package's own field has a value")
	}
}

func TestParseCount(t *testing.T) {
	for text, want := range map[string]int64{"60000": 60000, "1e6": 1e6, "2.5e3": 2500, "-3": -3} {
		if got, err := ParseCount(text); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1.5", "1e40", "NaN", "Inf", "1e-3"} {
		if n, err := ParseCount(text); err == nil {
			t.Errorf("%q read as %d", text, n)
		}
	}
}

// A flag that is off is not written, so adding one changes no digest.
func TestFlagsAreWrittenIfOn(t *testing.T) {
	var s ship
	table := s.table()
	table.Reset()
	off := table.Digest()
	for _, text := range []string{"flag: true\n", "flag: false\n"} {
		if err := table.Parse([]byte(text), nil); err != nil {
			t.Fatal(err)
		}
		b, err := yaml.Marshal(table)
		if on := text == "flag: true\n"; err != nil || s.flag != on || strings.Contains(string(b), "flag: true") != on || strings.Contains(string(b), "flag: false") {
			t.Errorf("%q is written as\n%s%v", text, b, err)
		}
		if (table.Digest() == off) == s.flag {
			t.Errorf("%q: digest %x", text, table.Digest())
		}
	}
}
