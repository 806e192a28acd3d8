// Package tracedisk finds what a power failure may leave of a program's files. Tests run a program
// under strace, which lists its system calls, and rebuild each state of a directory that a disk may be
// in after the power has failed at some moment: what was synced is there, and of the rest any part.
//
// The disk is the weakest that POSIX allows. A sync of a file makes its content durable but not its
// name; a sync of a directory makes its names durable. Of what was not synced each write may be lost,
// kept, torn at sectors of 512 bytes, or have left its size and zeros; and each name that was made,
// replaced or removed may be as before or after. A rename is one change. Changes of one file or name
// come in order. What ext4 leaves with data=ordered is among these states.
//
// The package is for tests on Linux.
package tracedisk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoTrace is wrapped if there is no strace here, or if it may not trace.
var ErrNoTrace = errors.New("tracedisk: no system calls can be traced here")

// calls are the system calls that change files, or descriptors of files.
var calls = []string{"open", "openat", "creat", "close", "dup", "dup2", "dup3", "fcntl", "lseek", "write", "pwrite64", "writev", "pwritev", "pwritev2",
	"truncate", "ftruncate", "fallocate", "fsync", "fdatasync", "sync_file_range", "sync", "syncfs", "rename", "renameat", "renameat2",
	"unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "link", "linkat", "symlink", "symlinkat", "copy_file_range", "sendfile"}

// available returns an error that wraps ErrNoTrace if programs cannot be traced.
func available() error {
	out, err := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "-e", "trace=close", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: strace: %v %s", ErrNoTrace, err, bytes.TrimSpace(out))
	}
	return nil
}

// Record runs programs to their ends, one after the other, and returns what they did to the files below
// root, a directory that is there. A line that a program writes to its standard output with one call is
// said from then on. A program must be one process, name files by absolute paths, and not write by a
// memory map. The second finds what the first has written, and not what a power failure leaves of it: it
// is what starts after a kill.
func Record(root string, programs ...*exec.Cmd) (*Log, error) {
	if err := available(); err != nil {
		return nil, err
	}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	l := &Log{root: root}
	if err := l.snapshot(); err != nil {
		return nil, err
	}
	l.now = l.base.clone()
	for _, p := range programs {
		l.fds = map[int]*descriptor{}
		if err := l.run(p); err != nil {
			return nil, err
		}
	}
	l.settle()
	return l, nil
}

func (l *Log) run(program *exec.Cmd) error {
	trace, err := os.CreateTemp("", "tracedisk-*")
	if err != nil {
		return err
	}
	defer os.Remove(trace.Name())
	defer trace.Close()
	args := append([]string{"-f", "-qq", "-xx", "-s", "67108864", "-e", "signal=none", "-e", "trace=" + strings.Join(calls, ","),
		"-o", trace.Name(), "--", program.Path}, program.Args[1:]...)
	cmd := exec.Command("strace", args...)
	cmd.Env, cmd.Dir = program.Env, program.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tracedisk: the program: %v\n%s", err, out)
	}
	raw, err := os.ReadFile(trace.Name())
	if err != nil {
		return err
	}
	return l.parse(raw)
}

// call is one system call: its name, arguments and result, and the lines at which it began and ended.
type call struct {
	name       string
	args       []string
	result     string
	start, end int
}

