package dataset

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/feature"
)

func tiny() *Images {
	return &Images{Name: "tiny", Width: 3, Height: 2, Channels: 1, Classes: 3, Pixels: ramp(24), Labels: []uint8{0, 2, 1, 2}}
}

func TestImagesAccess(t *testing.T) {
	im := tiny()
	if err := im.validate(); err != nil {
		t.Fatal(err)
	}
	if got := im.image(1); !slices.Equal(got, ramp(24)[6:12]) || cap(got) != 6 {
		t.Errorf("image(1) = %v, capacity %d", got, cap(got))
	}
	sub, err := im.Subset([]int{3, 0})
	if err != nil {
		t.Fatal(err)
	}
	want := append(slices.Clone(im.image(3)), im.image(0)...)
	if !slices.Equal(sub.Pixels, want) || !slices.Equal(sub.Labels, []uint8{2, 0}) || sub.Classes != 3 {
		t.Errorf("Subset = %+v", sub)
	}
	for _, i := range []int{-1, 4} {
		if _, err := im.Subset([]int{i}); err == nil {
			t.Errorf("Subset accepts index %d", i)
		}
	}
}

func TestImagesValidateRefuses(t *testing.T) {
	for want, change := range map[string]func(*Images){
		"each must be at least 1":              func(im *Images) { im.Height = 0 },
		"no images":                            func(im *Images) { im.Labels = nil },
		"want 24 for 4 images":                 func(im *Images) { im.Pixels = im.Pixels[1:] },
		"label 2 of image 1 must be below the": func(im *Images) { im.Classes = 2 },
	} {
		im := tiny()
		change(im)
		if err := im.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestTable(t *testing.T) {
	im := tiny()
	px, err := feature.NewPixels(6, 0)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := im.Table(px, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.validate(); err != nil {
		t.Error(err)
	}
	if tab.Len() != 4 || tab.Dim != 6 || tab.Classes != 3 || !slices.Equal(tab.Y, []int32{0, 2, 1, 2}) {
		t.Errorf("table %d × %d, %d classes, %v", tab.Len(), tab.Dim, tab.Classes, tab.Y)
	}
	for j, v := range tab.Row(3) {
		if want := float32(float64(im.image(3)[j]) / 255); math.Abs(float64(v-want)) > 1e-7 {
			t.Errorf("Row(3)[%d] = %v, want %v", j, v, want)
		}
	}
	sub, err := tab.Subset([]int{2, 2, 0})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(sub.Row(1), tab.Row(2)) || !slices.Equal(sub.Y, []int32{1, 1, 0}) {
		t.Errorf("Subset = %+v", sub)
	}
	if _, err := tab.Subset([]int{4}); err == nil {
		t.Error("Subset accepts an index outside")
	}
	other, err := feature.NewPixels(7, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := im.Table(other, 1); err == nil {
		t.Error("Table accepts features for other images")
	}
}

func TestTableValidateRefuses(t *testing.T) {
	for want, change := range map[string]func(*Table){
		"each must be at least 1":                    func(t *Table) { t.Dim = 0 },
		"without rows":                               func(t *Table) { t.Y = nil },
		"holds 3 features, want 2 rows × 2":          func(t *Table) { t.X = t.X[1:] },
		"class 2 of row 1":                           func(t *Table) { t.Y[1] = 2 },
		"class -1 of row 0":                          func(t *Table) { t.Y[0] = -1 },
		"feature 1 of row 1 is NaN, must be finite":  func(t *Table) { t.X[3] = float32(math.NaN()) },
		"feature 0 of row 1 is -Inf, must be finite": func(t *Table) { t.X[2] = float32(math.Inf(-1)) },
	} {
		tab := &Table{Dim: 2, Classes: 2, X: []float32{1, 2, 3, 4}, Y: []int32{0, 1}}
		if err := tab.validate(); err != nil {
			t.Fatal(err)
		}
		change(tab)
		if err := tab.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
