package operate

import (
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/learn/dataset"
)

func TestGray(t *testing.T) {
	pixels := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	images := &dataset.Images{Width: 3, Height: 2, Channels: 1, Classes: 1, Pixels: slices.Clone(pixels), Labels: []uint8{0, 0}}
	g := gray(images, 1)
	if g.Bounds().Dx() != 3 || g.Bounds().Dy() != 2 || g.GrayAt(2, 1).Y != 11 {
		t.Errorf("the second image is %v", g)
	}
	g.Pix[0]++
	if !slices.Equal(images.Pixels, pixels) {
		t.Error("gray shares the pixels")
	}
	colour := &dataset.Images{Width: 1, Height: 1, Channels: 3, Classes: 1, Pixels: []byte{10, 20, 60}, Labels: []uint8{0}}
	if got := gray(colour, 0).Pix[0]; got != 30 {
		t.Errorf("grey of (10, 20, 60) is %d, want 30", got)
	}
}
