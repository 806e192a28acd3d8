package operate

import (
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
)

// TestPriceOfAQuestionIsItsCharge: a question that draws its clients costs as much as one to all of n-min, with tokens or without:
// who answers may depend on having been drawn. Its price says so before anybody reports.
func TestPriceOfAQuestionIsItsCharge(t *testing.T) {
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
	for _, tokens := range []wire.Tokens{{}, {Epoch: wire.ID{2}}} {
		w.Tokens = tokens
		entry, times, err := charges(p, w, p.Limit, 0)
		if err != nil {
			t.Fatal(err)
		}
		price, err := cost(p.Limit, entry, times)
		if err != nil || !(price.Eps > .9 && price.Eps <= 1) {
			t.Errorf("tokens %v: %+v, %v", tokens != (wire.Tokens{}), price, err)
		}
		if e := entry.Event; e.Participation != dp.All || e.Population != 100 {
			t.Errorf("tokens %v: charged as %+v", tokens != (wire.Tokens{}), e)
		}
	}
}
