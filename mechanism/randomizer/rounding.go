package randomizer

import "math"

func roundUp(x float64) float64   { return math.Nextafter(x, math.Inf(1)) }
func roundDown(x float64) float64 { return math.Nextafter(x, math.Inf(-1)) }
