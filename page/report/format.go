package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// roundUp returns the least number with the given significant digits that is not below x ≥ 0,
// as a plain decimal if that is short. Upper bounds are rounded up so that a reader never
// reads less than was proved.
func roundUp(x float64, digits int) string {
	switch {
	case math.IsNaN(x):
		return "—"
	case math.IsInf(x, 1):
		return "∞"
	case x <= 0:
		return "0"
	}
	s := strconv.FormatFloat(x, 'e', digits-1, 64)
	if v, _ := strconv.ParseFloat(s, 64); v < x {
		mantissa, exponent, _ := strings.Cut(s, "e")
		n, _ := strconv.ParseInt(strings.Replace(mantissa, ".", "", 1), 10, 64)
		e, _ := strconv.Atoi(exponent)
		s = fmt.Sprintf("%de%d", n+1, e-digits+1)
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil { // rounding up left the range of floats
		return "∞"
	}
	if v < 1e-4 || v >= 1e6 {
		return power(strconv.FormatFloat(v, 'e', -1, 64))
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// power turns "1.5e-05" into "1.5·10⁻⁵".
func power(s string) string {
	mantissa, exponent, ok := strings.Cut(s, "e")
	if !ok {
		return s
	}
	e, _ := strconv.Atoi(exponent)
	raised := strings.NewReplacer("-", "⁻", "0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴",
		"5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹").Replace(strconv.Itoa(e))
	if mantissa == "1" {
		return "10" + raised
	}
	return mantissa + "·10" + raised
}

// small writes x without loss: 0.001 as it is, 1e-05 as a power of ten.
func small(x float64) string {
	if x >= 1e-3 {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return power(strconv.FormatFloat(x, 'e', -1, 64))
}

// percent writes a share with the given decimals.
func percent(x float64, decimals int) string {
	if math.IsNaN(x) {
		return "—"
	}
	return strconv.FormatFloat(100*x, 'f', decimals, 64) + " %"
}

// count groups an integer by thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 && s[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// number writes x with about four significant digits, to the nearest.
func number(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "—"
	case a >= 1000 && a < 1<<53:
		return count(int64(math.Round(x)))
	case a != 0 && a < 1e-3 || a >= 1<<53:
		return power(strconv.FormatFloat(x, 'e', 3, 64))
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// duration writes seconds in words for people.
func duration(seconds float64) string {
	if seconds < 10 {
		return strconv.FormatFloat(seconds, 'f', 1, 64) + " s"
	}
	if seconds > math.MaxInt64/2e9 { // more than a time.Duration holds
		return number(seconds/86400) + " days"
	}
	d := time.Duration(math.Round(seconds)) * time.Second
	h, m, s := int64(d.Hours()), int64(d.Minutes())%60, int64(d.Seconds())%60
	switch {
	case h > 0:
		return fmt.Sprintf("%s h %d min", count(h), m)
	case m > 0:
		return fmt.Sprintf("%d min %d s", m, s)
	}
	return fmt.Sprintf("%d s", s)
}

// plural writes a count with its noun: "1 round", "80 rounds".
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}
