//go:build darwin || freebsd

package localsocket

import "golang.org/x/sys/unix"

// listener returns the user who listens.
func listener(fd uintptr) (int, error) {
	c, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(c.Uid), nil
}
