package toeplitz

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// digest is a number for a strategy's weights.
func digest(s Strategy) string {
	h := fnv.New64a()
	for _, w := range s.Weights {
		binary.Write(h, binary.LittleEndian, w)
	}
	return fmt.Sprintf("%d weights %016x", len(s.Weights), h.Sum64())
}

// The same weights on every platform. Other ones are no less sound, but tasks that state the
// settings and not the weights would differ.
func TestSameWeightsEverywhere(t *testing.T) {
	s, err := Banded(100, 5, 12)
	if want := []int64{4096, 2775, 2378, 2112, 1860}; err != nil || !slices.Equal(s.Weights, want) {
		t.Errorf("%v, %v, want %v", s, err, want)
	}
	for _, c := range []struct {
		make func() (Strategy, error)
		want string
	}{
		{func() (Strategy, error) { return Banded(400, 20, 16) }, "20 weights 15debef6aa46438b"},
		{func() (Strategy, error) { return Banded(2000, 50, 16) }, "50 weights 8e8cdfa4fd23b6ab"},
		{func() (Strategy, error) { return Banded(300, 300, 16) }, "300 weights 86fc1e981ae01786"},
		{func() (Strategy, error) { return bufferedStrategy(300, 300, 3, 16) }, "300 weights 10a0e34ba340d26b"},
		{func() (Strategy, error) { return bufferedStrategy(2000, 50, 2, 16) }, "413 weights b340482b02954a13"},
		{func() (Strategy, error) { return squareRoot(1000, 16) }, "1000 weights 9755891924277876"},
	} {
		if s, err := c.make(); err != nil || digest(s) != c.want {
			t.Errorf("%s, %v, want %s", digest(s), err, c.want)
		}
	}
}

// slopesAgree compares the slopes of log f with differences.
func slopesAgree(t *testing.T, name string, x []float64, f func(x, grad []float64) float64) {
	t.Helper()
	grad, unused := make([]float64, len(x)), make([]float64, len(x))
	f(x, grad)
	for i, v := range x {
		const step = 1e-6
		x[i] = v + step
		up := f(x, unused)
		x[i] = v - step
		down := f(x, unused)
		x[i] = v
		if want := math.Log(up/down) / (2 * step); math.Abs(grad[i]-want) > 1e-7*(1+math.Abs(want)) {
			t.Errorf("%s: slope %d is %v, differences give %v", name, i, grad[i], want)
		}
	}
}

func TestSlopes(t *testing.T) {
	src := rng.Replay(8)
	var word [1]uint64
	some := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			src.Fill(word[:])
			x[i] = .2 + float64(word[0]>>11)*0x1p-53
		}
		return x
	}
	for _, c := range [][3]int64{{1, 1, 1}, {7, 3, 3}, {20, 3, 3}, {20, 7, 12}, {9, 1, 9}, {12, 30, 12}} {
		slopesAgree(t, fmt.Sprint("band", c), some(int(c[2])), newTrial(c[0], c[1], c[2]).value)
		for buffers := 1; buffers <= MostBuffers; buffers++ {
			slopesAgree(t, fmt.Sprint("buffers", c, buffers), some(2*buffers), newBlt(c[0], c[1], buffers).value)
		}
	}
}

// What the searches minimise is what Errors and Squared say of the weights.
func TestSearchesMinimiseTheError(t *testing.T) {
	same := func(name string, c []float64, value float64, rounds, every int64) {
		s, err := rounded(c, 16)
		if err != nil {
			t.Fatal(err)
		}
		rms, _, err := s.errorsBy(rounds)
		if err != nil {
			t.Fatal(err)
		}
		if want := rms * rms * float64(rounds) * s.Squared(rounds, every); math.Abs(value/want-1) > 1e-3 {
			t.Errorf("%s, T = %d, every %d: the search has %v, the strategy %v", name, rounds, every, value, want)
		}
	}
	for _, c := range [][3]int64{{5, 5, 5}, {30, 4, 4}, {30, 4, 9}, {30, 40, 30}} {
		tr := newTrial(c[0], c[1], c[2])
		q := tr.start()
		grad := make([]float64, len(q))
		same("band", tr.c, tr.value(q, grad), c[0], c[1])
		b := newBlt(c[0], c[1], 3)
		z := b.start()
		same("buffers", b.c, b.value(z, make([]float64, len(z))), c[0], c[1])
	}
}

