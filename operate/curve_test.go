package operate

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dashboard"
	"github.com/riffle-dp/riffle/store"
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
	if got := first.load(ctx, task, 9); got != nil {
		t.Fatalf("%v from an empty store", got)
	}
	first.save(ctx, task, measured(3))
	second := open()
	if got := second.load(ctx, task, 9); fmt.Sprint(got) != fmt.Sprint(measured(3)) {
		t.Errorf("%v", got)
	}
	if got := second.load(ctx, task, 2); len(got) != 2 {
		t.Errorf("%v up to round 2", got)
	}
	second.save(ctx, task, measured(5))
	first.save(ctx, task, measured(7)) // leads again
	if got := second.load(ctx, task, 9); len(got) != 7 {
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
		if _, err := s.UpdateKey(ctx, curveKey(task), []byte(bad), e.Revision); err != nil {
			t.Fatal(err)
		}
		said = nil
		third := open()
		if got := third.load(ctx, task, 9); got != nil || len(said) != 1 {
			t.Errorf("%s: %v, %v", bad, got, said)
		}
		third.save(ctx, task, measured(1))
		if got := third.load(ctx, task, 9); len(got) != 1 || len(said) != 1 {
			t.Errorf("%v, %v after a write", got, said)
		}
	}
}
