package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A folder's class names are one a line, for each class at least, all different.
func TestClassNames(t *testing.T) {
	for text, want := range map[string]string{
		"cat\ndog\nbird\n":                  "cat|dog|bird",
		"\ufeffT-shirt/top\r\ncoat\r\nbag":  "T-shirt/top|coat|bag",
		"a\n b \nc\nfourth\n\n\n":           "a|b|c",
		"a\nb\n":                            "has 2 names, want one a line for each of the 3 classes",
		"":                                  "has 0 names",
		"a\n\nc\n":                          "line 2 is empty",
		"a\nb\na\n":                         `line 3: "a" names two classes`,
		"a\nb\xff\nc\n":                     "line 2: \"b\\xff\" must be UTF-8",
		"a\nb\x1b[2J\nc\n":                  "must be UTF-8 text",
		"a\nb\n" + strings.Repeat("c", 101): "has 101 bytes, at most 100",
		strings.Repeat("x\n", 1<<15+1):      "has more than 65536 bytes",
	} {
		names, err := readNames(fstest.MapFS{"labels.txt": {Data: []byte(text)}}, 3)
		got := strings.Join(names, "|")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err == nil && got != want {
			t.Errorf("%.40q: %s, want %s", text, got, want)
		}
	}
	both := fstest.MapFS{"labels.txt": {Data: []byte("a\nb")}, "classes.txt": {Data: []byte("c\nd")}}
	if names, err := readNames(both, 2); err != nil || !slices.Equal(names, []string{"c", "d"}) {
		t.Errorf("of two files: %q %v", names, err)
	}
	if names, err := readNames(fstest.MapFS{}, 2); err != nil || names != nil {
		t.Errorf("of none: %q %v", names, err)
	}
}

// Names survive writing and reading a folder; a file that does not fit is refused.
func TestClassNamesOfFolders(t *testing.T) {
	images := &Images{Name: "t", Width: 2, Height: 2, Channels: 1, Classes: 2, Names: []string{"shirt", "bag"},
		Pixels: make([]byte, 16), Labels: []uint8{0, 1, 1, 0}}
	dir := filepath.Join(t.TempDir(), "things")
	if err := WriteFolder(dir, images, images, false); err != nil {
		t.Fatal(err)
	}
	train, test, err := ReadFolder(dir)
	if err != nil || !slices.Equal(train.Names, images.Names) || !slices.Equal(test.Names, images.Names) {
		t.Fatalf("%v", err)
	}
	if part, err := train.Subset([]int{1}); err != nil || !slices.Equal(part.Names, images.Names) {
		t.Errorf("a part has names %q %v", part.Names, err)
	}
	labels, err := TrainingLabels(os.DirFS(dir))
	if err != nil || fmt.Sprint(labels) != "[0 1 1 0]" {
		t.Errorf("labels %v %v", labels, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "classes.txt"), []byte("only one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFolder(dir); err == nil || !strings.Contains(err.Error(), "classes.txt has 1 names") {
		t.Errorf("%v", err)
	}
}
