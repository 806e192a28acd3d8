//go:build linux && (long || soak)

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// This file measures what the processes of stranger_test.go take of the machine.

// resident is a process's memory in bytes.
func (h *hall) resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				h.t.Fatal(err)
			}
			return kb << 10
		}
	}
	h.t.Fatalf("no memory of process %d", pid)
	return 0
}

// worked is what a process has used of processors, in hundredths of a second.
func (h *hall) worked(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		h.t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err, err2); err != nil {
		h.t.Fatal(err)
	}
	return user + system
}

// processors returns what the machine's processors have worked and could have, and what the test's processes have of it,
// in ticks.
func (h *hall) processors() (busy, most, own int64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		h.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:9] { // user, nice, system, idle, iowait, irq, softirq, steal
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			h.t.Fatal(err)
		}
		most += n
		if i != 3 && i != 4 {
			busy += n
		}
	}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			h.t.Fatal(err)
		}
		own += (used.Utime.Nano() + used.Stime.Nano()) / 1e7
	}
	for _, pid := range slices.Concat(slices.Collect(maps.Values(h.pids)), h.others) {
		own += h.worked(pid)
	}
	return busy, most, own
}
