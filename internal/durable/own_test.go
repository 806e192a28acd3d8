package durable

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestOwn(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories have no modes")
	}
	for mode, want := range map[os.FileMode]string{0o700: "", 0o755: "", 0o777: "others may write", 0o777 | os.ModeSticky: "others may write", 0o757: "others may write"} {
		dir := filepath.Join(t.TempDir(), "d")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		if err := Own(dir); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir)) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	dir := t.TempDir()
	if err := Own(filepath.Join(dir, "none")); err != nil {
		t.Errorf("of what is not there: %v", err)
	}
	if err := os.Chmod(dir, 0o775); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uid, gid int
		want     string
	}{{-1, os.Getuid() + 9, "others may write"}, {-1, os.Getuid(), ""}, {12345, -1, "belongs to another user (number 12345)"}} {
		if err := os.Chown(dir, c.uid, c.gid); errors.Is(err, os.ErrPermission) {
			continue // only root gives directories away
		} else if err != nil {
			t.Fatal(err)
		}
		if err := Own(dir); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
