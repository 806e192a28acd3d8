package vecsum

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/mechanism/sample"
)

var testRound = RoundID{1, 2, 3}

// transports returns every transport that can carry p's counts.
func transports(t testing.TB, p Params) map[string]Transport {
	t.Helper()
	out := map[string]Transport{}
	add := func(name string, tr Transport, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = tr
	}
	for _, n := range []int{2, 3} {
		s, err := NewShares(Config{Params: p, Round: testRound, Aggregators: n})
		add("shares of "+string(rune('0'+n)), s, err)
	}
	if p.Noise.Kind == Binomial {
		b, err := NewShuffled(Bits, Config{Params: p, Round: testRound})
		add("bits", b, err)
	}
	m, err := NewShuffled(Mix, Config{Params: p, Round: testRound})
	add("mix", m, err)
	return out
}

// For the same randomness of the clients all transports give the same counts,
// which are their plain sum, in whatever order messages and clients come; each
// client sends the same number and sizes whatever its data. Oracles 4, 7, 12.
func TestTransportsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int64{1, 2, 19, 25}).Draw(t, "clients")
		d := rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(t, "dim")
		g := rapid.Int64Range(2, 9).Draw(t, "grid")
		p := Params{Users: n + rapid.Int64Range(0, 3).Draw(t, "spare"), MinUsers: n, Dim: d, Radius: 1, Grid: g, Norm: Norm(d, g, 1e-3),
			Noise: Noise{Kind: Binomial, Bits: rapid.Int64Range(1, 70).Draw(t, "bits")}, Split: rapid.Bool().Draw(t, "split")}
		switch rapid.IntRange(0, 2).Draw(t, "noise") {
		case 1:
			p.Noise = Noise{Kind: Skellam, Variance: 3}
		case 2:
			p.Noise = Noise{Kind: DiscreteGaussian, Variance: 3}
		}
		e, err := NewEncoder(p)
		if err != nil {
			t.Fatal(err)
		}
		src := source(20, rapid.Uint64().Draw(t, "seed"))
		want := make([]int64, p.Streams())
		var clients [][]int64
		for range n {
			x := make([]float32, d)
			for j := range x {
				x[j] = rapid.SampledFrom([]float32{-1, -.3, 0, .5, 1e9}).Draw(t, "x")
			}
			row := make([]int64, p.Streams())
			if err := e.Encode(src, x, row); err != nil {
				t.Fatal(err)
			}
			clients = append(clients, row)
			for j, c := range row {
				want[j] += c
			}
		}
		for name, tr := range transportsFor(t, p) {
			var all [][]byte
			count, size := tr.Cost().Messages, tr.Cost().Bytes
			for _, row := range clients {
				ms, err := tr.Messages(src, row)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				var bytes int64
				for _, m := range ms {
					bytes += int64(len(m))
				}
				if int64(len(ms)) != count || bytes != size {
					t.Fatalf("%s: %d messages of %d bytes, always %d of %d", name, len(ms), bytes, count, size)
				}
				all = append(all, ms...)
			}
			sample.Shuffle(src, all)
			got, k, err := tr.Sum(all)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if k != n || !slices.Equal(got, want) {
				t.Fatalf("%s: counts %v of %d clients, want %v of %d", name, got, k, want, n)
			}
		}
	})
}

func transportsFor(t *rapid.T, p Params) map[string]Transport {
	out := map[string]Transport{}
	add := func(name string, tr Transport, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = tr
	}
	s, err := NewShares(Config{Params: p, Round: testRound})
	add("shares", s, err)
	s, err = NewShares(Config{Params: p, Round: testRound, Aggregators: 3})
	add("shares of 3", s, err)
	if p.Noise.Kind == Binomial {
		b, err := NewShuffled(Bits, Config{Params: p, Round: testRound})
		add("bits", b, err)
	}
	m, err := NewShuffled(Mix, Config{Params: p, Round: testRound})
	add("mix", m, err)
	return out
}

// The largest sum fits the modulus, one more would not have to: wrap-around is
// refused by the number of clients, before anything is opened.
func TestModulus(t *testing.T) {
	p := small()
	p.Users, p.Dim, p.Norm, p.Noise.Bits = 3, 1, Norm(1, 10, 0), 11 // 63 = 2^6 − 1 at most
	if b := p.Modulus(); b != 6 {
		t.Fatalf("modulus 2^%d for sums up to 63", b)
	}
	for name, tr := range transports(t, p) {
		var all [][]byte
		src := source(21)
		for range 3 {
			ms, err := tr.Messages(src, []int64{21})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ms...)
		}
		if got, _, err := tr.Sum(all); err != nil || got[0] != 63 {
			t.Errorf("%s: the largest sum came out as %v (%v)", name, got, err)
		}
		more, err := tr.Messages(src, []int64{21})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := tr.Sum(append(all, more...)); err == nil {
			t.Errorf("%s: four clients of three gave %v", name, got)
		}
		fewer := all[:len(all)/3]
		if s, ok := tr.(*Shares); ok {
			fewer = all[:s.aggregators]
		}
		if got, _, err := tr.Sum(fewer); err == nil {
			t.Errorf("%s: one client of at least three gave %v", name, got)
		}
		for _, bad := range [][]int64{{22}, {-1}, {}, {1, 2}, {math.MaxInt64}} {
			if _, err := tr.Messages(src, bad); err == nil {
				t.Errorf("%s: counts %v were accepted", name, bad)
			}
		}
	}
	p.Users, p.Noise.Bits = 1<<20, 1<<38
	if _, err := NewShares(Config{Params: p, Round: testRound}); err == nil {
		t.Error("a modulus above 2^56 was accepted")
	}
}

