//go:build long

// Package longtest tells tests whether the long ones are wanted.
package longtest

import "testing"

// On is whether the tests were built with the tag long.
const On = true

// Only skips a test unless the tag is set.
func Only(testing.TB, string) {}

// Pick returns few, or with the tag all.
func Pick[T any](few, all T) T { return all }
