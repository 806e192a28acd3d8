package measure

import (
	"errors"
	"fmt"
)

// ErrInput is wrapped by errors in the caller's input. It has no text of its own: the error
// around it says what is wrong.
var ErrInput = errors.New("")

func inputError(format string, args ...any) error {
	return fmt.Errorf("measure: %s%w", fmt.Sprintf(format, args...), ErrInput)
}
