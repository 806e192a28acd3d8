package dataset

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func pngOf(t testing.TB, m image.Image) *fstest.MapFile {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: out.Bytes()}
}

// speckles is a grey picture of random pixels.
func speckles(r *rand.Rand, w, h int) *image.Gray {
	m := image.NewGray(image.Rect(0, 0, w, h))
	for i := range m.Pix {
		m.Pix[i] = uint8(r.Uint32())
	}
	return m
}

func TestReadPictures(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	files, want := fstest.MapFS{}, map[string][]byte{}
	for _, class := range []string{"10", "9", "cat"} {
		for i := range 10 {
			m := speckles(r, 5, 4)
			name := fmt.Sprintf("%s/%02d.PNG", class, i)
			files[name], want[name] = pngOf(t, m), m.Pix
		}
	}
	files["9/readme.txt"] = &fstest.MapFile{Data: []byte("no picture")}
	files[".hidden/x.png"] = &fstest.MapFile{Data: []byte("no picture")}
	files["9/.x.png"] = &fstest.MapFile{Data: []byte("no picture")}
	files["notes.txt"] = &fstest.MapFile{Data: []byte("no picture")}
	if !IsPictures(files) {
		t.Error("it is a folder of pictures")
	}
	c := PictureConfig{Width: 5, Height: 4, TestFraction: .2, Seed: 1}
	train, test, err := ReadPictures(files, "x", c)
	if err != nil {
		t.Fatal(err)
	}
	if names := []string{"9", "10", "cat"}; !slices.Equal(train.Names, names) || !slices.Equal(test.Names, names) || train.Classes != 3 || train.Len() != 24 || test.Len() != 6 {
		t.Errorf("%v: %d and %d pictures", train.Names, train.Len(), test.Len())
	}
	// Grey pictures of the right size keep their pixels.
	for _, part := range []*Images{train, test} {
		if err := part.validate(); err != nil {
			t.Error(err)
		}
		for i := range part.Len() {
			found := ""
			for name, pix := range want {
				if bytes.Equal(pix, part.image(i)) {
					found = name
				}
			}
			if class := part.Names[part.Labels[i]]; !strings.HasPrefix(found, class+"/") {
				t.Errorf("picture %d of class %s is %q", i, class, found)
			}
			delete(want, found)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d pictures are missing", len(want))
	}

	// A folder that is divided says itself what the test is; JPEG files, in colours.
	green := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for i := range green.Pix {
		green.Pix[i] = []uint8{0, 200, 0, 255}[i%4]
	}
	var raw bytes.Buffer
	if err := jpeg.Encode(&raw, green, nil); err != nil {
		t.Fatal(err)
	}
	files = fstest.MapFS{}
	for _, name := range []string{"train/a/1.jpg", "train/b/1.jpeg", "test/b/1.JPG"} {
		files[name] = &fstest.MapFile{Data: raw.Bytes()}
	}
	train, test, err = ReadPictures(files, "x", PictureConfig{Width: 3, Height: 2, Colour: true})
	if err != nil || train.Len() != 2 || test.Len() != 1 || test.Labels[0] != 1 || test.Channels != 3 || test.Size() != 18 {
		t.Fatalf("%+v %+v %v", train, test, err)
	}
	for p, v := range test.Pixels {
		if math.Abs(float64(v)-[]float64{0, 200, 0}[p%3]) > 4 {
			t.Errorf("byte %d is %d", p, v)
		}
	}
	if _, _, err := ReadPictures(files, "x", PictureConfig{Width: 3, Height: 2, Classes: []string{"a", "c"}}); !errors.Is(err, ErrClass) || !errors.Is(err, ErrRows) {
		t.Errorf("an unknown class: %v", err)
	}
}

// A pixel is the mean over its area, whatever the sizes.
func TestShrinkIsTheMean(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		w, h := 1+r.IntN(9), 1+r.IntN(9)
		c := PictureConfig{Width: 1 + r.IntN(7), Height: 1 + r.IntN(7), Colour: true}
		m := image.NewRGBA(image.Rect(0, 0, w, h))
		for i := range m.Pix {
			m.Pix[i] = uint8(r.Uint32())
		}
		got := make([]byte, 3*c.Width*c.Height)
		c.shrink(m, got)
		for y := range c.Height {
			for x := range c.Width {
				for k := range 3 {
					// Every source pixel is cut into Width × Height parts.
					sum, n := 0.0, 0
					for v := y * h; v < (y+1)*h; v++ {
						for u := x * w; u < (x+1)*w; u++ {
							sum += float64(m.Pix[v/c.Height*m.Stride+4*(u/c.Width)+k])
							n++
						}
					}
					if want := math.Floor(sum/float64(n) + .5); float64(got[3*(y*c.Width+x)+k]) != want {
						t.Fatalf("%d×%d to %d×%d, pixel %d,%d: %d, want %v", w, h, c.Width, c.Height, x, y, got[3*(y*c.Width+x)+k], want)
					}
				}
			}
		}
	}
	long := image.NewRGBA(image.Rect(0, 0, 3_000_000, 1)) // times 1024 is more than 32 bits hold
	for i := range long.Pix {
		long.Pix[i] = uint8(i / 4 * 256 / 3_000_000)
	}
	wide := make([]byte, 1024)
	PictureConfig{Width: 1024, Height: 1}.shrink(long, wide)
	for x, v := range wide {
		if int(v) != x/4 {
			t.Fatalf("pixel %d is %d", x, v)
		}
	}
	grey, white := make([]byte, 1), image.NewUniform(color.White)
	m := image.NewRGBA(image.Rect(0, 0, 2, 1))
	m.Set(0, 0, white.C)
	m.Set(1, 0, color.RGBA{0, 0, 255, 255})
	PictureConfig{Width: 1, Height: 1}.shrink(m, grey)
	if grey[0] != 142 { // (255 + .114·255)/2
		t.Errorf("grey %d", grey[0])
	}
}

