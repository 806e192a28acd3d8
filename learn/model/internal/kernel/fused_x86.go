//go:build amd64 || 386

package kernel

// fused returns a + v·u, rounded to float32 as the fused instruction does: the
// product is exact in float64. Only a sum whose float64 is midway between two
// float32s can differ, by one unit in the last place, about once in 2²⁸.
func fused(a, v, u float32) float32 {
	return float32(float64(v)*float64(u) + float64(a))
}
