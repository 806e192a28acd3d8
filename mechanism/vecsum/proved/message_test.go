package proved

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// some returns reports of which the one at place 1 has a false proof, and 3 cannot be opened.
func some(t testing.TB, r *Round, n int) (reports []report) {
	src := rng.Replay(7)
	for i := range n {
		m := mustReport(t, r, src, vector(src, r.config.Dim, float64(r.config.Bound), 1))
		switch i {
		case 1:
			m = r.rewrite(m, func(h *[2]half) { addTo(h[0].inputs[0], 0, 1) })
		case 3:
			m[1] = nil
		}
		reports = append(reports, m)
	}
	return reports
}

// prepared returns the places of an aggregator.
func prepared(s *Sum, reports []report) (places []*Prepared) {
	for _, m := range reports {
		places = append(places, s.Prepare(m[s.config.Role]))
	}
	return places
}

func mustBegin(t testing.TB, s *Sum, reports []report) []byte {
	t.Helper()
	b, err := s.Begin(prepared(s, reports))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBeginsAgain holds that a crash at any place changes nothing: another sum gives the same
// messages, decisions and shares, in whatever steps.
func TestBeginsAgain(t *testing.T) {
	r := mustNew(t, Config{Dim: 20, Bound: 1000, Users: 100})
	reports := some(t, r, 7)
	noise := [2][]int64{vector(rng.Replay(8), 20, 1e6, 1), vector(rng.Replay(9), 20, 1e6, 1)}
	var want [2]vecsum.Partial
	var decided []Reason
	for chunk := 1; chunk <= 8; chunk++ {
		sums := newSums(t, r, key, 7)
		reasons := decide(t, sums, reports, chunk)
		for k, s := range sums {
			p, err := s.Close(noise[k])
			if err != nil {
				t.Fatal(err)
			}
			if chunk == 1 {
				want[k], decided = p, reasons
			}
			if !reflect.DeepEqual(p, want[k]) || !slices.Equal(reasons, decided) {
				t.Errorf("steps of %d: %v, want %v", chunk, p, want[k])
			}
		}
	}
	first, second := newSums(t, r, key, 7), newSums(t, r, key, 7)
	for k := range 2 {
		a := mustBegin(t, first[k], reports)
		if b := mustBegin(t, second[k], reports); !bytes.Equal(a, b) {
			t.Errorf("aggregator %d sends another message", k)
		}
		if b := mustBegin(t, first[k], reports); !bytes.Equal(a, b) {
			t.Errorf("aggregator %d sends another message the second time", k)
		}
	}
}

// TestCallersErrors holds that what no honest aggregator sends or does is an error, and changes nothing.
func TestCallersErrors(t *testing.T) {
	config := Config{Dim: 20, Bound: 1000, Users: 100, Announcement: [32]byte{5}}
	r := mustNew(t, config)
	reports := some(t, r, 5)
	sums := newSums(t, r, key, 5)
	leader, helper := sums[0], sums[1]
	if _, err := helper.Finish(mustBegin(t, leader, reports[:2])); err == nil {
		t.Error("Finish without Begin")
	}
	good := mustBegin(t, leader, reports[:2])
	config.Announcement[31] = 1
	elsewhere := mustBegin(t, newSums(t, mustNew(t, config), key, 5)[0], reports[:2])
	otherKey := mustBegin(t, newSums(t, r, VerifyKey{8}, 5)[0], reports[:2])
	mustBegin(t, helper, reports[:2])
	changed := func(at int, v byte) []byte { b := bytes.Clone(good); b[at] = v; return b }
	number := headerSize + 1 + digestSize // the first prep share's
	large := bytes.Clone(good)
	copy(large[number:], bytes.Repeat([]byte{255}, 8))
	for want, b := range map[string][]byte{
		"shorter than its header":      good[:headerSize-1],
		"of 0 bytes":                   nil,
		"version 9":                    changed(0, 9),
		"of aggregator 1 came to 1":    changed(1, 1),
		"from another round":           elsewhere,
		"different verify keys":        otherKey,
		"0 places":                     changed(headerSize-2, 0),
		"6 places":                     changed(headerSize-2, 6),
		"770 places":                   changed(headerSize-1, 3),
		"message on place 1, not 0":    changed(headerSize-10, 1),
		"from place 9 on":              changed(headerSize-10, 9),
		"place 72057594037927936":      changed(headerSize-3, 1),
		"place 9223372036854775808":    changed(headerSize-3, 128),
		"message on 1 places, not 2":   mustBegin(t, newSums(t, r, key, 5)[0], reports[:1]),
		"message on 3 places, not 2":   mustBegin(t, newSums(t, r, key, 5)[0], reports[:3]),
		"says 3 of place 0":            changed(headerSize, 3),
		"1 bytes follow":               append(bytes.Clone(good), 0),
		"too short":                    good[:len(good)-1],
		"is too short":                 good[:headerSize],
		"a message is too short":       good[:headerSize+10],
		"place 0: pine: a field eleme": large,
	} {
		if _, err := helper.Finish(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if n := helper.Next(); n != 0 || len(helper.Out()) != 0 || len(helper.seen) != 0 || slices.ContainsFunc(helper.sums[0], func(b byte) bool { return b != 0 }) {
		t.Errorf("at place %d after refusals", n)
	}
	if got, err := helper.Finish(good); err != nil || !slices.Equal(got, []Reason{Accepted, BadProof}) {
		t.Errorf("%q %v", got, err)
	}
	if _, err := helper.Finish(good); err == nil {
		t.Error("the same message twice")
	}
	for want, places := range map[string][]*Prepared{
		"0 places":     nil,
		"4 places":     prepared(helper, reports[:4]),
		"not prepared": prepared(leader, reports[2:]),
		"was not":      {nil},
	} {
		if _, err := helper.Begin(places); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	zero := make([]int64, 20)
	if _, err := helper.Close(zero); err == nil || !strings.Contains(err.Error(), "2 of 5 places") {
		t.Error(err)
	}
}

func TestClosesOnce(t *testing.T) {
	r := mustNew(t, Config{Dim: 20, Bound: 1000, Users: 100})
	zero := make([]int64, 20)
	reports := some(t, r, 5)
	none := newSums(t, r, key, 2)
	decide(t, none, []report{reports[1], reports[3]}, 2)
	if _, err := none[0].Close(zero); err == nil || !strings.Contains(err.Error(), "no report") {
		t.Error(err)
	}
	sums := newSums(t, r, key, 5)
	decide(t, sums, reports, 2)
	if _, err := sums[0].Close(zero[1:]); err == nil {
		t.Error("noise of 19 integers")
	}
	var p [2]vecsum.Partial
	for k, s := range sums {
		var err error
		if p[k], err = s.Close(zero); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(s.sums[0], func(b byte) bool { return b != 0 }) {
			t.Error("the sum is still there")
		}
		_, again := s.Close(zero)
		_, begin := s.Begin(nil)
		_, finish := s.Finish(nil)
		for _, err := range []error{again, begin, finish} {
			if err == nil || !strings.Contains(err.Error(), "closed") {
				t.Error(err)
			}
		}
	}
	if a, _, err := r.Combine(p[1], p[0]); err != nil || len(a) != 20 {
		t.Error(err)
	}
	for want, change := range map[string]func(*vecsum.Partial){
		"of aggregator 0 is": func(p *vecsum.Partial) { p.Index = 0 },
		"of aggregator 2":    func(p *vecsum.Partial) { p.Index = 2 },
		"of aggregator -1":   func(p *vecsum.Partial) { p.Index = -1 },
		"another round":      func(p *vecsum.Partial) { p.Tag[0] ^= 1 },
		"of 19 counts":       func(p *vecsum.Partial) { p.Sums = p.Sums[1:] },
		"unequal shares":     func(p *vecsum.Partial) { p.Reports[0] ^= 1 },
		"not sum the same":   func(p *vecsum.Partial) { p.Clients++ },
		"field element":      func(p *vecsum.Partial) { p.Sums = slices.Clone(p.Sums); p.Sums[0] = order },
		"2^62":               func(p *vecsum.Partial) { p.Sums = slices.Clone(p.Sums); p.Sums[3] = minus(p.Sums[3], 1<<62+1<<40) },
	} {
		q := p[1]
		change(&q)
		if _, _, err := r.Combine(p[0], q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p[0].Clients, p[1].Clients = 101, 101
	if _, _, err := r.Combine(p[0], p[1]); err == nil {
		t.Error("more clients than users")
	}
}

// TestNothingSecretIsPrinted formats what holds keys and shares.
func TestNothingSecretIsPrinted(t *testing.T) {
	s := newSums(t, mustNew(t, Config{Dim: 20, Bound: 1000, Users: 100}), key, 5)[1]
	p := s.Prepare(nil)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if got := fmt.Sprintf(verb+verb, s, p); got != "proved: sum of aggregator 1proved: prepared report" {
			t.Errorf("%s: %s", verb, got)
		}
	}
}

// TestPrepareInParallel serves the race detector.
func TestPrepareInParallel(t *testing.T) {
	r := mustNew(t, Config{Dim: 20, Bound: 1000, Users: 100})
	reports := some(t, r, 8)
	s := newSums(t, r, key, 8)[0]
	places := make([]*Prepared, 8)
	var wg sync.WaitGroup
	for i, m := range reports {
		wg.Go(func() { places[i] = s.Prepare(m[0]) })
	}
	wg.Wait()
	b, err := s.Begin(places)
	if err != nil || !bytes.Equal(b, mustBegin(t, newSums(t, r, key, 8)[0], reports)) {
		t.Error(err)
	}
}

// TestPlacesInMemory holds what Places promises of the memory that undecided places need.
func TestPlacesInMemory(t *testing.T) {
	r := mustNew(t, Config{Dim: 1930, Bound: 1<<15 + 22, Users: 1000})
	m := mustReport(t, r, rng.Replay(1), make([]int64, 1930))
	for k, s := range newSums(t, r, key, 1000) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		places := make([]*Prepared, 64)
		for i := range places {
			places[i] = s.Prepare(m[k])
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (int(after.HeapAlloc) - int(before.HeapAlloc)) / len(places)
		t.Logf("aggregator %d: %d bytes a place", k, each)
		if all := each * r.Places(); all > mostMemory {
			t.Errorf("aggregator %d: %d places need %d bytes", k, r.Places(), all)
		}
		runtime.KeepAlive(places)
	}
}

// FuzzMessage gives an aggregator a message that was changed: it is refused as a whole, or only
// reports of the changed places are left out.
func FuzzMessage(f *testing.F) {
	r := mustNew(f, Config{Dim: 2, Bound: 7, Users: 100})
	reports := some(f, r, 5)
	leader := newSums(f, r, key, 5)[0]
	good := mustBegin(f, leader, reports)
	honest := newSums(f, r, key, 5)[1]
	places := prepared(honest, reports)
	f.Add(uint32(0), false, []byte{})
	f.Add(uint32(0), true, good)
	f.Add(uint32(headerSize), false, []byte{0})
	f.Add(uint32(headerSize+1), false, []byte{0, 0})
	f.Add(uint32(headerSize-2), false, []byte{200})
	f.Fuzz(func(t *testing.T, at uint32, whole bool, patch []byte) {
		b := bytes.Clone(good)
		if whole {
			b = patch
		} else {
			copy(b[int(at)%len(b):], patch)
		}
		s := newSums(t, r, key, 5)[1]
		own := make([]*Prepared, 5)
		for i, p := range places {
			q := *p
			q.sum = s
			own[i] = &q
		}
		if _, err := s.Begin(own); err != nil {
			t.Fatal(err)
		}
		reasons, err := s.Finish(b)
		if err != nil {
			if s.Next() != 0 || len(s.seen) != 0 {
				t.Error("a refused message changed something")
			}
			return
		}
		for i, reason := range reasons {
			if reason == Accepted && (i == 1 || i == 3) {
				t.Errorf("place %d is accepted", i)
			}
			if reason != Accepted && i != 1 && i != 3 && bytes.Equal(b, good) {
				t.Errorf("place %d: %s", i, reason)
			}
		}
	})
}

// FuzzHalf gives an aggregator a half that was changed: it is never accepted.
func FuzzHalf(f *testing.F) {
	r := mustNew(f, Config{Dim: 2, Bound: 7, Users: 100})
	base := some(f, r, 1)[0]
	f.Add(byte(0), uint32(0), false, []byte{1})
	f.Add(byte(1), uint32(0), false, []byte{1})
	f.Add(byte(0), uint32(0), true, []byte{})
	f.Add(byte(1), uint32(0), true, base[0])
	f.Fuzz(func(t *testing.T, which byte, at uint32, whole bool, patch []byte) {
		m := base.clone()
		k := int(which % 2)
		if whole {
			m[k] = patch
		} else {
			copy(m[k][int(at)%len(m[k]):], patch)
		}
		reasons := decide(t, newSums(t, r, key, 1), []report{m}, 1)
		if changed := !bytes.Equal(m[k], base[k]); changed != (reasons[0] != Accepted) {
			t.Errorf("changed %v: %q", changed, reasons[0])
		}
	})
}

// TestFormat holds every byte that is sent or stored, by SHA-256: reports of programs of this version
// are those of later ones, or the labels change.
func TestFormat(t *testing.T) {
	r := mustNew(t, Config{Dim: 20, Bound: 1000, Users: 100, Announcement: [32]byte{1, 2, 3}})
	src := rng.Replay(11)
	var reports []report
	for i := range 5 { // integers only: floating point may differ between processors
		x := make([]int64, 20)
		for j := range x {
			x[j] = int64(i*j%13) - 6
		}
		reports = append(reports, mustReport(t, r, src, x))
	}
	reports[1] = r.rewrite(reports[1], func(h *[2]half) { addTo(h[0].inputs[0], 0, 1) })
	reports[3][1] = nil
	reports[4] = r.rewrite(reports[4], func(h *[2]half) { h[0].public[0][0] ^= 1; h[1].public[0][0] ^= 1 })
	got := map[string][]byte{"aggregator's half": reports[0][0], "coordinator's half": reports[0][1]}
	sums := newSums(t, r, key, 5)
	got["aggregator's message"], got["coordinator's message"] = mustBegin(t, sums[0], reports), mustBegin(t, sums[1], reports)
	decide(t, sums, reports, 5)
	noise := make([]int64, 20)
	noise[1], noise[2] = -5, 7
	for k, s := range sums {
		p, err := s.Close(noise)
		if err != nil {
			t.Fatal(err)
		}
		got[[]string{"aggregator's partial sum", "coordinator's partial sum"}[k]] = fmt.Append(nil, p)
	}
	for what, want := range map[string]string{
		"aggregator's half":         "f19425b76af8c077ca001341bbd6267e09a7933c5dca2082616163363da52bbb",
		"coordinator's half":        "aac94d6cb4f9392037f16be1301025d7cda6af8b5a9777deb99f20c33e6596f1",
		"aggregator's message":      "2e875a0cd23cce06a7f51f4494263c175d616946b43248c6fab0e00724633ed5",
		"coordinator's message":     "2a55bc59cf4b4d7982241f302c54b89176df2c80889bfb8636a98b38f41f7673",
		"aggregator's partial sum":  "57dcea3dec1413e1b642df3a66f799bf355992de9bf3c28b1b199587183f8c10",
		"coordinator's partial sum": "d813483e095c3f8306b108b44981b8fd810e0da2c335a3954bfa80c7c6f41e30",
	} {
		if sum := sha256.Sum256(got[what]); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: %x", what, sum)
		}
	}
}
