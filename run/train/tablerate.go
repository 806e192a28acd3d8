package train

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// Clip and learning rates of linear models of tables. They follow from public numbers:
// features, loss, noise and rounds. The constants were chosen on synthetic tables;
// docs/SEARCHES.md.
const (
	// classDistance and numberDistance are guesses of the length of the best parameters, for
	// classes and for numbers in 0..1.
	classDistance, numberDistance = 6, 1
	// kinkCurvature is the curvature of a mean of losses with a kink, in squared
	// lengths of a row: three times the density of residuals at the kink.
	hingeCurvature, kinkCurvature = 1, 3
	// The first rate is kept for a share of the rounds, held. Then the rate falls
	// geometrically, in ratePieces pieces, to a tenth, or to a thirtieth if the loss has a
	// kink, whose curvature nobody knows.
	held, ratePieces     = .25, 8
	smoothFall, kinkFall = 10, 30
)

// plainTable says whether a linear model learns from a table's columns with cldp-sgd.
func (c Config) plainTable() bool { return c.isCSV() && !c.network() && !c.planned() }

// kink says whether the loss has a kink.
func (c LearningConfig) kink() bool { return c.regression() || c.Loss == model.Hinge }

// lengths returns roughly the squared length of a row of that many features, and the sum of
// their sizes, each with a 1 for the intercept. A number between −1 and 1 has the square 1/3 and
// the size 1/2; standardised ones have a few times as much. Of a text column's categories just one is 1.
func (c Config) lengths(features int) (square, size float64) {
	var declared dataset.CSVConfig
	if err := c.declare(&declared); err != nil {
		declared.Categories = nil // another check reports it
	}
	texts := 0
	for _, categories := range declared.Categories {
		texts += len(categories)
	}
	one, numbers := float64(len(declared.Categories)), float64(features-texts)
	return 1 + one + numbers/3, 1 + one + numbers/2
}

// tableClip returns roughly the length of the longest gradients, so that hardly one is cut. A
// shorter clip moves the minimum, most if classes are rare.
func (c Config) tableClip(m *model.Model) float64 {
	square, size := c.lengths(m.Inputs)
	clip := math.Sqrt(square)
	switch p := c.norm(); {
	case p == 1:
		clip = size
	case math.IsInf(p, 1):
		clip = 1
	}
	if loss, err := model.ParseLoss(c.Loss); err == nil {
		clip *= loss.Lipschitz
	}
	clip, _ = strconv.ParseFloat(strconv.FormatFloat(clip, 'g', 2, 64), 64) // cannot fail: it was printed from a number
	return clip
}

// tableRates returns a schedule for a linear model of a table. The first rate is
// D√(2/(T·E‖noise‖²)), with which T noisy steps get as near as possible to a minimum D away,
// unless steps of that length would be unstable.
func (c Config) tableRates(mechanism randomizer.Mechanism, m *model.Model) string {
	distance, curvature, fall := float64(classDistance), .5, float64(smoothFall)
	switch {
	case c.regression():
		distance, curvature = numberDistance, kinkCurvature
	case c.Loss == model.Hinge:
		curvature = hingeCurvature
	case c.Loss == model.Logistic:
		curvature = .25
	}
	if c.kink() {
		fall = kinkFall
	}
	square, _ := c.lengths(m.Inputs)
	curvature *= square * min(1, c.Clip/c.tableClip(m))
	// With momentum μ a step acts for 1/(1 − μ) rounds; steps are stable up to 2(1 + μ) over
	// the curvature in total.
	first := 1 / (curvature + c.Lambda)
	if noise := c.clientMSE(mechanism) / c.expectedReports(); noise > 0 {
		first = min(first, (1-c.Momentum.Value)*distance*math.Sqrt(2/(float64(c.Rounds)*noise)))
	}
	var text strings.Builder
	last := int64(0)
	for i := range ratePieces {
		from := int64(1)
		if i > 0 {
			from = 1 + int64(math.Round(float64(c.Rounds)*(held+(1-held)*float64(i-1)/(ratePieces-1))))
			if from <= last {
				continue // there are too few rounds for this piece
			}
			fmt.Fprint(&text, ",")
		}
		text.WriteString(strconv.FormatFloat(first*math.Pow(fall, -float64(i)/(ratePieces-1)), 'g', 2, 64))
		if i > 0 {
			fmt.Fprintf(&text, "@%d", from)
		}
		last = from
	}
	return text.String()
}
