package dataset

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The four files of an IDX folder; each is plain, or has ".gz" behind its name.
const (
	TrainImages = "train-images-idx3-ubyte"
	TrainLabels = "train-labels-idx1-ubyte"
	TestImages  = "t10k-images-idx3-ubyte"
	TestLabels  = "t10k-labels-idx1-ubyte"
)

// IDX magic numbers: two zero bytes, 0x08 for unsigned bytes, then the number
// of dimensions. Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database
// of handwritten digits", section "File formats".
const (
	magicImages uint32 = 0x00000803
	magicLabels uint32 = 0x00000801
)

// Limits of an IDX file. They refuse nonsense early; memory grows only with the bytes that
// arrive.
const (
	// MaxIDXSide is the largest height or width in pixels.
	MaxIDXSide = 1 << 12
	// MaxIDXBytes is the largest number of data bytes in one file.
	MaxIDXBytes = 1<<31 - 1
	// Of a zipped file so many bytes are read, and so many more for each of its own: a file of zeros
	// would grow a thousandfold. Images of handwriting grow fivefold.
	freeUnzipped, mostUnzipped = 16 << 20, 64
)

// ReadFolder reads the images of a folder on disk: the six files of CIFAR-10's binary version
// where CIFARTest is one of its files, which are 50,000 training and 10,000 test images of
// 32×32 pixels and three channels; otherwise what ReadFS reads. Where both a plain and a .gz
// file are present the plain one is read.
func ReadFolder(dir string) (train, test *Images, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("dataset: %w", err)
	}
	if !info.IsDir() {
		return nil, nil, fmt.Errorf("dataset: %s is not a folder", dir)
	}
	fsys, name := os.DirFS(dir), filepath.Base(filepath.Clean(dir))
	if _, err := fs.Stat(fsys, CIFARTest); err == nil {
		return readCIFAR(fsys, name, cifarRecords)
	}
	return ReadFS(fsys, name)
}

// ReadFS reads the four IDX files at the root of fsys. The training and the test images get the
// same number of Classes: one more than the largest label of either. All images must be of one
// size. Errors wrap fs.ErrNotExist if a file is missing.
func ReadFS(fsys fs.FS, name string) (train, test *Images, err error) {
	train, err = readPart(fsys, name+"/train", TrainImages, TrainLabels)
	if err != nil {
		return nil, nil, err
	}
	test, err = readPart(fsys, name+"/test", TestImages, TestLabels)
	if err != nil {
		return nil, nil, err
	}
	if train.Width != test.Width || train.Height != test.Height {
		return nil, nil, fmt.Errorf("dataset: %s: images of %d×%d pixels, but %s has %d×%d",
			TestImages, test.Width, test.Height, TrainImages, train.Width, train.Height)
	}
	train.Classes = max(train.Classes, test.Classes)
	test.Classes = train.Classes
	if train.Names, err = readNames(fsys, train.Classes); err != nil {
		return nil, nil, err
	}
	test.Names = train.Names
	return train, test, nil
}

// TrainingLabels reads the labels of the training images in the folder of IDX files.
func TrainingLabels(fsys fs.FS) (labels []uint8, err error) {
	err = withFile(fsys, TrainLabels, func(r io.Reader, file string, size length) error {
		_, labels, err = readIDX(r, file, size, magicLabels)
		return err
	})
	return labels, err
}

