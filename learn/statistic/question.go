package statistic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Question is a public question about one row per client. Its canonical JSON, [Question.JSON],
// is the configuration of a task. Fields that a kind of question does not use must be empty.
type Question struct {
	// Measure is the kind: count, mean, variance, histogram, quantiles, heavy-hitters or
	// linear-regression.
	Measure string `json:"measure"`
	// Column names the value that is asked for. A count needs none.
	Column string `json:"column,omitempty"`
	// Where restricts the question to rows that meet all conditions. A row that does not, and
	// one without a value in Column, is outside: it counts nowhere.
	Where []Condition `json:"where,omitempty"`
	// Low and High are the public range of Column: values are clipped to it.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// Everyone says that every client is known to have a value, so that means are taken over
	// all reports and need no count of those with a value. A row outside counts as the middle
	// of the range.
	Everyone bool `json:"everyone,omitempty"`
	// Features are the columns of a linear regression, whose target is Column.
	Features []Feature `json:"features,omitempty"`
	// Edges are ascending edges of a histogram's bins: b+1 for b bins [low, high), the last of
	// which is closed. A value beyond them counts in the first or last bin.
	Edges []float64 `json:"edges,omitempty"`
	// Categories are the texts that a histogram counts. "*", which comes last, is all others;
	// without it they count nowhere.
	Categories []string `json:"categories,omitempty"`
	// Ranks are the ranks of the quantiles that are asked for, ascending, above 0 and below 1.
	Ranks []float64 `json:"ranks,omitempty"`
	// Levels is the depth of the quantiles' tree: its leaves cut the range into 2^Levels equal
	// parts.
	Levels int `json:"levels,omitempty"`
	// Longest is the most symbols of a heavy hitter. Longer texts are counted together.
	Longest int `json:"longest,omitempty"`
	// Alphabet holds the characters of which heavy hitters are made; "" stands for all bytes. Texts
	// with other characters are counted with those that are too long.
	Alphabet string `json:"alphabet,omitempty"`
	// Share is the share of all clients from which on a text is a heavy hitter.
	Share float64 `json:"share,omitempty"`
}

// Limits of questions.
const (
	maxJSON = 1 << 20 // bytes
	maxDim  = 1 << 20
	maxText = 256 // bytes of a name or category
)

// Others is the category of all texts that the other categories do not name.
const Others = "*"

// JSON returns the canonical JSON of q: fields in the order of the type, without those that are
// empty, numbers as short as they can be.
func (q Question) JSON() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(q); err != nil {
		panic(err) // only of numbers that are not finite, which Validate refuses
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Parse reads a question from its canonical JSON and validates it. It refuses any other text,
// also one that means the same.
func Parse(text []byte) (Question, error) {
	if len(text) > maxJSON {
		return Question{}, fmt.Errorf("statistic: a question of %d bytes is above the limit of %d", len(text), maxJSON)
	}
	var q Question
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return Question{}, fmt.Errorf("statistic: question: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Question{}, errors.New("statistic: text follows the question")
	}
	if err := q.Validate(); err != nil {
		return Question{}, err
	}
	if !bytes.Equal(q.JSON(), text) {
		return Question{}, fmt.Errorf("statistic: the question is not in its canonical form %s", shorten(q.JSON()))
	}
	return q, nil
}

// shorten cuts what an error repeats.
func shorten(b []byte) []byte {
	if len(b) > 200 {
		return append(slices.Clone(b[:200]), "…"...)
	}
	return b
}

// Validate returns an error that names the first thing that is wrong.
func (q Question) Validate() error {
	m, err := q.kind()
	if err != nil {
		return err
	}
	if err := q.unused(append(m.uses(), "measure")); err != nil {
		return err
	}
	for _, c := range q.Where {
		if err := c.check(); err != nil {
			return err
		}
	}
	if len(q.Where) > 16 {
		return fmt.Errorf("statistic: %d conditions are above the limit of 16", len(q.Where))
	}
	if err := m.check(); err != nil {
		return err
	}
	if d := m.dim(); d > maxDim {
		return fmt.Errorf("statistic: %d sums are above the limit of %d", d, maxDim)
	}
	if n := len(q.JSON()); n > maxJSON {
		return fmt.Errorf("statistic: a question of %d bytes is above the limit of %d", n, maxJSON)
	}
	return nil
}

// unused refuses fields that are set and not among those used.
func (q Question) unused(used []string) error {
	v := reflect.ValueOf(q)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if !slices.Contains(used, name) && !v.Field(i).IsZero() {
			return fmt.Errorf("statistic: %s is given, which a %s does not use", name, q.Measure)
		}
	}
	return nil
}

// Columns returns the columns that a question looks at, each once.
func (q Question) Columns() (out []string) {
	add := func(name string) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	add(q.Column)
	for _, f := range q.Features {
		add(f.Column)
	}
	for _, c := range q.Where {
		add(c.Column)
	}
	return out
}

// Dim returns the number of sums that a valid question needs.
func (q Question) Dim() int { return q.must().dim() }

// Ones returns the most ones of an encoded row where all values are zeros and ones, and 0 where
// they are not.
func (q Question) Ones() int { return q.must().ones() }

// Radius bounds the ℓ₂ norm of an encoded row: 1, or the root of Ones.
func (q Question) Radius() float64 { return math.Sqrt(math.Max(1, float64(q.Ones()))) }

// checkName refuses a column's name or a category that is empty, too long, not UTF-8 or
// surrounded by spaces.
func checkName(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("statistic: the %s is missing", what)
	case len(text) > maxText:
		return fmt.Errorf("statistic: a %s of %d bytes is above the limit of %d", what, len(text), maxText)
	case !utf8.ValidString(text) || text != strings.TrimSpace(text):
		return fmt.Errorf("statistic: %s %q must be UTF-8 without spaces around it", what, text)
	}
	return nil
}

// checkRange refuses a range that is none.
func (q Question) checkRange() error {
	if math.Abs(q.Low) > mostValue || math.Abs(q.High) > mostValue {
		return fmt.Errorf("statistic: the public range %v..%v of column %q goes beyond ±%v, the limit", q.Low, q.High, q.Column, mostValue)
	}
	// The conditions are negated so that they refuse a NaN.
	if !(q.High > q.Low) || math.Signbit(q.Low) && q.Low == 0 || math.Signbit(q.High) && q.High == 0 {
		return fmt.Errorf("statistic: the public range %v..%v of column %q must be two numbers, the lower one first", q.Low, q.High, q.Column)
	}
	// Values must differ within the range.
	if !(q.High-q.Low >= 1e-12*math.Max(math.Abs(q.Low), math.Abs(q.High)) && q.High-q.Low >= 1/mostValue) {
		return fmt.Errorf("statistic: the public range %v..%v of column %q is too narrow", q.Low, q.High, q.Column)
	}
	return nil
}

// mostValue bounds numbers of a question, so that squares and sums stay finite.
const mostValue = 1e100
