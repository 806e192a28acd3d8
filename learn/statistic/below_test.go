package statistic

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// Estimates of the tree and their variances are those of general least squares.
func TestTreeIsLeastSquares(t *testing.T) {
	const levels, leaves = 4, 16
	nodes := 2<<levels - 2
	// design[v][leaf] is 1 if the leaf is below the node.
	design := mat.NewDense(nodes, leaves, nil)
	for leaf := range leaves {
		for l := 1; l <= levels; l++ {
			design.Set(1<<l-2+leaf>>(levels-l), leaf, 1)
		}
	}
	src := rng.Replay(19, 3)
	y := make([]float64, nodes)
	sample.Gaussian(src, y)
	for _, known := range []float64{math.NaN(), 11} {
		rows, target := design, mat.NewVecDense(nodes, slices.Clone(y))
		if !math.IsNaN(known) { // a measurement of nearly no error
			rows, target = mat.NewDense(nodes+1, leaves, nil), mat.NewVecDense(nodes+1, nil)
			rows.Slice(0, nodes, 0, leaves).(*mat.Dense).Copy(design)
			for i, v := range y {
				target.SetVec(i, v)
			}
			for leaf := range leaves {
				rows.Set(nodes, leaf, 1e5)
			}
			target.SetVec(nodes, known*1e5)
		}
		var normal, inverse mat.Dense
		normal.Mul(rows.T(), rows)
		if err := inverse.Inverse(&normal); err != nil {
			t.Fatal(err)
		}
		var right, best mat.VecDense
		right.MulVec(rows.T(), target)
		best.MulVec(&inverse, &right)
		b := consistent(y, levels, known, 3)
		var left float64
		for j := range leaves + 1 {
			if math.Abs(b.left[j]-left) > 1e-4 {
				t.Errorf("known %v: %v below edge %d, want %v", known, b.left[j], j, left)
			}
			for _, rank := range []float64{0, .3, 1} {
				w := mat.NewVecDense(leaves, nil)
				for i := range leaves {
					w.SetVec(i, -rank)
					if i < j {
						w.SetVec(i, 1-rank)
					}
				}
				if want, got := 3*mat.Inner(w, &inverse, w), b.variance(j, rank); math.Abs(got-want) > 1e-4 {
					t.Errorf("known %v, edge %d, rank %v: variance %v, want %v", known, j, rank, got, want)
				}
			}
			if j < leaves {
				left += best.AtVec(j)
			}
		}
	}
}

func TestMonotone(t *testing.T) {
	for _, c := range []struct{ x, want []float64 }{
		{[]float64{0, 1, 2, 3}, []float64{0, 1, 2, 3}},
		{[]float64{0, 2, 1, 3}, []float64{0, 1.5, 1.5, 3}},
		{[]float64{0, -2, 1, 3}, []float64{0, 0, 1, 3}},
		{[]float64{0, 3, 2, 1, 5, 4}, []float64{0, 2, 2, 2, 4, 4}},
		{[]float64{0, 1, -2}, []float64{0, 0, 0}},
		{[]float64{0, 7}, []float64{0, 7}},
	} {
		if got := monotone(c.x); !slices.Equal(got, c.want) {
			t.Errorf("%v became %v, want %v", c.x, got, c.want)
		}
	}
}
