package prio3

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Different keys are the aggregators' fault, not the client's.
func TestKeys(t *testing.T) {
	s := mustNew(t, small())
	a, b := pair(t, s)[0], (*Aggregator)(nil)
	b, err := s.NewAggregator(1, VerifyKey{1})
	if err != nil {
		t.Fatal(err)
	}
	ms, err := s.Messages(rng.Replay(5), make([]int64, 3))
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range run(t, [2]*Aggregator{a, b}, ms) {
		if err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "keys") {
			t.Errorf("aggregator %d: %v", i, err)
		}
	}
	if _, err := s.NewAggregator(0, VerifyKey{}); err == nil {
		t.Error("a key of zeros was accepted")
	}
	if _, err := s.NewAggregator(2, testKey); err == nil {
		t.Error("aggregator 2 of 0 and 1")
	}
	key := VerifyKey(bytes.Repeat([]byte{0xa7}, 32))
	a, err = s.NewAggregator(0, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%t"} {
		for _, v := range []any{key, &key, local{s, key}, a, struct{ A *Aggregator }{a}} {
			text := strings.ToLower(fmt.Sprintf(verb, v))
			for _, leak := range []string{"a7a7", "0xa7", "167", "247", "10100111", "\\xa7"} {
				if n := strings.Count(text, leak); n > 3 { // an address may have one
					t.Errorf("%T prints as %s by %s", v, text, verb)
				}
			}
		}
	}
}

// A report that one aggregator refuses on sight can be let go by the other: it
// counts as refused there too, and does not come again.
func TestAbandon(t *testing.T) {
	s := mustNew(t, small())
	all, src := pair(t, s), rng.Replay(12)
	ms := forge(t, s, src, []int64{1, 2, 3}, 0, 1)
	if _, err := all[0].Begin(ms[0]); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	prep, err := all[1].Begin(ms[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := all[0].abandon(prep); err == nil {
		t.Error("aggregator 0 abandoned what aggregator 1 has begun")
	}
	if err := all[1].abandon(prep); err != nil {
		t.Error(err)
	}
	if err := all[1].abandon(prep); err == nil {
		t.Error("abandoned twice")
	}
	if all[0].Refused != 1 || all[1].Refused != 1 {
		t.Errorf("%d and %d refused", all[0].Refused, all[1].Refused)
	}
	if _, err := all[1].Begin(ms[1]); err == nil {
		t.Error("an abandoned report came again")
	}
	good, err := s.Messages(src, []int64{4, 5, 6})
	if err != nil {
		t.Fatal(err)
	}
	p1, err := all[1].Begin(good[1])
	if err != nil {
		t.Fatal(err)
	}
	p0, err := all[0].Begin(good[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range [][]byte{p1, p0} {
		if err := all[i].Finish(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := all[1].abandon(p1); err == nil {
		t.Error("an accepted report was abandoned")
	}
	counts, n, err := closeAll(t, s, all)
	if err != nil || n != 1 || !slices.Equal(counts, []int64{4, 5, 6}) {
		t.Errorf("counts %v of %d (%v)", counts, n, err)
	}
	if err := all[1].abandon(prep); !errors.Is(err, errClosed) {
		t.Errorf("abandoned after closing: %v", err)
	}
}

// Past Users the order of Finish decides who is in: aggregators that differ in
// it hold different reports, and their sums are not combined.
func TestOrderBeyondUsers(t *testing.T) {
	p := small()
	p.Users = 1
	s := mustNew(t, p)
	all, src := pair(t, s), rng.Replay(13)
	var preps [2][2][]byte // report, aggregator
	for r := range preps {
		ms, err := s.Messages(src, []int64{int64(r), 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range all {
			if preps[r][i], err = a.Begin(ms[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	var partials [2][]byte
	for i, a := range all {
		if err := a.Finish(preps[i][1-i]); err != nil {
			t.Fatal(err)
		}
		if err := a.Finish(preps[1-i][1-i]); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("a second client of one: %v", err)
		}
		var err error
		if partials[i], err = a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if counts, _, err := s.Combine(partials[:]...); err == nil {
		t.Errorf("sums of different clients were combined to %v", counts)
	}
}

// Sums open once, for cohorts in range, from partials that belong together.
func TestCloseAndCombine(t *testing.T) {
	p := small()
	p.Users, p.MinUsers = 3, 2
	s := mustNew(t, p)
	src := rng.Replay(6)
	send := func(all [2]*Aggregator) [2]error {
		ms, err := s.Messages(src, []int64{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		return run(t, all, ms)
	}
	all := pair(t, s)
	send(all)
	if _, err := all[0].Close(); err == nil {
		t.Error("one client of at least two was opened")
	}
	send(all)
	send(all)
	for i, err := range send(all) {
		if err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("a fourth client of three at %d: %v", i, err)
		}
	}
	var partials [2][]byte
	for i, a := range all {
		var err error
		if partials[i], err = a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Close(); !errors.Is(err, errClosed) {
			t.Errorf("closed twice: %v", err)
		}
		if _, err := a.Begin(nil); !errors.Is(err, errClosed) {
			t.Errorf("begun after closing: %v", err)
		}
		if err := a.Finish(nil); !errors.Is(err, errClosed) {
			t.Errorf("finished after closing: %v", err)
		}
	}
	counts, n, err := s.Combine(partials[:]...)
	if err != nil || n != 3 || !slices.Equal(counts, []int64{3, 6, 9}) {
		t.Fatalf("counts %v of %d (%v)", counts, n, err)
	}
	other := pair(t, s)
	send(other)
	send(other)
	send(other)
	strange, err := other[1].Close()
	if err != nil {
		t.Fatal(err)
	}
	wrapped := slices.Clone(partials[1])
	copy(wrapped[partialStart:], plus(t, wrapped[partialStart:partialStart+16], 1<<50))
	for what, c := range map[string][][]byte{
		"one": {partials[0]}, "three": {partials[0], partials[1], partials[1]}, "one twice": {partials[0], partials[0]},
		"of other reports": {partials[0], strange}, "cut": {partials[0], partials[1][:partialStart]}, "empty": {nil, nil},
		"beyond what is proved": {partials[0], wrapped},
		"not of the field":      {partials[0], append(slices.Clone(partials[1][:partialStart]), bytes.Repeat([]byte{255}, 48)...)},
	} {
		if counts, n, err := s.Combine(c...); err == nil || counts != nil || n != 0 {
			t.Errorf("%s: %v of %d", what, counts, n)
		}
	}
	skellam := small()
	skellam.Noise = vecsum.Noise{Kind: vecsum.Skellam, Variance: 3}
	if _, err := New(vecsum.Config{Params: skellam}); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("noise without an end: %v", err)
	}
}
