package rdp_test

import (
	"bufio"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/rdp"
)

func golden(t *testing.T, name string, least int) [][]string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]string
	s := bufio.NewScanner(f)
	for s.Scan() {
		if !strings.HasPrefix(s.Text(), "#") {
			out = append(out, strings.Split(s.Text(), "\t"))
		}
	}
	if s.Err() != nil || len(out) < least {
		t.Fatalf("%s: %d rows, want at least %d (%v)", name, len(out), least, s.Err())
	}
	return out
}

func parse(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Symmetric two-point pairs of the table as dp.Pair.
func TestGoldenDivergence(t *testing.T) {
	used := 0
	for _, r := range golden(t, "divergence.tsv", 30) {
		p, q := strings.Split(r[0], ","), strings.Split(r[1], ",")
		if len(p) != 2 || parse(t, p[0]) != parse(t, q[1]) {
			continue // dp.Pair holds symmetric pairs only
		}
		used++
		p0, q0 := parse(t, p[0]), parse(t, q[0])
		pair := dp.Pair{}
		if p0 > q0 {
			pair.Atoms = []dp.Atom{{Q: q0, Loss: math.Log(p0 / q0)}}
		}
		order, want := parse(t, r[2]), parse(t, r[3])
		got := rdp.Divergence(pair, order)
		if !(got >= want*(1-1e-12)) || !(got <= want*(1+1e-6)) {
			t.Errorf("order %v of %v: %.17g, true %.17g", order, r[0], got, want)
		}
	}
	if used < 16 {
		t.Fatalf("only %d rows used", used)
	}
}

func TestGoldenConversion(t *testing.T) {
	for _, r := range golden(t, "convert.tsv", 20) {
		rho, delta, order, want := parse(t, r[0]), parse(t, r[1]), parse(t, r[2]), math.Max(0, parse(t, r[3]))
		eps, at := rdp.Minimize(func(l float64) float64 { return rho * l }, delta)
		if !(eps >= want*(1-1e-12)) || !(eps <= want*(1+1e-6)+1e-12) {
			t.Errorf("rho %v delta %v: eps %.17g at %v, true %.17g at %v", rho, delta, eps, at, want, order)
		}
		if want > 0 {
			// δ(ε) is the same curve read the other way.
			if d := rdp.Delta(func(l float64) float64 { return rho * l }, want); !(d >= delta*(1-1e-9)) || !(d <= delta*(1+1e-5)) {
				t.Errorf("rho %v eps %v: delta %v, true %v", rho, want, d, delta)
			}
		}
	}
}
