package train

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Value is one setting as text. It has the methods that flag packages ask of
// a flag's value, so that flags, YAML keys and the saved configuration share
// one parser and one check.
type Value interface {
	String() string
	Set(text string) error
	Type() string
}

// Field is a named setting of a Config.
type Field struct {
	Name  string
	Usage string
	Value Value
	// Local fields say how this process runs (workers, output); they are no
	// part of what is computed and may differ on resume.
	Local bool
}

type floatValue struct {
	p     *float64
	check func(float64) error
	auto  bool // zero prints as nothing: it stands for "chosen for you"
}

func (v floatValue) Type() string { return "number" }
func (v floatValue) String() string {
	if v.p == nil || v.auto && *v.p == 0 {
		return ""
	}
	return strconv.FormatFloat(*v.p, 'g', -1, 64)
}
func (v floatValue) Set(text string) error {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	if err := v.check(x); err != nil {
		return err
	}
	*v.p = x
	return nil
}

type countValue struct {
	p        *int64
	min, max int64
	auto     bool
}

func (v countValue) Type() string { return "count" }
func (v countValue) String() string {
	if v.p == nil || v.auto && *v.p == 0 {
		return ""
	}
	return strconv.FormatInt(*v.p, 10)
}
func (v countValue) Set(text string) error {
	n, err := ParseCount(text)
	if err != nil {
		return err
	}
	if n < v.min || n > v.max {
		return fmt.Errorf("%d must lie between %d and %d", n, v.min, v.max)
	}
	*v.p = n
	return nil
}

// ParseCount reads a whole number, also as 1e6 or 6e4.
func ParseCount(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("%q is not a whole number (as 60000 or 6e4)", text)
	}
	return int64(x), nil
}

type textValue struct {
	p     *string
	check func(string) error
}

func (v textValue) Type() string { return "text" }
func (v textValue) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}
func (v textValue) Set(text string) error {
	if v.check != nil {
		if err := v.check(text); err != nil {
			return err
		}
	}
	*v.p = text
	return nil
}

func oneOf(words ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(words, text) {
			return fmt.Errorf("%q must be one of %s", text, strings.Join(words, ", "))
		}
		return nil
	}
}

// within accepts lo < x ≤ hi, or lo ≤ x ≤ hi if closed. NaN lies nowhere.
func within(lo, hi float64, closed bool) func(float64) error {
	return func(x float64) error {
		if (x > lo || closed && x == lo) && x <= hi {
			return nil
		}
		above := "above"
		if closed {
			above = "at least"
		}
		if math.IsInf(hi, 1) || hi == math.MaxFloat64 {
			return fmt.Errorf("%v must be %s %v and finite", x, above, lo)
		}
		return fmt.Errorf("%v must be %s %v and at most %v", x, above, lo, hi)
	}
}

// below accepts lo ≤ x < hi, or lo < x < hi if open.
func below(lo, hi float64, open bool) func(float64) error {
	return func(x float64) error {
		if x < hi && (x > lo || !open && x == lo) {
			return nil
		}
		if open {
			return fmt.Errorf("%v must lie strictly between %v and %v", x, lo, hi)
		}
		return fmt.Errorf("%v must be at least %v and below %v", x, lo, hi)
	}
}
