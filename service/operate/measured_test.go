package operate

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"

	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// Clients measure a task's model on rows of their own. Each round is charged once, as without; a
// restart shows what was measured last; a client that trains on other rows than it measures on makes
// the same task again.
func TestPrivateEvaluationOverANetwork(t *testing.T) {
	embedded(t)
	a := newAsked(t, 40, 14)
	defer a.serve(RoleShuffler, RoleShuffler)()
	defer a.serve(RoleAggregator, RoleAggregator)()
	stop := a.serve(RoleCoordinator, RoleCoordinator)
	defer func() { stop() }()
	settings := fmt.Sprintf("data: %s\nlabel: age\nrange: \"age=0..100\"\ncategories: city=rome|oslo\nloss: absolute\nmodel: linear\ntrust: vector-sum\nepsilon: 12\ndelta: 1e-5\nn-min: 40\nrounds: 3\nevaluate: private\nloss-limit: 1\nguard: loss:0.2\n", a.l.Data)
	task, err := a.create("ages", settings)
	if err != nil {
		t.Fatal(err)
	}
	if task.Rounds != 3 || len(task.Numbers) != 0 {
		t.Errorf("created %v", task)
	}
	defer a.serve(RoleClient, "clients-0")()
	done := a.ended("ages")
	loss, low, high := done.Numbers["private_loss"], done.Numbers["private_loss_low95"], done.Numbers["private_loss_high95"]
	if !(low >= 0 && low <= high && high <= 1) || math.IsNaN(loss) || done.Numbers["private_clients"] == 0 || done.EvaluatedRound != 3 {
		t.Errorf("measured %v in round %d", done.Numbers, done.EvaluatedRound)
	}
	if _, ok := done.Numbers["private_accuracy"]; ok || done.Loss == nil {
		t.Errorf("a regression has an accuracy: %v", done.Numbers)
	}
	book, err := a.api().GetLedger(t.Context(), connect.NewRequest(&operatorv1.GetLedgerRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(book.Msg.Entries); n != 3 || !(done.Epsilon <= 12 && done.Epsilon > 11) {
		t.Errorf("%d entries, epsilon %v", n, done.Epsilon)
	}
	if _, err := a.create("more", settings); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a task beyond the budget: %v", err)
	}
	if _, err := a.create("single", strings.Replace(settings, "vector-sum", "shuffle", 1)); err == nil || !strings.Contains(err.Error(), "needs trust vector-sum") {
		t.Errorf("single reports that measure: %v", err)
	}
	stop()
	stop = a.serve(RoleCoordinator, RoleCoordinator)
	if again := a.ended("ages"); !reflect.DeepEqual(again.Numbers, done.Numbers) {
		t.Errorf("after a restart %v, before %v", again.Numbers, done.Numbers)
	}
}
