package optimize

import (
	"fmt"
	"math"
)

// checkGradient refuses a mean gradient of the wrong length or with a value
// that is not finite.
func checkGradient(mean []float64, dim int) error {
	if len(mean) != dim {
		return fmt.Errorf("optimize: gradient has %d values, the model %d", len(mean), dim)
	}
	for j, g := range mean {
		if math.IsNaN(g) || math.IsInf(g, 0) {
			return fmt.Errorf("optimize: gradient value %d is %v", j, g)
		}
	}
	return nil
}

// descend writes the projection of theta − step·mean into dst. Products are
// wrapped so that no CPU fuses them into the sum.
func descend(dst, theta, mean []float64, step, radius float64) error {
	for j, g := range mean {
		dst[j] = theta[j] - float64(step*g)
		if math.IsNaN(dst[j]) || math.IsInf(dst[j], 0) {
			return fmt.Errorf("optimize: parameter %d would be %v at step size %v", j, dst[j], step)
		}
	}
	project(dst, radius)
	return nil
}

// blend writes a·x + (1 − a)·y into dst.
func blend(dst []float64, a float64, x, y []float64) {
	for j := range dst {
		dst[j] = float64(a*x[j]) + float64((1-a)*y[j])
	}
}

// checkStart returns an error for a configuration that no optimiser can start from.
func checkStart(dim int, rounds int64, radius float64, start []float64) error {
	if dim < 1 {
		return fmt.Errorf("optimize: dimension %d must be at least 1", dim)
	}
	if rounds < 1 {
		return fmt.Errorf("optimize: %d rounds must be at least 1", rounds)
	}
	if !(radius >= 0) || math.IsInf(radius, 1) {
		return fmt.Errorf("optimize: radius = %v must be above 0, or 0 for none", radius)
	}
	if start != nil && len(start) != dim {
		return fmt.Errorf("optimize: start has %d values, the model %d", len(start), dim)
	}
	for j, v := range start {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("optimize: start value %d is %v", j, v)
		}
	}
	return nil
}

// restore checks a State and copies its vectors. If it returns an error nothing was copied.
func restore(s State, rounds int64, into map[string][]float64) error {
	if s.Steps < 0 || s.Steps > rounds {
		return fmt.Errorf("optimize: state has %d steps, there are %d", s.Steps, rounds)
	}
	if len(s.Vectors) != len(into) {
		return fmt.Errorf("optimize: state has %d vectors, want %d", len(s.Vectors), len(into))
	}
	for name, dst := range into {
		if len(s.Vectors[name]) != len(dst) {
			return fmt.Errorf("optimize: state vector %q has %d values, the model %d", name, len(s.Vectors[name]), len(dst))
		}
		for j, v := range s.Vectors[name] {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("optimize: state vector %q has the value %v at %d", name, v, j)
			}
		}
	}
	for name, dst := range into {
		copy(dst, s.Vectors[name])
	}
	return nil
}
