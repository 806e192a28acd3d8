package client_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/service/client"
)

// What clients write down is for nobody else on their machine.
func TestFilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, shuffleTask())
		c := w.config()
		// As a careless operator may have left it.
		dir := filepath.Join(t.TempDir(), "clients")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := client.CreateLedger(dir); err != nil {
			t.Fatal(err)
		}
		c.Directory = dir
		if err := os.Chmod(filepath.Join(dir, "ledger"), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := client.NewFleet(c, w.members)
		if err != nil {
			t.Fatal(err)
		}
		files := 0
		var once sync.Once
		f.BeforeSend(func() {
			once.Do(func() {
				err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
					if err != nil {
						return err
					}
					info, err := d.Info()
					if err != nil {
						return err
					}
					if !d.IsDir() {
						files++
					}
					if info.Mode().Perm()&0o077 != 0 {
						t.Errorf("%s has mode %v", path, info.Mode())
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		theta := []float32{1, 2, 3, 4, 5}
		w.publish(w.announcement(1, theta), theta, nil)
		w.wait(ctx, 3)
		w.end()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if files < 3 {
			t.Errorf("%d files, want ledger, lock and outbox", files)
		}
	})
}
