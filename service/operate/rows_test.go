package operate

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
)

// Tasks that are evaluated on the same rows hold them once, and none holds the rows that clients train on. One that
// has ended holds none, and its model's file can still be made.
func TestTasksShareTheirRows(t *testing.T) {
	r := &coordinatorProcess{tasks: map[[32]byte]*train.Setup{}}
	add := func(name, rows string) *train.Setup {
		t.Helper()
		table := filepath.Join(t.TempDir(), "table.csv")
		if err := os.WriteFile(table, []byte("x,label\n"+strings.Repeat(rows, 600)), 0o600); err != nil {
			t.Fatal(err)
		}
		c := train.Default()
		c.Data, c.Label, c.Trust, c.Participation, c.Model, c.Rounds, c.Eps0 = table, "label", "shuffle", "all", "linear", 2, 1
		s, err := train.NewTask(t.Context(), name, c, train.Enrolled{Population: wire.ID{7}, Clients: 900, MinReports: 2})
		if err != nil {
			t.Fatal(err)
		}
		r.share(s)
		r.remember(s)
		return s
	}
	a, b, other := add("a", "1,no\n0,yes\n"), add("b", "1,no\n0,yes\n"), add("c", "1,no\n2,yes\n")
	if a.Data.Eval != b.Data.Eval || a.Data.Eval == other.Data.Eval || len(a.Data.Eval.X) == 0 || len(other.Data.Eval.X) == 0 {
		t.Error("the same rows are held twice, or others once")
	}
	for _, s := range []*train.Setup{a, b, other} {
		if s.Data.Train.X != nil || s.Data.Train.Dim == 0 {
			t.Errorf("%s holds the rows that clients train on", s.Wire.Name)
		}
	}
	r.ended(a)
	shown := r.tasks[wire.Digest(a.Wire)]
	if shown == a || shown.Data.Eval.X != nil || shown.Data.Examples != a.Data.Examples || r.tasks[wire.Digest(b.Wire)] != b || len(b.Data.Eval.X) == 0 {
		t.Error("a task that has ended holds rows, or one that runs lost them")
	}
	want, err := a.ModelFile(1, make([]float32, a.Model.Params), 1, "bound", [32]byte{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := shown.ModelFile(1, make([]float32, a.Model.Params), 1, "bound", [32]byte{}); err != nil || !slices.Equal(got, want) {
		t.Errorf("the model's file differs: %v", err)
	}
}

// The heap after tasks on images have ended is what it was before them; while they run they hold the images
// once.
func TestHeapAfterTasks(t *testing.T) {
	longtest.Only(t, "makes features of MNIST for each of several tasks")
	r := &coordinatorProcess{tasks: map[[32]byte]*train.Setup{}}
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	rounds := int64(1)
	run := func(n int) (all []*train.Setup) {
		for range n {
			rounds++ // no task is another's twin
			c := train.Default()
			c.Trust, c.Participation, c.Model, c.Rounds, c.Eps0 = "shuffle", "all", "hog-linear", rounds, 1
			s, err := train.NewTask(t.Context(), "task", c, train.Enrolled{Population: wire.ID{7}, Clients: 1000, MinReports: 2})
			if err != nil {
				t.Fatal(err)
			}
			r.share(s)
			r.remember(s)
			all = append(all, s)
		}
		return all
	}
	before := heap()
	all := run(6)
	if during := heap(); during-before > 40 {
		t.Errorf("six tasks hold %.0f MB", during-before)
	}
	end := func(all []*train.Setup) {
		for _, s := range all {
			r.ended(s)
		}
		clear(all)
	}
	end(all)
	for range 44 {
		end(run(1))
	}
	after := heap()
	if after-before > 20 {
		t.Errorf("50 tasks that have ended hold %.0f MB", after-before)
	}
	t.Logf("50 tasks that have ended hold %.1f MB", after-before)
	runtime.KeepAlive(r)
}
