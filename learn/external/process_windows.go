package external

import (
	"os/exec"
	"syscall"
)

// apart puts a process into a group of its own.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// signal ends the program; there is no way to ask it to end.
func (p *peer) signal(kill bool) {
	if kill {
		_ = p.cmd.Process.Kill() // it may have ended
	}
}
