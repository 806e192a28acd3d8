package feature

import (
	"math"
	"strings"
	"testing"
)

// linear are an image's own bytes: features that are easy to follow.
type linear struct{}

func newLinear(size int) *Extractor { return &Extractor{"linear", size, size, linear{}} }

func (linear) newScratch() *scratch { return &scratch{} }
func (linear) extract(img []byte, dst []float32, _ *scratch) {
	for i, v := range img {
		dst[i] = float32(v)
	}
}

// TestWhitenedCovariance: with hardly any ridge, what was whitened for comes
// out centred, uncorrelated and of variance 1 before it is scaled; a ridge
// holds some of the variance back.
func TestWhitenedCovariance(t *testing.T) {
	const side, n = 3, 400
	strokes, err := strokes(strokesConfig{Width: side, Height: side, Images: n, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	const d = side * side
	for _, ridge := range []float64{1e-9, 0.1} {
		w, err := newWhitened(whitenConfig{Inner: newLinear(d), Images: strokes, Ridge: ridge, Norm: 1})
		if err != nil {
			t.Fatal(err)
		}
		rows := make([][]float32, n)
		var mean [d]float64
		for i := range rows {
			rows[i] = make([]float32, d)
			linear{}.extract(strokes[i*d:(i+1)*d], rows[i], nil)
			w.kind.(*whitened).rotate(rows[i])
			for j, v := range rows[i] {
				mean[j] += float64(v) / n
			}
		}
		var trace, off float64
		for a := range d {
			if math.Abs(mean[a]) > 1e-4 {
				t.Errorf("ridge %v: mean %d = %v", ridge, a, mean[a])
			}
			for b := range d {
				var c float64
				for _, r := range rows {
					c += (float64(r[a]) - mean[a]) * (float64(r[b]) - mean[b]) / (n - 1)
				}
				if a == b {
					trace += c
				} else {
					off = max(off, math.Abs(c))
				}
			}
		}
		if ridge < 1e-6 && (math.Abs(trace-d) > 1e-3 || off > 1e-3) {
			t.Errorf("ridge %v: trace %v, want %d; a covariance of %v", ridge, trace, d, off)
		}
		if ridge > 1e-6 && !(trace < 0.8*d && trace > 0.05*d) {
			t.Errorf("ridge %v: trace %v of %d: nothing was held back", ridge, trace, d)
		}
	}
}

// TestWhitenedByHand compares with the definition on two features.
func TestWhitenedByHand(t *testing.T) {
	images := []byte{0, 0, 4, 2, 2, 4, 2, 2} // mean (2, 2)
	w, err := newWhitened(whitenConfig{Inner: newLinear(2), Images: images, Ridge: 0.25, Norm: 5})
	if err != nil {
		t.Fatal(err)
	}
	// Σ = (8/3, 4/3; 4/3, 8/3), trace 16/3, λ = 4/3: Σ + λI = (4, 4/3; 4/3, 4),
	// L = (2, 0; 2/3, √(32)/3), so L⁻¹y = (y₁/2, (y₂ − y₁/3)·3/√32).
	got := extract(w, []byte{6, 3})
	y := [2]float64{4 / 2., (1 - 4/3.) * 3 / math.Sqrt(32)}
	size := math.Hypot(y[0], y[1])
	for j, v := range y {
		if want := 5 * v / size; math.Abs(float64(got[j])-want) > 1e-6 {
			t.Errorf("value %d = %v, want %v", j, got[j], want)
		}
	}
	if got := extract(w, []byte{2, 2}); got[0] != 0 || got[1] != 0 {
		t.Errorf("the mean itself gives %v, want zeros", got)
	}
}

// TestInk: finite values of the stated norm for every image, the same each time.
func TestInk(t *testing.T) {
	for _, h := range []hogConfig{DefaultHOG(28, 28), ShapeHOG(28, 28), DefaultHOG(16, 12)} {
		a, err := NewInk(h)
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewInk(h)
		if err != nil {
			t.Fatal(err)
		}
		if a.Dim != h.Cells*h.Cells*h.Orientations || !strings.Contains(a.Name, "upright") {
			t.Errorf("%s: %d values", a.Name, a.Dim)
		}
		for seed := range uint64(5) {
			img := ink(h.Width, h.Height, seed)
			if seed == 0 {
				clear(img)
			}
			f, g := extract(a, img), extract(b, img)
			for j, v := range f {
				if v != g[j] {
					t.Fatalf("value %d is %v and %v", j, v, g[j])
				}
			}
			if n := norm(f); !(math.Abs(n-h.Norm) < 1e-4) {
				t.Errorf("norm %v, want %v", n, h.Norm)
			}
		}
	}
}

// TestInkEvens: across images that were not whitened for, the features' variance
// lies in few directions without whitening and in more with it.
func TestInkEvens(t *testing.T) {
	other, err := strokes(strokesConfig{Width: 28, Height: 28, Images: 300, Seed: 99})
	if err != nil {
		t.Fatal(err)
	}
	// (tr Σ)²/tr Σ², about the number of directions that count.
	directions := func(e *Extractor) float64 {
		d := e.Dim
		rows := make([]float32, 300*d)
		if err := ExtractAll(e, other, rows, 1); err != nil {
			t.Fatal(err)
		}
		mean := make([]float64, d)
		for i, v := range rows {
			mean[i%d] += float64(v) / 300
		}
		c := covariance(rows, mean)
		var trace, square float64
		for a := range d {
			trace += c.Data[a*d+a]
			for b := a; b < d; b++ {
				v := c.Data[a*d+b] * c.Data[a*d+b]
				if b > a {
					v *= 2
				}
				square += v
			}
		}
		return trace * trace / square
	}
	plain := directions(newHOG(t, DefaultHOG(28, 28)))
	w, err := NewInk(DefaultHOG(28, 28))
	if err != nil {
		t.Fatal(err)
	}
	if even := directions(w); even < 1.5*plain {
		t.Errorf("%.1f directions whitened, %.1f before", even, plain)
	} else {
		t.Logf("%.1f directions whitened, %.1f before", even, plain)
	}
}

func TestWhitenedRefuses(t *testing.T) {
	good := whitenConfig{Inner: newLinear(2), Images: []byte{0, 0, 4, 2, 2, 4}, Ridge: 0.1, Norm: 1}
	for name, change := range map[string]func(*whitenConfig){
		"no inner features": func(c *whitenConfig) { c.Inner = nil },
		"at least 2 images": func(c *whitenConfig) { c.Images = c.Images[:2] },
		"of 2":              func(c *whitenConfig) { c.Images = c.Images[:5] },
		"do not vary":       func(c *whitenConfig) { c.Images = make([]byte, 6) },
		"ridge = 0":         func(c *whitenConfig) { c.Ridge = 0 },
		"ridge = NaN":       func(c *whitenConfig) { c.Ridge = math.NaN() },
		"norm = -1":         func(c *whitenConfig) { c.Norm = -1 },
		"norm = +Inf":       func(c *whitenConfig) { c.Norm = math.Inf(1) },
		"workers = -1":      func(c *whitenConfig) { c.Workers = -1 },
		"must be at most":   func(c *whitenConfig) { c.Inner = newLinear(maxWhitened + 1) },
	} {
		c := good
		change(&c)
		if _, err := newWhitened(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := newWhitened(good); err != nil {
		t.Error(err)
	}
	for _, c := range []strokesConfig{{}, {Width: 28, Height: 28}, {Width: 1, Height: 28, Images: 1}, {Width: 5000, Height: 28, Images: 1}, {Width: 4096, Height: 4096, Images: 17}} {
		if _, err := strokes(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// TestStrokes: drawings differ, fill the box and are centred in it.
func TestStrokes(t *testing.T) {
	const side, n = 28, 200
	img, err := strokes(strokesConfig{Width: side, Height: side, Images: n, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range n {
		one := img[i*side*side : (i+1)*side*side]
		seen[string(one)] = true
		left, right, top, bottom := side, -1, side, -1
		for p, v := range one {
			if v > 128 {
				left, right = min(left, p%side), max(right, p%side)
				top, bottom = min(top, p/side), max(bottom, p/side)
			}
		}
		// 18 pixels between centres of the pen, and at most 1.5 more at each end.
		if long := max(right-left, bottom-top); long < 17 || long > 22 {
			t.Errorf("drawing %d spans %d pixels", i, long)
		}
		if math.Abs(float64(left+right)/2-13.5) > 1.5 || math.Abs(float64(top+bottom)/2-13.5) > 1.5 {
			t.Errorf("drawing %d lies in columns %d to %d, rows %d to %d", i, left, right, top, bottom)
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d drawings differ", len(seen), n)
	}
}

func BenchmarkExtractInk(b *testing.B) {
	e, err := NewInk(DefaultHOG(28, 28))
	if err != nil {
		b.Fatal(err)
	}
	img, dst, s := ink(28, 28, 1), make([]float32, e.Dim), e.kind.newScratch()
	for b.Loop() {
		e.extract(img, dst, s)
	}
}

func BenchmarkNewInk(b *testing.B) {
	for b.Loop() {
		if _, err := NewInk(DefaultHOG(28, 28)); err != nil {
			b.Fatal(err)
		}
	}
}
