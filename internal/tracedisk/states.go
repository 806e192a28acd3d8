package tracedisk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// disk is files' contents and directories' entries, by inode. Inode 0 is the root. Contents are shared
// between copies and never changed in place.
type disk struct {
	files map[int][]byte
	dirs  map[int]map[string]int
}

func (d disk) clone() disk {
	out := disk{maps.Clone(d.files), make(map[int]map[string]int, len(d.dirs))}
	for id, names := range d.dirs {
		out.dirs[id] = maps.Clone(names)
	}
	return out
}

// part says how much of a change has reached the disk.
type part uint64

const (
	none  part = iota // nothing
	whole             // all
	zeros             // of a write: the size
	first             // of a write: the first half of its sectors
	last              // of a write: the other half, and zeros before
	mixed             // and above: of a write, sectors by the bits of a number
)

const sector = 512

func (d disk) apply(o op, p part) {
	if p == none {
		return
	}
	switch o.kind {
	case makes:
		d.enter(o.dir, o.name, o.inode)
		if o.isDir && d.dirs[o.inode] == nil {
			d.dirs[o.inode] = map[string]int{}
		}
		if !o.isDir && d.files[o.inode] == nil {
			d.files[o.inode] = []byte{}
		}
	case renames:
		delete(d.dirs[o.dir], o.name)
		d.enter(o.dir2, o.to, o.inode)
	case removes:
		delete(d.dirs[o.dir], o.name)
	case sizes:
		old := d.files[o.inode]
		d.files[o.inode] = append(bytes.Clone(old[:min(int64(len(old)), o.at)]), make([]byte, max(0, o.at-int64(len(old))))...)
	case writes:
		d.files[o.inode] = o.write(d.files[o.inode], p)
	}
}

// enter gives a name. The directory's own name may be lost.
func (d disk) enter(dir int, name string, inode int) {
	if d.dirs[dir] == nil {
		d.dirs[dir] = map[string]int{}
	}
	d.dirs[dir][name] = inode
}

// write returns a file's content after a part of a write.
func (o op) write(old []byte, p part) []byte {
	end := o.at + int64(len(o.data))
	from, to := o.at/sector, (end-1)/sector // the sectors that it touches
	has := func(s int64) bool {
		switch p {
		case whole:
			return true
		case zeros:
			return false
		case first:
			return s < from+(to-from+1)/2
		case last:
			return s >= from+(to-from+1)/2
		}
		return splitmix(uint64(p)+uint64(s-from))&1 != 0
	}
	size := int64(len(old))
	if p == first {
		size = max(size, min(end, (from+(to-from+1)/2)*sector))
	} else {
		size = max(size, end)
	}
	out := append(bytes.Clone(old), make([]byte, size-int64(len(old)))...)
	for s := from; s <= to; s++ {
		if a, b := max(o.at, s*sector), min(end, (s+1)*sector); has(s) {
			copy(out[a:b], o.data[a-o.at:b-o.at])
		}
	}
	return out
}

// splitmix is a generator's step, of Steele, Lea and Flood.
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// State is one state of the directory after a power failure.
type State struct {
	Number, Of int      // counted from 1, and how many different ones were found
	Said       []string // the lines that the program had written before
	Lost       string   // what of the changes that were not synced is not there, for people
	disk       disk
}

// Write makes the state in a directory that is empty or not there.
func (s State) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return s.disk.each(0, "", func(name string, isDir bool, content []byte) error {
		if isDir {
			return os.Mkdir(filepath.Join(dir, name), 0o700)
		}
		return os.WriteFile(filepath.Join(dir, name), content, 0o600)
	})
}

