package pine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// small has few elements, so that every byte of its messages can be changed.
var small = []Config{
	{Dim: 3, Bound: 10, Checks: 2},
	{Dim: 2, Bound: 7, Checks: 3, Successes: 2, Field: 128, Context: "c", EqualityProofs: 2},
}

// TestEachByteMatters changes each byte of each message of a report: both aggregators refuse it.
func TestEachByteMatters(t *testing.T) {
	for i, c := range small {
		p, src := mustNew(t, c), rng.Replay(9, uint64(i))
		x := []int64{-3, 1, 2}[:c.Dim]
		base := honest(t, p, src, x)
		if _, errs := base.clone().verify(p, nil); errs != [2]error{} {
			t.Fatal(errs)
		}
		flip := func(what string, alone bool, field func(*messages) []byte) {
			step := 0
			switch what[0] {
			case 'p':
				step = 1
			case 'm':
				step = 2
			}
			n := 0
			for at := 0; ; at++ {
				m, calls, done := base.clone(), 0, false
				_, errs := m.verify(p, func(m *messages) {
					if calls++; calls-1 != step {
						return
					}
					b := field(m)
					if n = len(b); at >= n {
						done = true
						return
					}
					b[at] ^= 1 << (src.Uint64() % 8)
				})
				if done {
					break
				}
				for k, err := range errs {
					if err == nil && !(alone && k == 0) {
						t.Errorf("%s: aggregator %d accepts another byte %d", what, k, at)
					}
				}
			}
			if n == 0 {
				t.Errorf("%s is empty", what)
			}
		}
		flip("input 0", false, func(m *messages) []byte { return m.input[0] })
		flip("input 1", false, func(m *messages) []byte { return m.input[1] })
		for k := range 2 {
			flip(fmt.Sprint("input's public ", k), false, func(m *messages) []byte { return m.public[k] })
			flip(fmt.Sprint("prep share ", k), false, func(m *messages) []byte { return m.prep[k] })
			flip(fmt.Sprint("input's nonce ", k), false, func(m *messages) []byte { return m.nonce[k][:] })
			flip(fmt.Sprint("input's key ", k), false, func(m *messages) []byte { return m.key[k][:] })
		}
		flip("message", true, func(m *messages) []byte { return m.msg[1] })
	}
}

// TestEachFieldOfTheVectorsMatters adds 1 to elements of each field of each message of the draft's
// vectors, and to a byte of each seed: both aggregators refuse the report.
func TestEachFieldOfTheVectorsMatters(t *testing.T) {
	tampered := 0
	for _, row := range golden.Rows(t, "vectors.tsv", 16) {
		if len(row) == 13 && row[11] != "hmac" {
			p := configOf(t, row)
			if p.config.Field == 64 {
				tampered += tamperFields[f64](t, row[0], p)
			} else {
				tampered += tamperFields[f128](t, row[0], p)
			}
		}
	}
	if want := 8 * (2 + 4 + 2*3 + 3*2 + 8*2); tampered < want {
		t.Errorf("%d reports were changed, fewer than %d", tampered, want)
	}
}

