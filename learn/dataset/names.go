package dataset

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// classFiles are the files in which a folder of images may name its classes, one a line in
// the order of the labels. The first that exists counts. The last is CIFAR-10's own.
func classFiles() []string { return []string{"classes.txt", "labels.txt", "batches.meta.txt"} }

// Limits of a file of class names.
const (
	maxNamesFile = 1 << 16
	maxNameBytes = 100
)

// readNames returns the folder's class names, at least as many as there are classes; nil if
// the folder names none. It ignores empty lines at the end.
func readNames(fsys fs.FS, classes int) ([]string, error) {
	for _, file := range classFiles() {
		f, err := openRegular(fsys, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("dataset: %s: %w", file, err)
		}
		raw, err := io.ReadAll(io.LimitReader(f, maxNamesFile+1))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("dataset: %s: %w", file, err)
		}
		if len(raw) > maxNamesFile {
			return nil, fmt.Errorf("dataset: %s has more than %d bytes, want one class name a line", file, maxNamesFile)
		}
		return parseNames(raw, file, classes)
	}
	return nil, nil
}

func parseNames(raw []byte, file string, classes int) ([]string, error) {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	names := strings.Split(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n")
	for len(names) > 0 && strings.TrimSpace(names[len(names)-1]) == "" {
		names = names[:len(names)-1]
	}
	for i, name := range names {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("dataset: %s: line %d is empty, want a class name on each", file, i+1)
		case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return nil, fmt.Errorf("dataset: %s: line %d: %.40q must be UTF-8 text", file, i+1, name)
		case len(name) > maxNameBytes:
			return nil, fmt.Errorf("dataset: %s: line %d: %.40q… has %d bytes, at most %d", file, i+1, name, len(name), maxNameBytes)
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("dataset: %s: line %d: %q names two classes", file, i+1, name)
		}
		names[i] = name
	}
	if len(names) < classes || len(names) > 256 {
		return nil, fmt.Errorf("dataset: %s has %d names, want one a line for each of the %d classes (at most 256)", file, len(names), classes)
	}
	return names[:classes:classes], nil
}

// compareLabels orders integers in canonical form (no plus sign, no leading zero) by value.
// All other texts follow, in the order of their bytes.
func compareLabels(a, b string) int {
	x, xIs := canonical(a)
	y, yIs := canonical(b)
	switch {
	case xIs && yIs:
		return cmp.Compare(x, y)
	case xIs:
		return -1
	case yIs:
		return 1
	}
	return strings.Compare(a, b)
}

func canonical(s string) (int64, bool) {
	v, err := strconv.ParseInt(s, 10, 64)
	return v, err == nil && strconv.FormatInt(v, 10) == s
}
