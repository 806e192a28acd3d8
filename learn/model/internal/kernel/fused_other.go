//go:build !amd64 && !386

package kernel

// fused returns a + v·u. Compilers for other processors make it one
// instruction with one rounding where there is one.
func fused(a, v, u float32) float32 { return v*u + a }
