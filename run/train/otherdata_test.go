package train

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/run/simulate"
)

// keptFiles returns the content of all files below a directory.
func keptFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			out[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// restoreFiles removes all files below a directory, and writes the given ones.
func restoreFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for path := range keptFiles(t, dir) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A run goes on with the rows that it began with, and with no others: not if rows are missing, in another
// order, or differ in one cell or label. Before its checkpoints had a digest of the rows, all of these were
// taken, and the model was of no data set at all.
func TestResumeRefusesOtherData(t *testing.T) {
	edit := func(path string, change func([]byte) []byte) func(t *testing.T) {
		return func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, change(raw), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	replaced := func(old, new string) func([]byte) []byte {
		return func(raw []byte) []byte { return bytes.Replace(raw, []byte(old), []byte(new), 1) }
	}
	flipped := func(at int) func([]byte) []byte {
		return func(raw []byte) []byte { raw[at] ^= 1; return raw }
	}
	moved := func(from, to string) func(t *testing.T) {
		return func(t *testing.T) {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
	}

	table := filepath.Join(t.TempDir(), "t.csv")
	text := "age,y\n3,no\n7,yes\n5,no\n8,yes\n2,no\n9,yes\n1,no\n6,yes\n4,no\n0,no\n"
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	images := filepath.Join(t.TempDir(), "idx")
	set := &dataset.Images{Name: "x", Width: 2, Height: 2, Channels: 1, Classes: 2}
	for i := range 8 {
		set.Labels = append(set.Labels, uint8(i%2))
		set.Pixels = append(set.Pixels, uint8(30*i), 50, uint8(200-20*i), 7)
	}
	if err := dataset.WriteFolder(images, set, set, false); err != nil {
		t.Fatal(err)
	}
	pictures := barPictures(t, 12)
	idx := func(name string, change func([]byte) []byte) func(*testing.T) {
		return edit(filepath.Join(images, name), change)
	}
	bars := func(name string) string { return filepath.Join(pictures, filepath.FromSlash(name)) }
	for _, c := range []struct {
		name    string
		dir     string
		change  func(*Config)
		changes map[string]func(*testing.T)
	}{
		{"table", filepath.Dir(table), func(c *Config) { c.Data, c.Label = table, "y" }, map[string]func(*testing.T){
			"cut":             edit(table, func(raw []byte) []byte { return raw[:bytes.LastIndexByte(raw[:len(raw)-1], '\n')+1] }),
			"permuted":        edit(table, replaced("3,no\n7,yes\n", "7,yes\n3,no\n")),
			"one cell":        edit(table, replaced("5,no", "5.25,no")),
			"other labels":    edit(table, replaced("8,yes", "8,no")),
			"other classes":   edit(table, func(raw []byte) []byte { return bytes.ReplaceAll(raw, []byte("yes"), []byte("YES")) }),
			"another column":  edit(table, replaced("age", "size")),
			"one row more":    edit(table, func(raw []byte) []byte { return append(raw, "3,no\n"...) }),
			"a row of nought": edit(table, replaced("0,no", "-0.5,no")),
		}},
		{"idx", images, func(c *Config) { c.Data, c.Model = images, "softmax" }, map[string]func(*testing.T){
			"a pixel":    idx(dataset.TrainImages, flipped(16+5)),
			"a label":    idx(dataset.TrainLabels, flipped(8+3)),
			"test pixel": idx(dataset.TestImages, flipped(16)),
			"test label": idx(dataset.TestLabels, flipped(8)),
			"permuted": idx(dataset.TrainImages, func(raw []byte) []byte {
				return append(append(append([]byte{}, raw[:16]...), raw[20:]...), raw[16:20]...)
			}),
			"named anew":   func(t *testing.T) { restoreFiles(t, images, map[string][]byte{}); writeNamed(t, images, set) },
			"one is fewer": func(t *testing.T) { rewriteIDX(t, images, set) },
		}},
		{"pictures", pictures, func(c *Config) { c.Data, c.ImageSize, c.Model = pictures, "4", "softmax" }, map[string]func(*testing.T){
			"another label": moved(bars("level/000.png"), bars("upright/000.png")),
			"permuted":      moved(bars("level/000.png"), bars("level/999.png")),
			"one is fewer":  func(t *testing.T) { moved(bars("level/000.png"), filepath.Join(t.TempDir(), "x"))(t) },
			"another one": func(t *testing.T) {
				edit(bars("level/000.png"), func([]byte) []byte { return keptFiles(t, pictures)[bars("level/002.png")] })(t)
			},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Default()
			config.Trust, config.Rounds, config.CheckpointEvery = dp.None, 6, 1
			c.change(&config)
			files := keptFiles(t, c.dir)
			begun := func(stop int64) string {
				r := preparedRun(t, config)
				dir := t.TempDir()
				if err := r.Create(dir); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if stop > 0 {
					if _, err := r.Train(ctx, Observer{Round: func(result simulate.Result) {
						if result.Round == stop {
							cancel()
						}
					}}); !errors.Is(err, ErrInterrupted) {
						t.Fatal(err)
					}
				}
				return dir
			}
			stopped, fresh := begun(3), begun(0) // the second was killed before its first round
			for name, change := range c.changes {
				change(t)
				for _, dir := range []string{stopped, fresh} {
					before := keptFiles(t, dir)
					if r, err := Resume(t.Context(), dir, nil); err == nil {
						r.Close()
						t.Errorf("%s: taken", name)
					} else if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "is of other data") {
						t.Errorf("%s: %v", name, err)
					}
					for path, content := range keptFiles(t, dir) {
						if !bytes.Equal(content, before[path]) {
							t.Errorf("%s: %s has changed", name, path)
						}
					}
				}
				restoreFiles(t, c.dir, files)
			}
			for dir, want := range map[string]int64{stopped: 3, fresh: 0} {
				r, err := Resume(t.Context(), dir, nil)
				if err != nil {
					t.Fatal(err)
				}
				if r.Resumed != want {
					t.Errorf("resumed after round %d, want %d", r.Resumed, want)
				}
				r.Close()
			}
		})
	}
}

// writeNamed writes the same images with names for the classes.
func writeNamed(t *testing.T, dir string, set *dataset.Images) {
	t.Helper()
	err := dataset.WriteFolder(dir, set, set, false)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "classes.txt"), []byte("cats\ndogs\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rewriteIDX writes the images without the last one.
func rewriteIDX(t *testing.T, dir string, set *dataset.Images) {
	t.Helper()
	restoreFiles(t, dir, map[string][]byte{})
	fewer, err := set.Subset([]int{0, 1, 2, 3, 4, 5, 6})
	if err == nil {
		err = dataset.WriteFolder(dir, fewer, set, false)
	}
	if err != nil {
		t.Fatal(err)
	}
}
