package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/run/train"
)

// coefficientTable returns the coefficients of a linear model as a table with a head: a row for
// each column, and a value for each class that has a score of its own. caption says of what they
// are. Both are empty without coefficients.
func coefficientTable(all []train.Coefficient, c train.Config) (rows [][]string, caption string) {
	if len(all) == 0 {
		return nil, ""
	}
	place := map[string]int{}
	rows = [][]string{{"column"}}
	last := -1 // the number of the class whose coefficients come
	for i, x := range all {
		if i == 0 || x.Class != all[i-1].Class {
			head := x.Class
			if head == "" {
				head = "value"
			}
			last++
			rows[0] = append(rows[0], head)
		}
		if last == 0 {
			place[x.Column] = len(rows)
			rows = append(rows, []string{x.Column})
		}
		at := place[x.Column]
		rows[at] = append(rows[at], fmt.Sprintf("%.4g", float64(x.Value)))
	}
	of := "each class's score (only differences between classes mean something)"
	switch {
	case last == 0 && all[0].Class == "":
		of = "what is predicted of " + c.Label
	case last == 0 && c.Loss == model.Logistic:
		of = fmt.Sprintf("the log-odds of %s %s", c.Label, all[0].Class)
	case last == 0:
		of = fmt.Sprintf("the score of %s %s", c.Label, all[0].Class)
	}
	return rows, "added to " + of + ", for 1 of each column's own unit"
}

// mostCoefficients and mostScores are the largest numbers of columns and of classes whose
// coefficients are printed.
const mostCoefficients, mostScores = 30, 6

// coefficients prints a line for each column.
func (p *printer) coefficients(all []train.Coefficient, c train.Config) {
	rows, caption := coefficientTable(all, c)
	if rows == nil || len(rows[0])-1 > mostScores {
		return
	}
	p.row("coefficients", "%s", caption)
	shown := rows[1:]
	if len(shown) > mostCoefficients {
		shown = slices.Concat(shown[:mostCoefficients-1], shown[len(shown)-1:]) // the last one is the intercept
	}
	for _, row := range shown {
		cells := slices.Clone(row[1:])
		for k := range cells {
			if len(cells) > 1 {
				cells[k] = rows[0][1+k] + " " + cells[k]
			}
		}
		p.row("  "+strings.Join(strings.Fields(row[0]), " "), "%s", strings.Join(cells, ", "))
	}
	if n := len(rows) - 1 - len(shown); n > 0 {
		p.row("", "%d more: riffle predict RUN --coefficients", n)
	}
}
