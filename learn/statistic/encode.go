package statistic

import "strings"

// Row returns one client's cell in a column, and "" where it has none. Spaces around a cell do
// not count.
type Row func(column string) string

// Encoder turns rows into vectors. It never fails: what does not fit counts as [Question] says.
// It may be used by several goroutines at once if the Row may.
type Encoder struct {
	q     Question
	dim   int
	where []func(Row) bool
	coder coder
}

// coder is a prepared encoding: one of its two functions is set. ok is whether the row meets
// the question's conditions.
type coder struct {
	// places appends the places of ones.
	places func(row Row, ok bool, state []float32, places []int) []int
	// values overwrites x, which is zero.
	values func(row Row, ok bool, state []float32, x []float32)
	// at, if not nil, returns the encoding with one state, which is then not read again.
	at func(state []float32) coder
}

// NewEncoder validates q.
func NewEncoder(q Question) (*Encoder, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	m := q.must()
	e := &Encoder{q: q, dim: m.dim(), coder: m.coder()}
	for _, c := range q.Where {
		e.where = append(e.where, c.compile())
	}
	return e, nil
}

func (e *Encoder) meets(row Row) bool {
	for _, ok := range e.where {
		if !ok(row) {
			return false
		}
	}
	return true
}

// Encode overwrites x, of length Dim, with the encoded row. state is what was published for the
// round; one-round questions do not read it.
func (e *Encoder) Encode(row Row, state []float32, x []float32) {
	x = x[:e.dim]
	clear(x)
	if e.coder.values != nil {
		e.coder.values(row, e.meets(row), state, x)
		return
	}
	var room [32]int
	for _, j := range e.coder.places(row, e.meets(row), state, room[:0]) {
		x[j] = 1
	}
}

// Places appends to places the places of the ones of an encoded row, for a question with Ones.
func (e *Encoder) Places(row Row, state []float32, places []int) []int {
	return e.coder.places(row, e.meets(row), state, places)
}

// value returns the number in the question's column, if the row is inside.
func (q Question) value(row Row, ok bool) (float64, bool) {
	if !ok {
		return 0, false
	}
	return number(row(q.Column))
}

// cell returns the text in the question's column, and "" if the row is outside.
func (q Question) cell(row Row, ok bool) string {
	if !ok {
		return ""
	}
	return strings.TrimSpace(row(q.Column))
}
