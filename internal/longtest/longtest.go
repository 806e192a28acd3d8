// Package longtest tells tests how much to run. Plain `go test` runs a sample of the slow tests;
// `go test -tags long`, as .ci/long does, runs all tests; `go test -tags soak` repeats some of them
// more often than a change needs. On and Soak say whether these tags are set.
package longtest

import "testing"

// Only skips a test that was built without the tag long.
func Only(t testing.TB, why string) {
	t.Helper()
	if !On {
		t.Skip("with -tags long: " + why)
	}
}

// Pick returns all if the test was built with the tag long, otherwise few.
func Pick[T any](few, all T) T {
	if On {
		return all
	}
	return few
}

// Pick3 returns all with the tag soak, some with the tag long alone, otherwise few.
func Pick3[T any](few, some, all T) T {
	if Soak {
		return all
	}
	return Pick(few, some)
}
