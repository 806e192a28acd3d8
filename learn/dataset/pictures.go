package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/jpeg" // image.Decode knows these formats
	_ "image/png"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a picture file. A decoder allocates as many pixels as the header says, however few bytes hold
// them, so the header is checked first: 25 million pixels take 200 MB, and up to 600 MB as a progressive JPEG.
//
// No more than as many pixels of a whole folder are in memory at once, those of pictures that are no longer used
// included: the garbage is collected before there are more. A limit of all pixels of the folder would let one picture
// decide about others.
const (
	maxPictureBytes  = 64 << 20
	maxPicturePixels = 25_000_000
)

// PictureConfig says how to read a folder of PNG and JPEG files: a folder for each class, or two
// such folders, train and test.
type PictureConfig struct {
	// Width and Height are the public size to which each picture is brought. Required.
	Width, Height int
	// Colour keeps red, green and blue; otherwise pictures become grey.
	Colour bool
	// TestFraction is the share of the pictures for the test, chosen from Seed, where the folder
	// itself does not say which they are.
	TestFraction float64
	Seed         uint64
	// Classes lists all classes, in order, if they are public; others are refused. nil: the
	// names of the folders, integers by value before all other texts by their bytes.
	Classes []string
	// Blanks replaces each picture that cannot be used by a blank one, instead of returning an
	// error: whether a client takes part in a task must not depend on its pictures.
	Blanks bool
}

// PictureSize reads a size, as "28" or "32x24".
func PictureSize(text string) (width, height int, err error) {
	w, h, two := strings.Cut(text, "x")
	if !two {
		h = w
	}
	width, errW := strconv.Atoi(w)
	height, errH := strconv.Atoi(h)
	if errW != nil || errH != nil || width < 1 || height < 1 || width > 1024 || height > 1024 {
		return 0, 0, fmt.Errorf("%q must be a width and a height from 1 to 1024, as 28x28", text)
	}
	return width, height, nil
}

// IsPictures says whether fsys has a folder for each class, rather than files of another format.
func IsPictures(fsys fs.FS) bool {
	entries, err := fs.ReadDir(fsys, ".")
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return isFolder(fsys, ".", e) }) &&
		!slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			name := strings.TrimSuffix(e.Name(), ".gz")
			return name == TrainImages || name == CIFARTest
		})
}

func isFolder(fsys fs.FS, in string, e fs.DirEntry) bool {
	if strings.HasPrefix(e.Name(), ".") {
		return false
	}
	info, err := fs.Stat(fsys, path.Join(in, e.Name())) // follows a link
	return err == nil && info.IsDir()
}

// picture is a file of a class.
type picture struct{ class, file string }

// ReadPictures reads the PNG and JPEG files of a folder of class folders. Other files are
// passed over. Pictures are stretched to the given size by the mean over areas, a picture's transparent
// parts become black. The order is that of classes and file names. Which picture becomes which
// row depends on names alone: a picture that does not decode keeps its place.
func ReadPictures(fsys fs.FS, name string, c PictureConfig) (train, test *Images, err error) {
	fail := func(format string, args ...any) (*Images, *Images, error) {
		return nil, nil, fmt.Errorf("dataset: %s: %s", name, fmt.Sprintf(format, args...))
	}
	if c.Width < 1 || c.Height < 1 {
		return fail("pictures need a public size")
	}
	folders, err := classFolders(fsys, ".")
	if err != nil {
		return fail("%v", err)
	}
	divided := slices.Equal(folders, []string{"test", "train"})
	var parts [2][]picture
	for i, part := range []string{"train", "test"} {
		in := "."
		if divided {
			in = part
		} else if i > 0 {
			break
		}
		if parts[i], err = listPictures(fsys, in); err != nil {
			return fail("%v", err)
		}
	}
	classes := c.Classes
	if classes == nil {
		seen := map[string]bool{}
		for _, p := range slices.Concat(parts[0], parts[1]) {
			if !seen[p.class] {
				seen[p.class], classes = true, append(classes, p.class)
			}
		}
		slices.SortFunc(classes, compareLabels)
	}
	if len(classes) < 2 || len(classes) > 256 {
		return fail("%d classes with pictures, want 2 to 256: a folder of PNG or JPEG files for each class", len(classes))
	}
	if !divided {
		n := len(parts[0])
		first, second, err := split(n, max(1, int(c.TestFraction*float64(n)+.5)), "test pictures", newKey(c.Seed, domainTest))
		if err != nil {
			return nil, nil, err
		}
		parts = [2][]picture{at(parts[0], first), at(parts[0], second)}
	}
	var out [2]*Images
	for i, part := range []string{"train", "test"} {
		if out[i], err = c.read(fsys, name+"/"+part, parts[i], classes); err != nil {
			return nil, nil, err
		}
	}
	return out[0], out[1], nil
}

func at(all []picture, index []int) (out []picture) {
	for _, i := range index {
		out = append(out, all[i])
	}
	return out
}

// classFolders lists the folders in a folder that may be classes.
func classFolders(fsys fs.FS, in string) (out []string, err error) {
	entries, err := fs.ReadDir(fsys, in)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !isFolder(fsys, in, e) {
			continue
		}
		text := e.Name()
		if !utf8.ValidString(text) || len(text) > maxNameBytes || text != strings.TrimSpace(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("folder %.40q: a class's name must be UTF-8 text of at most %d bytes", text, maxNameBytes)
		}
		out = append(out, text)
	}
	return out, nil
}

