package dp

import (
	"encoding/json"
	"math"
	"strconv"
)

// Number is a float64 whose infinities have a JSON form, the strings "inf" and "-inf". NaN, a
// value that was not measured, is null.
type Number float64

// MarshalJSON writes a plain number, "inf", "-inf" or null.
func (n Number) MarshalJSON() ([]byte, error) {
	switch x := float64(n); {
	case math.IsInf(x, 1):
		return []byte(`"inf"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-inf"`), nil
	case math.IsNaN(x):
		return []byte("null"), nil
	default:
		return json.Marshal(x)
	}
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case `"inf"`:
		*n = Number(math.Inf(1))
		return nil
	case `"-inf"`:
		*n = Number(math.Inf(-1))
		return nil
	case "null":
		*n = Number(math.NaN())
		return nil
	}
	x, err := strconv.ParseFloat(string(b), 64)
	*n = Number(x)
	return err
}

// TimesUp returns x·m, rounded up: the loss of m reports of x each.
func TimesUp(x float64, m int64) float64 {
	product := x * float64(m)
	if math.FMA(x, float64(m), -product) > 0 {
		return math.Nextafter(product, math.Inf(1))
	}
	return product
}
