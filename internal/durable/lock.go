package durable

import "errors"

// ErrLocked is wrapped if another process holds a lock.
var ErrLocked = errors.New("in use by another process")
