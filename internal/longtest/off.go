//go:build !long

package longtest

// On says whether the tests were built with the tag long.
const On = false
