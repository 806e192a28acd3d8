package riffle_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mostBytes bounds a file in git: every version of it stays in each clone for ever. The data set that
// the program has in it may be larger.
const (
	mostBytes = 1 << 20
	dataSet   = "learn/dataset/mnist/"
)

func TestFilesAreSmall(t *testing.T) {
	var files []string
	if out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output(); err == nil && len(out) > 0 {
		files = strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	} else { // the sources without their history: what git ignores lies in no directory that is walked
		err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || name == "runs" || name == "dist") {
				return filepath.SkipDir
			}
			if err == nil && d.Type().IsRegular() && name != "riffle" && !ignored(name) {
				files = append(files, filepath.ToSlash(name))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(files) < 500 {
		t.Fatalf("%d files", len(files))
	}
	for _, name := range files {
		info, err := os.Lstat(name)
		if os.IsNotExist(err) { // removed, and not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if ignored(name) {
			t.Errorf("%s is compiled: make it when it is needed", name)
		}
		if info.Size() > mostBytes && !strings.HasPrefix(name, dataSet) {
			t.Errorf("%s has %d bytes, a file in git may have %d", name, info.Size(), mostBytes)
		}
	}
	ignore, err := os.ReadFile(".gitignore")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"*.wasm", "*.wasm.gz"} {
		if !strings.Contains("\n"+string(ignore), "\n"+line+"\n") {
			t.Errorf(".gitignore lacks %s", line)
		}
	}
}

// ignored says whether a file is a compiled program.
func ignored(name string) bool {
	for _, ending := range []string{".wasm", ".wasm.gz", ".test", ".prof"} {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return false
}
