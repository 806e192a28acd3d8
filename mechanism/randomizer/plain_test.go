package randomizer

import (
	"math"
	"testing"
)

func TestPlainIsTheRoundedInput(t *testing.T) {
	m, err := NewPlain(Config{Dim: 4, Radius: 2})
	if err != nil {
		t.Fatal(err)
	}
	r, sum := m.NewReport(), make([]int64, 4)
	inputs := [][]float32{{.1, -2, 1.5, 0}, {.3, 5, float32(math.NaN()), -.25}}
	want := []float64{.2, 0, .75, -.125} // 5 is cut at 2, NaN is 0
	for _, x := range inputs {
		m.Randomize(nil, x, r)
		if err := m.Check(r); err != nil {
			t.Fatal(err)
		}
		m.Add(sum, r)
	}
	mean := make([]float64, 4)
	m.Estimate(mean, sum, 2)
	for i := range mean {
		if math.Abs(mean[i]-want[i]) > 2*math.Pow(2, -24) {
			t.Errorf("mean %v, want %v", mean, want)
		}
	}
	r.Value[0] = 1<<24 + 1
	if m.Check(r) == nil {
		t.Error("accepted a value out of range")
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("accepted a report that is too long")
			}
		}()
		m.Randomize(nil, inputs[0], &Report{Value: make([]int32, 5)})
	}()
	if _, pure := any(m).(Randomizer); pure {
		t.Error("Plain claims a privacy guarantee")
	}
}
