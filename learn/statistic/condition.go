package statistic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Condition is a public condition on one cell of a row. A cell that is empty meets none.
type Condition struct {
	Column string `json:"column"`
	// Is compares: "=", "!=", "<", "<=", ">", ">=". The last four compare numbers; the first
	// two compare numbers where Value is one, and texts otherwise.
	Is    string `json:"is"`
	Value string `json:"value"`
}

// comparisons in the order in which ParseCondition looks for them.
var comparisons = []string{"!=", "<=", ">=", "=", "<", ">"}

// ParseCondition reads a condition as "age>=40" or "city=berlin".
func ParseCondition(text string) (Condition, error) {
	at := strings.IndexAny(text, "!<>=")
	if at > 0 {
		for _, is := range comparisons {
			if value, ok := strings.CutPrefix(text[at:], is); ok {
				c := Condition{strings.TrimSpace(text[:at]), is, strings.TrimSpace(value)}
				if strings.IndexAny(c.Value, "<>=") == 0 { // ==, =>: otherwise a text that nobody has
					return Condition{}, fmt.Errorf("statistic: condition %q must compare with one of %s", text, strings.Join(comparisons, " "))
				}
				return c, c.check()
			}
		}
	}
	return Condition{}, fmt.Errorf("statistic: condition %q must compare a column, as age>=40 or city=berlin", text)
}

func (c Condition) check() error {
	if err := checkName("condition's column", c.Column); err != nil {
		return err
	}
	if err := checkName("condition's value", c.Value); err != nil {
		return err
	}
	if !slices.Contains(comparisons, c.Is) {
		return fmt.Errorf("statistic: condition on %q: %q is none of %v", c.Column, c.Is, comparisons)
	}
	if _, ok := number(c.Value); !ok && c.Is != "=" && c.Is != "!=" {
		return fmt.Errorf("statistic: condition on %q: %q is not a number", c.Column, c.Value)
	}
	return nil
}

// String returns the condition as ParseCondition reads it.
func (c Condition) String() string { return c.Column + c.Is + c.Value }

// number reads a cell. Numbers that are not finite count as none.
func number(cell string) (float64, bool) {
	cell = strings.TrimSpace(cell)
	if strings.ContainsAny(cell, "xXpP_") {
		return 0, false // Go's notations, which ParseFloat takes too; a table's cells may not have them either
	}
	v, err := strconv.ParseFloat(cell, 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// compile returns whether a row meets c.
func (c Condition) compile() func(Row) bool {
	value, numeric := number(c.Value)
	return func(row Row) bool {
		cell := strings.TrimSpace(row(c.Column))
		if cell == "" {
			return false
		}
		var order int
		if numeric {
			v, ok := number(cell)
			if !ok {
				return c.Is == "!="
			}
			order = cmp.Compare(v, value)
		} else {
			order = strings.Compare(cell, c.Value)
		}
		switch c.Is {
		case "=":
			return order == 0
		case "!=":
			return order != 0
		case "<":
			return order < 0
		case "<=":
			return order <= 0
		case ">":
			return order > 0
		}
		return order >= 0
	}
}
