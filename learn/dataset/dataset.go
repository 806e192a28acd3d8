// Package dataset loads examples and hands them to clients: images in the IDX and CIFAR-10
// formats, tables of features from images or CSV, a validation split, populations of clients
// that may be larger than the data, and clients with several examples.
//
// A reader trusts nothing: a file that breaks a rule of its format gives an
// error that names the file, the value and the rule, and memory is allocated
// for bytes that exist, never for a number that a header claims.
//
// No function here draws noise for privacy. Seeds only choose which example
// goes where, so the simple mixing function of this package is enough and
// nothing about privacy rests on it.
package dataset

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/learn/feature"
)

// Images are labelled images of one size.
type Images struct {
	// Name says where the images come from, such as "mnist/train".
	Name string
	// Width, Height in pixels; Channels bytes per pixel.
	Width, Height, Channels int
	// Classes is one more than the largest label of the data set.
	Classes int
	// Names are the classes' names, as the folder has them; nil: none.
	Names []string
	// Pixels holds Len() × Height × Width × Channels bytes, row-major; 0 is
	// the background of an IDX image.
	Pixels []byte
	// Labels holds one label per image, each below Classes.
	Labels []uint8
	// Blank marks the images that stand in for files that cannot be used, and Why is the error of
	// the first. nil: none.
	Blank []bool
	Why   error
}

// Len returns the number of images.
func (im *Images) Len() int { return len(im.Labels) }

// Size returns the bytes of one image: Height × Width × Channels.
func (im *Images) Size() int { return im.Width * im.Height * im.Channels }

// image returns the pixels of image i. They are shared, not copied.
func (im *Images) image(i int) []byte {
	s := im.Size()
	return im.Pixels[i*s : (i+1)*s : (i+1)*s]
}

// Subset returns a copy of the images at the given indices, in that order.
func (im *Images) Subset(index []int) (*Images, error) {
	out := *im
	out.Pixels = make([]byte, 0, len(index)*im.Size())
	out.Labels = make([]uint8, 0, len(index))
	out.Blank = nil
	for _, i := range index {
		if i < 0 || i >= im.Len() {
			return nil, fmt.Errorf("dataset: index %d outside the %d images of %s", i, im.Len(), im.Name)
		}
		out.Pixels = append(out.Pixels, im.image(i)...)
		out.Labels = append(out.Labels, im.Labels[i])
		if im.Blank != nil {
			out.Blank = append(out.Blank, im.Blank[i])
		}
	}
	return &out, nil
}

// validate returns an error that names the first broken rule: sizes at least
// 1, as many pixels as the labels ask for, every label below Classes.
func (im *Images) validate() error {
	if im.Width < 1 || im.Height < 1 || im.Channels < 1 {
		return fmt.Errorf("dataset: %s: image of %d×%d pixels and %d channels, each must be at least 1",
			im.Name, im.Width, im.Height, im.Channels)
	}
	if im.Len() < 1 {
		return fmt.Errorf("dataset: %s: no images", im.Name)
	}
	if want := im.Len() * im.Size(); len(im.Pixels) != want {
		return fmt.Errorf("dataset: %s: %d bytes of pixels, want %d for %d images", im.Name, len(im.Pixels), want, im.Len())
	}
	for i, y := range im.Labels {
		if int(y) >= im.Classes {
			return fmt.Errorf("dataset: %s: label %d of image %d must be below the %d classes", im.Name, y, i, im.Classes)
		}
	}
	return nil
}

// Table extracts the features of every image with the given number of
// goroutines (0: one per processor). The result does not depend on workers.
func (im *Images) Table(e *feature.Extractor, workers int) (*Table, error) {
	if err := im.validate(); err != nil {
		return nil, err
	}
	if e.Pixels != im.Size() {
		return nil, fmt.Errorf("dataset: %s: images of %d bytes, but the features %s take %d",
			im.Name, im.Size(), e.Name, e.Pixels)
	}
	t := &Table{
		Dim:     e.Dim,
		Classes: im.Classes,
		X:       make([]float32, im.Len()*e.Dim),
		Y:       make([]int32, im.Len()),
		Blank:   im.Blank,
	}
	if err := feature.ExtractAll(e, im.Pixels, t.X, workers); err != nil {
		return nil, err
	}
	for i, y := range im.Labels {
		t.Y[i] = int32(y)
	}
	return t, nil
}

