package seed

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// vectors are known answers of testdata/expand.py.
type vectors struct {
	Table string
	Words []struct {
		Word  string
		Value int32
	}
	Expansions []struct {
		Seed, Round string
		Dim         int
		First, Last []int64
		SHA256      string
	}
}

func TestKnownAnswers(t *testing.T) {
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if got := sha256.Sum256([]byte(quantiles)); hex.EncodeToString(got[:]) != v.Table {
		t.Errorf("the table has digest %x, want %s", got, v.Table)
	}
	for _, w := range v.Words {
		word, err := strconv.ParseUint(w.Word, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := value(word); got != w.Value {
			t.Errorf("value(%#x) = %d, want %d", word, got, w.Value)
		}
	}
	if len(v.Words) < 70 || len(v.Expansions) < 7 {
		t.Errorf("only %d words and %d expansions", len(v.Words), len(v.Expansions))
	}
	for _, c := range v.Expansions {
		for _, k := range []kernel{best(), portable} {
			m := mechanism(t, three(c.Dim))
			m.kernel = k
			got := make([]int64, c.Dim)
			m.AddTo(got, (*[32]byte)(unhex(t, c.Round)), [Size]byte(unhex(t, c.Seed)))
			var bytes []byte
			for _, x := range got {
				bytes = binary.LittleEndian.AppendUint32(bytes, uint32(x))
			}
			n := min(4, c.Dim)
			if !slices.Equal(got[:n], c.First) || !slices.Equal(got[c.Dim-n:], c.Last) {
				t.Errorf("%s: dim %d begins %d and ends %d, want %d and %d", k.name, c.Dim, got[:n], got[c.Dim-n:], c.First, c.Last)
			}
			if digest := sha256.Sum256(bytes); hex.EncodeToString(digest[:]) != c.SHA256 {
				t.Errorf("%s: dim %d has digest %x", k.name, c.Dim, digest)
			}
		}
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mechanism(t testing.TB, c Config) *Mechanism {
	t.Helper()
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// cell describes one row of the table: the tails from start to start + step.
func cell(row int) (start, step float64) {
	e, k := row/32, row%32
	step = math.Ldexp(1, 57-min(e, 30)-64)
	if e < 31 {
		k += 32
	}
	return float64(k) * step, step
}

// off returns g minus the normal quantile of the upper tail p, for a g close to it.
func off(g, p float64) float64 {
	d := (p - tail.UpperNormal(g)) / tail.NormalDensity(g)
	return d - g*d*d/2
}

// cubic evaluates a row in real numbers at τ from −1 to 1.
func cubic(row int, tau float64) float64 {
	c := rows[row]
	y := float64(c[3]) / 2
	y = (float64(c[2]) - .5 + y*tau) / 2
	y = (float64(c[1]) - .5 + y*tau) / 2
	return (float64(c[0]) - .5 + y*tau) / unit
}

// rowError bounds |value − Z| over a row, for a Z whose tail lies in the word's cell:
// the largest difference from the cubic that interpolates the quantile at the Chebyshev
// nodes, that cubic's remainder, what is lost by rounding down, and the width of a cell.
func rowError(row int) float64 {
	start, step := cell(row)
	var node, diff [4]float64
	for i := range node {
		node[i] = math.Cos(float64(2*i+1) * math.Pi / 8)
		diff[i] = off(cubic(row, node[i]), start+step*(1+node[i])/2)
	}
	var far float64
	const points = 256
	for i := -points; i <= points; i++ { // Lagrange's formula
		tau, sum := float64(i)/points, 0.
		for j := range node {
			term := diff[j]
			for k := range node {
				if k != j {
					term *= (tau - node[k]) / (node[j] - node[k])
				}
			}
			sum += term
		}
		far = math.Max(far, math.Abs(sum))
	}
	z := cubic(row, -1) + 1e-3 // beyond the end with the largest derivatives
	phi := tail.NormalDensity(z)
	remainder := (7*z + 6*z*z*z) / math.Pow(phi, 4) * math.Pow(step/4, 4) / 12
	return 1.01*far + remainder + .875/unit + 0x1p-27*step/phi
}

// Every row of the table is as close to the normal quantile as law.go says. The rows are
// bounded as a whole, not sampled.
func TestTable(t *testing.T) {
	var worst float64
	for row := range 31 * 32 {
		worst = math.Max(worst, rowError(row))
	}
	t.Logf("values with tails above 2^-32 are at most %.3g off", worst)
	if worst > tableError {
		t.Errorf("a value is up to %v off, tableError = %v", worst, tableError)
	}
	// Row 0 of the last block is a constant: the mean distance is at most the standard deviation
	// of what lies beyond a plus the distance from the mean.
	var beyond float64
	a := 6.
	for range 100 {
		a -= off(a, 0x1p-37)
	}
	if math.Abs(tail.UpperNormal(a)/0x1p-37-1) > 1e-12 {
		t.Fatal("the quantile of 2^-37 was not found")
	}
	mills := tail.NormalDensity(a) / tail.UpperNormal(a)
	constant := float64(rows[31*32][0]) / unit
	beyond += 0x1p-36 * (math.Sqrt(1+a*mills-mills*mills) + math.Abs(constant-mills))
	for row := 31*32 + 1; row < 1024; row++ {
		beyond += 0x1p-36 * rowError(row)
	}
	t.Logf("the rest is off by %.3g on average, times its probability", beyond)
	if beyond > tailError {
		t.Errorf("the tail contributes %v, tailError = %v", beyond, tailError)
	}
}

// For x = e₁ the score is one value. At both ends and inside of every row the share above a value is
// the normal one up to the density times tableError.
func TestOneCoordinate(t *testing.T) {
	for row := range 31 * 32 {
		e, k := row/32, row%32
		for i := range uint64(65) {
			// The last word of the row where i is 64.
			v := (uint64(32+k)<<57 + min(i<<51, 1<<57-1)) >> e
			g := float64(value(v)) / unit
			if d := math.Abs(tail.UpperNormal(g) - (float64(v)+.5)*0x1p-64); d > tableError*tail.NormalDensity(g)*1.001 {
				t.Errorf("row %d: the share of values above %v is off by %v", row, g, d)
			}
			if value(v) != -value(v|1<<63) {
				t.Errorf("the sign of %#x changes the size", v)
			}
		}
	}
}

// share returns the probability that a value is above u, exactly up to equal values.
func share(u float64) float64 {
	if u < 0 {
		return 1 - share(-u)
	}
	lo, hi := uint64(0), uint64(1)<<63 // values fall as v grows
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if float64(value(mid))/unit > u {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (float64(lo) + .5) * 0x1p-64
}

// For two coordinates the difference of the two laws is computed by integrating the errors of
// both: that of the second coordinate's tail, and the shift by the first one's values.
func TestTwoCoordinates(t *testing.T) {
	m := mechanism(t, three(2))
	var worst float64
	for _, angle := range []float64{.01, .3, math.Pi / 4, 1.2} {
		a, b := math.Sin(angle), math.Cos(angle)
		for _, edge := range m.Edges {
			var diff float64
			for row := range 31 * 32 {
				e, k := row/32, row%32
				const parts = 4
				for i := range uint64(parts) {
					v := (uint64(32+k)<<57 + (2*i+1)<<57/(2*parts)) >> e
					g := float64(value(v)) / unit
					d := off(g, (float64(v)+.5)*0x1p-64)
					_, step := cell(row)
					for _, sign := range []float64{1, -1} {
						u := (edge - sign*a*g) / b
						diff += step / parts * (share(u) - tail.UpperNormal(u) + tail.NormalDensity(u)*a/b*sign*d)
					}
				}
			}
			worst = math.Max(worst, math.Abs(diff)/tail.UpperNormal(edge))
		}
	}
	t.Logf("largest relative difference %.3g; Eta = %.3g", worst, m.Eta())
	if worst > m.Eta() {
		t.Errorf("shares are off by %v, Eta = %v", worst, m.Eta())
	}
}

func TestEta(t *testing.T) {
	for _, c := range []struct {
		dim  int
		most float64
	}{{1, 2e-7}, {1930, 2e-7}, {13_706, 2e-7}, {1 << 20, 3e-7}, {1 << 24, 1e-6}} {
		m := mechanism(t, three(c.dim))
		t.Logf("dim %d: eta = %.3g", c.dim, m.Eta())
		if !(m.Eta() > 0 && m.Eta() <= c.most) {
			t.Errorf("dim %d: eta = %v, at most %v is claimed", c.dim, m.Eta(), c.most)
		}
	}
}

// The kernel gives the same values, sums and scores as pure Go, bit for bit, whatever the
// number of values.
func TestKernelEqualsPureGo(t *testing.T) {
	fast := best()
	t.Logf("kernel %s", fast.name)
	for row := range uint64(1024) { // each row's first and last word, and six between, with both signs
		e, first, step := row/32, 32+row%32, uint64(1)<<57>>(row/32)
		if e == 31 {
			first, step = row%32, 1<<27
		}
		var words [64]byte
		for i := range uint64(8) {
			binary.LittleEndian.PutUint64(words[8*i:], first*step+i*(step-1)/7|row<<63^i<<63)
		}
		var a, b [8]int64
		fast.add(a[:], words[:])
		portable.add(b[:], words[:])
		if a != b {
			t.Errorf("row %d: %s gives %d, pure Go %d", row, fast.name, a, b)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{1, 7, 8, 9, 16, 63, 504, 512}).Draw(t, "n")
		// Bits above a random place are cleared, so that all blocks of the table are met.
		words := make([]byte, 8*n)
		x := make([]float64, n)
		for i := range n {
			w := rapid.Uint64().Draw(t, "word")
			zeros := rapid.IntRange(0, 63).Draw(t, "zeros")
			w = w<<1>>1>>zeros | w&(1<<63)
			binary.LittleEndian.PutUint64(words[8*i:], w)
			x[i] = rapid.Float64Range(-1e30, 1e30).Draw(t, "x")
		}
		a, b := make([]int64, n), make([]int64, n)
		fast.add(a, words)
		portable.add(b, words)
		if !slices.Equal(a, b) {
			t.Fatalf("%d values: %s gives\n%d, pure Go\n%d", n, fast.name, a, b)
		}
		if n%8 == 0 {
			var p, q [8]float64
			fast.dot(&p, x, words)
			portable.dot(&q, x, words)
			if p != q {
				t.Fatalf("%d values: %s gives the sums %v, pure Go %v", n, fast.name, p, q)
			}
		}
	})
}

// Sums do not depend on the order, and the values of a seed do not depend on the number of
// coordinates.
func TestSums(t *testing.T) {
	round := [32]byte{5}
	most := mechanism(t, three(1930))
	seeds := make([][Size]byte, 40)
	src := rng.Replay(3)
	for i := range seeds {
		seeds[i] = uniform(src)
	}
	want := make([]int64, 1930)
	for _, s := range seeds {
		most.AddTo(want, &round, s)
	}
	for _, dim := range []int{1, 7, 8, 9, 511, 512, 513, 1930} {
		got := make([]int64, dim)
		m := mechanism(t, three(dim))
		for i := range seeds {
			m.AddTo(got, &round, seeds[len(seeds)-1-i])
		}
		if !slices.Equal(got, want[:dim]) {
			t.Errorf("dim %d: the sum differs", dim)
		}
	}
	for i, other := range [][32]byte{{6}, {31: 1}} {
		got := make([]int64, 1930)
		for _, s := range seeds {
			most.AddTo(got, &other, s)
		}
		if slices.Equal(got, want) {
			t.Errorf("round key %d has no effect", i)
		}
	}
}

func FuzzValue(f *testing.F) {
	for _, w := range []uint64{0, 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 62, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		f.Add(w)
	}
	fast := best()
	f.Fuzz(func(t *testing.T, w uint64) {
		var words [64]byte
		var want, got [8]int64
		for i := range want {
			word := w<<i ^ w>>(7*i)
			binary.LittleEndian.PutUint64(words[8*i:], word)
			want[i] = int64(value(word))
			if want[i] >= 8*unit || want[i] <= -8*unit {
				t.Error(fmt.Sprintf("%#x", word), "gives 8 or more")
			}
		}
		if fast.add(got[:], words[:]); got != want {
			t.Errorf("%#x: %d, want %d", w, got, want)
		}
	})
}
