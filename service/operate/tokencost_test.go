package operate

import (
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
)

// TestTokensInTheCostOfAQuestion: a question that draws its clients is planned by the chance to be
// drawn, which tokens do not credit. Its price says so before anybody reports.
func TestTokensInTheCostOfAQuestion(t *testing.T) {
	c, err := measure.ParseTask([]byte("measure: count\ncolumn: age\nepsilon: 1\ndelta: 1e-5\nk: 100\nn-min: 100\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Plan(t.Context(), measure.Enrolled{Clients: 1000, MinReports: 50})
	if err != nil {
		t.Fatal(err)
	}
	w, err := p.Task("people", wire.ID{1})
	if err != nil {
		t.Fatal(err)
	}
	for tokens, want := range map[wire.Tokens]dp.Participation{{}: dp.Sampled, {Epoch: wire.ID{2}}: dp.All} {
		w.Tokens = tokens
		entry, _, err := charges(p, w, p.Limit, 0)
		if err != nil {
			t.Fatal(err)
		}
		price, err := cost(t.Context(), p, w, p.Limit, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := entry.Event.Participation; got != want {
			t.Errorf("tokens %v: charged as %s, want %s", tokens != (wire.Tokens{}), got, want)
		}
		if above := price.Eps > 2; above != (want == dp.All) {
			t.Errorf("tokens %v: epsilon %v", tokens != (wire.Tokens{}), price.Eps)
		}
	}
}
