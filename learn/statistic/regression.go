package statistic

import (
	"errors"
	"fmt"
	"math"
)

// LinearRegression is the kind of question that asks for the coefficients of a least-squares line.
const LinearRegression = "linear-regression"

// Feature is a column of numbers with its public range.
type Feature struct {
	Column string  `json:"column"`
	Low    float64 `json:"low,omitempty"`
	High   float64 `json:"high,omitempty"`
}

// question returns a feature as the column of a question with a range.
func (f Feature) question() Question { return Question{Column: f.Column, Low: f.Low, High: f.High} }

// Coefficient is a coefficient of a linear regression, in units of the target over those of its
// column; the intercept has no column.
type Coefficient struct {
	Column string `json:"column,omitempty"`
	Number
}

// mostFeatures bounds the features of a regression.
const mostFeatures = 64

// regression asks for the coefficients of the target's least-squares line over features, of rows
// clipped to the public ranges. regression.md has its sums and their intervals.
type regression struct{ Question }

func (regression) uses() []string { return []string{"column", "where", "low", "high", "features"} }
func (regression) ones() int      { return 0 }

// columns is the number of features and of the constant.
func (g regression) columns() int { return len(g.Features) + 1 }

// dim: the number outside; each feature and product of two, and the target with each; and the
// target.
func (g regression) dim() int {
	p := g.columns()
	return p*(p+1)/2 + p
}

func (g regression) check() error {
	if err := g.checkRanged(); err != nil {
		return err
	}
	if n := len(g.Features); n < 1 || n > mostFeatures {
		return fmt.Errorf("statistic: a linear regression has %d features, want 1 to %d", n, mostFeatures)
	}
	seen := map[string]bool{g.Column: true}
	for _, f := range g.Features {
		if seen[f.Column] {
			return fmt.Errorf("statistic: column %q is a feature twice, or feature and target", f.Column)
		}
		seen[f.Column] = true
		if err := f.question().checkRanged(); err != nil {
			return err
		}
	}
	return nil
}

// length is the largest length of a row's numbers, so that rows divided by it lie in the unit ball:
// features and target, their products, and squares less a half.
func (g regression) length() float64 {
	p := float64(len(g.Features))
	return math.Sqrt(p + p*(p-1)/2 + p/4 + 1 + p)
}

// coder encodes v = (1, z, y), all scaled to −1 … 1, as the products of z and of z and y, row by row.
func (g regression) coder() coder {
	var of []Question
	for _, f := range g.Features {
		of = append(of, f.question())
	}
	scale := 1 / g.length()
	return coder{values: func(row Row, ok bool, _ []float32, x []float32) {
		var room [mostFeatures + 1]float64
		z := room[:g.columns()]
		z[0] = 1
		y, ok := g.unit(row, ok)
		for j := 0; j < len(of) && ok; j++ {
			z[j+1], ok = of[j].unit(row, true)
		}
		if !ok {
			x[0] = float32(-scale) // rows inside have 0 here
			return
		}
		at := 0
		for i := range z {
			for j := i; j < len(z); j++ {
				v := z[i] * z[j]
				switch {
				case j == 0:
					v = 0
				case i == j:
					v -= .5
				}
				x[at] = float32(scale * v)
				at++
			}
		}
		for i := range z {
			x[at+i] = float32(scale * z[i] * y)
		}
	}}
}

// moments returns the sums of all products of a row's features, and of features and target.
func (g regression) moments(r Release) (square matrix, target []float64) {
	p, scale := g.columns(), g.length()
	square, target = newMatrix(p, p), make([]float64, p)
	inside := float64(r.Reports) + scale*r.Sums[0]
	at := 0
	for i := range p {
		for j := i; j < p; j++ {
			v := scale * r.Sums[at]
			switch {
			case j == 0:
				v = inside
			case i == j:
				v += inside / 2
			}
			square[i][j], square[j][i] = v, v
			at++
		}
	}
	for i := range p {
		target[i] = scale * r.Sums[at+i]
	}
	return square, target
}

// residual returns the matrix A with A·e the error of target − square·theta, if e are the errors of
// the sums.
func (g regression) residual(theta []float64) matrix {
	p, scale := g.columns(), g.length()
	a := newMatrix(p, g.dim())
	at := 0
	for i := range p {
		for j := i; j < p; j++ {
			a[i][at] -= scale * theta[j]
			if i != j {
				a[j][at] -= scale * theta[i]
			} else if i > 0 { // half of the number inside is a part of each square
				a[i][0] -= scale * theta[i] / 2
			}
			at++
		}
	}
	for i := range p {
		a[i][at+i] += scale
	}
	return a
}

