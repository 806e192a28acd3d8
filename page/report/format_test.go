package report

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRoundUp(t *testing.T) {
	for _, c := range []struct {
		x      float64
		digits int
		want   string
	}{
		{0.78412, 4, "0.7842"}, {0.7841, 4, "0.7841"}, {0.99991, 4, "1"}, {9.9999, 4, "10"}, {240, 4, "240"}, {12345.6, 4, "12350"},
		{1, 3, "1"}, {0.1, 4, "0.1"}, {0.30000000000000004, 4, "0.3001"}, {0, 4, "0"}, {math.Inf(1), 4, "∞"}, {math.NaN(), 4, "—"},
		{1.23456e-7, 4, "1.235·10⁻⁷"}, {1e22, 3, "10²²"}, {math.MaxFloat64, 3, "∞"}, {1.00001, 1, "2"},
	} {
		if got := roundUp(c.x, c.digits); got != c.want {
			t.Errorf("roundUp(%v, %d) = %q, want %q", c.x, c.digits, got, c.want)
		}
	}
}

// read undoes power, apart from the code under test.
func read(t *rapid.T, s string) float64 {
	at := strings.LastIndex(s, "10")
	if at >= 0 && strings.ContainsAny(s, "⁻⁰¹²³⁴⁵⁶⁷⁸⁹") {
		mantissa, exponent := s[:at], s[at+2:]
		var e strings.Builder
		for _, r := range exponent {
			switch i := strings.IndexRune("⁰¹²³⁴⁵⁶⁷⁸⁹", r); {
			case r == '⁻':
				e.WriteByte('-')
			case i >= 0:
				e.WriteString(strconv.Itoa(len([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹"[:i]))))
			}
		}
		if mantissa == "" {
			mantissa = "1·"
		}
		s = strings.TrimSuffix(mantissa, "·") + "e" + e.String()
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatalf("cannot read %q: %v", s, err)
	}
	return v
}

// What is shown is never below the value, and above it by less than one step.
func TestRoundUpIsSafeAndTight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := math.Exp(rapid.Float64Range(-300, 300).Draw(t, "log x"))
		digits := rapid.IntRange(1, 6).Draw(t, "digits")
		got := read(t, roundUp(x, digits))
		if got < x {
			t.Fatalf("roundUp(%v, %d) shows %v, which is below", x, digits, got)
		}
		if got > x*(1+1.000001*math.Pow(10, float64(1-digits))) {
			t.Fatalf("roundUp(%v, %d) shows %v, more than a step above", x, digits, got)
		}
	})
}

// small is exact.
func TestSmall(t *testing.T) {
	for x, want := range map[float64]string{1e-5: "10⁻⁵", 0.05: "0.05", 1.5e-8: "1.5·10⁻⁸", 0.001: "0.001", 3: "3"} {
		if got := small(x); got != want {
			t.Errorf("small(%v) = %q, want %q", x, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		x := math.Exp(rapid.Float64Range(-100, 4).Draw(t, "log x"))
		if got := read(t, small(x)); got != x {
			t.Fatalf("small(%v) reads %v", x, got)
		}
	})
}

func TestCountsAndTimes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 60000: "60,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	for x, want := range map[float64]string{0.5: "0.5 s", 9.94: "9.9 s", 59.6: "1 min 0 s", 134: "2 min 14 s", 3599.7: "1 h 0 min", 90061: "25 h 1 min", 1e300: "1.157·10²⁹⁵ days"} {
		if got := duration(x); got != want {
			t.Errorf("duration(%v) = %q, want %q", x, got, want)
		}
	}
	for x, want := range map[float64]string{0.32371: "0.3237", 0: "0", 59999.6: "60,000", 1e-5: "1.000·10⁻⁵", math.Inf(1): "—", 123.456: "123.5"} {
		if got := number(x); got != want {
			t.Errorf("number(%v) = %q, want %q", x, got, want)
		}
	}
}