// listPictures lists the pictures of all classes in a folder.
func listPictures(fsys fs.FS, in string) (out []picture, err error) {
	folders, err := classFolders(fsys, in)
	if err != nil {
		return nil, err
	}
	for _, class := range folders {
		dir := path.Join(in, class)
		entries, err := fs.ReadDir(fsys, dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if isFolder(fsys, dir, e) {
				return nil, fmt.Errorf("%s lies in the folder of a class: want DIR/CLASS/FILE.png, or DIR/train and DIR/test with such folders", path.Join(dir, e.Name()))
			}
			switch strings.ToLower(path.Ext(e.Name())) {
			case ".png", ".jpg", ".jpeg":
				if !strings.HasPrefix(e.Name(), ".") {
					out = append(out, picture{class, path.Join(dir, e.Name())})
				}
			}
		}
	}
	return out, nil
}

// read decodes pictures.
func (c PictureConfig) read(fsys fs.FS, name string, list []picture, classes []string) (*Images, error) {
	out := &Images{Name: name, Width: c.Width, Height: c.Height, Channels: 1, Classes: len(classes), Names: classes}
	if c.Colour {
		out.Channels = 3
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("dataset: %s: no PNG or JPEG files", name)
	}
	if int64(len(list)) > MaxIDXBytes/int64(out.Size()) {
		return nil, fmt.Errorf("dataset: %s: %d pictures of %d×%d exceed %d bytes in all", name, len(list), c.Width, c.Height, int64(MaxIDXBytes))
	}
	out.Pixels = make([]byte, len(list)*out.Size())
	out.Labels = make([]uint8, len(list))
	var kept pixels
	for i, p := range list {
		y := slices.Index(classes, p.class)
		err := error(nil)
		if y < 0 {
			err = fmt.Errorf("class %q is none of the %d that there are%w", p.class, len(classes), ErrClass)
		} else {
			err = c.decode(fsys, p.file, out.image(i), &kept)
		}
		if err == nil {
			out.Labels[i] = uint8(y)
			continue
		}
		err = fmt.Errorf("dataset: %s: %s: %w", name, p.file, err)
		if !c.Blanks {
			return nil, rowsError{err}
		}
		if out.Blank == nil {
			out.Blank, out.Why = make([]bool, len(list)), err
		}
		out.Blank[i] = true
	}
	return out, nil
}

// pixels counts the pixels that were decoded since garbage was last collected.
type pixels int

// decode announces a picture to be decoded.
func (p *pixels) decode(w, h int) {
	if *p += pixels(w * h); *p > maxPicturePixels {
		runtime.GC()
		*p = pixels(w * h)
	}
}

// decode fills in the pixels of one picture. On an error it leaves them as they are.
func (c PictureConfig) decode(fsys fs.FS, file string, into []byte, kept *pixels) error {
	info, err := fs.Stat(fsys, file)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case info.Size() > maxPictureBytes:
		return fmt.Errorf("has %d bytes, at most %d", info.Size(), maxPictureBytes)
	}
	f, err := fsys.Open(file)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxPictureBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	head, _, err := image.DecodeConfig(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if head.Width < 1 || head.Height < 1 || head.Width > maxPicturePixels/head.Height {
		return fmt.Errorf("has %d×%d pixels, want 1 to %d", head.Width, head.Height, maxPicturePixels)
	}
	kept.decode(head.Width, head.Height)
	src, _, err := image.Decode(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	c.shrink(src, into)
	return nil
}

// shrink brings a picture to the public size: each pixel is the mean over its area, in integers,
// so that it is the same on all machines.
func (c PictureConfig) shrink(src image.Image, into []byte) {
	// 1024 times 25 million does not fit into 32 bits.
	w, h, wide, high := int64(src.Bounds().Dx()), int64(src.Bounds().Dy()), int64(c.Width), int64(c.Height)
	var strip image.RGBA // the source's rows that a row of the result needs
	for y := range high {
		first, end := y*h/high, ((y+1)*h+high-1)/high
		if rows := image.Rect(0, int(first), int(w), int(end)); rows != strip.Rect {
			if n := 4 * int(w) * rows.Dy(); n > cap(strip.Pix) {
				strip.Pix = make([]byte, n)
			}
			strip.Rect, strip.Stride = rows, 4*int(w)
			strip.Pix = strip.Pix[:strip.Stride*rows.Dy()]
			draw.Draw(&strip, rows, src, src.Bounds().Min.Add(rows.Min), draw.Src)
		}
		for x := range wide {
			var sum [3]uint64
			// In units of 1/wide and 1/high of a source pixel this area is w × h.
			for v := first; v < end; v++ {
				tall := min((v+1)*high, (y+1)*h) - max(v*high, y*h)
				for u := x * w / wide; u*wide < (x+1)*w; u++ {
					area := uint64(tall) * uint64(min((u+1)*wide, (x+1)*w)-max(u*wide, x*w))
					px := strip.Pix[(v-first)*int64(strip.Stride)+4*u:]
					for k := range sum {
						sum[k] += area * uint64(px[k])
					}
				}
			}
			area := uint64(w) * uint64(h)
			if c.Colour {
				for k := range sum {
					into[3*(y*wide+x)+int64(k)] = uint8((sum[k] + area/2) / area)
				}
				continue
			}
			// Luma of ITU-R BT.601.
			into[y*wide+x] = uint8((299*sum[0] + 587*sum[1] + 114*sum[2] + 500*area) / (1000 * area))
		}
	}
}
