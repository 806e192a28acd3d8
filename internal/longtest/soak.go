//go:build soak

package longtest

// Soak says whether the tests were built with the tag soak.
const Soak = true
