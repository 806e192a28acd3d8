//go:build !amd64

package kernel

// Best returns the fastest kernels this processor can run.
func Best() *Kernel { return &portable }
