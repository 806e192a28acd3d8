//go:build unix

package endpoint

import "syscall"

// openFiles returns the number of files that this process may have open; 0 if that is not
// known.
func openFiles() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return uint64(l.Cur) // Cur is signed on FreeBSD
}
