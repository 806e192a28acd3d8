package shuffler

import (
	"errors"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func open(t *testing.T, min int64, key byte) *Round {
	t.Helper()
	r, err := Open(wire.Announcement{Round: 5, MinReports: min}, [16]byte{key})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ticket(i int) wire.Ticket {
	return wire.Ticket{ID: wire.ID{byte(i), byte(i >> 8)}, Payload: int64(i)}
}

func TestBatchHoldsEveryReportOnceInAnyOrderOfArrival(t *testing.T) {
	const n = 500
	arrivals := make([]int, n)
	for i := range arrivals {
		arrivals[i] = i
	}
	var want []int64
	for _, reverse := range []bool{false, true} {
		if reverse {
			slices.Reverse(arrivals)
		}
		r := open(t, 1, 1)
		for _, i := range arrivals {
			for range 1 + i%3 { // some come twice, some three times
				if err := r.Accept(ticket(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		b, duplicates, err := r.Close()
		if err != nil || b.Round != 5 || duplicates != (Dropped{Duplicates: 499}) {
			t.Fatalf("batch of round %d, %+v dropped, %v", b.Round, duplicates, err)
		}
		if want == nil {
			want = b.Payloads
		} else if !slices.Equal(want, b.Payloads) {
			t.Error("the batch depends on the order of arrival")
		}
	}
	sorted := slices.Clone(want)
	slices.Sort(sorted)
	for i := range n {
		if sorted[i] != int64(i) {
			t.Fatalf("report %d is lost or doubled", i)
		}
	}
	if slices.IsSorted(want) {
		t.Error("the batch is in order of arrival")
	}
}

// Over keys, every order of four reports is as likely as any other. χ² with 23
// degrees of freedom exceeds 80.7 with probability 2e-8.
func TestOrderIsUniformOverKeys(t *testing.T) {
	const trials = 24 * 2000
	counts := map[[4]int64]int{}
	src := rng.Replay(11)
	for range trials {
		var key [16]byte
		for i := range key {
			key[i] = byte(src.Uint64())
		}
		r, err := Open(wire.Announcement{MinReports: 1}, key)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if err := r.Accept(ticket(i)); err != nil {
				t.Fatal(err)
			}
		}
		b, _, err := r.Close()
		if err != nil {
			t.Fatal(err)
		}
		counts[[4]int64(b.Payloads)]++
	}
	var chi2 float64
	for _, c := range counts {
		d := float64(c) - trials/24
		chi2 += d * d / (trials / 24)
	}
	if len(counts) != 24 || chi2 > 80.7 {
		t.Errorf("%d orders, chi-square %.1f", len(counts), chi2)
	}
}

// Only ids that agree in all 128 bits are the same report.
func TestHalfEqualTagsAreTwoReports(t *testing.T) {
	r := open(t, 1, 1)
	r.tickets = []tagged{{1, 5, 0, 0, 0}, {2, 5, 0, 0, 1}, {2, 6, 0, 0, 2}, {2, 6, 0, 0, 2}, {3, 6, 0, 0, 3}}
	b, duplicates, err := r.Close()
	if err != nil || duplicates != (Dropped{Duplicates: 1}) || !slices.Equal(b.Payloads, []int64{0, 1, 2, 3}) {
		t.Errorf("batch %v, %+v dropped, %v", b.Payloads, duplicates, err)
	}
}

func TestTooFewReportsVoidTheRound(t *testing.T) {
	r := open(t, 3, 1)
	for range 5 { // one report, sent five times, is one report
		if err := r.Accept(ticket(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Accept(ticket(2)); err != nil {
		t.Fatal(err)
	}
	b, _, err := r.Close()
	if !errors.Is(err, ErrTooFew) || len(b.Payloads) != 0 {
		t.Errorf("released %v, %v", b.Payloads, err)
	}
	if r.Accept(ticket(3)) == nil {
		t.Error("accepted a report after the close")
	}
	if _, _, err := r.Close(); err == nil {
		t.Error("closed twice")
	}
	if _, err := Open(wire.Announcement{MinReports: 0}, [16]byte{}); err == nil {
		t.Error("opened a round without a minimum")
	}
}

func TestDrawIsAUniformSubset(t *testing.T) {
	ann := wire.Announcement{Population: 10, Sample: 3}
	src := rng.Replay(5)
	hits := make([]float64, 10)
	const trials = 20000
	for range trials {
		drawn := Draw(src, ann)
		if len(drawn) != 3 || drawn[0] == drawn[1] || drawn[1] == drawn[2] || drawn[0] == drawn[2] {
			t.Fatalf("drew %v", drawn)
		}
		for _, i := range drawn {
			hits[i]++
		}
	}
	// Each count is Bin(20000, .3): sd 64.8; ten of them leave ±6 sd with
	// probability 2e-8.
	for i, h := range hits {
		if h < 6000-389 || h > 6000+389 {
			t.Errorf("client %d drawn %v times, want about 6000", i, h)
		}
	}
}
