//go:build js && wasm

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall/js"

	"github.com/riffle-dp/riffle/service/client"
)

// database is a client.Store in IndexedDB: web/package/store.js.
type database struct{ js.Value }

func (d database) call(method string, args ...any) (js.Value, error) {
	return await(d.Value.Call(method, args...))
}

func (d database) do(method string, args ...any) error {
	_, err := d.call(method, args...)
	return err
}

// Lock takes the store for this tab.
func (d database) Lock() (unlock func() error, err error) {
	release, err := d.call("lock")
	if err != nil {
		return nil, err
	}
	return func() error { release.Invoke(); return nil }, nil
}

// List returns the names of a directory's files.
func (d database) List(directory string) ([]string, error) {
	v, err := d.call("list", directory)
	if err != nil {
		return nil, err
	}
	names := make([]string, v.Length())
	for i := range names {
		names[i] = v.Index(i).String()
	}
	return names, nil
}

// Read returns a file.
func (d database) Read(name string) ([]byte, error) {
	v, err := d.call("read", name)
	if err != nil {
		return nil, err
	}
	return bytesOf(v), nil
}

// ReadAt fills b. The database reads files as a whole.
func (d database) ReadAt(name string, b []byte, from int64) error {
	all, err := d.Read(name)
	if err != nil {
		return err
	}
	if from < 0 || from+int64(len(b)) > int64(len(all)) {
		return io.ErrUnexpectedEOF
	}
	copy(b, all[from:])
	return nil
}

// Write makes or replaces a file.
func (d database) Write(name string, b []byte) error { return d.do("write", name, arrayOf(b)) }

// Append adds to a file.
func (d database) Append(name string, b []byte) error { return d.do("append", name, arrayOf(b)) }

// Cut leaves the first bytes.
func (d database) Cut(name string, size int64) error { return d.do("cut", name, size) }

// Zero overwrites bytes.
func (d database) Zero(name string, from, to int64) error { return d.do("zero", name, from, to) }

// Remove removes a file.
func (d database) Remove(name string) error { return d.do("remove", name) }

// Path names a file for the page's owner.
func (d database) Path(name string) string {
	return "IndexedDB " + d.Get("name").String() + ": " + name
}

// credentialFile holds the client's key, in the store of the ledger: who clears the one has lost the
// other.
const credentialFile = "credential"

// stored returns the store's credential; nil if there is no client.
func stored(d database) (*client.Credential, error) {
	b, err := d.Read(credentialFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return client.ParseCredential(b)
}

// newCredential makes a client that has never reported, and returns its public line.
func newCredential(d database) (any, error) {
	c, err := client.NewCredential()
	if err != nil {
		return nil, err
	}
	if err := keep(d, c); err != nil {
		return nil, err
	}
	return publicLine(c), nil
}

// keep stores the credential of a client that has never reported, and its ledger, both or none. It
// refuses a store that has one of them.
func keep(d database, c *client.Credential) error {
	unlock, err := d.Lock()
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	old, err := stored(d)
	switch {
	case err != nil:
	case old != nil:
		err = refusal{"client-exists", "client: this store has a client already: " + publicLine(old)}
	default:
		err = client.CreateLedgerIn(beside{d, c})
	}
	return errors.Join(err, unlock())
}

// beside is a store that writes a credential together with a new ledger.
type beside struct {
	database
	credential *client.Credential
}

// Write makes both files in one transaction.
func (b beside) Write(name string, content []byte) error {
	return b.do("create", name, arrayOf(content), credentialFile, arrayOf(b.credential.Secret()))
}

func publicLine(c *client.Credential) string {
	b := client.MarshalPublic(c.Public())
	return string(b[:len(b)-1])
}
