// Package longtest tells tests whether to run in full. Plain `go test` runs a sample of the
// slow tests; `go test -tags long`, as .ci/run does, runs all of them. On says which it is.
package longtest

import "testing"

// Only skips a test that was built without the tag.
func Only(t testing.TB, why string) {
	t.Helper()
	if !On {
		t.Skip("with -tags long: " + why)
	}
}

// Pick returns all if the test was built with the tag, otherwise few.
func Pick[T any](few, all T) T {
	if On {
		return all
	}
	return few
}
