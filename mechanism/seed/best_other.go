//go:build !amd64

package seed

// best returns the only kernel there is.
func best() kernel { return portable }
