package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/service/store"
)

func measured(n int64) (list []dashboard.Measure) {
	for i := range n {
		m := dashboard.Measure{Round: i + 1, Eps: .1 * float64(i+1), Accuracy: math.NaN(), Loss: 2 / float64(i+1), Seconds: float64(i)}
		if i%2 == 1 {
			m.Accuracy = .5
		}
		list = append(list, m)
	}
	return list
}

func TestCurvesOutliveAProcessAndItsRival(t *testing.T) {
	embedded(t)
	ctx := context.Background()
	config := store.Config{Domain: "coordinator", Dir: t.TempDir()}
	if err := store.Init(ctx, config); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var said []string
	open := func() *histories {
		return &histories{store: s, revision: map[string]uint64{}, warn: func(msg string, args ...any) { said = append(said, msg+fmt.Sprint(args...)) }}
	}
	task := strings.Repeat("ab", 32)
	first := open()
	if got := first.load(ctx, task, 9).Measures; got != nil {
		t.Fatalf("%v from an empty store", got)
	}
	examined, err := report.Examine([]string{"cat", "dog"}, [][]int64{{3, 1}, {0, 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first.save(ctx, task, dashboard.History{Measures: measured(3), Examined: examined, ExaminedAt: 3})
	second := open()
	had := second.load(ctx, task, 9)
	got, x, at := had.Measures, had.Examined, had.ExaminedAt
	if fmt.Sprint(got) != fmt.Sprint(measured(3)) {
		t.Errorf("%v", got)
	}
	was, _ := json.Marshal(examined)
	if is, _ := json.Marshal(x); string(is) != string(was) || at != 3 || !strings.Contains(string(is), "7 of 8 right") {
		t.Errorf("of round %d: %s, not %s", at, is, was)
	}
	if got := second.load(ctx, task, 2); len(got.Measures) != 2 || got.Examined != nil {
		t.Errorf("%v up to round 2", got)
	}
	second.save(ctx, task, dashboard.History{Measures: measured(5), Examined: nil, ExaminedAt: 0})
	first.save(ctx, task, dashboard.History{Measures: measured(7), Examined: nil, ExaminedAt: 0}) // leads again
	if got := second.load(ctx, task, 9).Measures; len(got) != 7 {
		t.Errorf("%v", got)
	}
	if len(said) != 0 {
		t.Error(said)
	}
	for _, bad := range []string{"{", `{"round":[1]}`} {
		e, err := s.Get(ctx, historyKey(task))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(ctx, historyKey(task), []byte(bad), e.Revision); err != nil {
			t.Fatal(err)
		}
		said = nil
		third := open()
		if got := third.load(ctx, task, 9).Measures; got != nil || len(said) != 1 {
			t.Errorf("%s: %v, %v", bad, got, said)
		}
		third.save(ctx, task, dashboard.History{Measures: measured(1), Examined: nil, ExaminedAt: 0})
		if got := third.load(ctx, task, 9).Measures; len(got) != 1 || len(said) != 1 {
			t.Errorf("%v, %v after a write", got, said)
		}
	}
}