// Memory makes a directory in memory, where states are opened faster, or else in the given one. The caller
// removes it.
func Memory(otherwise string) (string, error) {
	if dir, err := os.MkdirTemp("/dev/shm", "tracedisk-*"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp(otherwise, "states-*")
}

// each calls f for all that is below a directory, in order.
func (d disk) each(dir int, path string, f func(name string, isDir bool, content []byte) error) error {
	for _, name := range slices.Sorted(maps.Keys(d.dirs[dir])) {
		id := d.dirs[dir][name]
		_, isDir := d.dirs[id]
		below := filepath.Join(path, name)
		if err := f(below, isDir, d.files[id]); err != nil {
			return err
		}
		if isDir {
			if err := d.each(id, below, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// sums are digests of contents that are there for some time, by place and length.
type sums map[struct {
	first *byte
	size  int
}][32]byte

func (m sums) of(content []byte) [32]byte {
	if len(content) == 0 {
		return [32]byte{}
	}
	key := struct {
		first *byte
		size  int
	}{&content[0], len(content)}
	sum, ok := m[key]
	if !ok {
		sum = sha256.Sum256(content)
		m[key] = sum
	}
	return sum
}

func (d disk) digest(said int, known sums) [32]byte {
	h := sha256.New()
	number := func(n int) { h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	number(said)
	d.each(0, "", func(name string, isDir bool, content []byte) error {
		number(len(name))
		h.Write([]byte(name))
		if isDir {
			number(-1)
		} else {
			number(len(content))
			sum := known.of(content)
			h.Write(sum[:])
		}
		return nil
	})
	return [32]byte(h.Sum(nil))
}

// States yields different states, in the order of the failures: all that were found, or, if there are
// more than most, so many of them chosen by the seed. It looks for them at each change and each line,
// and among at most exhaustive changes that are not synced at each subset, otherwise at those in which
// one change is lost or kept or torn, at prefixes, and at a number of random ones, more if most is above 12,000.
func (l *Log) States(seed uint64, most int) iter.Seq[State] {
	return func(yield func(State) bool) {
		random := max(12, most/1000) // at each moment
		of := 0
		l.search(seed, random, func(State) bool { of++; return true })
		chosen := map[int]bool{}
		for i := seed; len(chosen) < min(most, of); i++ {
			chosen[int(splitmix(i)%uint64(of))] = true
		}
		number := 0
		at := -1
		l.search(seed, random, func(s State) bool {
			if at++; !chosen[at] {
				return true
			}
			number++
			s.Number, s.Of = number, of
			return yield(s)
		})
	}
}

const exhaustive = 6 // so many changes' subsets are all looked at

func (l *Log) search(seed uint64, random int, yield func(State) bool) {
	base := l.base.clone()
	seen := map[[32]byte]bool{}
	var pending []int
	next, told := 0, 0
	for _, line := range l.moments() {
		for next < len(l.ops) && l.ops[next].start < line {
			pending = append(pending, next)
			next++
		}
		for told < len(l.said) && l.said[told].line < line {
			told++
		}
		pending = l.fold(base, pending, line)
		var free []int // of pending, by place: those that are not durable
		for i, n := range pending {
			if l.ops[n].durable >= line {
				free = append(free, i)
			}
		}
		known := sums{}
		for parts := range l.choices(seed+uint64(line), random, pending, free) {
			d := base.clone()
			for i, n := range pending {
				d.apply(l.ops[n], parts[i])
			}
			key := d.digest(told, known)
			if seen[key] {
				continue
			}
			seen[key] = true
			s := State{Lost: l.describe(pending, parts), disk: d}
			for _, t := range l.said[:told] {
				s.Said = append(s.Said, t.text)
			}
			if !yield(s) {
				return
			}
		}
	}
}

// moments are the lines before which the power may fail: after a change has begun, after a sync has
// ended, and after a line was written.
func (l *Log) moments() []int {
	lines := []int{0, l.length}
	for _, o := range l.ops {
		lines = append(lines, o.start+1, o.end+1)
	}
	for _, s := range l.syncs {
		lines = append(lines, s.end+1)
	}
	for _, s := range l.said {
		lines = append(lines, s.line+1)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// fold makes durable changes in base for good, if no earlier one that is not durable touches the same
// file or directory. It returns the rest.
func (l *Log) fold(base disk, pending []int, line int) []int {
	held := map[int]bool{}
	var rest []int
	for _, n := range pending {
		o := l.ops[n]
		touched := []int{o.dir, o.dir2}
		if o.kind == writes || o.kind == sizes {
			touched = []int{o.inode}
		} else if o.kind != renames {
			touched = touched[:1]
		}
		if o.durable < line && !slices.ContainsFunc(touched, func(i int) bool { return held[i] }) {
			base.apply(o, whole)
			continue
		}
		for _, i := range touched {
			held[i] = true
		}
		rest = append(rest, n)
	}
	return rest
}

// choices yields how much of each pending change is on the disk. What is durable is whole.
func (l *Log) choices(seed uint64, random int, pending, free []int) iter.Seq[[]part] {
	return func(yield func([]part) bool) {
		all := func(p part) []part {
			out := make([]part, len(pending))
			for i := range out {
				out[i] = whole
			}
			for _, i := range free {
				out[i] = p
			}
			return out
		}
		if !yield(all(none)) || len(free) == 0 || !yield(all(whole)) {
			return
		}
		torn := func(i int) []part {
			if l.ops[pending[i]].kind == writes {
				return []part{zeros, first, last, mixed + part(splitmix(seed)>>8)}
			}
			return nil
		}
		for k, i := range free {
			prefix := all(none)
			for _, j := range free[:k] {
				prefix[j] = whole
			}
			for _, p := range append([]part{none, whole}, torn(i)...) {
				kept, lost := all(none), all(whole)
				kept[i], lost[i], prefix[i] = p, p, p
				if !yield(kept) || !yield(lost) || !yield(slices.Clone(prefix)) {
					return
				}
			}
		}
		if len(free) <= exhaustive {
			for bits := range 1 << len(free) {
				out := all(none)
				for k, i := range free {
					if bits>>k&1 != 0 {
						out[i] = whole
					}
				}
				if !yield(out) {
					return
				}
			}
			return
		}
		for n := range random {
			out := all(none)
			for k, i := range free {
				r := splitmix(splitmix(seed+uint64(n)) + uint64(k))
				out[i] = part(r & 1)
				if t := torn(i); len(t) > 0 && r>>1%4 == 0 {
					out[i] = t[r>>8%uint64(len(t))]
				}
			}
			if !yield(out) {
				return
			}
		}
	}
}

// describe names the changes that are not whole.
func (l *Log) describe(pending []int, parts []part) string {
	var out []string
	for i, n := range pending {
		o := l.ops[n]
		if parts[i] == whole {
			continue
		}
		how := map[part]string{none: "not", zeros: "as zeros", first: "first half", last: "last half"}[parts[i]]
		if how == "" {
			how = "sectors"
		}
		text := map[kind]string{makes: "made", renames: "renamed", removes: "removed", writes: "written", sizes: "cut"}[o.kind]
		name := o.name
		if o.kind == writes || o.kind == sizes {
			name = l.name(o.inode)
			text = fmt.Sprintf("%s at %d (%d bytes)", text, o.at, len(o.data))
		} else if o.kind == renames {
			text += " " + o.to
		}
		out = append(out, fmt.Sprintf("%s %s: %s", text, name, how))
	}
	return strings.Join(out, "; ")
}

// name is a last name that an inode had.
func (l *Log) name(inode int) string {
	name := "?"
	for _, o := range l.ops {
		if o.inode == inode && o.kind == makes {
			name = o.name
		} else if o.inode == inode && o.kind == renames {
			name = o.to
		}
	}
	return name
}
