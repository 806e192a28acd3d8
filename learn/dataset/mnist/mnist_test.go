package mnist

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/riffle-dp/riffle/learn/dataset"
)

func TestLoad(t *testing.T) {
	train, test, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if !Known(train.Labels) || Known(test.Labels) || Known(train.Labels[1:]) {
		t.Error("MNIST is not known by its training labels, or something else is")
	}
	for _, c := range []struct {
		part *dataset.Images
		n    int
		// Published counts of each digit.
		digits [10]int
	}{
		{train, 60000, [10]int{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}},
		{test, 10000, [10]int{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}},
	} {
		if c.part.Len() != c.n || len(c.part.Pixels) != c.n*28*28 || c.part.Width != 28 || c.part.Height != 28 || c.part.Classes != 10 {
			t.Errorf("%s: %d images of %d×%d in %d classes", c.part.Name, c.part.Len(), c.part.Width, c.part.Height, c.part.Classes)
		}
		var digits [10]int
		for _, y := range c.part.Labels {
			digits[y]++
		}
		if digits != c.digits {
			t.Errorf("%s: digits %v, want %v", c.part.Name, digits, c.digits)
		}
	}
	// The first training image is a 5 whose ink has these well-known bounds.
	if train.Labels[0] != 5 || train.Pixels[5*28+12] != 3 || train.Pixels[0] != 0 {
		t.Errorf("first training image: label %d, pixel %d", train.Labels[0], train.Pixels[5*28+12])
	}
}

func TestVerifyRefusesChangedFile(t *testing.T) {
	name := dataset.TestLabels + ".gz"
	b, err := files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	err = verify(fstest.MapFS{name: {Data: b}}, map[string]string{name: sums()[name]})
	if err == nil || !strings.Contains(err.Error(), "SHA-256") || !strings.Contains(err.Error(), name) {
		t.Errorf("verify accepted a changed file: %v", err)
	}
	if err := verify(fstest.MapFS{}, sums()); err == nil {
		t.Error("verify accepted missing files")
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, _, err := Load(); err != nil {
			b.Fatal(err)
		}
	}
}