func readPart(fsys fs.FS, name, imageFile, labelFile string) (*Images, error) {
	im := &Images{Name: name, Channels: 1}
	err := withFile(fsys, imageFile, func(r io.Reader, file string, size length) error {
		dims, data, err := readIDX(r, file, size, magicImages)
		if err != nil {
			return err
		}
		im.Height, im.Width, im.Pixels = dims[1], dims[2], data
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = withFile(fsys, labelFile, func(r io.Reader, file string, size length) error {
		dims, data, err := readIDX(r, file, size, magicLabels)
		if err != nil {
			return err
		}
		if n := len(im.Pixels) / im.Size(); dims[0] != n {
			return fmt.Errorf("dataset: %s: %d labels, but %s has %d images", file, dims[0], imageFile, n)
		}
		im.Labels = data
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, y := range im.Labels {
		im.Classes = max(im.Classes, int(y)+1)
	}
	return im, nil
}

// openRegular opens a file, and refuses what is none: at a pipe it would wait for ever.
func openRegular(fsys fs.FS, file string) (fs.File, error) {
	info, err := fs.Stat(fsys, file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	return fsys.Open(file)
}

// length is the number of bytes of a file that is read, or the most there may be if it is zipped.
type length struct {
	bytes  int64
	zipped bool
}

// withFile opens name or name.gz. It calls read with the plain bytes, the opened file's name,
// and their number.
func withFile(fsys fs.FS, name string, read func(r io.Reader, file string, size length) error) error {
	file, zipped := name, false
	f, err := openRegular(fsys, file)
	if errors.Is(err, fs.ErrNotExist) {
		file, zipped = name+".gz", true
		f, err = openRegular(fsys, file)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("dataset: neither %s nor %s: %w", name, file, fs.ErrNotExist)
		}
	}
	if err != nil {
		return fmt.Errorf("dataset: %s: %w", file, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("dataset: %s: %w", file, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("dataset: %s is not a regular file", file)
	}
	if !zipped {
		return read(f, file, length{info.Size(), false})
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<16))
	if err != nil {
		return fmt.Errorf("dataset: %s: not a gzip file: %w", file, asTruncated(err))
	}
	defer z.Close()
	return read(z, file, length{freeUnzipped + mostUnzipped*info.Size(), true})
}

// readIDX reads a whole IDX file: magic number, sizes, data; a byte after them is an error.
func readIDX(r io.Reader, file string, size length, magic uint32) (dims []int, data []byte, err error) {
	what := "images"
	if magic == magicLabels {
		what = "labels"
	}
	var word [4]byte
	next := func(field string) (uint32, error) {
		if _, err := io.ReadFull(r, word[:]); err != nil {
			return 0, fmt.Errorf("dataset: %s: reading the %s: %w", file, field, asTruncated(err))
		}
		return binary.BigEndian.Uint32(word[:]), nil
	}
	got, err := next("magic number")
	if err != nil {
		return nil, nil, err
	}
	if got != magic {
		return nil, nil, fmt.Errorf("dataset: %s: magic 0x%08x, want 0x%08x (%s)", file, got, magic, what)
	}
	fields := []string{"number of " + what, "height", "width"}[:magic&0xff]
	total := int64(1)
	for i, field := range fields {
		v, err := next(field)
		if err != nil {
			return nil, nil, err
		}
		limit := int64(MaxIDXBytes)
		if i > 0 {
			limit = MaxIDXSide
		}
		if v == 0 || int64(v) > limit {
			return nil, nil, fmt.Errorf("dataset: %s: %s = %d must be at least 1 and at most %d", file, field, v, limit)
		}
		// No overflow: below 2³¹ · 2¹² · 2¹² = 2⁵⁵.
		total *= int64(v)
		dims = append(dims, int(v))
	}
	if total > MaxIDXBytes {
		return nil, nil, fmt.Errorf("dataset: %s: %d bytes of data in the header, at most %d are read", file, total, int64(MaxIDXBytes))
	}
	switch want := int64(4+4*len(fields)) + total; {
	case size.zipped && want > size.bytes:
		return nil, nil, fmt.Errorf("dataset: %s: %d bytes for %v, but of a zipped file of this length at most %d are read: unzip it first", file, want, dims, size.bytes)
	case !size.zipped && want != size.bytes:
		return nil, nil, fmt.Errorf("dataset: %s: file of %d bytes, want %d for %v", file, size.bytes, want, dims)
	}
	data, err = readExactly(r, int(total))
	if err != nil {
		return nil, nil, fmt.Errorf("dataset: %s: %d of %d bytes of data: %w", file, len(data), total, asTruncated(err))
	}
	// Reading to the end also makes gzip check its CRC and length.
	switch n, err := io.ReadFull(r, word[:1]); {
	case n > 0:
		return nil, nil, fmt.Errorf("dataset: %s: trailing bytes after the %d of data", file, total)
	case err != io.EOF:
		return nil, nil, fmt.Errorf("dataset: %s: after the data: %w", file, asTruncated(err))
	}
	return dims, data, nil
}

// readExactly reads n bytes, or returns those that came before the error. Its memory grows
// with the bytes that arrive, so a header cannot make it allocate more.
func readExactly(r io.Reader, n int) ([]byte, error) {
	buf := make([]byte, 0, min(n, 1<<20))
	for len(buf) < n {
		if len(buf) == cap(buf) {
			bigger := make([]byte, len(buf), min(n, 2*cap(buf)))
			copy(bigger, buf)
			buf = bigger
		}
		m, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+m]
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// asTruncated gives both kinds of early end of file the same error.
func asTruncated(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errTruncated
	}
	return err
}

var errTruncated = errors.New("truncated file")