func tamperFields[E element[E]](t *testing.T, name string, p *Pine) (tampered int) {
	s := p.scheme.(*vdaf[E])
	n, seed := sizeOf[E](), s.xof.seed
	var nonce Nonce
	copy(nonce[:], sequence(16))
	x := make([]int64, s.dim)
	x[0] = p.config.Bound
	public, input, _ := s.shard(x, nonce[:], sequence(seedCount*seed))
	base := reported(public, input, nonce)
	try := func(what string, step int, change func(*messages)) {
		calls, changed := 0, false
		_, errs := base.clone().verify(p, func(m *messages) {
			if calls++; calls-1 == step {
				change(m)
				changed = true
			}
		})
		if !changed || !errors.Is(errs[0], ErrRefused) && !errors.Is(errs[1], ErrRefused) || step < 2 && (errs[0] == nil) != (errs[1] == nil) {
			t.Errorf("%s, %s: %v", name, what, errs)
		}
		tampered++
	}
	addOne := func(b []byte, i int) {
		var f E
		v, ok := f.read(b[i*n:])
		if !ok {
			t.Fatal("not an element")
		}
		copy(b[i*n:], v.plus(of[E](1)).append(nil))
	}
	// Elements of the leader's input share: first and last of each field.
	at := 0
	field := func(what string, length int) {
		for _, i := range []int{at, at + length - 1} {
			try(fmt.Sprint("leader's ", what, " at ", i-at), 0, func(m *messages) { addOne(m.input[0], i) })
			try(fmt.Sprint("leader's ", what, " beyond the field at ", i-at), 0, func(m *messages) {
				for j := range n {
					m.input[0][i*n+j] = 255
				}
			})
		}
		at += length
	}
	field("vector", s.dim)
	field("norm", s.normBits)
	field("difference", s.normBits)
	field("digits of a projection", s.checkBits)
	field("success", 1)
	field("digits of other projections", (s.checks-1)*(s.checkBits+1))
	for range s.equalityProofs {
		field("seeds of the norm's proof", s.equal.width)
		field("polynomial of the norm's proof", 2*s.equal.points()-1)
	}
	for range s.proofs {
		field("seeds of a proof", s.rest.width)
		field("polynomial of a proof", 2*s.rest.points()-1)
	}
	if at*n+2*seed != len(input[0]) {
		t.Fatal("the fields are not the input share")
	}
	for i := range 2 {
		try(fmt.Sprint("leader's blind ", i), 0, func(m *messages) { m.input[0][at*n+i*seed]++ })
	}
	for i := range 4 {
		try(fmt.Sprint("helper's seed ", i), 0, func(m *messages) { m.input[1][i*seed]++ })
		try(fmt.Sprint("part ", i), 0, func(m *messages) { m.public[0][i*seed]++; m.public[1][i*seed]++ })
		for k := range 2 {
			try(fmt.Sprint("part ", i, " for one"), 0, func(m *messages) { m.public[k][i*seed]++ })
		}
	}
	for k := range 2 {
		first := 0
		for proof := range s.equalityProofs + s.proofs {
			length := s.equal.verifier()
			if proof >= s.equalityProofs {
				length = s.rest.verifier()
			}
			for name, i := range map[string]int{"output": 0, "first wire": 1, "last wire": length - 2, "polynomial": length - 1} {
				try(fmt.Sprint(name, " of proof ", proof, " in prep share ", k), 1, func(m *messages) { addOne(m.prep[k], first+i) })
			}
			first += length
		}
		for i := range 2 {
			try(fmt.Sprint("part ", i, " of prep share ", k), 1, func(m *messages) { m.prep[k][s.verifierLength()*n+i*seed]++ })
			try(fmt.Sprint("seed ", i, " of the message"), 2, func(m *messages) { m.msg[k][i*seed]++ })
		}
		try("nonce for one", 0, func(m *messages) { m.nonce[k][0]++ })
		try("key of one", 0, func(m *messages) { m.key[k][0]++ })
	}
	try("nonce", 0, func(m *messages) { m.nonce[0][0]++; m.nonce[1] = m.nonce[0] })
	for _, length := range []int{0, 1, len(input[0]) - 1, len(input[0]) + 1, len(input[0]) + n} {
		try("length", 0, func(m *messages) { m.input[0] = append(m.input[0], make([]byte, n)...)[:length] })
	}
	for _, length := range []int{0, 4*seed - 1, 4*seed + 1} {
		try("helper's length", 0, func(m *messages) { m.input[1] = append(m.input[1], 0)[:length] })
		try("public length", 0, func(m *messages) { m.public[0] = append(m.public[0], 0)[:length]; m.public[1] = m.public[0] })
	}
	return tampered
}

