//go:build !long

// Package longtest tells tests whether the long ones are wanted. Plain `go test`
// runs a sample of what is slow; `go test -tags long`, as .ci/run does, runs it all.
package longtest

import "testing"

// On is whether the tests were built with the tag long.
const On = false

// Only skips a test unless the tag is set.
func Only(t testing.TB, why string) {
	t.Helper()
	t.Skip("with -tags long: " + why)
}

// Pick returns few, or with the tag all.
func Pick[T any](few, all T) T { return few }
