//go:build soak

package coordinator

func stride() int { return 1 }
