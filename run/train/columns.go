package train

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/riffle-dp/riffle/learn/dataset"
)

// declares returns a check of a setting that declares something of a table's columns.
func declares(what string) func(text string) error {
	return func(text string) error { return new(dataset.CSVConfig).Declare(what, text) }
}

// declare reads what is declared of columns besides their ranges.
func (c DataConfig) declare(into *dataset.CSVConfig) error {
	for what, text := range map[string]string{"categories": c.Categories, "missing": c.Missing, "drop": c.Drop, "classes": c.Classes} {
		if err := into.Declare(what, text); err != nil {
			return inputError("%s %v", what, err)
		}
	}
	return nil
}

// tableOnly names the first setting that describes columns of a table; "": none is set.
func (c DataConfig) tableOnly() string {
	for _, s := range []struct{ name, text string }{{"categories", c.Categories}, {"missing", c.Missing}, {"drop", c.Drop}, {"classes", c.Classes}} {
		if s.text != "" && !(s.name == "classes" && c.ImageSize != "") {
			return s.name
		}
	}
	return ""
}

// Hint returns which flag helps with an error about a table's cells; "" if none does.
func Hint(err error) string {
	switch {
	case errors.Is(err, dataset.ErrText):
		return ": text needs public categories (--categories 'COLUMN=a|b|*'), a column without use is left out (--drop COLUMN)"
	case errors.Is(err, dataset.ErrMissing):
		return "; --missing 'COLUMN=VALUE' says what empty cells count as"
	case errors.Is(err, dataset.ErrCategory):
		return "; * behind the last of its --categories stands for all others"
	case errors.Is(err, dataset.ErrClass):
		return "; --classes lists them all"
	}
	return ""
}

// publicNorm returns a bound on the norm of a row's features that follows from public ranges,
// in which numbers are in −1..1; 0 if a column of numbers has no range.
func (c DataConfig) publicNorm(file *dataset.CSV) float64 {
	var numbers []string
	for j, name := range file.Columns {
		if file.Binary == nil || !file.Binary[j] {
			numbers = append(numbers, name)
		}
	}
	if !c.ranged(numbers) {
		return 0
	}
	return math.Sqrt(file.Square)
}

// tookClasses says which classes were read off a table, if they were.
func (c Config) tookClasses(file *dataset.CSV) []string {
	if c.Classes != "" || file.Labels == nil {
		return nil
	}
	return []string{took(file.Labels, "the table", " of column "+c.Label)}
}

// took says that classes were read off data, of a column if there is one.
func took(names []string, off, of string) string {
	const most = 10
	rest := ""
	if len(names) > most {
		names, rest = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	return fmt.Sprintf("the classes %s%s%s are read off %s and taken to be public; --classes fixes them", strings.Join(names, ", "), rest, of, off)
}
