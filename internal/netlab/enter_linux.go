package netlab

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const inside = "RIFFLE_NETLAB" // set in the process that Enter starts

// Enter runs a whole test once more in a process with namespaces of its own, so that nothing of
// it reaches the machine's network and nothing outlives it. It returns true there, and false to
// the caller after that process has ended, with its result. A test calls it first and returns if
// it is false. Where namespaces cannot be made the test is skipped.
func Enter(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	if strings.Contains(t.Name(), "/") {
		t.Fatalf("netlab: %s is a part of a test", t.Name())
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pattern := "^" + regexp.QuoteMeta(t.Name()) + "$"
	if f := flag.Lookup("test.run"); f != nil {
		if _, parts, ok := strings.Cut(f.Value.String(), "/"); ok {
			pattern += "/" + parts
		}
	}
	args := append(os.Args[1:len(os.Args):len(os.Args)], "-test.run="+pattern, "-test.v=true", "-test.count=1", "-test.testlogfile=", "-test.coverprofile=")
	if end, ok := t.Deadline(); ok {
		args = append(args, fmt.Sprint("-test.timeout=", time.Until(end)-5*time.Second))
	}
	// The process is killed with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs []error
	for _, flags := range []uintptr{syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID} {
		cmd := exec.Command(self, args...)
		cmd.Env = append(os.Environ(), inside+"="+t.Name())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
		if flags&syscall.CLONE_NEWUSER != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			errs = append(errs, err)
			continue
		}
		skipped := ""
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<24)
		last := ""
		for lines.Scan() {
			line := lines.Text()
			t.Log(line)
			if strings.HasPrefix(line, "--- SKIP: "+t.Name()+" ") {
				skipped = last
			}
			last = line
		}
		switch err := cmd.Wait(); {
		case err != nil:
			t.Fatalf("in its own namespaces: %v", err)
		case skipped != "":
			t.Skip(strings.TrimSpace(skipped))
		}
		return false
	}
	t.Skipf("no network namespaces can be made here: %v", errs)
	return false
}

// in runs a function on a thread in a namespace. The thread ends with it. Processes and sockets
// that it makes belong to the namespace.
func in(namespace int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks: the thread is not used again
		err := unix.Setns(namespace, unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
