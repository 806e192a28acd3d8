package dataset

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// writeImages writes the pixels as an IDX file. Images of several channels
// have no IDX form here and are refused.
func (im *Images) writeImages(w io.Writer) error {
	if err := im.checkIDX(); err != nil {
		return err
	}
	h := binary.BigEndian.AppendUint32(nil, magicImages)
	h = binary.BigEndian.AppendUint32(h, uint32(im.Len()))
	h = binary.BigEndian.AppendUint32(h, uint32(im.Height))
	h = binary.BigEndian.AppendUint32(h, uint32(im.Width))
	return write(w, h, im.Pixels)
}

// writeLabels writes the labels as an IDX file.
func (im *Images) writeLabels(w io.Writer) error {
	if err := im.checkIDX(); err != nil {
		return err
	}
	h := binary.BigEndian.AppendUint32(nil, magicLabels)
	h = binary.BigEndian.AppendUint32(h, uint32(im.Len()))
	return write(w, h, im.Labels)
}

// checkIDX makes sure that the written file can be read back.
func (im *Images) checkIDX() error {
	if err := im.validate(); err != nil {
		return err
	}
	if im.Channels != 1 {
		return fmt.Errorf("dataset: %s: %d channels, an IDX image file holds 1", im.Name, im.Channels)
	}
	if im.Width > MaxIDXSide || im.Height > MaxIDXSide || int64(len(im.Pixels)) > MaxIDXBytes {
		return fmt.Errorf("dataset: %s: %d images of %d×%d pixels exceed the limits of an IDX file (side %d, %d bytes)",
			im.Name, im.Len(), im.Width, im.Height, MaxIDXSide, int64(MaxIDXBytes))
	}
	return nil
}

func write(w io.Writer, parts ...[]byte) error {
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return fmt.Errorf("dataset: %w", err)
		}
	}
	return nil
}

// WriteFolder writes train and test as the four IDX files of a folder, which it creates if need be,
// and the classes' names if they have any; zipped adds ".gz". It never replaces a file. On an error
// the files written so far stay.
func WriteFolder(dir string, train, test *Images, zipped bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{TrainImages, train.writeImages},
		{TrainLabels, train.writeLabels},
		{TestImages, test.writeImages},
		{TestLabels, test.writeLabels},
	} {
		if err := writeFile(filepath.Join(dir, f.name), zipped, f.write); err != nil {
			return err
		}
	}
	if train.Names == nil {
		return nil
	}
	return writeFile(filepath.Join(dir, classFiles()[0]), false, func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Join(train.Names, "\n")+"\n")
		return err
	})
}

func writeFile(path string, zipped bool, body func(io.Writer) error) (err error) {
	if zipped {
		path += ".gz"
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("dataset: %w", cerr)
		}
	}()
	if zipped {
		z := gzip.NewWriter(f)
		if err := body(z); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return fmt.Errorf("dataset: %s: %w", path, err)
		}
		return nil
	}
	b := bufio.NewWriter(f)
	if err := body(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("dataset: %s: %w", path, err)
	}
	return nil
}

// WriteCSV writes a table as a CSV file that parseCSV reads back: columns x1, x2, …, and y
// for the target or the class's number.
func WriteCSV(w io.Writer, t *Table) error {
	out := csv.NewWriter(w)
	cells := make([]string, t.Dim+1)
	for j := range t.Dim {
		cells[j] = "x" + strconv.Itoa(j+1)
	}
	cells[t.Dim] = "y"
	if err := out.Write(cells); err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	for i := range t.Len() {
		for j, v := range t.Row(i) {
			cells[j] = strconv.FormatFloat(float64(v), 'g', -1, 32)
		}
		if t.Targets != nil {
			cells[t.Dim] = strconv.FormatFloat(float64(t.Targets[i]), 'g', -1, 32)
		} else {
			cells[t.Dim] = strconv.Itoa(int(t.Y[i]))
		}
		if err := out.Write(cells); err != nil {
			return fmt.Errorf("dataset: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	return nil
}
