package tracedisk

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// Log is what a program did to the files below a directory, in order.
type Log struct {
	root   string
	inodes int
	base   disk // before the program began
	now    disk // what the program sees
	ops    []op
	syncs  []sync
	said   []said
	length int // lines of the trace
	fds    map[int]*descriptor
}

type descriptor struct {
	inode  int
	at     int64
	append bool
	synced bool // O_SYNC or O_DSYNC
}

type kind int

const (
	makes kind = iota // a name of a new file or directory
	renames
	removes
	writes
	sizes
)

// op is one change. Its lines say when it may begin to reach the disk, and from when on it has.
type op struct {
	kind       kind
	inode      int
	isDir      bool
	dir, dir2  int // of name, and of the name that a rename gives
	name, to   string
	at         int64 // of the bytes, or the size
	data       []byte
	start, end int
	durable    int
}

type sync struct{ inode, start, end int } // inode −1: all

type said struct {
	text string
	line int
}

func (c call) int(i int) (int64, error) {
	if i >= len(c.args) {
		return 0, fmt.Errorf("%d arguments", len(c.args))
	}
	return strconv.ParseInt(c.args[i], 10, 64)
}

// take adds a call that has ended. A call that failed has changed nothing.
func (l *Log) take(c call) error {
	if c.name == "close" {
		l.closes(c.args[0])
		return nil
	}
	result, err := strconv.ParseInt(c.result, 10, 64)
	if err != nil || result < 0 {
		return nil
	}
	switch c.name {
	case "open", "creat", "openat":
		return l.open(c, int(result))
	case "mkdir", "mkdirat":
		dir, name, err := l.path(&c)
		if dir >= 0 && err == nil {
			id := l.inode()
			l.add(op{kind: makes, inode: id, isDir: true, dir: dir, name: name}, c)
		}
		return err
	case "rename", "renameat", "renameat2":
		return l.rename(c)
	case "unlink", "unlinkat", "rmdir":
		dir, name, err := l.path(&c)
		if dir >= 0 && err == nil {
			l.add(op{kind: removes, dir: dir, name: name}, c)
		}
		return err
	case "truncate":
		dir, name, err := l.path(&c)
		if dir < 0 || err != nil {
			return err
		}
		size, err := c.int(0)
		l.add(op{kind: sizes, inode: l.now.dirs[dir][name], at: size}, c)
		return err
	case "link", "linkat":
		return l.link(c)
	case "symlink", "symlinkat":
		c.args = c.args[1:]
		from, _, err := l.path(&c)
		if err == nil && from >= 0 {
			err = fmt.Errorf("symbolic links are not modelled")
		}
		return err
	case "sync":
		l.syncs = append(l.syncs, sync{-1, c.start, c.end})
		return nil
	}
	return l.onDescriptor(c, result)
}

// onDescriptor takes a call whose first argument is a descriptor.
func (l *Log) onDescriptor(c call, result int64) error {
	n, err := c.int(0)
	if err != nil {
		return err
	}
	if n == 1 && c.name == "write" {
		text, err := unquote(c.args[1])
		if err == nil {
			l.said = append(l.said, said{strings.TrimSuffix(string(text), "\n"), c.start})
		}
		return err
	}
	d := l.fds[int(n)]
	if c.name == "copy_file_range" || c.name == "sendfile" { // to a file of ours?
		to, at := n, l.fds[int(n)]
		if c.name == "copy_file_range" {
			if to, err = c.int(2); err != nil {
				return err
			}
			at = l.fds[int(to)]
		}
		if at != nil {
			return fmt.Errorf("is not modelled")
		}
		return nil
	}
	if d == nil {
		return nil
	}
	switch c.name {
	case "write", "pwrite64":
		data, err := unquote(c.args[1])
		if err != nil {
			return err
		}
		at := d.at
		if d.append {
			at = int64(len(l.now.files[d.inode]))
		}
		if c.name == "pwrite64" {
			if at, err = c.int(3); err != nil {
				return err
			}
		} else {
			d.at = at + result
		}
		l.add(op{kind: writes, inode: d.inode, at: at, data: data[:result]}, c)
	case "ftruncate":
		size, err := c.int(1)
		if err != nil {
			return err
		}
		l.add(op{kind: sizes, inode: d.inode, at: size}, c)
	case "fsync", "fdatasync":
		l.syncs = append(l.syncs, sync{d.inode, c.start, c.end})
		return nil
	case "syncfs":
		l.syncs = append(l.syncs, sync{-1, c.start, c.end})
		return nil
	case "lseek":
		d.at = result
		return nil
	case "dup", "dup2", "dup3":
		l.fds[int(result)] = d
		return nil
	case "fcntl":
		if len(c.args) > 1 && strings.HasPrefix(c.args[1], "F_DUPFD") {
			l.fds[int(result)] = d
		}
		return nil
	default:
		return fmt.Errorf("is not modelled")
	}
	if d.synced {
		l.syncs = append(l.syncs, sync{d.inode, c.end, c.end})
	}
	return nil
}

