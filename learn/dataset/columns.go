package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Others is the category of all texts that a column's other categories do not name, the empty
// one too if nothing is declared for missing cells.
const Others = "*"

// fill is what an empty cell counts as.
type fill struct {
	text      string // a number in the column's own units, before any scaling, or one of its categories
	indicator bool   // adds a feature that is 1 where the cell is empty
}

// Errors about cells that a declaration would make usable. They are wrapped by errors about rows.
var (
	ErrText     = errors.New("is not a number")
	ErrMissing  = errors.New("is an empty cell")
	ErrCategory = errors.New("is none of the column's categories")
	ErrClass    = errors.New("") // it has no text of its own
)

// indicated ends the text of a Fill with an indicator.
const indicated = "+indicator"

// Declare reads what is declared public of columns into c, by what it is:
//
//   - range: "age=0..120,*=0..10", to Scale and Rest, which map a range to 0..1;
//   - categories: "city=berlin|paris|*,sex=f|m";
//   - missing: "age=40,income=30000+indicator,*=0";
//   - drop: "id,name";
//   - classes: "no|yes";
//   - class-weights: "no=1|yes=13", which are above 0.
//
// The text may be empty. A backslash before one of , = | and \ makes it a part of a name or text,
// except in a range.
func (c *CSVConfig) Declare(what, text string) (err error) {
	if text == "" {
		return nil
	}
	switch what {
	case "range":
		c.Scale, c.Rest, err = parseRanges(text)
	case "categories":
		c.Categories = map[string][]string{}
		for column, list := range entries(text, ',', &err) {
			c.Categories[column] = pieces(list, '|')
			err = checkCategories(column, c.Categories[column])
		}
	case "missing":
		c.Missing = map[string]fill{}
		for column, value := range entries(text, ',', &err) {
			value, indicator := strings.CutSuffix(value, indicated)
			if c.Missing[column] = (fill{unescape(value), indicator}); value == "" {
				err = fmt.Errorf("%q has no value (as age=40)", column)
			}
		}
	case "drop":
		c.Drop = pieces(text, ',')
		for i, column := range c.Drop {
			if column == "" || slices.Contains(c.Drop[:i], column) {
				err = fmt.Errorf("column %q is empty or named twice", column)
			}
		}
	case "classes":
		c.Classes, err = parseClasses(text)
	case "class-weights":
		c.Weights = map[string]float64{}
		for class, value := range entries(text, '|', &err) {
			w, parseErr := strconv.ParseFloat(value, 64)
			if c.Weights[class] = w; parseErr != nil || !(w >= 1e-6 && w <= 1e6) {
				err = fmt.Errorf("%q of class %q must be a number from 1e-6 to 1e6 (as no=1|yes=13)", value, class)
			}
		}
	default:
		err = fmt.Errorf("%q is nothing that is declared of columns", what)
	}
	return err
}

// parseRanges reads the public range of each column, which is scaled to 0..1, and of all others.
func parseRanges(text string) (by map[string]Scaling, rest Scaling, err error) {
	by = map[string]Scaling{}
	fail := func(item, rule string) error {
		return fmt.Errorf("%q %s (as age=0..120,*=0..10)", item, rule)
	}
	for item := range strings.SplitSeq(text, ",") {
		i := strings.LastIndex(item, "=")
		if i < 1 {
			return nil, rest, fail(item, "must be COLUMN=LOW..HIGH")
		}
		column, span := item[:i], item[i+1:]
		low, high, ok := strings.Cut(span, "..")
		a, errA := strconv.ParseFloat(low, 64)
		b, errB := strconv.ParseFloat(high, 64)
		// The condition is negated so that it refuses a NaN.
		if !ok || errA != nil || errB != nil || !(b-a > 0 && b-a <= math.MaxFloat64 && -math.MaxFloat64 <= a) {
			return nil, rest, fail(item, "must have two finite numbers, the lower one first")
		}
		s := Scaling{Shift: a, Unit: b - a}
		if _, twice := by[column]; twice || column == Others && rest != (Scaling{}) {
			return nil, rest, fail(item, "gives a column's range twice")
		}
		if column == Others {
			rest = s
		} else {
			by[column] = s
		}
	}
	return by, rest, nil
}

