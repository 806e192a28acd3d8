package coordinator

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// inChunks is a charged round of seeds whose batch lies in four chunks of these places.
type inChunks struct {
	t       *testing.T
	config  Config
	closed  wire.RoundClosed
	of      randomizer.Mechanism
	reports []*randomizer.Report
}

var placesOf = [][]int{{0, 1, 2}, {3}, {4, 5}, {6, 7, 8}}

func newChunks(t *testing.T) *inChunks {
	t.Helper()
	c := config(t, &book{})
	m, err := randomizer.New(randomizer.StepUnit, randomizer.Config{Dim: c.Mechanism.Facts().Dim, Radius: c.Clip, Eps0: 2, Encoding: randomizer.Seed})
	if err != nil {
		t.Fatal(err)
	}
	c.Mechanism, c.Report = m, m.Event()
	c.Population = 20
	w := &inChunks{t: t, config: c, closed: batch(1, 9).Closed()}
	w.closed.Announcement, w.closed.Chunks = [32]byte{7}, int64(len(placesOf))
	w.of = randomizer.ForRound(m, w.closed.Announcement)
	for i := range 9 {
		r := w.of.NewReport()
		w.of.Randomize(rng.Replay(3, uint64(i%7)), []float32{.1, .2}, r) // places 7 and 8 repeat 0 and 1
		w.reports = append(w.reports, r)
	}
	return w
}

func (w *inChunks) charged() *Coordinator {
	w.t.Helper()
	schedule, err := optimize.ParseSchedule("1")
	if err != nil {
		w.t.Fatal(err)
	}
	if w.config.Optimizer, err = optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: w.of.Facts().Dim, Schedule: schedule}); err != nil {
		w.t.Fatal(err)
	}
	w.config.Ledger = &book{}
	co, err := New(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := co.Receive(w.t.Context(), w.closed); err != nil {
		w.t.Fatal(err)
	}
	return co
}

// fill opens chunks as every process does: place 3 is of another key, place 5 out of shape.
func (w *inChunks) fill(tally *Tally, from, to int64) (wrongKey int64, receipts []wire.ID) {
	for _, places := range placesOf[from:to] {
		for _, i := range places {
			switch i {
			case 3:
				wrongKey++
				tally.Rejected++
				continue
			case 5:
				tally.Open(&randomizer.Report{Value: make([]int32, 3)})
			default:
				tally.Open(w.reports[i])
			}
			receipts = append(receipts, wire.ID{byte(9 - i)})
		}
	}
	return wrongKey, receipts
}

func (w *inChunks) partial(from, to int64) *wire.Opened {
	w.t.Helper()
	tally := NewPartial(w.of)
	wrongKey, receipts := w.fill(tally, from, to)
	p := tally.Partial(wire.Opened{Announcement: w.closed.Announcement, From: from, To: to}, wrongKey, receipts)
	p, err := wire.Decode[wire.Opened](wire.Encode(p)) // as it comes from a worker
	if err != nil {
		w.t.Fatal(err)
	}
	return &p
}

