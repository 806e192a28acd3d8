// Package web is the client for browsers: the files of the npm package @riffle-dp/client.
// web/package/README.md is its guide. Its program is web/wasm, which is not in git: the release build
// compiles it.
package web

import (
	"archive/tar"
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"testing/fstest"

	"github.com/riffle-dp/riffle/internal/wasmbuild"
)

//go:generate go run ./generate

//go:embed package/LICENSE package/THIRD-PARTY package/*.md package/*.js package/*.ts package/*.json
var files embed.FS

// Files returns the package's files, without a directory around them. program is that of
// [wasmbuild.Client].
func Files(program []byte) fs.FS {
	all := fstest.MapFS{wasmbuild.Client.Packed: {Data: program, Mode: 0o644}}
	err := fs.WalkDir(files, "package", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		all[d.Name()] = &fstest.MapFile{Data: content, Mode: 0o644}
		return err
	})
	if err != nil {
		panic(err) // the files are embedded
	}
	return all
}

// Pack writes the tarball that npm installs. The same files give the same bytes.
func Pack(w io.Writer, program []byte) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	all := Files(program)
	err = fs.WalkDir(all, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(all, name)
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(content)), Format: tar.FormatUSTAR}); err != nil {
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
