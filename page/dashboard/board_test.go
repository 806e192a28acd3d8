package dashboard

import (
	"fmt"
	"image"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// exampleTask is a task as it stands after so many of its rounds.
func exampleTask(id, name string, round, rounds int64) View {
	eps := math.Sqrt(float64(round) / float64(rounds))
	examined, err := report.Examine([]string{"cat", "dog", "newt"}, [][]int64{{30, 2, 0}, {5, 28, 1}, {0, 0, 34}},
		[]report.Sample{{Image: image.NewGray(image.Rect(0, 0, 8, 8)), Label: 1, Predicted: 1, Confidence: .8}, {Image: image.NewGray(image.Rect(0, 0, 8, 8)), Label: 1, Predicted: 0, Confidence: .6}})
	if err != nil {
		panic(err)
	}
	status := wire.Status{Task: wire.Task{Name: name, Delta: 1e-5}, State: Running, Phase: "opening", Round: round, Until: rounds,
		Eps: dp.Number(eps), Method: "blanket-pld", Source: "Balle et al. 2019, Theorem 3.1", Charged: round,
		Counts: wire.Counts{Released: round, Void: 1, Reports: 59000 * round, Rejected: map[wire.Reason]int64{"closed": 131, "bad-signature": 4, "out-of-range": 12}}}
	return View{ID: id, Status: status, Examined: examined, ExaminedAt: round, Opened: 41235, Expected: 60000, EpsAt: round, Planned: 1, Budget: 1,
		Charge: "shuffle all k=60000 n=60000 privunit eps0=2", Accuracy: dp.Number(.974 - .6*math.Exp(-float64(round)/20)),
		Loss: dp.Number(.08 + 2*math.Exp(-float64(round)/15)), Evaluated: "10000 test examples",
		Stages: []Stage{{Name: "collecting", Seconds: 812, Items: 59000 * round, Unit: "reports"}, {Name: "charging", Seconds: 3.2}, {Name: "opening", Seconds: 96, Items: 59000 * round, Unit: "reports"},
			{Name: "releasing", Seconds: 1.5, Items: round, Unit: "rounds"}, {Name: "evaluating", Seconds: 31, Items: round, Unit: "rounds"}},
		Seconds: 942, Facts: []Fact{{"Clients", "60,000"}, {"Taking part", "all"}, {"Hidden by", "shuffle"}, {"Randomizer", "privunit with ε₀ = 2"}, {"Optimizer", "cldp-sgd"}, {"Model", "hog-linear, 4,420 parameters"}},
		Privacy: report.Privacy{Trust: dp.Shuffle, Participation: dp.All, Adjacency: dp.ReplaceOne, Population: 60000, ReportsPerRound: 59000, Rounds: round, Running: true,
			Randomizer: "privunit", Eps0: 2, Epsilon: eps, Delta: 1e-5, Method: "blanket-pld", Status: dp.Proved, PerClient: 1}}
}

// exampleBoard has a task of that many rounds, all of which have ended.
func exampleBoard(rounds int64) *Board {
	b := &Board{}
	b.Set(exampleTask("run", "first", rounds, rounds))
	for r := int64(1); r <= rounds; r++ {
		exampleRound(b, "run", r, rounds)
	}
	return b
}

func exampleRound(b *Board, id string, r, rounds int64) {
	x := float64(r) / float64(rounds)
	round := Round{Round: r, Reports: 58000 + 1500*(r*7919%13)/13, Rejected: r * 31 % 7}
	if r*37%101 == 0 {
		round = Round{Round: r, Void: 1}
	}
	b.Ended(id, round)
	wobble := .01 * math.Sin(float64(r)*1.7) * math.Exp(-2*x)
	b.Measured(id, Measure{Round: r, Eps: math.Sqrt(x), Accuracy: .974 - .6*math.Exp(-12*x) + wobble, Loss: .08 + 2*math.Exp(-14*x) - wobble, Seconds: 11.8 * float64(r)})
}

// A history is as small at a million rounds as at a thousand, starts with the first
// and ends with the last, and forgets no report.
func TestHistoryIsThinned(t *testing.T) {
	for _, n := range []int64{1, 2, 479, 480, 481, 482, 961, 1000, 1443, 10_000, 100_003} {
		var m measures
		var r rounds
		for i := int64(1); i <= n; i++ {
			m.add(Measure{Round: i, Eps: float64(i), Accuracy: math.NaN(), Loss: 1})
			r.add(Round{Round: i, Reports: i, Rejected: 1, Void: i % 2})
			if last := m.list[len(m.list)-1].Round; last != i {
				t.Fatalf("%d rounds: the last measure is of %d", i, last)
			}
			if len(m.list) > limit || len(r.list) > limit {
				t.Fatalf("%d rounds: %d measures, %d rounds", i, len(m.list), len(r.list))
			}
		}
		if m.list[0].Round != 1 || r.list[0].Round > 1+n/limit*4 {
			t.Errorf("%d rounds: they begin at %d and %d", n, m.list[0].Round, r.list[0].Round)
		}
		if least := min(n, limit/2); int64(len(m.list)) < least || int64(len(r.list)) < least {
			t.Errorf("%d rounds: only %d measures and %d rounds are left", n, len(m.list), len(r.list))
		}
		// Kept ones are evenly apart, but for the last, which is the newest.
		for i := 2; i < len(m.list)-1; i++ {
			if gap := m.list[i].Round - m.list[i-1].Round; gap != m.stride {
				t.Fatalf("%d rounds: a gap of %d in steps of %d at place %d", n, gap, m.stride, i)
			}
		}
		var all Round
		for i, x := range r.list {
			if i > 0 && x.Round <= r.list[i-1].Round {
				t.Fatalf("%d rounds: out of order at %d", n, i)
			}
			all = all.with(x)
		}
		if all != (Round{Round: n, Rounds: n, Reports: n * (n + 1) / 2, Rejected: n, Void: (n + 1) / 2}) {
			t.Errorf("%d rounds add up to %+v", n, all)
		}
	}
}

// A page opens on the newest task, whatever has become of it.
func TestNewestIsPicked(t *testing.T) {
	b := &Board{}
	if got := b.pick(); got != "" {
		t.Errorf("of none: %q", got)
	}
	for _, state := range []string{Running, Done, Refused, Running, Stopped} {
		b.Set(View{ID: string(state), Status: wire.Status{State: state}})
		b.Set(View{ID: "new", Status: wire.Status{State: state}})
		b.Set(View{ID: string(state), Status: wire.Status{State: state, Round: 1}}) // known already
		if got := b.pick(); got != "new" {
			t.Errorf("%s: %q", state, got)
		}
		b.tasks = b.tasks[:len(b.tasks)-1]
	}
}

// What a ledger tells of rounds that are past: void ones are told from charged ones
// only where the numbers agree.
func TestPastRounds(t *testing.T) {
	entries := []ledger.Entry{{Round: 2}, {Round: 5}}
	got := Past(entries, 6, Round{Reports: 17, Void: 4})
	want := []Round{{Round: 1, Rounds: 1, Void: 1}, {Round: 2, Rounds: 1, Reports: 8}, {Round: 3, Rounds: 1, Void: 1}, {Round: 4, Rounds: 1, Void: 1}, {Round: 5, Rounds: 1, Reports: 9}, {Round: 6, Rounds: 1, Void: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	// An entry that pays for several rounds makes none of them void.
	if got := Past(entries, 6, Round{Reports: 50, Void: 1}); !slices.Equal(got, []Round{{Round: 6, Rounds: 6, Reports: 50, Void: 1}}) {
		t.Errorf("%+v", got)
	}
	all := int64(0)
	got = Past(nil, 1e6, Round{Void: 1e6})
	for _, r := range got {
		all += r.Void
	}
	if n := len(got); n > 2*limit || all != 1e6 || got[n-1].Round != 1e6 {
		t.Errorf("a million void rounds are %d, of %d", len(got), all)
	}
	if got := Past(nil, 0, Round{}); got != nil {
		t.Errorf("of no round: %+v", got)
	}
}

func TestMeasureIsFilledUp(t *testing.T) {
	var m measures
	nan := math.NaN()
	m.add(Measure{Round: 3, Eps: 1, Accuracy: nan, Loss: nan})
	m.add(Measure{Round: 3, Eps: nan, Accuracy: .5, Loss: 2})
	m.add(Measure{Round: 2, Eps: 9, Accuracy: .9, Loss: 9})
	if len(m.list) != 1 || m.list[0] != (Measure{Round: 3, Eps: 1, Accuracy: .5, Loss: 2}) {
		t.Errorf("%+v", m.list)
	}
}

// A page that is told how a history goes on has what one has that asks for all.
func TestIncrementsAddUp(t *testing.T) {
	b := &Board{}
	b.Set(View{ID: "x"})
	var have seen
	var round, reports []int64
	var eps []dp.Number
	version := uint64(0)
	for i := int64(1); i <= 3000; i++ {
		exampleRound(b, "x", i, 3000)
		if i*i%7 != 1 && i != 3000 {
			continue // a page looks now and then
		}
		var c *columns
		version, _, c, have = b.news(version, "x", have)
		if c == nil {
			t.Fatal("no news")
		}
		round = append(round[:c.Measures.From], c.Measures.Round...)
		eps = append(eps[:c.Measures.From], c.Measures.Eps...)
		reports = append(reports[:c.Rounds.From], c.Rounds.Reports...)
	}
	// One more round is one or two points, not a history.
	exampleRound(b, "x", 3001, 3000)
	if _, _, c, _ := b.news(version, "x", have); len(c.Measures.Round) > 2 || len(c.Rounds.Round) > 2 {
		t.Errorf("a round is told by %d and %d points", len(c.Measures.Round), len(c.Rounds.Round))
	}
	var c *columns
	version, _, c, have = b.news(version, "x", have)
	round = append(round[:c.Measures.From], c.Measures.Round...)
	eps = append(eps[:c.Measures.From], c.Measures.Eps...)
	reports = append(reports[:c.Rounds.From], c.Rounds.Reports...)
	whole, ok := b.history("x", seen{})
	if !ok || fmt.Sprint(whole.Measures.Round, whole.Measures.Eps, whole.Rounds.Reports) != fmt.Sprint(round, eps, reports) {
		t.Error("the increments give another history")
	}
	if v, tasks, c, _ := b.news(version, "x", have); v != version || tasks != nil || c != nil {
		t.Error("news where there are none")
	}
}

func TestLedgerFoldsAndForgetsNoCount(t *testing.T) {
	var l Ledger
	for i := int64(1); i <= 900; i++ {
		l.Charge("a", i, fmt.Sprint("k=", i))
	}
	for i := int64(901); i <= 9000; i++ {
		l.Charge("a", i, "k=5")
	}
	v := l.shown()
	if v.Entries != 9000 || len(v.Lines) != maxLines || v.Lines[0] != (charges{First: 901, Last: 9000, Task: "a", From: 901, To: 9000, Event: "k=5"}) {
		t.Errorf("%d entries, %d lines, first %+v", v.Entries, len(v.Lines), v.Lines[0])
	}
	if v.Omitted != v.Lines[len(v.Lines)-1].First-1 || v.Omitted != 9000-8100-199 {
		t.Errorf("%d omitted", v.Omitted)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		v    interface{ MarshalJSON() ([]byte, error) }
		want string
	}{{dp.Number(math.Inf(1)), `"inf"`}, {dp.Number(math.Inf(-1)), `"-inf"`}, {dp.Number(math.NaN()), "null"}, {dp.Number(.1), "0.1"},
		{rounded(1.0 / 3), "0.333333"}, {rounded(math.NaN()), "null"}, {dp.Number(0.30000000000000004), "0.30000000000000004"}} {
		if got, err := c.v.MarshalJSON(); err != nil || string(got) != c.want {
			t.Errorf("%v: %s, %v", c.v, got, err)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -100: "-100", -1000: "-1,000", 60_000: "60,000", 1_234_567: "1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
}

// An evaluation that comes when further rounds have ended is put where it belongs, and pages get
// the curve anew.
func TestLateEvaluation(t *testing.T) {
	nan := math.NaN()
	var h measures
	for r := range int64(5) {
		h.add(Measure{Round: r + 1, Eps: float64(r), Accuracy: nan, Loss: nan})
	}
	before := h.shape
	h.add(Measure{Round: 3, Eps: nan, Accuracy: .5, Loss: .25})
	if m := h.list[2]; m.Accuracy != .5 || m.Loss != .25 || m.Eps != 2 || h.shape == before || len(h.list) != 5 {
		t.Errorf("%+v, %d measures", m, len(h.list))
	}
	before = h.shape
	h.add(Measure{Round: 3, Eps: nan, Accuracy: .7, Loss: .1}) // a resumed run measures it again
	h.add(Measure{Round: 2, Eps: nan, Accuracy: nan, Loss: nan})
	h.add(Measure{Round: 0, Eps: nan, Accuracy: .5, Loss: .25}) // before the first
	if m := h.list[2]; m.Accuracy != .5 || h.shape != before || len(h.list) != 5 {
		t.Errorf("%+v, %d measures", m, len(h.list))
	}
}
