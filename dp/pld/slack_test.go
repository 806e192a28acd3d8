package pld

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// The terms add up to Delta, and each is there.
func TestSlackAddsUpToDelta(t *testing.T) {
	pair := dp.Pair{Atoms: []dp.Atom{{Q: .1, Loss: .3}, {Q: .05, Loss: .71}}, Remainders: []dp.Remainder{{Mass: 1e-9, MaxLoss: 1}}}
	loss, err := Discretize(pair, .05)
	if err != nil {
		t.Fatal(err)
	}
	for _, tilt := range []float64{0, 2} {
		c, err := Compose([]Part{{Loss: loss, Times: 40}}, tilt)
		if err != nil {
			t.Fatal(err)
		}
		for _, eps := range []float64{0, .4, 1, 3, 6} {
			s, delta := c.Slack(eps), c.Delta(eps)
			if math.Abs(s.Total-delta) > 1e-15*delta && s.Total < 1 {
				t.Errorf("tilt %v, epsilon %v: %v adds up to %v, delta is %v", tilt, eps, s, s.Total, delta)
			}
			if !(s.Window > 0 && s.Truncation >= 40*1e-9*(1-1e-7) && s.WrapAround > 0 && s.RoundOff > 0) || s.Tilt != tilt {
				t.Errorf("tilt %v, epsilon %v: %+v", tilt, eps, s)
			}
			if end := float64(s.Low+int64(s.Points)) * .05; !(end > eps) || float64(s.Low)*.05 > 0 {
				t.Errorf("the window ends at %v", end)
			}
		}
	}
}