// hugePNG is a picture whose header promises more pixels than it has bytes for.
func hugePNG(w, h uint32) []byte {
	head := binary.BigEndian.AppendUint32(nil, w)
	head = append(binary.BigEndian.AppendUint32(head, h), 16, 6, 0, 0, 0)
	var data bytes.Buffer
	z := zlib.NewWriter(&data)
	z.Write(make([]byte, 1000)) // a buffer takes them
	z.Close()
	out := []byte("\x89PNG\r\n\x1a\n")
	for _, chunk := range [][]byte{append([]byte("IHDR"), head...), append([]byte("IDAT"), data.Bytes()...), []byte("IEND")} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(chunk)-4))
		out = append(out, chunk...)
		out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(chunk))
	}
	return out
}

// Whatever one file holds, the others and all that describes them stay the same; and memory stays
// small.
func TestOnePictureChangesNoOther(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	files := fstest.MapFS{}
	for i := range 12 {
		files[fmt.Sprintf("%s/%d.png", []string{"a", "b"}[i%2], i)] = pngOf(t, speckles(r, 6, 6))
	}
	c := PictureConfig{Width: 3, Height: 3, TestFraction: .25, Seed: 7, Blanks: true}
	all := func() (pixels []byte, labels []uint8, blank int, why error) {
		t.Helper()
		train, test, err := ReadPictures(files, "x", c)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []*Images{train, test} {
			for i := range part.Len() {
				if part.Blank != nil && part.Blank[i] {
					blank, why = blank+1, part.Why
					if slices.Max(part.image(i)) > 0 {
						t.Error("a blank picture has pixels")
					}
				}
			}
			pixels, labels = append(pixels, part.Pixels...), append(labels, part.Labels...)
		}
		return pixels, labels, blank, why
	}
	want, wantLabels, _, _ := all()
	jpegHead := append([]byte{0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, 0xff, 0xff, 0xff, 0xff, 3}, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1, 0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0)
	good := files["b/5.png"].Data
	for name, raw := range map[string][]byte{
		"empty": {}, "text": []byte("hello"), "cut": good[:len(good)/2], "huge png": hugePNG(1<<20, 1<<20), "large png": hugePNG(5001, 5000),
		"huge jpeg": jpegHead, "gif": []byte("GIF89a\x01\x00\x01\x00"), "no pixels": hugePNG(0, 0), "another": pngOf(t, speckles(r, 9, 2)).Data,
	} {
		files["b/5.png"] = &fstest.MapFile{Data: raw}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, labels, blank, why := all()
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("%s: %d bytes were allocated", name, used)
		}
		differ := 0
		for i := range len(want) / 9 {
			if !bytes.Equal(got[9*i:9*i+9], want[9*i:9*i+9]) {
				differ++
			}
		}
		if differ > 1 || name != "another" && (blank != 1 || why == nil || !strings.Contains(why.Error(), "b/5.png")) || name == "another" && blank != 0 {
			t.Errorf("%s: %d pictures differ, %d blank: %v", name, differ, blank, why)
		}
		unlike := 0
		for i := range labels {
			if labels[i] != wantLabels[i] {
				unlike++
			}
		}
		if unlike > 1 { // a blank picture has the first class
			t.Errorf("%s: labels %v, want %v", name, labels, wantLabels)
		}
		if sized := name == "large png" || name == "huge jpeg"; sized && !strings.Contains(why.Error(), "pixels, want 1 to 25000000") {
			t.Errorf("%s: %v", name, why)
		}
		if name != "another" {
			strict := c
			strict.Blanks = false
			if _, _, err := ReadPictures(files, "x", strict); !errors.Is(err, ErrRows) || !strings.Contains(err.Error(), "b/5.png") {
				t.Errorf("%s: error %v", name, err)
			}
		}
	}
}