// parse reads a trace. Calls are taken in the order of their ends.
func (l *Log) parse(raw []byte) error {
	type begun struct {
		text string
		line int
	}
	open := map[string]begun{}
	before := l.length
	for i, b := range bytes.Split(raw, []byte("\n")) {
		n := before + i
		l.length = n + 1
		pid, text, ok := strings.Cut(string(b), " ")
		if !ok {
			continue
		}
		text = strings.TrimLeft(text, " ")
		if head, ok := strings.CutSuffix(text, " <unfinished ...>"); ok {
			open[pid] = begun{head, n}
			if number, ok := strings.CutPrefix(head, "close("); ok {
				l.closes(number) // another thread may be given the number before this line's end
			}
			continue
		}
		start := n
		if rest, ok := strings.CutPrefix(text, "<... "); ok {
			_, rest, ok = strings.Cut(rest, " resumed>")
			if !ok {
				return fmt.Errorf("tracedisk: line %d of the trace: %.60q", n+1, text)
			}
			text, start = open[pid].text+rest, open[pid].line
			delete(open, pid)
			if strings.HasPrefix(text, "close(") {
				continue
			}
		}
		c, ok := parseCall(text)
		if !ok {
			continue // the end of a thread, or a call that did not return
		}
		c.start, c.end = start, n
		if err := l.take(c); err != nil {
			return fmt.Errorf("tracedisk: line %d of the trace: %s: %w", n+1, c.name, err)
		}
	}
	return nil
}

func parseCall(text string) (c call, ok bool) {
	name, rest, ok := strings.Cut(text, "(")
	if !ok {
		return c, false
	}
	end := strings.LastIndex(rest, ") = ")
	if i := strings.LastIndex(rest, "= "); end < 0 && i >= 0 { // results are aligned
		end = strings.LastIndex(rest[:i], ")")
	}
	if end < 0 {
		return c, false
	}
	_, result, ok := strings.Cut(rest[end:], "= ")
	c.name, c.result = name, strings.Fields(result + " ?")[0]
	depth, quoted, from := 0, false, 0
	for i, r := range rest[:end] {
		switch {
		case r == '"':
			quoted = !quoted
		case quoted:
		case r == '[' || r == '{' || r == '(':
			depth++
		case r == ']' || r == '}' || r == ')':
			depth--
		case r == ',' && depth == 0:
			c.args = append(c.args, strings.TrimSpace(rest[from:i]))
			from = i + 1
		}
	}
	if arg := strings.TrimSpace(rest[from:end]); arg != "" {
		c.args = append(c.args, arg)
	}
	return c, ok
}

// unquote reads a string whose bytes are all written as \xHH.
func unquote(arg string) ([]byte, error) {
	inside, begins := strings.CutPrefix(arg, `"`)
	text, ends := strings.CutSuffix(inside, `"`)
	if !begins || !ends || len(text)%4 != 0 {
		return nil, fmt.Errorf("%.40q is not a whole string", arg)
	}
	b := make([]byte, 0, len(text)/4)
	for i := 0; i < len(text); i += 4 {
		high, low := strings.IndexByte(digits, text[i+2]), strings.IndexByte(digits, text[i+3])
		if text[i:i+2] != `\x` || high < 0 || low < 0 {
			return nil, fmt.Errorf("%.40q is not a string", arg)
		}
		b = append(b, byte(high<<4|low))
	}
	return b, nil
}

const digits = "0123456789abcdef"

// snapshot reads what is there before the program begins: it is durable.
func (l *Log) snapshot() error {
	l.base = disk{files: map[int][]byte{}, dirs: map[int]map[string]int{0: {}}}
	l.inodes = 1
	at := map[string]int{l.root: 0}
	return filepath.WalkDir(l.root, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == l.root {
			return err
		}
		id := l.inode()
		l.base.dirs[at[filepath.Dir(path)]][d.Name()] = id
		switch {
		case d.IsDir():
			at[path] = id
			l.base.dirs[id] = map[string]int{}
			return nil
		case d.Type().IsRegular():
			l.base.files[id], err = os.ReadFile(path)
			return err
		}
		return fmt.Errorf("tracedisk: %s is neither a file nor a directory", path)
	})
}

func (l *Log) inode() int {
	l.inodes++
	return l.inodes - 1
}

// flag says whether a set of flags, joined by |, has one of these.
func flag(flags string, names ...string) bool {
	return slices.ContainsFunc(strings.Split(flags, "|"), func(f string) bool { return slices.Contains(names, f) })
}
