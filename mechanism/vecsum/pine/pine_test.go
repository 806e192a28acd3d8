package pine

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func mustNew(t testing.TB, c Config) *Pine {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// messages are all of one report; what a test changes in them arrives changed.
type messages struct {
	key    [2]VerifyKey
	nonce  [2]Nonce
	public [2][]byte
	input  [2][]byte
	prep   [2][]byte
	msg    [2][]byte
}

// verify has two aggregators verify a report. change may be nil; it is called after each step with
// what was made so far. It returns the shares of those who accepted, and each one's error.
func (m *messages) verify(p *Pine, change func(*messages)) (out [2][]byte, errs [2]error) {
	if change == nil {
		change = func(*messages) {}
	}
	change(m)
	var states [2]*State
	for k := range 2 {
		states[k], m.prep[k], errs[k] = p.PrepInit(m.key[k], k, m.nonce[k], m.public[k], m.input[k])
	}
	if errs[0] != nil || errs[1] != nil {
		for k := range 2 {
			if errs[k] == nil { // it waits for a prep share in vain
				errs[k] = errs[1-k]
			}
		}
		return out, errs
	}
	change(m)
	seeds, err := p.PrepMessage(m.prep[0], m.prep[1])
	if err != nil {
		return out, [2]error{err, err}
	}
	m.msg = [2][]byte{clone(seeds), clone(seeds)}
	change(m)
	for k := range 2 {
		out[k], errs[k] = p.PrepNext(states[k], m.msg[k])
	}
	return out, errs
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }

func (m *messages) clone() *messages {
	c := *m
	for k := range 2 {
		c.public[k], c.input[k] = clone(m.public[k]), clone(m.input[k])
	}
	return &c
}

func reported(public []byte, input [2][]byte, nonce Nonce) *messages {
	return &messages{key: [2]VerifyKey{{1}, {1}}, nonce: [2]Nonce{nonce, nonce}, public: [2][]byte{public, clone(public)}, input: input}
}

func honest(t testing.TB, p *Pine, src rng.Source, x []int64) *messages {
	t.Helper()
	var nonce Nonce
	draw(src, nonce[:])
	public, input, err := p.Shard(src, nonce, x)
	if err != nil {
		t.Fatal(err)
	}
	return reported(public, input, nonce)
}

// vectorWithin returns a random vector of norm at most the bound, and close to it.
func vectorWithin(src rng.Source, d int, bound int64) []int64 {
	x, norm := make([]float64, d), 0.0
	for i := range x {
		x[i] = float64(int64(src.Uint64()))
		norm += x[i] * x[i]
	}
	out := make([]int64, d)
	for i := range x {
		out[i] = int64(x[i] / math.Sqrt(norm) * float64(bound)) // towards 0
	}
	return out
}

func TestSumsAreExact(t *testing.T) {
	for _, c := range []Config{
		{Dim: 1, Bound: 1},
		{Dim: 1, Bound: 1 << 31},
		{Dim: 7, Bound: 3},
		{Dim: 130, Bound: 1 << 15},
		{Dim: 130, Bound: 1<<15 + 1, Field: 128, Context: "round 1"},
		{Dim: 64, Bound: 1000, Checks: 40, Successes: 30},
		{Dim: 33, Bound: 1 << 31, Field: 128},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			p, src := mustNew(t, c), rng.Replay(6)
			want := make([]int64, c.Dim)
			sums := [2][]byte{make([]byte, p.sizes.Out), make([]byte, p.sizes.Out)}
			for i := range 5 {
				x := vectorWithin(src, c.Dim, c.Bound)
				if i < 2 { // exactly at the bound
					clear(x)
					x[c.Dim-1] = c.Bound * int64(1-2*i)
				}
				m := honest(t, p, src, x)
				size := p.Sizes()
				if len(m.public[0]) != size.Public || len(m.input[0]) != size.Input[0] || len(m.input[1]) != size.Input[1] {
					t.Errorf("sizes are %+v", size)
				}
				out, errs := m.verify(p, nil)
				for k := range 2 {
					if errs[k] != nil {
						t.Fatal(errs[k])
					}
					if err := p.Add(sums[k], out[k]); err != nil {
						t.Fatal(err)
					}
				}
				if len(m.prep[0]) != size.Prep || len(m.msg[0]) != size.Message || len(out[0]) != size.Out {
					t.Errorf("sizes are %+v", size)
				}
				for j := range want {
					want[j] += x[j]
				}
			}
			got, err := p.Unshard(sums[0], sums[1])
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("sum %v, want %v, %v", got, want, err)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Bound: 1}, "dimension 0"},
		{Config{Dim: -1, Bound: 1}, "dimension -1"},
		{Config{Dim: 1<<24 + 1, Bound: 1}, "dimension"},
		{Config{Dim: 1}, "norm bound 0"},
		{Config{Dim: 1, Bound: -5}, "norm bound -5"},
		{Config{Dim: 1, Bound: 1<<31 + 1}, "norm bound"},
		{Config{Dim: 1, Bound: 1, Field: 96}, "field of 96"},
		{Config{Dim: 1, Bound: 1, Context: strings.Repeat("x", 249)}, "context of 249"},
		{Config{Dim: 1, Bound: 1, Alpha: math.NaN()}, "alpha"},
		{Config{Dim: 1, Bound: 1, Alpha: -1}, "alpha"},
		{Config{Dim: 1, Bound: 1, Alpha: math.Inf(1)}, "alpha"},
		{Config{Dim: 1, Bound: 1 << 31, Alpha: 64}, "too large for the field"},
		{Config{Dim: 1, Bound: 1000, Alpha: 4}, "alpha = 4 is too small"},
		{Config{Dim: 1, Bound: 1, Checks: -1}, "-1 projections"},
		{Config{Dim: 1, Bound: 1, Checks: 5000}, "5000 projections"},
		{Config{Dim: 1, Bound: 1, Checks: 5, Successes: 6}, "6 successes"},
		{Config{Dim: 1, Bound: 1, Proofs: 256}, "256"},
		{Config{Dim: 1, Bound: 1, EqualityProofs: -1}, "-1"},
		{Config{Dim: 1, Bound: 1, Chunk: -1}, "chunks"},
		{Config{Dim: 1, Bound: 1, EqualityChunk: 1<<24 + 1}, "chunks"},
		{Config{Dim: 1 << 24, Bound: 1, EqualityChunk: 1}, "calls"},
		{Config{Dim: 1 << 13, Bound: 1, EqualityChunk: 1}, "calls"},
		{Config{Dim: 1, Bound: 1, Checks: 4096, Chunk: 1}, "calls"},
		{Config{Dim: 1, Bound: 1, Chunk: 1 << 24, Proofs: 255}, "field elements"},
		{Config{Dim: 1, Bound: 1, EqualityChunk: 1 << 24, EqualityProofs: 255}, "field elements"},
	} {
		if _, err := New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
	if _, err := New(Config{Dim: 1, Bound: 1, Context: strings.Repeat("x", 248)}); err != nil {
		t.Error(err)
	}
	if p := mustNew(t, Config{Dim: 1, Bound: 1 << 31, Alpha: 64, Field: 128}); p.layout.reach != 1<<38 {
		t.Errorf("reach is %d", p.layout.reach)
	}
}

