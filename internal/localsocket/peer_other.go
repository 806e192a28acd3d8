//go:build !unix

package localsocket

// listener returns no user: files have access lists there, and no modes.
func listener(uintptr) (int, error) { return -1, nil }
