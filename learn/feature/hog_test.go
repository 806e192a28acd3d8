package feature

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

func newHOG(t testing.TB, c hogConfig) *Extractor {
	t.Helper()
	h, err := NewHOG(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func extract(e *Extractor, img []byte) []float32 {
	dst := make([]float32, e.Dim)
	for i := range dst {
		dst[i] = 1e9 // must be overwritten
	}
	e.extract(img, dst, e.kind.newScratch())
	return dst
}

// ink returns an image with a few bright lines.
func ink(width, height int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	img := make([]byte, width*height)
	for range 3 {
		x0, y0 := r.Float64()*float64(width), r.Float64()*float64(height)
		x1, y1 := r.Float64()*float64(width), r.Float64()*float64(height)
		for s := 0.0; s <= 1; s += 0.01 {
			x, y := int(x0+s*(x1-x0)), int(y0+s*(y1-y0))
			img[min(y, height-1)*width+min(x, width-1)] = byte(100 + r.IntN(156))
		}
	}
	return img
}

// TestHOGGolden compares with values from the definition; see
// testdata/make.py.
func TestHOGGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/hog.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Config   hogConfig
		Image    []byte
		Features []float64
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 9 || cases[0].Config != DefaultHOG(28, 28) {
		t.Fatalf("%d cases, the first for %+v", len(cases), cases[0].Config)
	}
	for i, c := range cases {
		got := extract(newHOG(t, c.Config), c.Image)
		if len(got) != len(c.Features) {
			t.Fatalf("case %d: %d features, want %d", i, len(got), len(c.Features))
		}
		for j, want := range c.Features {
			// The root magnifies the rounding of float32 levels near 0.
			if math.Abs(float64(got[j])-want) > 2e-4*c.Config.Norm {
				t.Errorf("case %d: feature %d = %v, want %v", i, j, got[j], want)
			}
		}
	}
}

func TestHOGNorm(t *testing.T) {
	h := newHOG(t, DefaultHOG(28, 28))
	if h.Dim != 192 || h.Pixels != 784 {
		t.Errorf("%d values of %d pixels", h.Dim, h.Pixels)
	}
	if c := newHOG(t, classicHOG()); c.Dim != 441 {
		t.Errorf("classic: %d values", c.Dim)
	}
	for seed := range uint64(20) {
		f := extract(h, ink(28, 28, seed))
		sum := 0.0
		for _, v := range f {
			sum += float64(v)
		}
		if n := norm(f); math.Abs(n-3) > 1e-5 || math.Abs(sum) > 1e-3 {
			t.Errorf("seed %d: norm %v, want 3; sum %v, want 0", seed, n, sum)
		}
	}
}

// TestHOGSizes: an image drawn at twice the size gives nearly the same
// features as the original.
func TestHOGSizes(t *testing.T) {
	small, large := make([]byte, 28*28), make([]byte, 56*56)
	draw := func(img []byte, side int, by float64) {
		for i := range img {
			x := (float64(i%side)+0.5)/by - 14
			y := (float64(i/side)+0.5)/by - 14
			ring := math.Hypot(x, y*0.7) - 6
			img[i] = byte(255 * math.Exp(-ring*ring/4))
		}
	}
	draw(small, 28, 1)
	draw(large, 56, 2)
	c := DefaultHOG(28, 28)
	a, b := extract(newHOG(t, c), small), extract(newHOG(t, DefaultHOG(56, 56)), large)
	other := extract(newHOG(t, c), ink(28, 28, 1))
	near, far := 0.0, 0.0
	for i := range a {
		near += math.Pow(float64(a[i]-b[i]), 2)
		far += math.Pow(float64(a[i]-other[i]), 2)
	}
	if near, far = math.Sqrt(near), math.Sqrt(far); near > 0.3 || far < 1 {
		t.Errorf("distance %v from the same image, %v from another", near, far)
	}
}

// TestHOGDirections: one edge, one orientation; turning dark and bright round
// changes the signed direction only.
func TestHOGDirections(t *testing.T) {
	for _, c := range []struct {
		name           string
		bright         func(x, y int) bool
		unsigned, both int // the orientation of 8, unsigned and signed
	}{
		{"bright right", func(x, _ int) bool { return x >= 8 }, 0, 0},
		{"bright left", func(x, _ int) bool { return x < 8 }, 0, 4},
		{"bright below", func(_, y int) bool { return y >= 8 }, 4, 2},
		{"bright above", func(_, y int) bool { return y < 8 }, 4, 6},
	} {
		img := make([]byte, 256)
		for i := range img {
			if c.bright(i%16, i/16) {
				img[i] = 200
			}
		}
		for _, signed := range []bool{false, true} {
			h := newHOG(t, hogConfig{Width: 16, Height: 16, Cells: 1, Spacing: 1, Radius: 5, Orientations: 8, Signed: signed, Norm: 1})
			f := extract(h, img)
			want := make([]float32, 8)
			if want[c.unsigned] = 1; signed {
				want[c.unsigned], want[c.both] = 0, 1
			}
			if !slices.Equal(f, want) {
				t.Errorf("%s, signed %v: %v, want %v", c.name, signed, f, want)
			}
		}
	}
}

// TestUprightRemovesSlant: a bar and the same bar, slanted and moved, give
// nearly the same features with Upright and other features without.
func TestUprightRemovesSlant(t *testing.T) {
	bar := func(shear, dx float64) []byte {
		img := make([]byte, 28*28)
		for y := 6; y < 22; y++ {
			for x := range 28 {
				d := float64(x) - 13.5 - dx - shear*(float64(y)-13.5)
				img[y*28+x] = byte(255 * math.Exp(-d*d/6))
			}
		}
		return img
	}
	distance := func(c hogConfig) float64 {
		h := newHOG(t, c)
		a, b := extract(h, bar(0, 0)), extract(h, bar(0.4, 2))
		for i := range a {
			a[i] -= b[i]
		}
		return norm(a) / c.Norm
	}
	c := DefaultHOG(28, 28)
	// Slanted lines are blurred differently on the grid, so not exactly equal.
	if d := distance(c); d > 0.3 {
		t.Errorf("upright: distance %v of at most 2", d)
	}
	c.Upright, c.Spread = false, 0
	if d := distance(c); d < 0.8 {
		t.Errorf("as it is: distance %v, the test is blind", d)
	}
}

// TestHOGDegenerate: every image gives finite features, an empty one zeros.
func TestHOGDegenerate(t *testing.T) {
	one := func(at ...int) []byte {
		img := make([]byte, 784)
		for _, i := range at {
			img[i] = 255
		}
		return img
	}
	line := func(from, step, n int) (at []int) {
		for i := range n {
			at = append(at, from+i*step)
		}
		return at
	}
	for name, img := range map[string][]byte{
		"empty":        one(),
		"one pixel":    one(400),
		"corner":       one(0),
		"other corner": one(783),
		"row":          one(line(280, 1, 28)...),
		"column":       one(line(14, 28, 28)...),
		"diagonal":     one(line(0, 29, 28)...),
		"two pixels":   one(28*14, 28*15+27),
		"full":         one(line(0, 1, 784)...),
	} {
		for _, c := range []hogConfig{DefaultHOG(28, 28), classicHOG()} {
			f := extract(newHOG(t, c), img)
			for _, v := range f {
				if g := float64(v); math.IsNaN(g) || math.IsInf(g, 0) {
					t.Fatalf("%s: %v", name, f)
				}
			}
			if n := norm(f); name == "empty" && n != 0 || name != "empty" && math.Abs(n-c.Norm) > 1e-4 {
				t.Errorf("%s: norm %v", name, n)
			}
		}
	}
}

func TestExtractIgnoresWhatWasBefore(t *testing.T) {
	h := newHOG(t, DefaultHOG(28, 28))
	img := ink(28, 28, 1)
	want := extract(h, img)
	s := h.kind.newScratch()
	dst := make([]float32, h.Dim)
	h.extract(ink(28, 28, 2), dst, s)
	h.extract(img, dst, s)
	if !slices.Equal(dst, want) {
		t.Error("features depend on the image before")
	}
	if n := testing.AllocsPerRun(10, func() { h.extract(img, dst, s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestExtractAll(t *testing.T) {
	px, err := NewPixels(784, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Extractor{newHOG(t, DefaultHOG(28, 28)), px} {
		for _, n := range []int{0, 1, extractChunk, extractChunk + 1, 200} {
			var pixels []byte
			var want []float32
			for i := range n {
				img := ink(28, 28, uint64(i))
				pixels = append(pixels, img...)
				want = append(want, extract(e, img)...)
			}
			for _, workers := range []int{0, 1, 2, 7} {
				got := make([]float32, n*e.Dim)
				if err := ExtractAll(e, pixels, got, workers); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, %d images, %d workers: other features", e.Name, n, workers)
				}
			}
		}
		for _, err := range []error{
			ExtractAll(e, make([]byte, 785), make([]float32, e.Dim), 1),
			ExtractAll(e, make([]byte, 784), make([]float32, e.Dim-1), 1),
			ExtractAll(e, make([]byte, 784), make([]float32, e.Dim), -1),
		} {
			if err == nil {
				t.Errorf("%s: accepted", e.Name)
			}
		}
	}
}

func TestPixels(t *testing.T) {
	plain, err := NewPixels(3, 0)
	if err != nil {
		t.Fatal(err)
	}
	if f := extract(plain, []byte{0, 51, 255}); !slices.Equal(f, []float32{0, 0.2, 1}) {
		t.Errorf("plain: %v", f)
	}
	scaled, err := NewPixels(2, 10)
	if err != nil {
		t.Fatal(err)
	}
	if f := extract(scaled, []byte{3, 4}); math.Abs(float64(f[0]-6)) > 1e-6 || math.Abs(float64(f[1]-8)) > 1e-6 {
		t.Errorf("scaled: %v, want [6 8]", f)
	}
	if f := extract(scaled, []byte{0, 0}); !slices.Equal(f, []float32{0, 0}) {
		t.Errorf("empty: %v", f)
	}
	for _, c := range [][2]float64{{0, 0}, {-1, 0}, {5, -1}, {5, math.NaN()}, {5, math.Inf(1)}} {
		if _, err := NewPixels(int(c[0]), c[1]); err == nil {
			t.Errorf("%v accepted", c)
		}
	}
}

func TestNewHOGRefuses(t *testing.T) {
	for want, change := range map[string]func(*hogConfig){
		"width = 1 must":           func(c *hogConfig) { c.Width = 1 },
		"height = 5000 must":       func(c *hogConfig) { c.Height = 5000 },
		"cells = 0 must":           func(c *hogConfig) { c.Cells = 0 },
		"orientations = 1 must":    func(c *hogConfig) { c.Orientations = 1 },
		"spacing = NaN must":       func(c *hogConfig) { c.Spacing = math.NaN() },
		"radius = 0 must":          func(c *hogConfig) { c.Radius = 0 },
		"damping = -1 must":        func(c *hogConfig) { c.Damping = -1 },
		"spread = +Inf must":       func(c *hogConfig) { c.Spread = math.Inf(1) },
		"spread = 4.2 needs uprig": func(c *hogConfig) { c.Upright = false },
		"norm = 0 must":            func(c *hogConfig) { c.Norm = 0 },
	} {
		c := DefaultHOG(28, 28)
		change(&c)
		if _, err := NewHOG(c); err == nil || !strings.HasPrefix(err.Error(), "feature: hog: "+want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestExtractPanicsOnWrongLengths(t *testing.T) {
	h := newHOG(t, DefaultHOG(28, 28))
	for _, sizes := range [][2]int{{783, 192}, {784, 191}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v accepted", sizes)
				}
			}()
			h.extract(make([]byte, sizes[0]), make([]float32, sizes[1]), h.kind.newScratch())
		}()
	}
}

func FuzzHOG(f *testing.F) {
	f.Add(ink(9, 7, 1))
	f.Add(make([]byte, 63))
	h, err := NewHOG(hogConfig{Width: 9, Height: 7, Upright: true, Spread: 2, Cells: 3, Spacing: 2, Radius: 2.5, Orientations: 5, Signed: true, Damping: 0.2, Root: true, Centre: true, Norm: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		img := make([]byte, 63)
		copy(img, b)
		if n := norm(extract(h, img)); math.IsNaN(n) || n != 0 && math.Abs(n-1) > 1e-4 {
			t.Errorf("norm %v of the features of %v", n, img)
		}
	})
}

func benchmarkHOG(b *testing.B, c hogConfig) {
	h := newHOG(b, c)
	img := ink(28, 28, 3)
	dst, s := make([]float32, h.Dim), h.kind.newScratch()
	b.ReportAllocs()
	for b.Loop() {
		h.extract(img, dst, s)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "images/s")
}

func BenchmarkHOGDefault(b *testing.B) { benchmarkHOG(b, DefaultHOG(28, 28)) }
func BenchmarkHOGClassic(b *testing.B) { benchmarkHOG(b, classicHOG()) }

// classicHOG returns 7×7 cells of 9 unsigned orientations with each cell
// normalised, 441 values of norm 3, close to the original paper's.
func classicHOG() hogConfig {
	return hogConfig{
		Width: 28, Height: 28,
		Cells: 7, Spacing: 4, Radius: 4,
		Orientations: 9,
		Damping:      0.5,
		Root:         true, Centre: true,
		Norm: 3,
	}
}
