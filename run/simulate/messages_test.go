package simulate

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// Several messages of each client are charged as so many rounds and have so many times less
// noise. They are the same whatever the number of workers, and clients are counted, not messages.
func TestSeveralMessages(t *testing.T) {
	const n, trials = 40, 60
	square := func(m int64) (sum float64) {
		for seed := range uint64(trials) {
			s, co := build(t, setup{n: n, participation: dp.All, messages: m, seed: seed})
			if got := rounds(t, s, 1); got[0] != n {
				t.Fatalf("%d reports", got[0])
			}
			for _, v := range co.Parameters {
				// The inputs' mean, clipped or not, moves all coordinates alike.
				d := float64(v) - float64(co.Parameters[0])
				sum += d * d
			}
			if e := co.State().Charged; len(e) != 1 || e[0].Charged().Times != max(1, m) {
				t.Fatalf("charged %+v", e)
			}
		}
		return sum
	}
	if ratio := square(0) / square(4); !(ratio > 3 && ratio < 5.3) { // 4 ± .3
		t.Errorf("four messages have %.2f times less noise than one", ratio)
	}
	for _, p := range []setup{{participation: dp.All}, {participation: dp.Sampled, k: 20}, {participation: dp.CheckIn, rate: .5}, {participation: dp.Once, k: 13}} {
		var want []float32
		for _, workers := range []int{1, 3} {
			p.n, p.messages, p.workers, p.dropout, p.seed = n, 3, workers, .1, 5
			s, co := build(t, p)
			rounds(t, s, 3)
			if want == nil {
				want = slices.Clone(co.Parameters)
			} else if !slices.Equal(want, co.Parameters) {
				t.Errorf("%s: the model depends on the number of workers", p.participation)
			}
			for _, e := range co.State().Charged {
				if e.Times != 3 || e.Event.Participation != dp.All {
					t.Errorf("%s: charged %+v", p.participation, e)
				}
			}
		}
	}
}

// One message is the same run whether or not a number is named.
func TestOneMessageIsTheSameRun(t *testing.T) {
	var models []string
	for _, m := range []int64{0, 1} {
		s, co := build(t, setup{n: 30, participation: dp.Sampled, k: 20, messages: m, seed: 3})
		rounds(t, s, 3)
		var text string
		for _, v := range co.Parameters {
			text += fmt.Sprint(math.Float32bits(v), " ")
		}
		models = append(models, text)
	}
	if models[0] != models[1] {
		t.Error("one message is another run than none named")
	}
}
