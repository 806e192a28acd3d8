package external

import (
	"os"
	"syscall"
)

// setPipeSize is Linux's F_SETPIPE_SZ, which package syscall lacks.
const setPipeSize = 1031

// widen lets a pipe hold more, so that fewer calls move as many bytes. Where that is refused the
// pipe stays as it is.
func widen(f *os.File) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, setPipeSize, 1<<20)
	})
}
