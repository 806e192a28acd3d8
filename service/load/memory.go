package load

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

// memory is a client.Store that ends with the process.
type memory struct {
	mu    sync.Mutex
	files map[string][]byte
}

func newMemory() *memory { return &memory{files: map[string][]byte{}} }

func (m *memory) file(name string) ([]byte, error) {
	b, ok := m.files[name]
	if !ok {
		return nil, fmt.Errorf("load: %s: %w", name, fs.ErrNotExist)
	}
	return b, nil
}

// Lock has nothing to do: no other process has this memory.
func (m *memory) Lock() (func() error, error) { return func() error { return nil }, nil }

// List returns the names of a directory's files.
func (m *memory) List(directory string) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.files {
		if at := strings.LastIndexByte(name, '/'); name[:max(0, at)] == directory {
			names = append(names, name[at+1:])
		}
	}
	return names, nil
}

// Read returns a copy of a file.
func (m *memory) Read(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.file(name)
	return slices.Clone(b), err
}

// ReadAt fills b from a file.
func (m *memory) ReadAt(name string, b []byte, from int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	file, err := m.file(name)
	if err == nil && (from < 0 || from+int64(len(b)) > int64(len(file))) {
		err = fmt.Errorf("load: %s has %d bytes", name, len(file))
	}
	if err == nil {
		copy(b, file[from:])
	}
	return err
}

// Write replaces a file.
func (m *memory) Write(name string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = slices.Clone(content)
	return nil
}

// Append adds to a file.
func (m *memory) Append(name string, more []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = append(m.files[name], more...)
	return nil
}

// Cut leaves the first bytes of a file.
func (m *memory) Cut(name string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.file(name)
	if err == nil {
		m.files[name] = b[:min(max(0, size), int64(len(b)))]
	}
	return err
}

// Zero overwrites bytes of a file.
func (m *memory) Zero(name string, from, to int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.file(name)
	if err == nil {
		clear(b[max(0, from):min(to, int64(len(b)))])
	}
	return err
}

// Remove removes a file.
func (m *memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.file(name)
	delete(m.files, name)
	return err
}

// Path says that a file is in memory.
func (m *memory) Path(name string) string { return "memory:" + name }
