//go:build unix && !linux && !darwin && !freebsd

package localsocket

import "errors"

// listener fails: this package does not know how this system says who listens.
func listener(uintptr) (int, error) { return 0, errors.ErrUnsupported }
