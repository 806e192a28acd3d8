package toeplitz

import "math"

const (
	memory     = 12  // pairs of steps and changes of slope that are kept
	mostSearch = 100 // steps, after which less than 1e-6 of the value was left to gain in all cases tried
)

// minimise moves x to a local minimum of a positive function, which sets grad to the slope of its
// logarithm: limited-memory BFGS with halved steps, of a fixed order of operations. Products are
// rounded before they are added, so that no platform fuses them.
func minimise(x []float64, f func(x, grad []float64) float64) {
	n := len(x)
	grad, next, nextGrad := make([]float64, n), make([]float64, n), make([]float64, n)
	value := f(x, grad)
	var steps, changes [][]float64
	for range mostSearch {
		direction := quasiNewton(grad, steps, changes)
		slope := dot(grad, direction)
		if !(slope < 0) {
			steps, changes = nil, nil
			direction = quasiNewton(grad, nil, nil)
			slope = dot(grad, direction)
		}
		if !(slope < -1e-20) {
			return
		}
		length := 1.
		if len(steps) == 0 {
			length = min(1, .1/math.Sqrt(-slope))
		}
		better := false
		for range 40 { // halvings
			for i := range x {
				next[i] = x[i] + float64(length*direction[i])
			}
			// log(v/value) ≤ v/value − 1, so this is Armijo's rule for the logarithm.
			if v := f(next, nextGrad); v/value-1 <= float64(1e-4*length)*slope {
				value, better = v, true
				break
			}
			length /= 2
		}
		if !better {
			return
		}
		step, change := make([]float64, n), make([]float64, n)
		for i := range x {
			step[i], change[i] = next[i]-x[i], nextGrad[i]-grad[i]
		}
		copy(x, next)
		copy(grad, nextGrad)
		if dot(step, change) > 1e-12*math.Sqrt(dot(step, step)*dot(change, change)) {
			steps, changes = append(steps, step), append(changes, change)
			if len(steps) > memory {
				steps, changes = steps[1:], changes[1:]
			}
		}
	}
}

// quasiNewton returns −H·grad, H the inverse Hessian that steps and changes suggest.
func quasiNewton(grad []float64, steps, changes [][]float64) []float64 {
	d := make([]float64, len(grad))
	for i, g := range grad {
		d[i] = -g
	}
	a := make([]float64, len(steps))
	for k := len(steps) - 1; k >= 0; k-- {
		a[k] = dot(steps[k], d) / dot(steps[k], changes[k])
		add(d, -a[k], changes[k])
	}
	if k := len(steps) - 1; k >= 0 {
		scale := dot(steps[k], changes[k]) / dot(changes[k], changes[k])
		for i := range d {
			d[i] *= scale
		}
	}
	for k := range steps {
		add(d, a[k]-dot(changes[k], d)/dot(steps[k], changes[k]), steps[k])
	}
	return d
}

// dot returns Σ a_i·b_i over the length of a, as four sums that are added at the end.
func dot(a, b []float64) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(a); i += 4 {
		u, v := a[i:i+4], b[i:i+4]
		s0 += float64(u[0] * v[0])
		s1 += float64(u[1] * v[1])
		s2 += float64(u[2] * v[2])
		s3 += float64(u[3] * v[3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i] * b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// add adds f·b to a.
func add(a []float64, f float64, b []float64) {
	for i := range a {
		a[i] += float64(f * b[i])
	}
}