// TestLargestVectors makes the largest configurations, which take a fraction of a second.
func TestLargestVectors(t *testing.T) {
	for _, c := range []Config{{Dim: 1 << 24, Bound: 1 << 24}, {Dim: 1<<13 - 1, Bound: 1, EqualityChunk: 1}, {Dim: 1, Bound: 1, Checks: 4096}} {
		mustNew(t, c)
	}
}

// TestEncodedIntegersAreAdded holds that integers added to one of two sums change the sum by them.
func TestEncodedIntegersAreAdded(t *testing.T) {
	const most = 1<<62 - 1
	for _, field := range []int{64, 128} {
		p, src := mustNew(t, Config{Dim: 4, Bound: 9, Field: field}), rng.Replay(14)
		x := []int64{most, -most, -7, 0}
		m := honest(t, p, src, []int64{0, 0, 5, -3})
		out, errs := m.verify(p, nil)
		if errs != [2]error{} {
			t.Fatal(errs)
		}
		for k := range 2 {
			sums := [2][]byte{clone(out[0]), clone(out[1])}
			noise, err := p.Encode(x)
			if err != nil || p.Add(sums[k], noise) != nil {
				t.Fatal(err)
			}
			if got, err := p.Unshard(sums[0], sums[1]); err != nil || fmt.Sprint(got) != fmt.Sprint([]int64{most, -most, -2, -3}) {
				t.Errorf("%v %v", got, err)
			}
		}
		if _, err := p.Encode(x[1:]); err == nil {
			t.Error("three integers are taken")
		}
	}
}

// TestLayout holds the draft's own examples (its TestOperationalParameters) and what TRUST.md
// promises of reports' sizes.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		bound               int64
		normBits, checkBits int
		reach               uint64
	}{{1 << 15, 31, 20, 1 << 19}, {1 << 24, 49, 29, 1 << 28}, {1000 << 15, 50, 30, 1 << 29}} {
		l := mustNew(t, Config{Dim: 2, Bound: c.bound, Field: 128}).layout
		if l.normBits != c.normBits || l.checkBits != c.checkBits || l.reach != c.reach {
			t.Errorf("bound %d: %+v", c.bound, l)
		}
	}
	for _, c := range []struct{ d, input, prep int }{{1930, 36992, 1768}, {13706, 132952, 3008}} {
		s := mustNew(t, Config{Dim: c.d, Bound: 1 << 15}).Sizes()
		if s.Input[0] != c.input || s.Prep != c.prep || s.Input[1] != 64 || s.Public != 64 || s.Message != 32 || s.Out != 8*c.d {
			t.Errorf("d = %d: %+v", c.d, s)
		}
	}
}

