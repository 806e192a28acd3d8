//go:build unix

package external

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// trusted refuses a socket that another user owns, could replace or could connect to: whoever
// connects can ask for the gradients of the client's data. What is not there is refused, too: it
// could be there when the caller connects.
func trusted(path string) error {
	ours := func(f os.FileInfo) bool {
		s, ok := f.Sys().(*syscall.Stat_t)
		return ok && (s.Uid == 0 || int(s.Uid) == os.Getuid())
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nothing(err)
	}
	for _, name := range []string{path, target} { // a link can be replaced as well as what it names
		socket, err := os.Lstat(name)
		if err != nil {
			return nothing(err)
		}
		dir, err := os.Stat(filepath.Dir(name))
		if err != nil {
			return nothing(err)
		}
		switch {
		case !ours(socket):
			return fmt.Errorf("the socket belongs to another user, who could answer for the client")
		case socket.Mode().Perm()&0o002 != 0 && socket.Mode()&os.ModeSymlink == 0:
			return fmt.Errorf("every user of this machine may connect to the socket (mode %v) and ask for the client's gradients; chmod o-w mends that", socket.Mode().Perm())
		case !ours(dir):
			return fmt.Errorf("the socket's directory belongs to another user, who could replace it")
		case dir.Mode().Perm()&0o002 != 0 && dir.Mode()&os.ModeSticky == 0:
			return fmt.Errorf("every user of this machine may replace the socket: its directory has mode %v, without the sticky bit", dir.Mode().Perm())
		}
	}
	return nil
}

// nothing says that nobody listens, and why.
func nothing(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("nothing answers there: %v", err)
}
