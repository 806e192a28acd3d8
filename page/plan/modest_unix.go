//go:build linux || darwin

package plan

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// niceness lowers the process's priority. Of a processor that others keep busy it gets a quarter.
const niceness = 5

// modest bounds the process's memory and lowers its priority. Errors are ignored: both only guard others.
func modest() {
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: maxMemory, Max: maxMemory})
	if status, err := os.ReadFile("/proc/self/status"); err == nil && !bytes.Contains(status, []byte("\nSeccomp:\t0\n")) {
		return // a filter of system calls, as in docs/deploy, may end who changes priorities
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness)
	threads, _ := os.ReadDir("/proc/self/task") // on Linux each has a priority, which those that it starts inherit
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness)
		}
	}
}
