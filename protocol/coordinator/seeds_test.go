package coordinator

import (
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Over a network reports are seeds, which mean something in their round only, and equal ones count
// once, however they are spread over tallies. Without a network the values themselves are added.
func TestSeedsCountOnce(t *testing.T) {
	c := config(t, &book{})
	m, err := randomizer.New(randomizer.StepUnit, randomizer.Config{Dim: c.Mechanism.Facts().Dim, Radius: c.Clip, Eps0: 2, Encoding: randomizer.Seed})
	if err != nil {
		t.Fatal(err)
	}
	c.Mechanism, c.Report = m, m.Event()
	run := func(announcement [32]byte, spread [][]int, reports []*randomizer.Report) []float32 {
		t.Helper()
		schedule, err := optimize.ParseSchedule("1")
		if err != nil {
			t.Fatal(err)
		}
		c.Optimizer, err = optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: m.Facts().Dim, Schedule: schedule})
		if err != nil {
			t.Fatal(err)
		}
		co, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		closed := batch(1, 4).Closed()
		closed.Announcement = announcement
		if err := co.Receive(t.Context(), closed); err != nil {
			t.Fatal(err)
		}
		var tallies []*Tally
		for _, places := range spread {
			tally, err := co.NewTally()
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range places {
				tally.Open(reports[i])
			}
			tallies = append(tallies, tally)
		}
		accepted, rejected, err := co.End(tallies...)
		if err != nil || accepted != 3 || accepted+rejected != int64(len(slices.Concat(spread...))) {
			t.Errorf("%d accepted, %d rejected, %v", accepted, rejected, err)
		}
		return slices.Clone(co.Parameters)
	}
	announcement := [32]byte{7}
	of := randomizer.ForRound(m, announcement)
	var reports []*randomizer.Report
	for range 3 {
		r := of.NewReport()
		of.Randomize(rng.Replay(3, uint64(len(reports))), []float32{.1, .2}, r)
		reports = append(reports, r)
	}
	want := run(announcement, [][]int{{0, 1, 2}}, reports)
	for _, spread := range [][][]int{{{0, 1, 2, 1}}, {{0, 1}, {2, 1}}, {{0}, {1, 2, 0, 0}, {}, {2, 1}}} {
		if got := run(announcement, spread, reports); !slices.Equal(got, want) {
			t.Errorf("spread %v gives %v, want %v", spread, got, want)
		}
	}
	if got := run([32]byte{8}, [][]int{{0, 1, 2}}, reports); slices.Equal(got, want) {
		t.Error("seeds mean the same in another round")
	}
	values := make([]*randomizer.Report, 3)
	for i := range values {
		values[i] = m.NewReport()
		m.Randomize(rng.Replay(4, uint64(i)), []float32{.1, .2}, values[i])
	}
	run([32]byte{}, [][]int{{0, 1}, {2}}, values)
}