// mostError bounds the errors of the products, as a share of the products in the direction in which
// the rows spread least, up to which intervals are given: regression.md.
const mostError = .5

// answer solves the equations of least squares. If the rows do not spread enough for the noise,
// nothing is known of the coefficients: they are 0 in −1e100 … 1e100. The answer is about the clients
// who reported.
func (g regression) answer(r Release) (Answer, error) {
	if !r.Law.independent() {
		return Answer{}, errors.New("statistic: a linear regression needs sums with independent errors")
	}
	p := g.columns()
	square, target := g.moments(r)
	numbers := r
	numbers.Law = scaledLaw{r.Law, g.length()}
	inside := numbers.count(float64(r.Reports)+g.length()*r.Sums[0], bonferroni(p+1))
	a := Answer{Count: &inside}
	inverse, spread := square.inverse()
	sd := math.Sqrt(r.Law.variance(0))
	known := inverse != nil && sd*g.length()*2*math.Sqrt(float64(p)) <= mostError*spread
	theta := make([]float64, p)
	var wrong matrix // the errors of theta, by those of the sums
	if known {
		theta = inverse.times(target)
		wrong = inverse.product(g.residual(theta))
	}
	for k, weights := range g.units() {
		c := Coefficient{Number: Number{Interval: Interval{-mostValue, mostValue, -mostValue, mostValue}}}
		if k > 0 {
			c.Column = g.Features[k-1].Column
		}
		if known {
			if c.Value = dot(weights, theta); k == 0 {
				c.Value += g.middle()
			}
			var v float64
			for at := range g.dim() {
				var w float64
				for i := range weights {
					w += weights[i] * wrong[i][at]
				}
				v += w * w
			}
			of := sd * math.Sqrt(v)
			one, all := of*normalQuantile((1+single)/2), of*normalQuantile((1+bonferroni(p+1))/2)
			c.Interval = Interval{c.Value - one, c.Value + one, c.Value - all, c.Value + all}
		}
		a.Coefficients = append(a.Coefficients, c)
	}
	return a, nil
}

// units returns, for the intercept and each feature, the weights of the scaled coefficients in the
// one of the columns' own units; the intercept has the middle of the target's range on top.
func (g regression) units() matrix {
	p := g.columns()
	out := newMatrix(p, p)
	out[0][0] = g.half()
	for j, f := range g.Features {
		q := f.question()
		out[j+1][j+1] = g.half() / q.half()
		out[0][j+1] = -g.half() / q.half() * q.middle()
	}
	return out
}

// matrix is a small matrix, row by row.
type matrix [][]float64

func newMatrix(rows, columns int) matrix {
	m := make(matrix, rows)
	for i := range m {
		m[i] = make([]float64, columns)
	}
	return m
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func (m matrix) times(v []float64) []float64 {
	out := make([]float64, len(m))
	for i := range m {
		out[i] = dot(m[i], v)
	}
	return out
}

func (m matrix) product(b matrix) matrix {
	out := newMatrix(len(m), len(b[0]))
	for i, row := range m {
		for k, v := range row {
			for j, w := range b[k] {
				out[i][j] += v * w
			}
		}
	}
	return out
}

// inverse returns the inverse of a symmetric matrix, and at most its smallest eigenvalue; nil if that
// is not above 0. It uses Cholesky's triangle.
func (m matrix) inverse() (inverse matrix, least float64) {
	n := len(m)
	l := newMatrix(n, n)
	for i := range n {
		for j := range i + 1 {
			v := m[i][j] - dot(l[i][:j], l[j][:j])
			if i != j {
				l[i][j] = v / l[j][j]
				continue
			}
			if !(v > 1e-12*math.Abs(m[i][i])) {
				return nil, 0
			}
			l[i][i] = math.Sqrt(v)
		}
	}
	// The triangle's inverse, then its transpose times itself.
	low := newMatrix(n, n)
	for j := range n {
		low[j][j] = 1 / l[j][j]
		for i := j + 1; i < n; i++ {
			var v float64
			for k := j; k < i; k++ {
				v += l[i][k] * low[k][j]
			}
			low[i][j] = -v / l[i][i]
		}
	}
	inverse = newMatrix(n, n)
	var square float64
	for i := range n {
		for j := range n {
			for k := max(i, j); k < n; k++ {
				inverse[i][j] += low[k][i] * low[k][j]
			}
			square += inverse[i][j] * inverse[i][j]
		}
	}
	if !(square > 0 && square <= math.MaxFloat64) {
		return nil, 0
	}
	return inverse, 1 / math.Sqrt(square)
}
