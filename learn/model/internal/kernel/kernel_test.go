package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func normal(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// near fails unless got is want, as far as float32 sums of about n terms of
// size 1 can say.
func near(t *testing.T, what string, got, want []float32, n int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	tol := 1e-6 * (1 + math.Sqrt(float64(n)))
	for i := range got {
		if math.Abs(float64(got[i])-float64(want[i])) > tol {
			t.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestKernelsAgree: to the last bit, but for double roundings, of which these
// half a million multiply-adds have none.
func TestKernelsAgree(t *testing.T) {
	best, oracle := Best(), Portable()
	if best.Name == oracle.Name {
		t.Skip("this processor has one kernel")
	}
	r := rand.New(rand.NewPCG(5, 5))
	for range 20 {
		g := NewWalk(Walk{DstStride: 16, Runs: 5, Length: 13, Step: 3, Stride: 50,
			Offsets: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 40}})
		x, w, init := normal(r, 300), normal(r, 16*5*13), normal(r, 64)
		got, want := make([]float32, 16*24), make([]float32, 16*24)
		best.Walk(g, got, x, w, init)
		oracle.Walk(g, want, x, w, init)
		if !slices.Equal(got, want) {
			t.Error("walks differ")
		}
		got, want = got[:40], want[:40]
		best.Dense(got, x[:25], w, init)
		oracle.Dense(want, x[:25], w, init)
		if !slices.Equal(got, want) {
			t.Error("dense layers differ")
		}
		got, want = got[:30], want[:30]
		best.Rows(got, w, x[:32])
		oracle.Rows(want, w, x[:32])
		if !slices.Equal(got, want) {
			t.Error("inner products differ")
		}
		got, want = got[:16], want[:16]
		best.Sum16(got, w)
		oracle.Sum16(want, w)
		if !slices.Equal(got, want) {
			t.Error("sums of rows differ")
		}
	}
}

// each runs a test on the portable kernels and on the best ones.
func each(t *testing.T, f func(t *testing.T, k *Kernel)) {
	for _, k := range []*Kernel{Portable(), Best()} {
		t.Run(k.Name, func(t *testing.T) { f(t, k) })
	}
}

// TestWalk compares with the definition, in float64.
func TestWalk(t *testing.T) {
	each(t, func(t *testing.T, k *Kernel) {
		r := rand.New(rand.NewPCG(1, 1))
		for range 300 {
			shape := Walk{
				DstStride: 16 * (1 + r.IntN(3)),
				Runs:      1 + r.IntN(5), Length: 1 + r.IntN(9), Step: r.IntN(4), Stride: r.IntN(20),
			}
			at := 0
			for range 1 + r.IntN(30) {
				at += r.IntN(5)
				shape.Offsets = append(shape.Offsets, at)
			}
			g := NewWalk(shape)
			x := normal(r, at+(g.Runs-1)*g.Stride+(g.Length-1)*g.Step+1)
			w, init := normal(r, 16*g.Runs*g.Length), normal(r, 16)
			// One value more shows whether anything outside is written.
			dst := normal(r, (len(g.Offsets)-1)*g.DstStride+17)
			want := slices.Clone(dst)
			for p, start := range g.Offsets {
				for c := range 16 {
					sum := float64(init[c])
					for run := range g.Runs {
						for i := range g.Length {
							sum += float64(x[start+run*g.Stride+i*g.Step]) * float64(w[16*(run*g.Length+i)+c])
						}
					}
					want[p*g.DstStride+c] = float32(sum)
				}
			}
			k.Walk(g, dst, x, w, init)
			near(t, "walk", dst, want, 5*g.Runs*g.Length)
			for _, bad := range []func(){
				func() { k.Walk(g, dst, x[1:], w, init) },
				func() { k.Walk(g, dst, x, w[1:], init) },
				func() { k.Walk(g, dst[2:], x, w, init) },
				func() { k.Walk(g, dst, x, w, init[1:]) },
			} {
				mustPanic(t, bad)
			}
		}
		mustPanic(t, func() { NewWalk(Walk{Offsets: []int{5, 0}, DstStride: 16, Runs: 1, Length: 1}) })
		mustPanic(t, func() { NewWalk(Walk{Offsets: []int{0}, DstStride: 16, Runs: 1}) })
		big := make([]float32, 100)
		mustPanic(t, func() { k.Walk(new(Walk), big, big, big, big) })
	})
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

// TestPool: values are small integers, so that corners tie often.
func TestPool(t *testing.T) {
	each(t, func(t *testing.T, k *Kernel) {
		r := rand.New(rand.NewPCG(2, 2))
		for range 100 {
			rows, cols := 1+r.IntN(5), 1+r.IntN(5)
			src := make([]float32, 16*(rows+1)*(cols+1))
			for i := range src {
				src[i] = float32(r.IntN(6) - 4)
			}
			ddst := normal(r, 16*rows*cols)
			dst := make([]float32, len(ddst))
			dsrc := normal(r, len(src))
			wantDst, wantDsrc := make([]float32, len(dst)), slices.Clone(dsrc)
			for y := range rows {
				for x := range cols {
					for c := range 16 {
						best, top := -1, float32(0)
						for _, q := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
							at := ((y+q[0])*(cols+1)+x+q[1])*16 + c
							if src[at] > top {
								best, top = at, src[at]
							}
						}
						i := (y*cols+x)*16 + c
						wantDst[i] = top
						if best >= 0 {
							wantDsrc[best] += ddst[i]
						}
					}
				}
			}
			k.PoolForward(dst, src, rows, cols)
			k.PoolBackward(dsrc, ddst, src, rows, cols)
			if !slices.Equal(dst, wantDst) {
				t.Fatalf("%d × %d: pooled %v, want %v", rows, cols, dst, wantDst)
			}
			near(t, "pool gradient", dsrc, wantDsrc, 16)
		}
		mustPanic(t, func() { k.PoolForward(make([]float32, 63), make([]float32, 16*9), 2, 2) })
		mustPanic(t, func() { k.PoolBackward(make([]float32, 16*9-1), make([]float32, 64), make([]float32, 16*9), 2, 2) })
	})
}

func TestMatrices(t *testing.T) {
	each(t, func(t *testing.T, k *Kernel) {
		r := rand.New(rand.NewPCG(3, 3))
		for range 200 {
			n, width := 1+r.IntN(70), 1+r.IntN(100)
			if r.IntN(2) == 0 {
				width = 32
			}
			x, w, init, delta := normal(r, n), normal(r, n*width), normal(r, width), normal(r, width)
			dense, back, outer := slices.Clone(init), make([]float32, n), make([]float32, n*width)
			for j := range width {
				sum := float64(init[j])
				for i, v := range x {
					sum += float64(v) * float64(w[i*width+j])
				}
				dense[j] = float32(sum)
			}
			for i, v := range x {
				sum := 0.0
				for j, u := range delta {
					sum += float64(u) * float64(w[i*width+j])
					outer[i*width+j] = v * u
				}
				back[i] = float32(sum)
			}
			gotDense, gotBack, gotOuter := normal(r, width), normal(r, n), normal(r, n*width)
			k.Dense(gotDense, x, w, init)
			k.Rows(gotBack, w, delta)
			k.Outer(gotOuter, x, delta)
			near(t, "dense", gotDense, dense, 10*n)
			near(t, "rows", gotBack, back, 10*width)
			near(t, "outer", gotOuter, outer, 1)
			mustPanic(t, func() { k.Dense(gotDense, x, w[1:], init) })
			mustPanic(t, func() { k.Rows(gotBack, w[1:], delta) })
			mustPanic(t, func() { k.Outer(gotOuter[1:], x, delta) })
		}
	})
}

func TestSixteens(t *testing.T) {
	each(t, func(t *testing.T, k *Kernel) {
		r := rand.New(rand.NewPCG(4, 4))
		src := normal(r, 256)
		dst := make([]float32, 256)
		k.Transpose16(dst, src)
		for i := range 16 {
			for j := range 16 {
				if dst[16*j+i] != src[16*i+j] {
					t.Fatalf("transposed (%d, %d) is %v, want %v", j, i, dst[16*j+i], src[16*i+j])
				}
			}
		}
		for _, n := range []int{1, 2, 16} {
			sum, want := make([]float32, 16), make([]float32, 16)
			k.Sum16(sum, src[:16*n])
			for i, v := range src[:16*n] {
				want[i%16] += v
			}
			near(t, "sum", sum, want, n)
		}
		mustPanic(t, func() { k.Transpose16(dst[1:], src) })
		mustPanic(t, func() { k.Sum16(dst, src[:17]) })
	})
}

func TestFinite(t *testing.T) {
	each(t, func(t *testing.T, k *Kernel) {
		for n := range 80 {
			v := make([]float32, n)
			for i := range v {
				v[i] = math.MaxFloat32 * float32(1-2*(i%2))
			}
			if !k.Finite(v) {
				t.Fatalf("%d large values are not finite", n)
			}
			for i := range v {
				for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					old := v[i]
					v[i] = float32(bad)
					if k.Finite(v) {
						t.Fatalf("%v at %d of %d is finite", bad, i, n)
					}
					v[i] = old
				}
			}
		}
	})
}

// TestGeneratedFilesAreUpToDate runs the generator again.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the generator")
	}
	dir := t.TempDir()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command")
	}
	asm, stubs := filepath.Join(dir, "avx2_amd64.s"), filepath.Join(dir, "avx2_amd64.go")
	cmd := exec.Command(tool, "run", "./gen", "-out", asm, "-stubs", stubs, "-pkg", "kernel")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range []string{asm, stubs} {
		want, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Base(f))
		if err != nil {
			t.Fatal(err)
		}
		// The first line names the command line.
		_, got, _ = bytes.Cut(got, []byte("\n"))
		_, want, _ = bytes.Cut(want, []byte("\n"))
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what gen writes: run go generate", filepath.Base(f))
		}
	}
}
