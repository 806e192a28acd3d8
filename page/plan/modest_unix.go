//go:build linux || darwin

package plan

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// niceness lowers the process's priority. Of a processor that others keep busy it gets a quarter.
const niceness = 5

// processorTime is that of the process so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// modest bounds the process's memory, which only Linux heeds, has Linux end this process first where memory is
// short, and lowers its priority. Errors are ignored: all only guard others.
func modest() {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o600)
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