// TestChunksAreBest compares with all chunks.
func TestChunksAreBest(t *testing.T) {
	length := func(wires, chunk int, counts ...int) int {
		points := 1
		all := 1
		for _, n := range counts {
			all += calls(n, chunk)
		}
		for points < all {
			points *= 2
		}
		return wires*chunk + 2*points - 1
	}
	for _, counts := range [][]int{{1}, {2}, {3}, {17}, {1930}, {1, 1}, {2162, 100}, {5, 4096}} {
		for wires := 1; wires <= 2; wires++ {
			best := math.MaxInt
			for chunk := 1; chunk <= counts[0]+4096; chunk++ {
				best = min(best, length(wires, chunk, counts...))
			}
			if got := length(wires, bestChunk(wires, counts...), counts...); got != best {
				t.Errorf("%v, %d wires: %d elements, best %d", counts, wires, got, best)
			}
		}
	}
}

func TestShardRefuses(t *testing.T) {
	p, src := mustNew(t, Config{Dim: 3, Bound: 10}), rng.Replay(7)
	for _, x := range [][]int64{nil, {1, 2}, {1, 2, 3, 4}, {11, 0, 0}, {0, -11, 0}, {10, 1, 0}, {6, 6, 6}, {math.MinInt64, 0, 0}, {math.MaxInt64, math.MaxInt64, math.MaxInt64}} {
		if _, _, err := p.Shard(src, Nonce{}, x); err == nil {
			t.Errorf("%v is taken", x)
		}
	}
	for _, x := range [][]int64{{10, 0, 0}, {-10, 0, 0}, {-6, 0, 8}, {5, 5, 7}} {
		if _, _, err := p.Shard(src, Nonce{}, x); err != nil {
			t.Errorf("%v: %v", x, err)
		}
	}
	// The sum of squares does not wrap around 2^64 or 2^128.
	large := mustNew(t, Config{Dim: 4, Bound: 1 << 31})
	for _, v := range []int64{1 << 32, 1 << 33, math.MinInt64, math.MinInt64 + 1} {
		if large.within([]int64{v, v, v, v}) {
			t.Errorf("four times %d is within the bound", v)
		}
	}
	if !large.within([]int64{1 << 30, -1 << 30, 1 << 30, -1 << 30}) {
		t.Error("a vector of the bound's norm is not within it")
	}
}

// TestCallersErrors holds that what is not a client's fault does not wrap ErrRefused.
func TestCallersErrors(t *testing.T) {
	p := mustNew(t, Config{Dim: 3, Bound: 10})
	m := honest(t, p, rng.Replay(8), []int64{1, 2, 3})
	if _, errs := m.clone().verify(p, nil); errs != [2]error{} {
		t.Fatal(errs)
	}
	s, prep, err := p.PrepInit(m.key[0], 0, m.nonce[0], m.public[0], m.input[0])
	if err != nil {
		t.Fatal(err)
	}
	large := clone(prep)
	for i := range 8 {
		large[i] = 255
	}
	sum := make([]byte, p.sizes.Out)
	var got []error
	add := func(err error) { got = append(got, err) }
	for _, index := range []int{-1, 2} {
		_, _, err = p.PrepInit(m.key[0], index, m.nonce[0], m.public[0], m.input[0])
		add(err)
	}
	_, _, err = p.PrepInit(VerifyKey{}, 0, m.nonce[0], m.public[0], m.input[0])
	add(err)
	for _, b := range [][]byte{nil, prep[1:], append(clone(prep), 0), large} {
		_, err = p.PrepMessage(prep, b)
		add(err)
		_, err = p.PrepMessage(b, prep)
		add(err)
	}
	for _, b := range [][]byte{nil, make([]byte, 31), make([]byte, 33)} {
		_, err = p.PrepNext(s, b)
		add(err)
	}
	for _, b := range [][]byte{nil, sum[1:], append(clone(sum), 0), large[:len(sum)]} {
		add(p.Add(sum, b))
		_, err = p.Unshard(sum, b)
		add(err)
		_, err = p.Unshard(b, sum)
		add(err)
	}
	for i, err := range got {
		if err == nil || errors.Is(err, ErrRefused) || !strings.HasPrefix(err.Error(), "pine: ") {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, b := range sum {
		if b != 0 {
			t.Fatal("a refused share was added")
		}
	}
	half := make([]byte, p.sizes.Out)
	half[7] = 0x40 // 2^62
	if _, err := p.Unshard(sum, half); err == nil {
		t.Error("a sum of 2^62 is taken")
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	s := &State{index: 1, out: []byte("secret"), seeds: []byte("secret")}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if got := fmt.Sprintf(verb+verb, VerifyKey{200, 201}, s); got != "verify keypine: state of aggregator 1" {
			t.Errorf("%s: %s", verb, got)
		}
	}
}

// TestSeveralGoroutines serves the race detector.
func TestSeveralGoroutines(t *testing.T) {
	p := mustNew(t, Config{Dim: 20, Bound: 100})
	done := make(chan error)
	for i := range 4 {
		go func() {
			src := rng.Replay(13, uint64(i))
			public, input, err := p.Shard(src, Nonce{byte(i)}, vectorWithin(src, 20, 100))
			if err == nil {
				_, errs := reported(public, input, Nonce{byte(i)}).verify(p, nil)
				err = errors.Join(errs[0], errs[1])
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