func (w *inChunks) total(co *Coordinator) *Total {
	w.t.Helper()
	t, err := co.NewTotal(w.closed, 9, true)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// All divisions of the chunks into ranges, in all orders and each range twice, give what one process
// gives, to the bit.
func TestPartialsAddUp(t *testing.T) {
	w := newChunks(t)
	one := w.charged()
	alone, err := one.NewTally()
	if err != nil {
		t.Fatal(err)
	}
	w.fill(alone, 0, 4)
	sum := slices.Clone(alone.Sum)
	accepted, rejected, err := one.End(alone)
	if err != nil || accepted != 5 || rejected != 4 {
		t.Fatalf("%d accepted, %d rejected: %v", accepted, rejected, err)
	}
	ways := 0
	for cuts := range 8 { // a bit for each border between chunks
		var ranges [][2]int64
		from := int64(0)
		for at := int64(1); at <= 4; at++ {
			if at == 4 || cuts>>(at-1)&1 == 1 {
				ranges = append(ranges, [2]int64{from, at})
				from = at
			}
		}
		permute(ranges, func(order [][2]int64) {
			ways++
			co := w.charged()
			total := w.total(co)
			for i, r := range order {
				if err := total.Whole(); !errors.Is(err, ErrPartial) {
					t.Errorf("whole after %d of %v: %v", i, order, err)
				}
				for again := range 2 {
					if added, err := total.AddPartial(w.partial(r[0], r[1])); err != nil || added != (again == 0) {
						t.Fatalf("%v of %v: added %t, %v", r, order, added, err)
					}
				}
			}
			if err := total.Whole(); err != nil {
				t.Fatalf("%v: %v", order, err)
			}
			if !slices.Equal(total.Tally.Sum, sum) || total.WrongKey != 1 || len(total.Receipts) != 8 {
				t.Errorf("%v: sum %v, want %v; %d, %d receipts", order, total.Tally.Sum, sum, total.WrongKey, len(total.Receipts))
			}
			if a, r, err := co.End(total.Tally); err != nil || a != accepted || r != rejected || !slices.Equal(co.Parameters, one.Parameters) {
				t.Errorf("%v: %d accepted, %d rejected, %v: %v, want %v", order, a, r, err, co.Parameters, one.Parameters)
			}
		})
	}
	if ways != 1+3*2+3*6+24 {
		t.Errorf("%d ways", ways)
	}
}

func permute(list [][2]int64, see func([][2]int64)) {
	var next func(n int)
	next = func(n int) {
		if n == len(list) {
			see(slices.Clone(list))
			return
		}
		for i := n; i < len(list); i++ {
			list[n], list[i] = list[i], list[n]
			next(n + 1)
			list[n], list[i] = list[i], list[n]
		}
	}
	next(0)
}

// Of all sequences of three ranges, a range is added exactly if it shares no chunk with those before, is
// left out if it is one of them, and is refused otherwise; the total is that of the chunks that were
// added.
func TestPartialsAreAddedOnce(t *testing.T) {
	w := newChunks(t)
	var all [][2]int64
	for from := range int64(4) {
		for to := from + 1; to <= 4; to++ {
			all = append(all, [2]int64{from, to})
		}
	}
	co := w.charged()
	for _, a := range all {
		for _, b := range all {
			for _, c := range all {
				total := w.total(co)
				var have [4]bool
				var before [][2]int64
				want := NewPartial(w.of)
				for _, r := range [][2]int64{a, b, c} {
					added, err := total.AddPartial(w.partial(r[0], r[1]))
					overlaps := slices.Contains(have[r[0]:r[1]], true)
					same := slices.Contains(before, r)
					if added != !overlaps || (err != nil) != (overlaps && !same) {
						t.Fatalf("%v %v %v: %v added %t, %v", a, b, c, r, added, err)
					}
					if added {
						w.fill(want, r[0], r[1])
						before = append(before, r)
						for i := r[0]; i < r[1]; i++ {
							have[i] = true
						}
					}
				}
				if !slices.Equal(total.Tally.Sum, want.Sum) || total.Tally.Accepted != want.Accepted || total.Tally.Rejected != want.Rejected {
					t.Fatalf("%v %v %v: %+v, want %+v", a, b, c, total.Tally, want)
				}
				if whole := total.Whole() == nil; whole != !slices.Contains(have[:], false) {
					t.Fatalf("%v %v %v: whole %t", a, b, c, whole)
				}
			}
		}
	}
}

// What is no tally of the batch is refused, and changes nothing.
func TestRefusedPartials(t *testing.T) {
	w := newChunks(t)
	co := w.charged()
	for name, change := range map[string]func(p *wire.Opened, total *Total){
		"another round":      func(p *wire.Opened, _ *Total) { p.Announcement[0]++ },
		"another mechanism":  func(p *wire.Opened, _ *Total) { p.Sum = append(p.Sum, 0) },
		"no range":           func(p *wire.Opened, _ *Total) { p.To = p.From },
		"below the batch":    func(p *wire.Opened, _ *Total) { p.From = -1 },
		"beyond the batch":   func(p *wire.Opened, _ *Total) { p.To = 5 },
		"fewer than chunks":  func(p *wire.Opened, _ *Total) { p.Accepted, p.OutOfRange, p.Identities, p.Receipts = 0, 0, nil, nil },
		"more than signed":   func(p *wire.Opened, _ *Total) { p.WrongKey = 9 },
		"a count overflows":  func(p *wire.Opened, _ *Total) { p.WrongKey, p.OutOfRange = math.MaxInt64, math.MaxInt64 },
		"a count below 0":    func(p *wire.Opened, _ *Total) { p.WrongKey = -1 },
		"no identities":      func(p *wire.Opened, _ *Total) { p.Identities = nil },
		"more receipts":      func(p *wire.Opened, _ *Total) { p.Receipts = make([]wire.ID, 4) },
		"unwanted receipts":  func(_ *wire.Opened, total *Total) { total.receipts = false },
		"overflow":           func(p *wire.Opened, total *Total) { p.Sum[0], total.Tally.Sum[0] = math.MaxInt64, 1 },
		"overflow below":     func(p *wire.Opened, total *Total) { p.Sum[0], total.Tally.Sum[0] = math.MinInt64, -1 },
		"overflow in one of": func(p *wire.Opened, total *Total) { p.Sum[1], total.Tally.Sum[1] = math.MaxInt64, 1 },
	} {
		total := w.total(co)
		p := w.partial(1, 3)
		change(p, total)
		before := slices.Clone(total.Tally.Sum)
		added, err := total.AddPartial(p)
		if added || !errors.Is(err, ErrPartial) {
			t.Errorf("%s: added %t, %v", name, added, err)
		}
		if !slices.Equal(total.Tally.Sum, before) || total.Tally.Accepted+total.Tally.Rejected != 0 || len(total.ranges)+len(total.Receipts)+len(total.Tally.identities) != 0 {
			t.Errorf("%s: the total has changed", name)
		}
	}
	// Fewer messages than were signed show at the end.
	total, err := co.NewTotal(w.closed, 10, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := total.AddPartial(w.partial(0, 4)); err != nil {
		t.Fatal(err)
	}
	if err := total.Whole(); !errors.Is(err, ErrPartial) {
		t.Errorf("9 of 10 messages: %v", err)
	}
	other := w.closed
	other.Round = 2
	if _, err := co.NewTotal(other, 9, true); err == nil {
		t.Error("a total of another round")
	}
	if _, _, err := co.End(NewPartial(w.of)); err == nil {
		t.Error("a worker's tally ends a round")
	}
	fresh, err := New(w.config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.NewTotal(w.closed, 9, true); err == nil {
		t.Error("a total before the charge")
	}
}
