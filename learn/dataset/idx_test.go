package dataset

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

// idx returns a file with the given header words and data.
func idx(words []uint32, data []byte) []byte {
	var b []byte
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return append(b, data...)
}

func zipped(b []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	z.Write(b)
	z.Close()
	return buf.Bytes()
}

// ramp returns n bytes that differ from their neighbours.
func ramp(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	return b
}

// folder returns a valid folder: 3 training and 2 test images of 4×5 pixels.
func folder() fstest.MapFS {
	return fstest.MapFS{
		TrainImages: {Data: idx([]uint32{0x803, 3, 4, 5}, ramp(60))},
		TrainLabels: {Data: idx([]uint32{0x801, 3}, []byte{1, 0, 2})},
		TestImages:  {Data: idx([]uint32{0x803, 2, 4, 5}, ramp(40))},
		TestLabels:  {Data: idx([]uint32{0x801, 2}, []byte{4, 0})},
	}
}

func TestReadFS(t *testing.T) {
	train, test, err := ReadFS(folder(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	want := &Images{Name: "tiny/train", Width: 5, Height: 4, Channels: 1, Classes: 5, Pixels: ramp(60), Labels: []uint8{1, 0, 2}}
	if !reflect.DeepEqual(train, want) {
		t.Errorf("train = %+v, want %+v", train, want)
	}
	want = &Images{Name: "tiny/test", Width: 5, Height: 4, Channels: 1, Classes: 5, Pixels: ramp(40), Labels: []uint8{4, 0}}
	if !reflect.DeepEqual(test, want) {
		t.Errorf("test = %+v, want %+v", test, want)
	}
	if err := errors.Join(train.validate(), test.validate()); err != nil {
		t.Error(err)
	}
}

// TestPlainAndZippedAgree reads every mixture of plain and zipped files.
func TestPlainAndZippedAgree(t *testing.T) {
	names := []string{TrainImages, TrainLabels, TestImages, TestLabels}
	train0, test0, err := ReadFS(folder(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for mask := range 1 << len(names) {
		f := folder()
		for i, name := range names {
			if mask>>i&1 == 1 {
				f[name+".gz"] = &fstest.MapFile{Data: zipped(f[name].Data)}
				delete(f, name)
			}
		}
		train, test, err := ReadFS(f, "x")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(train, train0) || !reflect.DeepEqual(test, test0) {
			t.Errorf("mask %04b reads other images", mask)
		}
	}
}

func TestPlainGoesFirst(t *testing.T) {
	f := folder()
	f[TrainImages+".gz"] = &fstest.MapFile{Data: []byte("not read")}
	if _, _, err := ReadFS(f, "x"); err != nil {
		t.Error(err)
	}
}

func TestReadFSRefuses(t *testing.T) {
	good := folder()
	images, labels := good[TrainImages].Data, good[TrainLabels].Data
	corrupt := zipped(images)
	corrupt[len(corrupt)-6] ^= 1 // in the CRC
	flipped := zipped(bytes.Repeat(images, 50))
	flipped[12] ^= 0x55 // in the deflate stream
	for _, c := range []struct {
		name, file string
		data       []byte
		want       string // the whole message, or its beginning if it ends in …
	}{
		{"labels as images", TrainImages, labels,
			"dataset: train-images-idx3-ubyte: magic 0x00000801, want 0x00000803 (images)"},
		{"images as labels", TrainLabels, images,
			"dataset: train-labels-idx1-ubyte: magic 0x00000803, want 0x00000801 (labels)"},
		{"little endian", TestLabels, []byte{1, 8, 0, 0, 2, 0, 0, 0, 1, 1},
			"dataset: t10k-labels-idx1-ubyte: magic 0x01080000, want 0x00000801 (labels)"},
		{"empty", TrainImages, nil,
			"dataset: train-images-idx3-ubyte: reading the magic number: truncated file"},
		{"half a magic", TrainImages, images[:2],
			"dataset: train-images-idx3-ubyte: reading the magic number: truncated file"},
		{"half a header", TrainImages, images[:10],
			"dataset: train-images-idx3-ubyte: reading the height: truncated file"},
		{"truncated", TrainImages, images[:len(images)-1],
			"dataset: train-images-idx3-ubyte: file of 75 bytes, want 76 for [3 4 5]"},
		{"trailing", TrainImages, append(bytes.Clone(images), 0),
			"dataset: train-images-idx3-ubyte: file of 77 bytes, want 76 for [3 4 5]"},
		{"no images", TrainImages, idx([]uint32{0x803, 0, 4, 5}, nil),
			"dataset: train-images-idx3-ubyte: number of images = 0 must be at least 1 and at most 2147483647"},
		{"no height", TrainImages, idx([]uint32{0x803, 3, 0, 5}, nil),
			"dataset: train-images-idx3-ubyte: height = 0 must be at least 1 and at most 4096"},
		{"no width", TrainImages, idx([]uint32{0x803, 3, 4, 0}, nil),
			"dataset: train-images-idx3-ubyte: width = 0 must be at least 1 and at most 4096"},
		{"no labels", TrainLabels, idx([]uint32{0x801, 0}, nil),
			"dataset: train-labels-idx1-ubyte: number of labels = 0 must be at least 1 and at most 2147483647"},
		{"vast count", TrainImages, idx([]uint32{0x803, 0xffffffff, 4, 5}, nil),
			"dataset: train-images-idx3-ubyte: number of images = 4294967295 must be at least 1 and at most 2147483647"},
		{"vast width", TrainImages, idx([]uint32{0x803, 3, 4, 5000}, nil),
			"dataset: train-images-idx3-ubyte: width = 5000 must be at least 1 and at most 4096"},
		{"vast product", TrainImages, idx([]uint32{0x803, 1 << 20, 4096, 4096}, nil),
			"dataset: train-images-idx3-ubyte: 17592186044416 bytes of data in the header, at most 2147483647 are read"},
		{"fewer labels", TrainLabels, idx([]uint32{0x801, 2}, []byte{1, 0}),
			"dataset: train-labels-idx1-ubyte: 2 labels, but train-images-idx3-ubyte has 3 images"},
		{"more labels", TestLabels, idx([]uint32{0x801, 3}, []byte{1, 0, 1}),
			"dataset: t10k-labels-idx1-ubyte: 3 labels, but t10k-images-idx3-ubyte has 2 images"},
		{"other size", TestImages, idx([]uint32{0x803, 2, 5, 4}, ramp(40)),
			"dataset: t10k-images-idx3-ubyte: images of 4×5 pixels, but train-images-idx3-ubyte has 5×4"},
		{"zipped, not gzip", TrainImages + ".gz", images,
			"dataset: train-images-idx3-ubyte.gz: not a gzip file: gzip: invalid header"},
		{"zipped, empty", TrainImages + ".gz", nil,
			"dataset: train-images-idx3-ubyte.gz: not a gzip file: truncated file"},
		{"zipped, wrong magic", TrainImages + ".gz", zipped(labels),
			"dataset: train-images-idx3-ubyte.gz: magic 0x00000801, want 0x00000803 (images)"},
		{"zipped, truncated inside", TrainImages + ".gz", zipped(images[:70]),
			"dataset: train-images-idx3-ubyte.gz: 54 of 60 bytes of data: truncated file"},
		{"zipped, stream cut off", TrainImages + ".gz", zipped(images)[:40],
			"dataset: train-images-idx3-ubyte.gz: …"},
		{"zipped, trailing inside", TrainImages + ".gz", zipped(append(bytes.Clone(images), 0)),
			"dataset: train-images-idx3-ubyte.gz: trailing bytes after the 60 of data"},
		{"zipped, trailing outside", TrainImages + ".gz", append(zipped(images), "xxxxxxxxxxxx"...),
			"dataset: train-images-idx3-ubyte.gz: after the data: gzip: invalid header"},
		{"zipped, checksum", TrainImages + ".gz", corrupt,
			"dataset: train-images-idx3-ubyte.gz: after the data: gzip: invalid checksum"},
		{"zipped, corrupt", TrainImages + ".gz", flipped,
			"dataset: train-images-idx3-ubyte.gz: …"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := folder()
			delete(f, strings.TrimSuffix(c.file, ".gz"))
			f[c.file] = &fstest.MapFile{Data: c.data}
			_, _, err := ReadFS(f, "x")
			if err == nil {
				t.Fatal("accepted")
			}
			want, open := strings.CutSuffix(c.want, "…")
			if got := err.Error(); got != want && !(open && strings.HasPrefix(got, want)) {
				t.Errorf("error %q\n want %q", got, c.want)
			}
		})
	}
}

func TestReadFolderMissing(t *testing.T) {
	for name := range maps.Keys(folder()) {
		f := folder()
		delete(f, name)
		_, _, err := ReadFS(f, "x")
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	if _, _, err := ReadFolder(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFolder(file); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("file as folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, TrainImages), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFolder(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("folder as file: %v", err)
	}
}

// TestHeaderCannotAskForMemory: a small zipped file whose header claims 2 GiB
// is refused without allocating them.
func TestHeaderCannotAskForMemory(t *testing.T) {
	f := folder()
	delete(f, TrainImages)
	f[TrainImages+".gz"] = &fstest.MapFile{Data: zipped(idx([]uint32{0x803, 1 << 21, 32, 32}, ramp(1000)))}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := ReadFS(f, "x")
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("accepted")
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("%d bytes allocated to refuse a file of a few hundred", used)
	}
}

// TestZippedZeros: memory follows the bytes of a zipped file, not what they grow to.
func TestZippedZeros(t *testing.T) {
	const n = 3 * freeUnzipped / 2 / 1024
	f := folder()
	delete(f, TrainImages)
	zeros := zipped(idx([]uint32{0x803, n, 32, 32}, make([]byte, 1024*n)))
	f[TrainImages+".gz"] = &fstest.MapFile{Data: zeros}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := ReadFS(f, "x")
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "unzip it first") {
		t.Errorf("%d bytes grow to %d: %v", len(zeros), 1024*n, err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
	// Plain they are read.
	delete(f, TrainImages+".gz")
	f[TrainImages] = &fstest.MapFile{Data: idx([]uint32{0x803, n, 32, 32}, make([]byte, 1024*n))}
	if _, _, err := ReadFS(f, "x"); err == nil || !strings.Contains(err.Error(), "labels, but") {
		t.Error(err)
	}
}

func TestFolderRoundTrip(t *testing.T) {
	train, test, err := ReadFS(folder(), "export")
	if err != nil {
		t.Fatal(err)
	}
	for _, zip := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "export")
		if err := WriteFolder(dir, train, test, zip); err != nil {
			t.Fatal(err)
		}
		gotTrain, gotTest, err := ReadFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(gotTrain, train) || !reflect.DeepEqual(gotTest, test) {
			t.Errorf("zip = %v: folder reads back as other images", zip)
		}
		if !zip {
			for name, f := range folder() {
				if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(b, f.Data) {
					t.Errorf("%s: other bytes than the original, %v", name, err)
				}
			}
		}
		if err := WriteFolder(dir, train, test, zip); !errors.Is(err, fs.ErrExist) {
			t.Errorf("zip = %v: files overwritten, %v", zip, err)
		}
	}
	colour := *train
	colour.Channels, colour.Width = 5, 1
	if err := colour.writeImages(&bytes.Buffer{}); err == nil {
		t.Error("wrote images of 5 channels")
	}
}

func FuzzReadIDX(f *testing.F) {
	for _, file := range folder() {
		f.Add(file.Data, true)
	}
	f.Add(idx([]uint32{0x803, 1 << 21, 32, 32}, nil), false)
	f.Fuzz(func(t *testing.T, b []byte, known bool) {
		size := length{1 << 20, true}
		if known {
			size = length{int64(len(b)), false}
		}
		dims, data, err := readIDX(bytes.NewReader(b), "fuzz", size, magicImages)
		if err != nil {
			return
		}
		im := &Images{Height: dims[1], Width: dims[2], Channels: 1, Classes: 1, Pixels: data, Labels: make([]uint8, dims[0])}
		var out bytes.Buffer
		if err := im.writeImages(&out); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), b) {
			t.Errorf("%d bytes accepted, %d written back", len(b), out.Len())
		}
	})
}
