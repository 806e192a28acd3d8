package dataset

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// SyntheticShop names the law of WriteShop.
const SyntheticShop SyntheticKind = "shop"

// shopRow is the stream of a row of WriteShop, beside those of NewSynthetic.
const shopRow = 4

// choice is one of several texts, in percent.
type choice struct {
	text    string
	percent uint64
	score   float64 // what it adds to the score of the class yes
}

var (
	shopCities = []choice{{"berlin", 30, .3}, {"paris", 25, 0}, {"rome", 15, -.3}, {"oslo", 9, .1}, {"lyon", 8, -.1}, {`"Paris, TX"`, 8, -.6}, {"", 5, 0}}
	shopPlans  = []choice{{"free", 70, 0}, {"plus", 22, .8}, {"pro", 8, 1.7}}
	shopNames  = []choice{{"Ada", 25, 0}, {"Bo", 25, 0}, {`"Curie, M."`, 25, 0}, {"Dora", 25, 0}}
)

// choose draws one of the choices, whose percentages sum to 100.
func choose(src rng.Source, from []choice) choice {
	u := sample.Uniform(src, 100)
	for _, c := range from {
		if u < c.percent {
			return c
		}
		u -= c.percent
	}
	return from[len(from)-1]
}

// WriteShop writes a synthetic CSV file of a shop's customers as people have such tables, one a
// line: id, name, age, city, plan, visits and spent of a month; bought, yes for about 7 % of
// them, and amount, what they spend in the next month, a number. Some ages, cities and amounts
// spent are missing, and customers of whom the last is buy more often. Row i depends on seed and
// i alone.
func WriteShop(w io.Writer, rows int, seed uint64) error {
	if rows < 1 {
		return fmt.Errorf("dataset: a shop with %d rows must have at least 1", rows)
	}
	out := bufio.NewWriter(w)
	out.WriteString("id,name,age,city,plan,visits,spent,bought,amount\n")
	src := rng.Replay(seed)
	for i := range rows {
		src.Reset(domainSynthetic, shopRow, uint64(i))
		fmt.Fprintf(out, "c%07d,%s\n", i+1, shopCustomer(src))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("dataset: %w", err)
	}
	return nil
}

// shopCustomer draws a customer's cells behind the id.
func shopCustomer(src rng.Source) string {
	name, city, plan := choose(src, shopNames), choose(src, shopCities), choose(src, shopPlans)
	age := 18 + float64(sample.Uniform(src, 36)+sample.Uniform(src, 37)) // 18 to 89
	visits := math.Floor(6 * sample.Exponential(src))
	spent := 40 * math.Exp(.8*sample.Normal(src)+.02*min(visits, 40))
	ageCell, spentCell := strconv.FormatFloat(age, 'f', -1, 64), strconv.FormatFloat(spent, 'f', 2, 64)
	if sample.Uniform(src, 100) < 6 {
		ageCell = ""
	}
	score := -3.6 + city.score + plan.score + .09*min(visits, 40) - .03*(age-45)
	if sample.Uniform(src, 100) < 12 {
		spentCell = ""
		score += .9
	}
	bought := "no"
	if uniform := float64(src.Uint64()>>11) / (1 << 53); uniform < 1/(1+math.Exp(-score)) {
		bought = "yes"
	}
	amount := max(0, 10+.3*spent+1.2*visits+20*plan.score+.2*(age-45)+12*sample.Normal(src))
	return fmt.Sprintf("%s,%s,%s,%s,%.0f,%s,%s,%.2f", name.text, ageCell, city.text, plan.text, visits, spentCell, bought, amount)
}
