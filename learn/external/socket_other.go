//go:build !unix

package external

// trusted is for systems whose files have owners.
func trusted(string) error { return nil }
