//go:build long

package longtest

import "testing"

// On says whether the tests were built with the tag long.
const On = true

// Only skips a test that was built without the tag.
func Only(testing.TB, string) {}

// Pick returns all if the test was built with the tag, otherwise few.
func Pick[T any](few, all T) T { return all }
