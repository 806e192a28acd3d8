package client

// Store keeps the files of a process's clients: a directory, or a browser's database. Names are
// relative paths with at most one slash. What a method has written or removed is durable when it
// returns nil. After an error it may be there or not. Methods may be called at the same time, for
// different files.
//
// Who restores an old copy of a store can spend its budgets again. So a credential must not outlive
// its ledger: whoever clears a store must also lose its clients' credentials.
type Store interface {
	// Lock takes the store for this process, or fails if another has it.
	Lock() (unlock func() error, err error)
	// List returns the names of a directory's files, without the directory.
	List(directory string) ([]string, error)
	// Read returns a file. The error wraps fs.ErrNotExist if there is none.
	Read(name string) ([]byte, error)
	// ReadAt fills b with the bytes of a file from an offset on.
	ReadAt(name string, b []byte, from int64) error
	// Write makes a file or replaces it: after a crash it is the old one or the new one, whole.
	Write(name string, content []byte) error
	// Append adds to the end of a file. After a crash a part of it may be there.
	Append(name string, more []byte) error
	// Cut leaves the first bytes of a file.
	Cut(name string, size int64) error
	// Zero overwrites the bytes from one offset to another with zeros.
	Zero(name string, from, to int64) error
	// Remove removes a file. The error wraps fs.ErrNotExist if there is none.
	Remove(name string) error
	// Path says to the owner where a file is; where all are if the name is empty.
	Path(name string) string
}