// Nearby strategies are no better, nor are those that the search starts from.
func TestBandedIsALocalMinimum(t *testing.T) {
	src := rng.Replay(9)
	var word [1]uint64
	for _, c := range [][2]int64{{40, 4}, {40, 13}, {25, 25}, {200, 10}} {
		error := func(s Strategy) float64 {
			rms, _, err := s.errorsBy(c[0])
			if err != nil {
				t.Fatal(err)
			}
			return rms * math.Sqrt(s.Squared(c[0], c[1]))
		}
		s, err := Banded(c[0], c[1], 16)
		if err != nil {
			t.Fatal(err)
		}
		best := error(s)
		root, err := squareRoot(int(min(c[0], c[1])), 16)
		if err != nil || error(root) < best {
			t.Errorf("T = %d, every %d: the square root has %v, the search %v, %v", c[0], c[1], error(root), best, err)
		}
		for range 300 {
			near := Strategy{Bits: 16, Weights: slices.Clone(s.Weights)}
			for k := 1; k < len(near.Weights); k++ {
				src.Fill(word[:])
				near.Weights[k] = max(0, min(near.Weights[k-1], near.Weights[k]+int64(word[0]%401)-200))
			}
			if v := error(near); v < best*(1-1e-8) {
				t.Errorf("T = %d, every %d: %v has %v, the search %v", c[0], c[1], near, v, best)
			}
		}
	}
}

func TestConstructorsRefuse(t *testing.T) {
	for name, f := range map[string]func() (Strategy, error){
		"root of no band":   func() (Strategy, error) { return squareRoot(0, 4) },
		"root too long":     func() (Strategy, error) { return squareRoot(MostWeights+1, 4) },
		"root, bits":        func() (Strategy, error) { return squareRoot(3, 17) },
		"root, no bits":     func() (Strategy, error) { return squareRoot(3, -1) },
		"band, no rounds":   func() (Strategy, error) { return Banded(0, 3, 4) },
		"band, every":       func() (Strategy, error) { return Banded(3, 0, 4) },
		"band, work":        func() (Strategy, error) { return Banded(1<<24, 2, 4) },
		"band, most work":   func() (Strategy, error) { return Banded(math.MaxInt64, math.MaxInt64, 4) },
		"band, bits":        func() (Strategy, error) { return Banded(5, 3, 40) },
		"buffers, rounds":   func() (Strategy, error) { return bufferedStrategy(1<<15+1, 3, 2, 4) },
		"buffers, none":     func() (Strategy, error) { return bufferedStrategy(10, 3, 0, 4) },
		"buffers, many":     func() (Strategy, error) { return bufferedStrategy(10, 3, MostBuffers+1, 4) },
		"buffers, every":    func() (Strategy, error) { return bufferedStrategy(10, 0, 2, 4) },
		"buffers, bits":     func() (Strategy, error) { return bufferedStrategy(10, 3, 2, -4) },
		"buffers, negative": func() (Strategy, error) { return bufferedStrategy(-10, 3, 2, 4) },
	} {
		if s, err := f(); err == nil {
			t.Errorf("%s: %v", name, s)
		}
	}
}

// Few bits cost little: weights of 6 bits lose less than a thousandth, of 2 bits less than a tenth.
func TestBitsOfWeights(t *testing.T) {
	gain := func(bits int) float64 {
		s, err := Banded(400, 20, bits)
		if err != nil {
			t.Fatal(err)
		}
		rms, _, err := s.Gain(400, 20)
		if err != nil {
			t.Fatal(err)
		}
		return rms
	}
	best := gain(MostBits)
	for bits := range MostBits {
		t.Logf("%d bits: %.4f of the gain", bits, gain(bits)/best)
	}
	if gain(6) < .999*best || gain(2) < .9*best {
		t.Errorf("gain %v with 16 bits, %v with 6, %v with 2", best, gain(6), gain(2))
	}
}