// A picture takes the memory of its pixels once, and those of pictures before it are collected.
func TestPicturesTakeMemoryOnce(t *testing.T) {
	const side = 2500
	one := pngOf(t, image.NewGray(image.Rect(0, 0, side, side)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := ReadPictures(fstest.MapFS{"train/a/1.png": one, "train/b/1.png": one, "test/a/1.png": one, "test/b/1.txt": one}, "x", PictureConfig{Width: 28, Height: 28}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 3*(side*side+2<<20) {
		t.Errorf("%d bytes were allocated for 3 pictures of %d pixels", used, side*side)
	}
	var kept pixels
	kept.decode(5000, 2500)
	kept.decode(5000, 2500)
	runtime.ReadMemStats(&before)
	kept.decode(1000, 1000)
	runtime.ReadMemStats(&after)
	if after.NumGC == before.NumGC || kept != 1000*1000 {
		t.Errorf("garbage is not collected after %d pixels", 2*5000*2500)
	}
}

func TestReadPicturesRefuses(t *testing.T) {
	dot := pngOf(t, image.NewGray(image.Rect(0, 0, 1, 1)))
	for want, files := range map[string]fstest.MapFS{
		"1 classes with pictures":        {"a/1.png": dot, "b/1.txt": dot},
		"lies in the folder of a class":  {"a/1.png": dot, "b/c/1.png": dot},
		"a class's name must be":         {"a/1.png": dot, "b\x01/1.png": dot},
		"must be at least 1 and below n": {"a/1.png": dot, "b/1.png": dot},
		"no PNG or JPEG files":           {"train/a/1.png": dot, "train/b/1.png": dot, "test/a/1.txt": dot},
		"pictures need a public size":    nil,
	} {
		c := PictureConfig{Width: 1, Height: 1, TestFraction: .9}
		if files == nil {
			c.Width = 0
		}
		if _, _, err := ReadPictures(files, "x", c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	many := fstest.MapFS{}
	for i := range 257 {
		many[fmt.Sprintf("%d/1.png", i)] = dot
	}
	if _, _, err := ReadPictures(many, "x", PictureConfig{Width: 1, Height: 1, TestFraction: .1}); err == nil || !strings.Contains(err.Error(), "257 classes") {
		t.Errorf("error %v", err)
	}
	for _, text := range []string{"", "0", "x", "28x", "28x0", "1e3", "1025", "28x28x3", "-1"} {
		if _, _, err := PictureSize(text); err == nil {
			t.Errorf("size %q is read", text)
		}
	}
	if w, h, err := PictureSize("28x30"); w != 28 || h != 30 || err != nil {
		t.Error(w, h, err)
	}
	if IsPictures(fstest.MapFS{TrainImages + ".gz": dot, "more/1.png": dot}) || IsPictures(fstest.MapFS{"1.png": dot}) {
		t.Error("taken for a folder of pictures")
	}
}