func (l *Log) closes(number string) {
	if n, err := strconv.Atoi(strings.TrimRight(number, ")")); err == nil {
		delete(l.fds, n)
	}
}

func (l *Log) open(c call, fd int) error {
	dir, name, err := l.path(&c)
	delete(l.fds, fd)
	if err != nil || dir == outside {
		return err
	}
	flags := "O_CREAT|O_TRUNC"
	if c.name != "creat" {
		flags = c.args[0]
	}
	id, there := l.now.dirs[dir][name]
	if dir == itself {
		id, there = 0, true
	}
	if !there {
		id = l.inode()
		l.add(op{kind: makes, inode: id, dir: dir, name: name}, c)
	} else if flag(flags, "O_TRUNC") && len(l.now.files[id]) > 0 {
		l.add(op{kind: sizes, inode: id}, c)
	}
	l.fds[fd] = &descriptor{inode: id, append: flag(flags, "O_APPEND"), synced: flag(flags, "O_SYNC", "O_DSYNC")}
	return nil
}

func (l *Log) rename(c call) error {
	dir, name, err := l.path(&c)
	if err != nil {
		return err
	}
	dir2, to, err := l.path(&c)
	switch {
	case err != nil || dir < 0 && dir2 < 0:
		return err
	case dir < 0 || dir2 < 0:
		return fmt.Errorf("a file comes from elsewhere or goes there")
	}
	id, there := l.now.dirs[dir][name]
	if !there {
		return fmt.Errorf("%s is not known", name)
	}
	l.add(op{kind: renames, inode: id, dir: dir, name: name, dir2: dir2, to: to}, c)
	return nil
}

// link gives a file one more name.
func (l *Log) link(c call) error {
	dir, name, err := l.path(&c)
	if err != nil {
		return err
	}
	dir2, to, err := l.path(&c)
	switch {
	case err != nil || dir < 0 && dir2 < 0:
		return err
	case dir < 0 || dir2 < 0:
		return fmt.Errorf("a file comes from elsewhere or goes there")
	}
	l.add(op{kind: makes, inode: l.now.dirs[dir][name], dir: dir2, name: to}, c)
	return nil
}

// Places of paths that have no directory of ours.
const (
	outside = -1
	itself  = -2 // the root
)

// path takes a path, with the descriptor before it if the call has one, from the arguments, and returns
// its directory and last name.
func (l *Log) path(c *call) (dir int, name string, err error) {
	from := -1
	if strings.Contains(c.name, "at") && c.name != "creat" && c.name != "truncate" {
		if c.args[0] != "AT_FDCWD" {
			n, err := c.int(0)
			if err != nil {
				return outside, "", err
			}
			d := l.fds[int(n)]
			if d == nil {
				c.args = c.args[2:]
				return outside, "", nil
			}
			from = d.inode
		}
		c.args = c.args[1:]
	}
	raw, err := unquote(c.args[0])
	c.args = c.args[1:]
	if err != nil {
		return outside, "", err
	}
	text := filepath.Clean(string(raw))
	if from < 0 {
		rest, ok := strings.CutPrefix(text, l.root)
		if !ok || rest != "" && rest[0] != '/' {
			return outside, "", nil
		}
		if rest == "" {
			return itself, "", nil
		}
		text, from = rest[1:], 0
	}
	names := strings.Split(text, "/")
	for _, n := range names[:len(names)-1] {
		next, ok := l.now.dirs[from][n]
		if !ok || l.now.dirs[next] == nil {
			return outside, "", fmt.Errorf("no directory %q of %q", n, text)
		}
		from = next
	}
	return from, names[len(names)-1], nil
}

// add adds a change, and makes it.
func (l *Log) add(o op, c call) {
	o.start, o.end, o.durable = c.start, c.end, math.MaxInt
	if o.kind == writes && len(o.data) == 0 {
		return
	}
	l.ops = append(l.ops, o)
	l.now.apply(o, whole)
}

// settle finds from when on each change is durable.
func (l *Log) settle() {
	l.fds = nil
	for i := range l.ops {
		o := &l.ops[i]
		synced := func(inode int) int {
			for _, s := range l.syncs { // in the order of their ends
				if (s.inode == inode || s.inode < 0) && o.end < s.start || s.inode == inode && s.start == s.end && s.end == o.end {
					return s.end
				}
			}
			return math.MaxInt
		}
		switch o.kind {
		case writes, sizes:
			o.durable = synced(o.inode)
		case makes, removes:
			o.durable = synced(o.dir)
		case renames:
			o.durable = max(synced(o.dir), synced(o.dir2))
		}
	}
}
