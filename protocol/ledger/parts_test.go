package ledger

import (
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

// Of two small tasks the sum of what each costs is shown, which is far below the filter's figure; of many the filter's.
func TestSeveralSmallTasksShowTheirSum(t *testing.T) {
	limit := Config{Accountant: new(account.Accountant), Delta: 1e-5, MaxEps: 50}
	b, err := newBook([16]byte{1}, limit)
	if err != nil {
		t.Fatal(err)
	}
	event := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 1}, Trust: dp.Shuffle, Participation: dp.All, Population: 5000}
	charge := func(task byte) {
		t.Helper()
		e, _, err := b.next(Charge{Task: [32]byte{task}, Round: 1, Event: event})
		if err == nil {
			err = b.apply(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for task := byte(1); task <= MaxParts+1; task++ {
		if err := b.setTask([32]byte{task}, limit); err != nil {
			t.Fatal(err)
		}
	}
	charge(1)
	charge(2)
	one, err := limit.eps(event, count{share: (1 - adaptiveShare) / MaxParts})
	if err != nil {
		t.Fatal(err)
	}
	filter, err := b.total.spentEps()
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Spent()
	if err != nil || got.Method != "tasks-basic" || math.Abs(got.Eps-2*one.Eps) > 1e-9 || got.Delta != limit.Delta || !(got.Eps < filter.Eps/10) {
		t.Errorf("%+v, %v; one task costs %v, the filter says %v", got, err, one.Eps, filter.Eps)
	}
	for task := byte(3); task <= MaxParts+1; task++ {
		charge(task)
	}
	if got, err := b.Spent(); err != nil || !strings.HasPrefix(got.Method, "renyi") {
		t.Errorf("of %d tasks: %+v, %v", MaxParts+1, got, err)
	}
}
