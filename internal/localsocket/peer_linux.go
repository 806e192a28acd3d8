package localsocket

import "syscall"

// listener returns the user who listens.
func listener(fd uintptr) (int, error) {
	c, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(c.Uid), nil
}
