//go:build long && !soak

package main

import "time"

// Some of the attacks, each for this long and until two rounds have ended.
const (
	everyAttack  = false
	strangerTime = 2 * time.Second
)
