package operate

import (
	"bytes"
	"testing"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/internal/longtest"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// Heavy hitters over a network: rounds of disjoint clients, each told by the one before what to ask. They
// are charged once, and a restart gives the same answer.
func TestHeavyHittersOverANetwork(t *testing.T) {
	longtest.Only(t, "serves roles with 700 clients")
	a := newAsked(t, 700, 20)
	defer a.serve(RoleShuffler, RoleShuffler)()
	defer a.serve(RoleAggregator, RoleAggregator)()
	stop := a.serve(RoleCoordinator, RoleCoordinator)
	defer func() { stop() }()
	task, err := a.create("cities", "measure: heavy-hitters\ncolumn: city\nshare: 0.45\nlongest: 4\nalphabet: rolsme\nepsilon: 8\ndelta: 1e-5\nn-min: 130\n")
	if err != nil {
		t.Fatal(err)
	}
	if task.Question != "heavy-hitters" || task.Rounds != 5 || task.Participation != "once" {
		t.Errorf("created %v", task)
	}
	defer a.serve(RoleClient, "clients-0")()
	first, text := a.answer("cities")
	if first.Search == nil || first.Search.Rounds != 5 || first.Search.Counted != 1 || len(first.Items) != 2 || first.Reports < 5*130 {
		t.Fatalf("%s", text)
	}
	for _, item := range first.Items {
		// The interval itself misses once in sixty times; 2.2 times as wide, less than once in a million.
		more := .6 * (item.JointHigh95 - item.JointLow95)
		if item.Text == nil || *item.Text != "rome" && *item.Text != "oslo" || !(item.JointLow95-more <= 350 && 350 <= item.JointHigh95+more) {
			t.Errorf("%+v", item)
		}
	}
	book, err := a.api().GetLedger(t.Context(), connect.NewRequest(&operatorv1.GetLedgerRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(book.Msg.Entries); n != 1 || !(book.Msg.Epsilon <= 8) || !(float64(first.Epsilon) <= 8) {
		t.Errorf("%d entries, epsilon %v", n, book.Msg.Epsilon)
	}
	stop()
	stop = a.serve(RoleCoordinator, RoleCoordinator)
	if _, again := a.answer("cities"); !bytes.Equal(again, text) {
		t.Errorf("after a restart the answer is\n%s\nit was\n%s", again, text)
	}
}
