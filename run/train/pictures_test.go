package train

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// barPictures writes n pictures of upright and of level bars, of a size that varies.
func barPictures(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(8, 9))
	for i := range n {
		class := []string{"level", "upright"}[i%2]
		side := 20 + r.IntN(20)
		m := image.NewGray(image.Rect(0, 0, side, side))
		at := side/4 + r.IntN(side/2)
		for x := range side {
			for y := range side {
				if c := []int{y, x}[i%2]; c >= at && c < at+side/8 {
					m.Pix[y*m.Stride+x] = uint8(180 + r.IntN(60))
				}
			}
		}
		writePicture(t, filepath.Join(dir, class, fmt.Sprintf("%03d.png", i)), m)
	}
	return dir
}

func writePicture(t *testing.T, path string, m image.Image) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(f, m); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func pictureConfig(dir string) Config {
	c := Default()
	c.Data, c.ImageSize, c.Rounds, c.Trust, c.Epsilon, c.Seed = dir, "28", 20, "vector-sum", 20, 2
	return c
}

// A folder of pictures is learned from; its folders name the classes, in the model's file too, and
// eval counts what training held out.
func TestFolderOfPictures(t *testing.T) {
	dir := barPictures(t, 120)
	r, err := Prepare(context.Background(), pictureConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"level", "upright"}
	if !slices.Equal(r.Data.Classes, names) || !slices.Equal(r.Data.ClassNames, names) || r.Config.Model != shapeLinear || r.Data.Train.Len() != 96 {
		t.Errorf("classes %q, model %s, %d pictures", r.Data.Classes, r.Config.Model, r.Data.Train.Len())
	}
	if want := "the classes level, upright are read off the folder and taken to be public; --classes fixes them"; len(r.Data.Notes) != 1 || r.Data.Notes[0] != want {
		t.Errorf("notes %q", r.Data.Notes)
	}
	run := filepath.Join(t.TempDir(), "run")
	if err := r.Create(run); err != nil {
		t.Fatal(err)
	}
	s, err := r.Train(context.Background(), Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Evaluation.Accuracy < .9 {
		t.Errorf("accuracy %v", s.Evaluation.Accuracy)
	}
	stored, err := ReadModel(run)
	if err != nil {
		t.Fatal(err)
	}
	got, err := stored.Test(dir, false, 1)
	if err != nil || got.Loss != s.Evaluation.Loss || !slices.Equal(got.Classes, names) {
		t.Errorf("%+v, %v", got, err)
	}
	// Of another folder all pictures count; the divided one says itself which.
	other := barPictures(t, 50)
	if got, err := stored.Test(other, false, 1); err != nil || got.Examples != 50 || got.Set != "all" {
		t.Errorf("another folder: %+v, %v", got, err)
	}
	divided := t.TempDir()
	for part, of := range map[string]string{"train": other, "test": dir} {
		if err := os.CopyFS(filepath.Join(divided, part), os.DirFS(of)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := stored.Test(divided, false, 1); err != nil || got.Examples != 120 || got.Set != "test" {
		t.Errorf("a divided folder: %+v, %v", got, err)
	}
	// A folder with one class more cannot be evaluated, one with fewer can.
	writePicture(t, filepath.Join(dir, "round", "1.png"), image.NewGray(image.Rect(0, 0, 9, 9)))
	if _, err := stored.Test(dir, false, 1); err == nil || !strings.Contains(err.Error(), `class "round" is none of the 2`) {
		t.Errorf("error %v", err)
	}
	// Given classes hold for a folder, too.
	c := pictureConfig(dir)
	c.Classes = "round|upright"
	if _, err := Prepare(context.Background(), c); err == nil || !strings.Contains(err.Error(), `class "level" is none of the 2 that there are; --classes lists them all`) {
		t.Errorf("error %v", err)
	}
	c.Classes, c.ClassWeights = "upright|level|round|more", "round=3"
	if r, err = Prepare(context.Background(), c); err != nil || !slices.Equal(r.Data.Classes, []string{"upright", "level", "round", "more"}) || len(r.Data.Notes) > 0 {
		t.Errorf("%v, %v", r.Data, err)
	}
}

// On a client, a picture that does not decode counts as a gradient of 0, and nothing else changes.
func TestPicturesThatDoNotFitReportNothing(t *testing.T) {
	dir := barPictures(t, 120)
	c := pictureConfig(dir)
	c.Population, c.NMin = 40, 20
	task, err := NewTask(context.Background(), "bars", c, enrolled)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(task.Wire.Config), "image-size: \"28\"") && !strings.Contains(string(task.Wire.Config), "image-size: 28") {
		t.Errorf("%s", task.Wire.Config)
	}
	gradients := func() (out [][]float32, warned error) {
		t.Helper()
		l := &Local{Data: dir, Warn: func(_ [32]byte, what error) { warned = what }}
		theta := task.Model.Init(3)
		for i := range int64(40) {
			g, err := LocalClient{Local: l, Client: i}.Open(task.Wire)
			if err != nil {
				t.Fatal(err)
			}
			grad := make([]float32, len(theta))
			g(theta, grad)
			out = append(out, grad)
		}
		return out, warned
	}
	want, warned := gradients()
	if warned != nil {
		t.Fatal(warned)
	}
	zero := 0
	for i := range 120 {
		file := filepath.Join(dir, []string{"level", "upright"}[i%2], fmt.Sprintf("%03d.png", i))
		if i%10 == 0 {
			if err := os.WriteFile(file, []byte("broken"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, warned := gradients()
	if warned == nil || !strings.Contains(warned.Error(), "pictures do not fit") {
		t.Errorf("warned of %v", warned)
	}
	for i := range got {
		switch {
		case slices.Equal(got[i], want[i]):
		case !slices.ContainsFunc(got[i], func(x float32) bool { return x != 0 }):
			zero++
		default:
			t.Errorf("client %d has another gradient", i)
		}
	}
	if zero == 0 || zero > 12 {
		t.Errorf("%d clients report nothing", zero)
	}
	// In a simulation the owner is told which file it is.
	if _, err := Prepare(context.Background(), c); err == nil || !strings.Contains(err.Error(), ".png: image: unknown format") {
		t.Errorf("error %v", err)
	}
}

func TestPicturesRefuse(t *testing.T) {
	dir, table := barPictures(t, 20), shoppers(t, 60, "u0,30,oslo,1,yes")
	for want, change := range map[string]func(c *Config){
		"a folder of pictures needs image-size":       func(c *Config) { c.ImageSize = "" },
		"\"0x9\" must be a width and a height":        func(c *Config) { c.ImageSize = "0x9" },
		"image-size goes with a folder of PNG and":    func(c *Config) { c.Data = "mnist" },
		"image-size goes with a folder of PNG ":       func(c *Config) { *c = bought(table); c.ImageSize = "28" },
		"image-colours goes with image-size":          func(c *Config) { c.ImageSize, c.ImageColours = "", rgb },
		"label, range and test-fraction go with":      func(c *Config) { c.Label = "y" },
		"images have 3 channels, must have 1":         func(c *Config) { c.ImageColours, c.Model = rgb, shapeLinear },
		`"zebra" is none of the classes level`:        func(c *Config) { c.ClassWeights = "zebra=2" },
		"categories goes with a CSV file, not with d": func(c *Config) { c.Categories = "a=b|c" },
	} {
		c := pictureConfig(dir)
		change(&c)
		if _, err := Prepare(context.Background(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	c := pictureConfig(dir)
	c.ImageColours, c.Rounds = rgb, 1
	if r, err := Prepare(context.Background(), c); err != nil || r.Config.Model != softmax || r.Data.Train.Dim != 28*28*3 {
		t.Errorf("%v", err)
	}
}