// Table is what a model learns from. Each row has features, and one class or one real target.
type Table struct {
	// Dim is the number of features of a row.
	Dim int
	// Classes is the number of classes; 0 in a table of targets.
	Classes int
	// X holds Len() × Dim features, row-major.
	X []float32
	// Y holds one class per row, 0 ≤ Y[i] < Classes; nil in a table of targets.
	Y []int32
	// Targets holds one finite real target per row, for regression; nil in a
	// table of classes.
	Targets []float32
	// Blank marks the rows that stand in for rows of the file that cannot be used. nil: none.
	Blank []bool
}

// Len returns the number of rows.
func (t *Table) Len() int { return max(len(t.Y), len(t.Targets)) }

// Row returns the features of row i. They are shared, not copied.
func (t *Table) Row(i int) []float32 {
	return t.X[i*t.Dim : (i+1)*t.Dim : (i+1)*t.Dim]
}

// Target returns the number that row i is to predict: of two classes −1 for the first
// and 1 for the second.
func (t *Table) Target(i int) float64 {
	if t.Targets != nil {
		return float64(t.Targets[i])
	}
	return float64(2*t.Y[i] - 1)
}

// Subset returns a copy of the rows at the given indices, in that order.
func (t *Table) Subset(index []int) (*Table, error) {
	out := &Table{Dim: t.Dim, Classes: t.Classes, X: make([]float32, 0, len(index)*t.Dim)}
	if t.Targets != nil {
		out.Targets = make([]float32, 0, len(index))
	} else {
		out.Y = make([]int32, 0, len(index))
	}
	for _, i := range index {
		if i < 0 || i >= t.Len() {
			return nil, fmt.Errorf("dataset: index %d outside the %d rows of the table", i, t.Len())
		}
		out.X = append(out.X, t.Row(i)...)
		if t.Targets != nil {
			out.Targets = append(out.Targets, t.Targets[i])
		} else {
			out.Y = append(out.Y, t.Y[i])
		}
		if t.Blank != nil {
			out.Blank = append(out.Blank, t.Blank[i])
		}
	}
	return out, nil
}

// validate returns an error that names the first broken rule: at least one
// row, as many features as rows ask for, all finite, and either classes in
// range or finite targets.
func (t *Table) validate() error {
	if t.Targets != nil {
		if t.Y != nil || t.Classes != 0 {
			return fmt.Errorf("dataset: table with targets also has %d classes in %d rows, must have none", t.Classes, len(t.Y))
		}
		if t.Dim < 1 {
			return fmt.Errorf("dataset: table of %d features must have at least 1", t.Dim)
		}
	} else if t.Dim < 1 || t.Classes < 1 {
		return fmt.Errorf("dataset: table of %d features and %d classes, each must be at least 1", t.Dim, t.Classes)
	}
	if t.Len() < 1 {
		return fmt.Errorf("dataset: table without rows")
	}
	if len(t.X) != t.Len()*t.Dim {
		return fmt.Errorf("dataset: table holds %d features, want %d rows × %d", len(t.X), t.Len(), t.Dim)
	}
	for i, y := range t.Y {
		if y < 0 || int(y) >= t.Classes {
			return fmt.Errorf("dataset: class %d of row %d must be at least 0 and below %d", y, i, t.Classes)
		}
	}
	for i, v := range t.Targets {
		if !finite(v) {
			return fmt.Errorf("dataset: target of row %d is %v, must be finite", i, v)
		}
	}
	for i, v := range t.X {
		if !finite(v) {
			return fmt.Errorf("dataset: feature %d of row %d is %v, must be finite", i%t.Dim, i/t.Dim, v)
		}
	}
	return nil
}

func finite(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }
