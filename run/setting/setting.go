// Package setting describes settings once, as a table with a row for each. Flags, YAML
// keys, help, shell completion, stored configurations and their digests come from it.
package setting

import (
	"crypto/sha256"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Field is a row of a table. It has the methods that flag packages ask of a flag's
// value.
type Field struct {
	// Name is the setting's flag and YAML key. Required.
	Name string
	// Part is what the setting is about; help groups by it.
	Part string
	// Into points to the value: a number, an Optional, a bool, or a string of any type. Required.
	Into any
	// Default is the value that Table.Reset sets. "": the zero value, which stands for
	// "chosen for you" and is not written.
	Default string
	// Range is where a number must lie, such as "[1, 1e12]" or "(0, inf)"; a round
	// bracket excludes its end.
	Range string
	// Values lists what an enumeration accepts. Each may end with a tab and a note. If Check
	// is set they are examples only.
	Values []string
	// Check returns an error for a text that is not accepted. nil: the text must be one of
	// Values, if there are any.
	Check func(text string) error
	// File says that the value names a file or a folder.
	File bool
	// Local settings say how this process runs (workers, checkpoints, where a program is). They
	// do not change results, are not in the digest and may differ on resume.
	Local bool
	// Help is one line; "%s" in it stands for Values.
	Help string
}

// Optional is a number that may be left to be chosen where 0 is a number like others. Its zero
// value stands for "chosen for you".
type Optional struct {
	Value float64
	Given bool
}

// Type names the kind of value in help.
func (f Field) Type() string {
	switch reflect.TypeOf(f.Into).Elem().Kind() {
	case reflect.Float64, reflect.Struct:
		return "number"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "bool"
	}
	return "count"
}

// String is the value as it is written; "" if it is the zero value that stands for "chosen for
// you".
func (f Field) String() string {
	if f.Into == nil { // flag packages call String on a zero Field
		return ""
	}
	v := reflect.ValueOf(f.Into).Elem()
	if f.Default == "" && v.IsZero() {
		return ""
	}
	if v.Kind() == reflect.Struct {
		v = v.Field(0) // an Optional's value
	}
	if v.Kind() == reflect.Float64 {
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// Set changes the value; on an error it stays as it was.
func (f Field) Set(text string) error {
	v, err := f.parse(text)
	if err == nil {
		reflect.ValueOf(f.Into).Elem().Set(v)
	}
	return err
}

// Usage is the line of help, with the values of an enumeration.
func (f Field) Usage() string {
	if !strings.Contains(f.Help, "%s") {
		return f.Help
	}
	var words []string
	for _, v := range f.Values {
		name, note, ok := strings.Cut(v, "\t")
		if ok {
			name += " (" + note + ")"
		}
		words = append(words, name)
	}
	list := words[len(words)-1]
	if len(words) > 1 {
		list = strings.Join(words[:len(words)-1], ", ") + " or " + list
	}
	return strings.Replace(f.Help, "%s", list, 1)
}

// names are the values of an enumeration without their notes.
func (f Field) names() (out []string) {
	for _, v := range f.Values {
		name, _, _ := strings.Cut(v, "\t")
		out = append(out, name)
	}
	return out
}

// parse returns the value that a text stands for, of the type that Into points to.
func (f Field) parse(text string) (reflect.Value, error) {
	into := reflect.TypeOf(f.Into).Elem()
	switch into.Kind() {
	case reflect.String:
		switch names := f.names(); {
		case f.Check != nil:
			if err := f.Check(text); err != nil {
				return reflect.Value{}, err
			}
		case names != nil && !slices.Contains(names, text):
			return reflect.Value{}, fmt.Errorf("%q must be one of %s", text, strings.Join(names, ", "))
		}
		return reflect.ValueOf(text).Convert(into), nil
	case reflect.Bool:
		if text != "true" && text != "false" {
			return reflect.Value{}, fmt.Errorf("%q must be true or false", text)
		}
		return reflect.ValueOf(text == "true"), nil
	case reflect.Float64, reflect.Struct:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return reflect.Value{}, fmt.Errorf("%q is not a number", text)
		}
		if into.Kind() == reflect.Struct {
			return reflect.ValueOf(Optional{x, true}), f.within(x, x)
		}
		return reflect.ValueOf(x), f.within(x, x)
	}
	n, err := ParseCount(text)
	if err != nil {
		return reflect.Value{}, err
	}
	return reflect.ValueOf(n).Convert(into), f.within(float64(n), n)
}

// within refuses a number outside of Range. shown is the same number as it was given, an int64
// for a count.
func (f Field) within(x float64, shown any) error {
	if f.Range == "" {
		return nil
	}
	low, high, _ := strings.Cut(strings.Trim(f.Range, "[]()"), ", ")
	lo, errLow := strconv.ParseFloat(low, 64)
	hi, errHigh := strconv.ParseFloat(high, 64)
	if errLow != nil || errHigh != nil {
		panic(f.Name + ": range " + f.Range)
	}
	above, below := f.Range[0] == '(', strings.HasSuffix(f.Range, ")")
	n, count := shown.(int64)
	if (x > lo || x == lo && !above) && (x < hi || x == hi && !below) && !(count && hi < 1<<62 && n > int64(hi)) { // false for NaN
		return nil
	}
	least, most := "at least", fmt.Sprintf("at most %v", hi)
	switch {
	case count && math.IsInf(hi, 1):
		return fmt.Errorf("%d must be at least %.0f", shown, lo)
	case count:
		return fmt.Errorf("%d must lie between %.0f and %.0f", shown, lo, hi)
	case math.IsInf(hi, 1):
		most = "finite"
	case above && below:
		return fmt.Errorf("%v must lie strictly between %v and %v", x, lo, hi)
	case below:
		most = fmt.Sprintf("below %v", hi)
	}
	if above {
		least = "above"
	}
	return fmt.Errorf("%v must be %s %v and %s", x, least, lo, most)
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

// Table is the settings of something, in the order they are shown, stored and hashed.
type Table []Field

// Reset gives every setting its default.
func (t Table) Reset() {
	for _, f := range t {
		v := reflect.ValueOf(f.Into).Elem()
		if v.SetZero(); f.Default == "" {
			continue
		}
		if err := f.Set(f.Default); err != nil {
			panic(fmt.Sprintf("default of %s: %v", f.Name, err))
		}
	}
}

// Check refuses a value that its own row does not take.
func (t Table) Check() error {
	for _, f := range t {
		if text := f.String(); text != "" {
			if _, err := f.parse(text); err != nil {
				return fmt.Errorf("%s = %v", f.Name, err)
			}
		}
	}
	return nil
}

// Digest identifies what the settings compute. It covers the settings that are written and not
// local. A setting that stands for "chosen for you" is not written, so adding a setting
// changes no digest.
func (t Table) Digest() (d [32]byte) {
	h := sha256.New()
	for _, f := range t {
		if text := f.String(); !f.Local && text != "" {
			fmt.Fprintf(h, "%q=%q\n", f.Name, text)
		}
	}
	h.Sum(d[:0])
	return d
}
