//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// apart puts a process into a group of its own.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
