//go:build soak

package main

import "time"

// All attacks, each for this long and until two rounds have ended.
const (
	everyAttack  = true
	strangerTime = 5 * time.Second
)