// Whatever is wrong with one message, the round is refused and says why.
func TestTransportsRefuse(t *testing.T) {
	p := small()
	p.Users, p.MinUsers = 21, 20
	other := p
	other.Grid = 11
	other.Norm = Norm(3, 11, .1)
	wide := p
	wide.Dim, wide.Norm = 4, Norm(4, 10, .1)
	src := source(22)
	of := func(tr Transport, n int) (all [][]byte) {
		counts := make([]int64, 3)
		if f, ok := tr.(interface{ streams() int }); ok {
			counts = make([]int64, f.streams())
		}
		for range n {
			ms, err := tr.Messages(src, counts)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ms...)
		}
		return all
	}
	for name, tr := range transports(t, p) {
		good := of(tr, 20)
		if _, _, err := tr.Sum(good); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		last := len(good) - 1
		for what, c := range map[string]struct {
			all [][]byte
			say string
		}{
			"nothing":         {nil, "fewer"},
			"one short":       {good[:last], ""},
			"one twice":       {append(slices.Clone(good), good[last]), ""},
			"one replaced":    {append(slices.Clone(good[:last]), good[0]), ""},
			"cut":             {append(slices.Clone(good[:last]), good[last][:len(good[last])-1]), "bytes"},
			"longer":          {append(slices.Clone(good[:last]), append(slices.Clone(good[last]), 0)), "bytes"},
			"empty":           {append(slices.Clone(good[:last]), nil), "bytes"},
			"another round":   {append(slices.Clone(good[:last]), tampered(t, p, name, RoundID{9}, src)), "another round"},
			"other grid":      {append(slices.Clone(good[:last]), tampered(t, other, name, testRound, src)), ""},
			"other dimension": {append(slices.Clone(good[:last]), tampered(t, wide, name, testRound, src)), ""},
		} {
			if name == "ones" && what == "one replaced" {
				continue // a token more of one stream and a dummy less is a possible round
			}
			if name == "bits" && what == "one replaced" && bytes.Equal(good[0][16:20], good[last][16:20]) {
				continue
			}
			if name == "mix" && what == "one replaced" && bytes.Equal(good[0][16:20], good[last][16:20]) {
				continue
			}
			counts, n, err := tr.Sum(c.all)
			if err == nil || counts != nil || n != 0 {
				t.Errorf("%s, %s: gave %v of %d (%v)", name, what, counts, n, err)
			} else if !strings.Contains(err.Error(), c.say) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// tampered is the last message of a client of another world.
func tampered(t *testing.T, p Params, name string, round RoundID, src interface {
	Uint64() uint64
	Fill([]uint64)
}) []byte {
	t.Helper()
	var tr Transport
	var err error
	switch name {
	case "shares of 2":
		tr, err = NewShares(Config{Params: p, Round: round})
	case "shares of 3":
		tr, err = NewShares(Config{Params: p, Round: round, Aggregators: 3})
	case "bits":
		tr, err = NewShuffled(Bits, Config{Params: p, Round: round})
	default:
		tr, err = NewShuffled(Mix, Config{Params: p, Round: round})
	}
	if err != nil {
		t.Fatal(err)
	}
	ms, err := tr.Messages(src, make([]int64, p.Streams()))
	if err != nil {
		t.Fatal(err)
	}
	return ms[len(ms)-1]
}

// Bits have a largest number of messages, which unbounded noise has not.
func TestBitsRefuseUnboundedNoise(t *testing.T) {
	p := small()
	p.Noise = Noise{Kind: Skellam, Variance: 2}
	if _, err := NewShuffled(Bits, Config{Params: p, Round: testRound}); err == nil {
		t.Error("bits were to carry unbounded noise")
	}
	if _, err := NewShuffled("shares", Config{Params: small(), Round: testRound}); err == nil {
		t.Error("shares were made for a shuffler")
	}
}

// What a shuffler sees of one client says nothing but the parameters: labels come
// in uniformly random order, and each share of split-and-mix is uniform. Oracle 7.
func TestOneClientsMessagesAreUniform(t *testing.T) {
	p := small()
	p.Users, p.Noise.Bits = 24, 1
	const reps = 20_000
	for name, tr := range transports(t, p) {
		if strings.HasPrefix(name, "shares") {
			continue // TestSharesHide
		}
		src := source(29, uint64(len(name)))
		each := tr.Cost().Messages
		labels := []float64{1. / 3, 1. / 3, 1. / 3, 0}
		var first, last [4]int64
		values := make([]int64, 16)
		var kept int64
		for range reps {
			ms, err := tr.Messages(src, []int64{11, 0, 5})
			if err != nil {
				t.Fatal(err)
			}
			first[min(ms[0][16], 3)]++
			last[min(ms[each-1][16], 3)]++
			for _, m := range ms {
				if name == "mix" && m[16] == 1 { // a count of 0
					values[m[20]&15]++
					kept++
				}
			}
		}
		chiSquare(t, name+": first label", first[:], labels, reps)
		chiSquare(t, name+": last label", last[:], labels, reps)
		if name == "mix" {
			// Shares of one count are pairwise independent, so this is all but a chi-square.
			chiSquare(t, name+": shares", values, slices.Repeat([]float64{1. / 16}, 16), kept)
		}
	}
}