// TestHalvesThatDoNotFit mixes halves of reports, and takes reports of one round to another.
func TestHalvesThatDoNotFit(t *testing.T) {
	c := Config{Dim: 20, Bound: 1000, Context: "round 1"}
	p, src := mustNew(t, c), rng.Replay(10)
	x := vectorWithin(src, c.Dim, c.Bound)
	a := honest(t, p, src, x)
	if _, errs := a.clone().verify(p, nil); errs != [2]error{} {
		t.Fatal(errs)
	}
	refused := func(what string, p *Pine, m *messages) {
		t.Helper()
		if _, errs := m.verify(p, nil); !errors.Is(errs[0], ErrRefused) && !errors.Is(errs[1], ErrRefused) {
			t.Errorf("%s: %v", what, errs)
		}
	}
	b := honest(t, p, src, x)
	for k := range 2 {
		m := a.clone()
		m.input[k] = b.input[k]
		refused("one input of another report", p, m)
		m.public[k] = b.public[k]
		refused("one half of another report", p, m)
		m.nonce[k] = b.nonce[k]
		refused("one half of another report with its nonce", p, m)
		m = a.clone()
		draw(src, m.input[k])
		refused("a random share", p, m)
	}
	other := c
	other.Context = "round 2"
	refused("a report of another round", mustNew(t, other), a.clone())
	other = c
	other.Bound++
	refused("a report for another bound", mustNew(t, other), a.clone())
}

// FuzzReport puts bytes into one of a report's messages, or in its place: nothing panics, and
// what is accepted is the honest report's vector.
func FuzzReport(f *testing.F) {
	p := mustNew(f, small[0])
	base := honest(f, p, rng.Replay(11), []int64{-3, 1, 2})
	want, errs := base.clone().verify(p, nil)
	if errs != [2]error{} {
		f.Fatal(errs)
	}
	for which := range byte(8) {
		f.Add(which, uint16(0), false, []byte{})
		f.Add(which, uint16(100), false, []byte{1})
		f.Add(which, uint16(0), true, make([]byte, 64))
	}
	f.Fuzz(func(t *testing.T, which byte, at uint16, whole bool, patch []byte) {
		step, changed := 0, false
		m := base.clone()
		out, errs := m.verify(p, func(m *messages) {
			fields := [][]*[]byte{{&m.input[0], &m.input[1], &m.public[0], &m.public[1]}, {&m.prep[0], &m.prep[1]}, {&m.msg[0], &m.msg[1]}}[step]
			if i := int(which%8) - []int{0, 4, 6}[step]; i >= 0 && i < len(fields) {
				old := clone(*fields[i])
				if whole {
					*fields[i] = clone(patch)
				} else {
					copy((*fields[i])[int(at)%len(old):], patch)
				}
				changed = string(old) != string(*fields[i])
			}
			step++
		})
		for k, err := range errs {
			if err == nil && string(out[k]) != string(want[k]) || err != nil && !changed {
				t.Errorf("aggregator %d: changed %v, error %v", k, changed, err)
			}
		}
		if changed && errs == [2]error{} {
			t.Error("both aggregators accept a report that was changed")
		}
	})
}

// FuzzSums adds and opens any bytes: numbers beyond the field are refused, and a sum of shares
// is the sum of what they share.
func FuzzSums(f *testing.F) {
	p := mustNew(f, Config{Dim: 2, Bound: 5})
	f.Add(make([]byte, 16), make([]byte, 16), int64(5))
	f.Fuzz(func(t *testing.T, a, b []byte, v int64) {
		sum := clone(a)
		if err := p.Add(sum, b); err != nil {
			if string(sum) != string(a) {
				t.Error("a refused share was added")
			}
			return
		}
		v >>= 2
		x := appendAll(nil, []f64{f64(0).of(v), f64(0).of(-v)})
		zero := make([]byte, 16)
		got, err := p.Unshard(zero, x)
		if err != nil || got[0] != v || got[1] != -v {
			t.Errorf("%d is opened as %v: %v", v, got, err)
		}
	})
}
