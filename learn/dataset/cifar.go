package dataset

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// The binary version of CIFAR-10: six files of 10,000 records, each a label
// byte and 32×32 bytes of red, then green, then blue, row-major.
// Source: A. Krizhevsky, "The CIFAR-10 dataset", section "Binary version".
const (
	cifarSide    = 32
	cifarPlane   = cifarSide * cifarSide
	cifarRecord  = 1 + 3*cifarPlane
	cifarRecords = 10_000
	cifarClasses = 10
	cifarBatches = 5

	// CIFARTest is the file of the test images, by which ReadFolder knows the format; those
	// of the training images are data_batch_1.bin to data_batch_5.bin.
	CIFARTest = "test_batch.bin"
)

// readCIFAR reads the six files at the root of fsys. Every file must hold the given number of
// records, of 3,073 bytes each, and labels 0 to 9. Errors wrap fs.ErrNotExist if a file is
// missing. The result stores a pixel's three bytes beside each other, as all Images do.
func readCIFAR(fsys fs.FS, name string, records int) (train, test *Images, err error) {
	files := make([]string, 0, cifarBatches+1)
	for i := range cifarBatches {
		files = append(files, fmt.Sprintf("data_batch_%d.bin", i+1))
	}
	files = append(files, CIFARTest)
	// The lengths are checked before the first byte is read: a missing file is reported at
	// once, and memory is allocated only when the files are known to fill it.
	for _, file := range files {
		if err := checkCIFARFile(fsys, file, records); err != nil {
			return nil, nil, err
		}
	}
	train = newCIFAR(name+"/train", cifarBatches*records)
	for _, file := range files[:cifarBatches] {
		if err := readCIFARFile(fsys, file, train, records); err != nil {
			return nil, nil, err
		}
	}
	test = newCIFAR(name+"/test", records)
	if err := readCIFARFile(fsys, CIFARTest, test, records); err != nil {
		return nil, nil, err
	}
	if train.Names, err = readNames(fsys, cifarClasses); err != nil {
		return nil, nil, err
	}
	test.Names = train.Names
	return train, test, nil
}

func newCIFAR(name string, records int) *Images {
	return &Images{
		Name: name, Width: cifarSide, Height: cifarSide, Channels: 3, Classes: cifarClasses,
		Pixels: make([]byte, 0, records*3*cifarPlane), Labels: make([]uint8, 0, records),
	}
}

func checkCIFARFile(fsys fs.FS, file string, records int) error {
	info, err := fs.Stat(fsys, file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("dataset: no %s: %w", file, fs.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("dataset: %s: %w", file, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("dataset: %s is not a regular file", file)
	}
	if want := int64(records) * cifarRecord; info.Size() != want {
		return fmt.Errorf("dataset: %s: file of %d bytes, want %d (%d records of %d)", file, info.Size(), want, records, cifarRecord)
	}
	return nil
}

func readCIFARFile(fsys fs.FS, file string, into *Images, records int) error {
	f, err := fsys.Open(file)
	if err != nil {
		return fmt.Errorf("dataset: %s: %w", file, err)
	}
	defer f.Close()
	return parseCIFAR(f, file, into, records)
}

// parseCIFAR appends exactly the given number of records; a byte after them is an error.
func parseCIFAR(r io.Reader, file string, into *Images, records int) error {
	var raw [cifarRecord]byte
	data, err := readExactly(r, records*cifarRecord)
	if err != nil {
		return fmt.Errorf("dataset: %s: %d of %d bytes: %w", file, len(data), records*cifarRecord, asTruncated(err))
	}
	switch n, err := io.ReadFull(r, raw[:1]); {
	case n > 0:
		return fmt.Errorf("dataset: %s: trailing bytes after %d records of %d", file, records, cifarRecord)
	case err != io.EOF:
		return fmt.Errorf("dataset: %s: after the data: %w", file, err)
	}
	for i := range records {
		copy(raw[:], data[i*cifarRecord:])
		if raw[0] >= cifarClasses {
			return fmt.Errorf("dataset: %s: label %d of record %d must be below %d", file, raw[0], i, cifarClasses)
		}
		into.Labels = append(into.Labels, raw[0])
		// Pixels are interleaved inside data itself: the output of record i ends before record
		// i+1 of the file begins.
		out := data[i*3*cifarPlane : (i+1)*3*cifarPlane]
		for p := range cifarPlane {
			out[3*p] = raw[1+p]
			out[3*p+1] = raw[1+cifarPlane+p]
			out[3*p+2] = raw[1+2*cifarPlane+p]
		}
	}
	into.Pixels = append(into.Pixels, data[:records*3*cifarPlane]...)
	return nil
}
