package statistic

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// A client's part is no longer than Length, zero without rows, and bounded whatever the losses.
func TestEvaluationParts(t *testing.T) {
	for _, e := range []Evaluation{{Limit: 2, Length: .3, Accuracy: true}, {Limit: .7, Length: 4}} {
		x := make([]float32, e.Dim())
		for _, loss := range []float64{-1, 0, .1, 1, 2, 1e300, math.Inf(1), math.NaN()} {
			for _, right := range []float64{0, .3, 1} {
				e.Encode(1, loss, right, x)
				var square float64
				for _, v := range x {
					square += float64(v) * float64(v)
				}
				if !(math.Sqrt(square) <= e.Length) {
					t.Errorf("%+v: loss %v, right %v: a part of length %v", e, loss, right, math.Sqrt(square))
				}
			}
		}
		e.Encode(0, 1, 1, x)
		for _, v := range x {
			if v != 0 {
				t.Errorf("without rows: %v", x)
			}
		}
	}
	for _, e := range []Evaluation{{}, {Limit: 1}, {Limit: math.NaN(), Length: 1}, {Limit: 1, Length: math.Inf(1)}} {
		if e.Check() == nil {
			t.Errorf("%+v is taken", e)
		}
	}
}

// Intervals hold as often as they say: of all clients, and of a random part of them.
func TestEvaluationIntervals(t *testing.T) {
	e := Evaluation{Limit: 1.4, Length: 1, Accuracy: true}
	const n, step = 4000, 1. / 64
	variance := uint64(900) // in steps²
	noise, err := sample.NewDiscreteGaussian(sample.Ratio{Num: variance << 6, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	law, err := OfCurator(step, float64(variance<<6), n, true)
	if err != nil {
		t.Fatal(err)
	}
	src := rng.Replay(8)
	uniform := func() float64 { return float64(src.Uint64()>>11) / (1 << 53) }
	type client struct {
		rows        int
		loss, right float64
	}
	var all []client
	var has, loss, right float64
	for range n {
		c := client{}
		if uniform() < .4 {
			c = client{1, e.Clip(-math.Log(uniform())), 0}
			if uniform() < .8 {
				c.right = 1
			}
			has, loss, right = has+1, loss+c.loss, right+c.right
		}
		all = append(all, c)
	}
	repetitions := longtest.Pick(300, 2000)
	for _, reports := range []int{n, n / 2} {
		var held, single, both int
		for range repetitions {
			order := make([]uint32, n)
			for i := range order {
				order[i] = uint32(i)
			}
			sample.Shuffle(src, order)
			sums, errs, x := make([]float64, 3), make([]int64, 3), make([]float32, 3)
			for _, i := range order[:reports] {
				e.Encode(all[i].rows, all[i].loss, all[i].right, x)
				for j, v := range x {
					sums[j] += float64(v)
				}
			}
			noise.Fill(src, errs)
			for j := range sums {
				sums[j] += step * float64(errs[j])
			}
			a, err := e.Answer(Release{Sums: sums, Reports: int64(reports), Clients: n, Law: law}, 0)
			if err != nil {
				t.Fatal(err)
			}
			together := true
			for _, one := range []struct {
				n     Number
				truth float64
			}{{a.Clients, has}, {a.Loss, loss / has}, {*a.Accuracy, right / has}} {
				held++
				if one.n.Low95 <= one.truth && one.truth <= one.n.High95 {
					single++
				}
				together = together && one.n.JointLow95 <= one.truth && one.truth <= one.n.JointHigh95
			}
			if together {
				both++
			}
		}
		share, all := float64(single)/float64(held), float64(both)/float64(repetitions)
		t.Logf("%d of %d clients: %.4f of the intervals hold, all three in %.4f", reports, n, share, all)
		slack := 6 * math.Sqrt(.05*.95/float64(repetitions))
		if share < .93-slack || all < .94-slack || reports == n && share > .97+slack {
			t.Errorf("%d of %d clients: %.4f of the intervals hold, all three in %.4f", reports, n, share, all)
		}
	}
}
