//go:build !unix

package durable

// unblocked is nothing here: these systems have no pipes among their files.
const unblocked = 0
