//go:build unix

package external

import (
	"os/exec"
	"syscall"
)

// apart puts a process into a group of its own.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signal tells the program's group to end, or ends it.
func (p *peer) signal(kill bool) {
	s := syscall.SIGTERM
	if kill {
		s = syscall.SIGKILL
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, s) // there may be nobody left
}
