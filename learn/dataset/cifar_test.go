package dataset

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// cifarFile returns records whose every byte tells its place.
func cifarFile(records, first int) []byte {
	b := make([]byte, 0, records*cifarRecord)
	for i := range records {
		b = append(b, byte((first+i)%cifarClasses))
		for p := range 3 * cifarPlane {
			b = append(b, byte(first+i+p+p/cifarPlane*50))
		}
	}
	return b
}

func checkCIFAR(t *testing.T, im *Images, at, seed int) {
	t.Helper()
	if int(im.Labels[at]) != seed%cifarClasses {
		t.Errorf("label %d of image %d, want %d", im.Labels[at], at, seed%cifarClasses)
	}
	for p := range cifarPlane {
		for c := range 3 {
			if got, want := im.image(at)[3*p+c], byte(seed+c*cifarPlane+p+c*50); got != want {
				t.Fatalf("image %d: channel %d of pixel %d is %d, want %d", at, c, p, got, want)
			}
		}
	}
}

// cifarFolder has batches that begin 0, 1, 2, 3, 4 and a test that begins 7.
func cifarFolder(records int) fstest.MapFS {
	fsys := fstest.MapFS{CIFARTest: {Data: cifarFile(records, 7)}}
	for i, n := range []string{"1", "2", "3", "4", "5"} {
		fsys["data_batch_"+n+".bin"] = &fstest.MapFile{Data: cifarFile(records, i)}
	}
	return fsys
}

func TestReadCIFAR(t *testing.T) {
	const records = 20
	train, test, err := readCIFAR(cifarFolder(records), "c", records)
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range []*Images{train, test} {
		if err := im.validate(); err != nil || im.Classes != 10 || im.Channels != 3 {
			t.Errorf("%s: %v, %d classes", im.Name, err, im.Classes)
		}
	}
	if train.Len() != 5*records || test.Len() != records {
		t.Errorf("%d and %d images", train.Len(), test.Len())
	}
	for i := range 5 * records {
		checkCIFAR(t, train, i, i/records+i%records)
	}
	checkCIFAR(t, test, 19, 26)

	for want, change := range map[string]func(fstest.MapFS){
		"no data_batch_2.bin: file does not exist":        func(m fstest.MapFS) { delete(m, "data_batch_2.bin") },
		"no test_batch.bin: file does not exist":          func(m fstest.MapFS) { delete(m, CIFARTest) },
		"data_batch_3.bin: file of 61459 bytes":           func(m fstest.MapFS) { f := m["data_batch_3.bin"]; f.Data = f.Data[1:] },
		"test_batch.bin: file of 58387 bytes, want 61460": func(m fstest.MapFS) { f := m[CIFARTest]; f.Data = f.Data[cifarRecord:] },
		"data_batch_1.bin: file of 0 bytes":               func(m fstest.MapFS) { m["data_batch_1.bin"].Data = nil },
		"data_batch_4.bin: file of 61461 bytes":           func(m fstest.MapFS) { f := m["data_batch_4.bin"]; f.Data = append(f.Data, 0) },
		"data_batch_1.bin: label 10 of record 5 must be":  func(m fstest.MapFS) { m["data_batch_1.bin"].Data[5*cifarRecord] = 10 },
		"test_batch.bin: label 255 of record 0 must be":   func(m fstest.MapFS) { m[CIFARTest].Data[0] = 255 },
	} {
		bad := cifarFolder(records)
		change(bad)
		_, _, err := readCIFAR(bad, "c", records)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if strings.Contains(want, "exist") && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v does not wrap ErrNotExist", err)
		}
	}
}

// TestReadCIFARWhole reads files of the true size.
func TestReadCIFARWhole(t *testing.T) {
	if _, _, err := readCIFAR(cifarFolder(20), "c", cifarRecords); err == nil || !strings.Contains(err.Error(), "want 30730000 (10000 records of 3073)") {
		t.Errorf("files of 20 records: %v", err)
	}
	if testing.Short() {
		t.Skip("180 MB of pixels")
	}
	one := &fstest.MapFile{Data: cifarFile(cifarRecords, 3)}
	fsys := fstest.MapFS{CIFARTest: one}
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		fsys["data_batch_"+n+".bin"] = one
	}
	train, test, err := readCIFAR(fsys, "c", cifarRecords)
	if err != nil {
		t.Fatal(err)
	}
	if train.Len() != 50_000 || test.Len() != 10_000 {
		t.Errorf("%d and %d images", train.Len(), test.Len())
	}
	checkCIFAR(t, train, 49_999, 10_002)
	checkCIFAR(t, test, 9_999, 10_002)
}

func TestCIFARFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, CIFARTest), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFolder(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "data_batch_1.bin") {
		t.Errorf("folder without training images: %v", err)
	}
	if _, _, err := ReadFolder(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	file := filepath.Join(dir, "data_batch_1.bin")
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFolder(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("folder instead of a file: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFolder(dir); err == nil || !strings.Contains(err.Error(), "file of 5 bytes, want 30730000") {
		t.Errorf("short file: %v", err)
	}
	if _, _, err := ReadFolder(file); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Errorf("file instead of a folder: %v", err)
	}
}

// FuzzParseCIFAR: no panic; what is read is valid and of the stated length.
func FuzzParseCIFAR(f *testing.F) {
	f.Add(cifarFile(1, 0), 1)
	f.Add(cifarFile(2, 9), 2)
	f.Add(cifarFile(2, 9), 1)
	f.Add(cifarFile(1, 0)[:3000], 1)
	f.Fuzz(func(t *testing.T, b []byte, records int) {
		if records < 1 || records > 4 {
			return
		}
		im := newCIFAR("f", records)
		if err := parseCIFAR(bytes.NewReader(b), "f.bin", im, records); err != nil {
			if !strings.HasPrefix(err.Error(), "dataset: f.bin: ") {
				t.Errorf("error %q does not name the file", err)
			}
			return
		}
		if err := im.validate(); err != nil || im.Len() != records || len(b) != records*cifarRecord {
			t.Errorf("%d images of %d bytes, %v", im.Len(), len(b), err)
		}
		// Deinterleaved again, the bytes come back.
		for i := range records {
			for p := range cifarPlane {
				for c := range 3 {
					if im.image(i)[3*p+c] != b[i*cifarRecord+1+c*cifarPlane+p] {
						t.Fatalf("image %d, pixel %d, channel %d differs", i, p, c)
					}
				}
			}
		}
	})
}

func BenchmarkParseCIFAR(b *testing.B) {
	data := cifarFile(1000, 0)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := parseCIFAR(bytes.NewReader(data), "f.bin", newCIFAR("f", 1000), 1000); err != nil {
			b.Fatal(err)
		}
	}
}
