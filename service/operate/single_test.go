package operate

import (
	"testing"
)

// TestSingleMessagesOverANetwork: without a sum, each client answers by one message: a symbol of
// randomized response, which is charged by its own law. Its answer is made of what is stored.
func TestSingleMessagesOverANetwork(t *testing.T) {
	embedded(t)
	a := newAsked(t, 40, 30)
	defer a.serve(RoleShuffler, RoleShuffler)()
	stop := a.serve(RoleCoordinator, RoleCoordinator)
	defer func() { stop() }()
	const common = "epsilon: 8\ndelta: 1e-5\nn-min: 40\n"
	for name, settings := range map[string]string{
		"towns": "measure: histogram\ncolumn: city\ncategories: rome|oslo\ntrust: shuffle\n" + common,
		"age":   "measure: mean\ncolumn: age\nrange: 0..100\ntrust: local\n" + common,
	} {
		task, err := a.create(name, settings)
		if err != nil {
			t.Fatal(err)
		}
		if task.Rounds != 1 || task.NMin != 40 {
			t.Errorf("created %v", task)
		}
	}
	defer a.serve(RoleClient, "clients-0")()
	towns, _ := a.answer("towns")
	if towns.Trust != "shuffle" || towns.Reports != 40 || len(towns.Bins) != 2 || !(towns.Epsilon > 4 && towns.Epsilon <= 8) {
		t.Errorf("%+v", towns)
	}
	for _, b := range towns.Bins { // 20 in each
		if !(b.JointLow95 <= b.Low95 && b.Low95 <= b.High95 && b.High95 <= b.JointHigh95 && b.Count > 12 && b.Count < 28) {
			t.Errorf("bin %s: %+v", *b.Category, b)
		}
	}
	age, text := a.answer("age")
	if age.Trust != "local" || age.Mean == nil || age.Count == nil || !(age.Mean.Value > 30 && age.Mean.Value < 70 && age.Mean.Low95 < age.Mean.Value && age.Mean.Value < age.Mean.High95) || !(age.Epsilon > 7.9 && age.Epsilon <= 8) {
		t.Errorf("%s", text)
	}
	stop()
	stop = func() {}
	r, err := Check(t.Context(), RoleCoordinator, a.l.Config(RoleCoordinator))
	if err != nil || !r.Clean || r.Checked["answers"] != 2 {
		t.Errorf("fsck: %+v, %v", r, err)
	}
}
