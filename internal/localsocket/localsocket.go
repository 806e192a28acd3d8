// Package localsocket connects to Unix sockets on which this user or root listens. Whoever can put a socket in the
// place of another, for a moment only, would otherwise be taken for the program that belongs there; so the
// system is asked who listens, after the connection was made.
package localsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// ErrOther is wrapped if another user listens.
var ErrOther = errors.New("another user listens there")

// check refuses a path that names no file: a name that begins with @ or a zero byte is one of Linux's abstract
// sockets, which any user may take.
func check(path string) error {
	if strings.HasPrefix(path, "@") || strings.HasPrefix(path, "\x00") || path == "" {
		return fmt.Errorf("%q is not the path of a socket: any user may take such a name", path)
	}
	return nil
}

// Dial connects to the socket at a path. It fails if neither this user nor root listens there.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := ours(c.(*net.UnixConn)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// ours refuses a connection whose listener is of another user.
func ours(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var uid int
	var failed error
	if err := raw.Control(func(fd uintptr) { uid, failed = listener(fd) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("the system does not say who listens: %w", failed)
	}
	return allowed(uid)
}

// allowed refuses a listener's user. Below 0 it is nobody's: the system knows no users.
func allowed(uid int) error {
	if uid > 0 && uid != os.Getuid() {
		return fmt.Errorf("%w (number %d)", ErrOther, uid)
	}
	return nil
}
