package durable

import "errors"

// ErrLocked is wrapped if another process holds a lock.
var ErrLocked = errors.New("in use by another process")

// Lock locks a file, which it creates if need be. The returned function, or the end of the
// process, unlocks it. On a system without file locks it fails.
func Lock(path string) (unlock func() error, err error) { return lock(path) }