func checkCategories(column string, texts []string) error {
	if column == Others {
		return errors.New("* is no column: each column has its own categories (as city=berlin|paris|*)")
	}
	for i, text := range texts {
		switch {
		case text == "":
			return fmt.Errorf("column %q has an empty category; an empty cell is declared as missing", column)
		case text != strings.TrimSpace(text) || !utf8.ValidString(text):
			return fmt.Errorf("category %q of column %q must be UTF-8 without spaces around it", text, column)
		case slices.Contains(texts[:i], text):
			return fmt.Errorf("column %q has the category %q twice", column, text)
		case text == Others && i < len(texts)-1:
			return fmt.Errorf("column %q: * stands for all other texts and comes last", column)
		}
	}
	if len(texts) < 2 {
		return fmt.Errorf("column %q must have at least two categories, * among them (as city=berlin|paris|*)", column)
	}
	return nil
}

// parseClasses reads the classes of a label.
func parseClasses(text string) ([]string, error) {
	classes := pieces(text, '|')
	for i, class := range classes {
		if class == "" || class != strings.TrimSpace(class) || !utf8.ValidString(class) || slices.Contains(classes[:i], class) {
			return nil, fmt.Errorf("class %q is empty, has spaces around it, is not UTF-8 or is named twice (as no|yes)", class)
		}
	}
	if len(classes) < 2 || len(classes) > MaxCSVClasses {
		return nil, fmt.Errorf("%d classes, want 2 to %d (as no|yes)", len(classes), MaxCSVClasses)
	}
	return classes, nil
}

// entries yields the entries COLUMN=TEXT, or with the separator | CLASS=TEXT, of a list. err gets the first problem, after which
// nothing more is yielded.
func entries(list string, sep byte, err *error) func(yield func(column, text string) bool) {
	return func(yield func(column, text string) bool) {
		seen, what, mark := map[string]bool{}, "column", "comma"
		if sep == '|' {
			what, mark = "class", "|"
		}
		for _, item := range cut(list, sep, -1) {
			parts := cut(item, '=', 2)
			column := unescape(parts[0])
			switch {
			case len(parts) < 2 || column == "":
				*err = fmt.Errorf("%q must be %s=...; a %s inside of a name or text is written \\%c", item, strings.ToUpper(what), mark, sep)
			case seen[column]:
				*err = fmt.Errorf("%s %q is declared twice", what, column)
			}
			if seen[column] = true; *err != nil || !yield(column, parts[1]) || *err != nil {
				return
			}
		}
	}
}

// pieces cuts text at sep and resolves backslashes.
func pieces(text string, sep byte) []string {
	out := cut(text, sep, -1)
	for i := range out {
		out[i] = unescape(out[i])
	}
	return out
}

// cut cuts text at each sep without a backslash before it, into at most n parts; -1: no limit.
func cut(text string, sep byte, n int) (out []string) {
	begin := 0
	for i := 0; i < len(text) && len(out) != n-1; i++ {
		switch text[i] {
		case '\\':
			i++
		case sep:
			out, begin = append(out, text[begin:i]), i+1
		}
	}
	return append(out, text[begin:])
}

