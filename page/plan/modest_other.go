//go:build !linux && !darwin

package plan

func modest() {}
