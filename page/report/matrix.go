package report

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"html/template"
	"image/png"
	"math"
	"slices"
	"strconv"
)

// Examined is a model's result on the evaluation examples, ready to be shown. Live pages draw
// its JSON.
type Examined struct {
	Matrix  *matrix       `json:"matrix,omitempty"` // nil: nothing was counted
	Samples []sampleGroup `json:"samples,omitempty"`
}

// Examine prepares some examples and the confusion matrix, confusion[y][c] by true and
// predicted class, for display. It returns nil if there is no matrix, as for a regression.
func Examine(classes []string, confusion [][]int64, samples []Sample) (*Examined, error) {
	if confusion == nil {
		return nil, nil
	}
	r := Run{Classes: classes, Confusion: confusion, Samples: samples}
	if err := r.checkClasses(); err != nil {
		return nil, err
	}
	groups, err := groupSamples(classes, samples)
	return &Examined{newMatrix(classes, confusion), groups}, err
}

// matrix is the confusion matrix. Rows is nil if there are too many classes to show; recall
// and mistakes remain.
type matrix struct {
	Classes  []string    `json:"classes"`
	Rows     []matrixRow `json:"rows"`
	Recalls  []pair      `json:"recalls"`
	Mistakes []mistake   `json:"mistakes"`
	Right    string      `json:"right"`
}

type matrixRow struct {
	Class  string `json:"class"`
	Recall string `json:"recall"`
	Cells  []cell `json:"cells"`
}

type cell struct {
	Count string `json:"count"`
	Shade string `json:"shade"` // classes of page.css; "": the cell is empty
	Label string `json:"label"`
}

type mistake struct {
	True      string `json:"true"`
	Predicted string `json:"predicted"`
	Count     string `json:"count"`
	Share     string `json:"share"`
	count     int64
}

// With more than maxClasses classes a matrix is a wall of digits. shades is the number of
// steps of a cell's colour above none (see page.css).
const (
	maxClasses  = 26
	maxMistakes = 8
	shades      = 10
)

func newMatrix(classes []string, confusion [][]int64) *matrix {
	right, all := tally(confusion)
	if all == 0 {
		return nil
	}
	m := &matrix{Classes: classes, Right: fmt.Sprintf("%s of %s right", count(right), count(all))}
	worst := 0.0 // largest share of a class that went to one wrong class
	for i, row := range confusion {
		total := sum(row)
		recall := math.NaN()
		if total > 0 {
			recall = float64(row[i]) / float64(total)
		}
		m.Recalls = append(m.Recalls, pair{classes[i], percent(recall, 1)})
		for j, n := range row {
			if i != j && n > 0 {
				share := float64(n) / float64(total)
				worst = max(worst, share)
				m.Mistakes = append(m.Mistakes, mistake{classes[i], classes[j], plural(n, "time"), percent(share, 1), n})
			}
		}
	}
	slices.SortStableFunc(m.Mistakes, func(a, b mistake) int { return cmp.Compare(b.count, a.count) })
	m.Mistakes = m.Mistakes[:min(len(m.Mistakes), maxMistakes)]
	if len(classes) > maxClasses {
		return m
	}
	for i, row := range confusion {
		m.Rows = append(m.Rows, newRow(classes, i, row, m.Recalls[i].Value, worst))
	}
	return m
}

// newRow shades the diagonal by recall, and the rest relative to the worst mistake: on the
// diagonal's scale mistakes would be invisible.
func newRow(classes []string, i int, row []int64, recall string, worst float64) matrixRow {
	r := matrixRow{Class: classes[i], Recall: recall}
	total := float64(max(1, sum(row)))
	for j, n := range row {
		share := float64(n) / total
		c := cell{Count: strconv.FormatInt(n, 10), Label: fmt.Sprintf("true %s, predicted %s: %s (%s)", classes[i], classes[j], count(n), percent(share, 1))}
		switch {
		case n == 0:
		case i == j:
			c.Shade = fmt.Sprintf("right k%d", int(math.Round(shades*share)))
		default:
			c.Shade = fmt.Sprintf("wrong k%d", int(math.Ceil(shades*share/worst)))
		}
		r.Cells = append(r.Cells, c)
	}
	return r
}

func sum(row []int64) (total int64) {
	for _, n := range row {
		total += n
	}
	return total
}

type sampleGroup struct {
	Name    string       `json:"name"`
	Wrong   bool         `json:"wrong"`
	Samples []sampleView `json:"samples"`
}

type sampleView struct {
	Image      template.URL `json:"image,omitempty"` // data URI; empty: no image
	Width      int          `json:"width"`
	Height     int          `json:"height"`
	True       string       `json:"true"`
	Predicted  string       `json:"predicted"`
	Confidence string       `json:"confidence,omitempty"`
}

// groupSamples keeps the caller's order within right and wrong.
func groupSamples(classes []string, samples []Sample) ([]sampleGroup, error) {
	right, wrong := sampleGroup{Name: "Right"}, sampleGroup{Name: "Wrong", Wrong: true}
	for i, s := range samples {
		v := sampleView{True: classes[s.Label], Predicted: classes[s.Predicted]}
		if !math.IsNaN(s.Confidence) {
			v.Confidence = percent(s.Confidence, 0)
		}
		if s.Image != nil {
			var b bytes.Buffer
			if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, s.Image); err != nil {
				return nil, fmt.Errorf("report: image of sample %d: %w", i, err)
			}
			v.Image = template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes()))
			v.Width, v.Height = s.Image.Bounds().Dx(), s.Image.Bounds().Dy()
		}
		if s.Label == s.Predicted {
			right.Samples = append(right.Samples, v)
		} else {
			wrong.Samples = append(wrong.Samples, v)
		}
	}
	var groups []sampleGroup
	for _, g := range []sampleGroup{right, wrong} {
		if len(g.Samples) > 0 {
			groups = append(groups, g)
		}
	}
	return groups, nil
}