// unescape removes backslashes before the characters with a meaning.
func unescape(text string) string {
	return strings.NewReplacer(`\\`, `\`, `\,`, `,`, `\=`, `=`, `\|`, `|`).Replace(text)
}

// column says how the cells of one column are read.
type column struct {
	skip       bool // dropped, or the label
	scale      Scaling
	categories map[string]int // nil: numbers
	others     int            // place of Others; -1: none
	width      int            // number of features without the indicator
	filled     bool           // empty cells count as fill
	fill       string
	indicator  bool
}

// declare decides how each column is read, and names the features.
func (p *csvParser) declare(seen map[string]int) error {
	d := &p.config
	fail := func(format string, args ...any) error {
		return fmt.Errorf("dataset: %s: %s", p.name, fmt.Sprintf(format, args...))
	}
	p.read = make([]column, len(p.columns))
	for j := range p.read {
		p.read[j] = column{scale: p.scale[j], width: 1, others: -1, skip: j == p.label}
	}
	for _, name := range d.Drop {
		j, ok := seen[name]
		if !ok && (d.Unlabelled || d.Features != nil) {
			continue // as with the label, nobody needs it
		}
		if !ok || j == p.label {
			return fail("column %q, which is to be dropped, is the label or no column", name)
		}
		if _, also := p.config.Scale[name]; also || d.Categories[name] != nil {
			return fail("column %q is dropped, and has a range or categories", name)
		}
		p.read[j].skip = true
	}
	for name, texts := range d.Categories {
		j, ok := seen[name]
		if !ok || j == p.label {
			return fail("categories of %q, which is the label or no column", name)
		}
		if err := checkCategories(name, texts); err != nil {
			return fail("%v", err)
		}
		if _, also := p.config.Scale[name]; also {
			return fail("column %q has categories, and a range too", name)
		}
		c := &p.read[j]
		c.categories, c.width = make(map[string]int, len(texts)), len(texts)
		for i, text := range texts {
			if c.categories[text] = i; text == Others {
				c.others = i
			}
		}
	}
	p.choose()
	for name, f := range d.Missing {
		if name == Others {
			continue
		}
		j, ok := seen[name]
		if !ok || p.read[j].skip {
			return fail("missing cells of %q, which is dropped, the label or no column", name)
		}
		p.read[j].fill, p.read[j].indicator, p.read[j].filled = f.text, f.indicator, true
	}
	rest, all := d.Missing[Others]
	for j := range p.read {
		c := &p.read[j]
		if all && !c.skip && !c.filled && c.categories == nil {
			c.fill, c.indicator, c.filled = rest.text, rest.indicator, true
		}
		if !c.filled {
			continue
		}
		if _, known := c.categories[c.fill]; c.categories != nil && !known {
			return fail("missing cells of %q count as %q, which is none of its categories", p.columns[j], c.fill)
		}
		if c.categories == nil {
			v, rule := number(c.fill)
			if rule == nil && !finite(c.scale.apply(v)) {
				rule = errTooLarge
			}
			if rule != nil {
				return fail("missing cells of %q count as %q, which %v", p.columns[j], c.fill, rule)
			}
		}
	}
	return p.nameFeatures()
}

// choose lists the columns that give features: all, or with Features those that the model takes, in its order.
func (p *csvParser) choose() {
	wanted := p.config.Features
	at := make(map[string]int, len(wanted))
	for i, name := range wanted {
		at[name] = i
	}
	places := make([]int, len(p.columns)) // of the columns' first features
	for j := range p.read {
		name := p.columns[j]
		if texts := p.config.Categories[name]; texts != nil {
			name += "=" + texts[0]
		}
		i, ok := at[name]
		if places[j] = i; p.read[j].skip || wanted != nil && !ok {
			p.read[j].skip = true
			continue
		}
		p.order = append(p.order, j)
	}
	if wanted != nil {
		slices.SortFunc(p.order, func(a, b int) int { return cmp.Compare(places[a], places[b]) })
	}
}

// nameFeatures names the features and counts them.
func (p *csvParser) nameFeatures() error {
	p.features = nil
	plain := true
	for _, j := range p.order {
		c, name := p.read[j], p.columns[j]
		switch {
		case c.categories == nil:
			p.features = append(p.features, name)
			p.square += p.most(c)
		default:
			for _, text := range p.config.Categories[name] {
				p.features = append(p.features, name+"="+text)
			}
			p.ones++
		}
		p.binary = append(p.binary, slices.Repeat([]bool{c.categories != nil}, c.width)...)
		if c.indicator {
			p.features, p.binary = append(p.features, name+missingMark), append(p.binary, true)
			p.ones++
		}
		plain = plain && c.categories == nil && !c.indicator
	}
	if plain {
		p.binary = nil
	}
	seen := map[string]bool{}
	for _, name := range p.features {
		if seen[name] {
			return fmt.Errorf("dataset: %s: two features would be named %q", p.name, name)
		}
		seen[name] = true
	}
	for _, name := range p.config.Features {
		if !seen[name] {
			return p.noColumn("column for the model's feature", name)
		}
	}
	if len(p.features) == 0 {
		return fmt.Errorf("dataset: %s: all columns but %q are dropped, want at least one feature", p.name, p.config.Label)
	}
	p.out.Dim = len(p.features)
	return nil
}

// most bounds the square of a number whose cells lie in −1..1 once they are scaled.
func (p *csvParser) most(c column) float64 {
	if !c.filled {
		return 1
	}
	v, _ := number(c.fill) // declare has checked it
	x := float64(c.scale.apply(v))
	return max(1, x*x)
}

// cell appends the features of a cell, or returns the rule that the cell breaks.
func (p *csvParser) cell(c *column, text string) error {
	empty := text == "" && c.filled
	if empty {
		text = c.fill
	}
	if c.categories == nil {
		v, err := number(text)
		if err != nil {
			return err
		}
		x := c.scale.apply(v)
		if !finite(x) {
			return errTooLarge
		}
		p.out.X = append(p.out.X, x)
	} else {
		at, ok := c.categories[text]
		switch {
		case ok:
		case c.others >= 0:
			at = c.others
		case text == "":
			return fmt.Errorf("%w, must be a category", ErrMissing)
		default:
			return ErrCategory
		}
		begin := len(p.out.X)
		p.out.X = append(p.out.X, make([]float32, c.width)...)
		p.out.X[begin+at] = 1
	}
	if c.indicator {
		x := float32(0)
		if empty {
			x = 1
		}
		p.out.X = append(p.out.X, x)
	}
	return nil
}

var (
	errTooLarge = errors.New("is too large for a float32")
	errInfinite = errors.New("must be finite")
)

// number reads a cell as a decimal number, or returns the rule that the cell breaks.
func number(cell string) (v float64, rule error) {
	if cell == "" {
		return 0, fmt.Errorf("%w, must be a number", ErrMissing)
	}
	v, err := strconv.ParseFloat(cell, 64)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		return 0, errInfinite
	}
	// ParseFloat takes hexadecimal and underscores too.
	if strings.Trim(cell, "0123456789+-.eE") != "" || strings.ContainsAny(cell, "xX_") {
		return 0, ErrText
	}
	if err != nil {
		if errors.Is(err, strconv.ErrRange) {
			return 0, errTooLarge
		}
		return 0, ErrText
	}
	return v, nil
}

// Unscale turns a linear score of a row's features, Σ weights·features + intercept, into the same
// score of its cells in their own units: it overwrites the weights and returns the intercept.
// With Regression the score becomes one in the label's own units. features are names as CSV's
// Columns.
func (c *CSVConfig) Unscale(features []string, weights []float64, intercept float64) float64 {
	binary := map[string]bool{}
	for name, texts := range c.Categories {
		for _, text := range texts {
			binary[name+"="+text] = true
		}
	}
	label := Scaling{Unit: 1}
	if s, ok := c.Scale[c.Label]; ok && c.Regression {
		label = s
	}
	for j, name := range features {
		s, ok := c.Scale[name]
		if !ok {
			s = c.Rest
		}
		if column, is := strings.CutSuffix(name, missingMark); binary[name] || is && c.indicates(column, features) {
			s = Scaling{}
		}
		weights[j] /= cmp.Or(s.Unit, 1)
		intercept -= weights[j] * s.Shift
		weights[j] *= cmp.Or(label.Unit, 1)
	}
	return label.Shift + cmp.Or(label.Unit, 1)*intercept
}

// missingMark ends the name of a feature that is 1 where a cell is empty.
const missingMark = " missing"

// indicates says whether a column has a feature that is 1 where its cell is empty.
func (c *CSVConfig) indicates(column string, features []string) bool {
	f, ok := c.Missing[column]
	if !ok && slices.Contains(features, column) { // a column of numbers
		f = c.Missing[Others]
	}
	return f.indicator
}
