package train

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/riffle-dp/riffle/learn/dataset"
)

func checkCategories(text string) error { return declares(text, "", "") }
func checkMissing(text string) error    { return declares("", text, "") }
func checkDrop(text string) error       { return declares("", "", text) }

func declares(categories, missing, drop string) error {
	_, err := dataset.ParseDeclared(categories, missing, drop)
	return err
}

func checkClasses(text string) error {
	_, err := dataset.ParseClasses(text)
	return err
}

// tableOnly names the first setting that describes columns of a table; "": none is set.
func (c DataConfig) tableOnly() string {
	for _, s := range []struct{ name, text string }{{"categories", c.Categories}, {"missing", c.Missing}, {"drop", c.Drop}, {"classes", c.Classes}} {
		if s.text != "" {
			return s.name
		}
	}
	return ""
}

// hint returns which flag helps with an error about a table's cells; "" if none does.
func hint(err error) string {
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
	return math.Sqrt(float64(len(numbers) + file.Ones))
}

// tookClasses says which classes were read off a table, if they were.
func (c Config) tookClasses(file *dataset.CSV) []string {
	if c.Classes != "" || file.Labels == nil {
		return nil
	}
	const most = 10
	names := file.Labels
	rest := ""
	if len(names) > most {
		names, rest = names[:most], fmt.Sprintf(" and %d more", len(file.Labels)-most)
	}
	return []string{fmt.Sprintf("the classes %s%s of column %s are read off the table and taken to be public; --classes fixes them", strings.Join(names, ", "), rest, c.Label)}
}
