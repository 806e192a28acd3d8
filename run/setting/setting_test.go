package setting

import "testing"

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
