//go:build unix

package durable

import "syscall"

// unblocked opens a pipe without waiting for its other end; to files it means nothing.
const unblocked = syscall.O_NONBLOCK
