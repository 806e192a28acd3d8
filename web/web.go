// Package web is the client for browsers: the files of the npm package @riffle-dp/client.
// web/package/README.md is its guide. Its program is web/wasm, compiled and committed, so that whoever
// builds riffle needs nothing else.
package web

import (
	"archive/tar"
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"path"
)

//go:generate go run ./generate

//go:embed package
var files embed.FS

// Files returns the package's files, without a directory around them.
func Files() fs.FS {
	sub, err := fs.Sub(files, "package")
	if err != nil {
		panic(err) // the name is constant
	}
	return sub
}

// Pack writes the tarball that npm installs. The same files give the same bytes.
func Pack(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	err = fs.WalkDir(files, "package", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: path.Clean(name), Mode: 0o644, Size: int64(len(content)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = t.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}
