package picture

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// set fits the plot's axis to the values or to its limits.
func (x Axis) set(a *plot.Axis, values []float64) {
	low, high := math.Inf(1), 0.
	for _, v := range values {
		if math.IsInf(v, 0) || math.IsNaN(v) {
			continue
		}
		if v > 0 {
			low = math.Min(low, v)
		}
		high = math.Max(high, v)
	}
	if x.Max > x.Min {
		low, high = x.Min, x.Max
	}
	if x.Scale == Log && low <= high || x.Scale == Fitted && high > 20*low {
		a.Scale, a.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
		a.Min, a.Max = outward(low, -1), outward(high, +1)
		if a.Min == a.Max {
			a.Max = outward(high*1.01, +1)
		}
	} else {
		step := linearStep(high)
		a.Min, a.Max, a.Tick.Marker = 0, step*math.Ceil(high/step*(1-1e-12)), plot.TickerFunc(linearTicks)
		if a.Max == 0 {
			a.Max = step
		}
	}
	if x.Max > x.Min {
		a.Min, a.Max = x.Min, x.Max
	}
}

// linearStep returns 1, 2 or 5 times a power of ten, so that at most eight steps reach high.
func linearStep(high float64) float64 {
	if !(high > 0) {
		return 1
	}
	return outward(high/8, +1)
}

func linearTicks(low, high float64) []plot.Tick {
	var out []plot.Tick
	step := linearStep(high - low)
	for i := math.Ceil(low/step - 1e-12*math.Abs(low/step)); i*step <= high*(1+1e-12); i++ {
		v, _ := strconv.ParseFloat(strconv.FormatFloat(i*step, 'g', 6, 64), 64)
		out = append(out, plot.Tick{Value: v, Label: Number(v)})
	}
	return out
}

// outward is the next of 1, 2 and 5 times a power of ten, below or above x > 0.
func outward(x float64, side int) float64 {
	var below, above float64
	for e := int(math.Floor(math.Log10(x))) - 1; above == 0; e++ {
		for _, m := range []int{1, 2, 5} {
			v, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", m, e), 64)
			if v <= x {
				below = v
			}
			if v >= x && above == 0 {
				above = v
			}
		}
	}
	if side < 0 && below > 0 {
		return below
	}
	if side < 0 {
		return x
	}
	return above
}

// logTicks labels powers of ten and, where these are few, also 2 and 5 times them.
func logTicks(low, high float64) []plot.Tick {
	var out []plot.Tick
	decades := math.Log10(high / low)
	every := max(1, int(math.Ceil(decades/12)))
	for e := int(math.Floor(math.Log10(low))); e <= int(math.Ceil(math.Log10(high))); e++ {
		for m := 1; m <= 9; m++ {
			v, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", m, e), 64)
			label := ""
			if m == 1 && e%every == 0 || decades < 3 && (m == 2 || m == 5) {
				label = Number(v)
			}
			if v >= low*(1-1e-9) && v <= high*(1+1e-9) && (label != "" || every == 1) {
				out = append(out, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return out
}

// Number writes numbers as 60000, 1e6 or 1e-8.
func Number(x float64) string {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if short := strconv.FormatFloat(x, 'f', -1, 64); x == math.Trunc(x) && len(strings.TrimRight(short, "0")) > 2 {
		text = short // a whole number such as 54321 is written in full
	}
	return strings.NewReplacer("e+0", "e", "e+", "e", "e-0", "e-").Replace(text)
}
