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
	open := func() *curves {
		return &curves{store: s, revision: map[string]uint64{}, warn: func(msg string, args ...any) { said = append(said, msg+fmt.Sprint(args...)) }}
	}
	task := strings.Repeat("ab", 32)
	first := open()
	if got, _, _ := first.load(ctx, task, 9); got != nil {
		t.Fatalf("%v from an empty store", got)
	}
	examined, err := report.Examine([]string{"cat", "dog"}, [][]int64{{3, 1}, {0, 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first.save(ctx, task, measured(3), examined, 3)
	second := open()
	got, x, at := second.load(ctx, task, 9)
	if fmt.Sprint(got) != fmt.Sprint(measured(3)) {
		t.Errorf("%v", got)
	}
	was, _ := json.Marshal(examined)
	if is, _ := json.Marshal(x); string(is) != string(was) || at != 3 || !strings.Contains(string(is), "7 of 8 right") {
		t.Errorf("of round %d: %s, not %s", at, is, was)
	}
	if got, x, _ := second.load(ctx, task, 2); len(got) != 2 || x != nil {
		t.Errorf("%v, %v up to round 2", got, x)
	}
	second.save(ctx, task, measured(5), nil, 0)
	first.save(ctx, task, measured(7), nil, 0) // leads again
	if got, _, _ := second.load(ctx, task, 9); len(got) != 7 {
		t.Errorf("%v", got)
	}
	if len(said) != 0 {
		t.Error(said)
	}
	for _, bad := range []string{"{", `{"round":[1]}`} {
		e, err := s.Get(ctx, curveKey(task))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(ctx, curveKey(task), []byte(bad), e.Revision); err != nil {
			t.Fatal(err)
		}
		said = nil
		third := open()
		if got, _, _ := third.load(ctx, task, 9); got != nil || len(said) != 1 {
			t.Errorf("%s: %v, %v", bad, got, said)
		}
		third.save(ctx, task, measured(1), nil, 0)
		if got, _, _ := third.load(ctx, task, 9); len(got) != 1 || len(said) != 1 {
			t.Errorf("%v, %v after a write", got, said)
		}
	}
}
