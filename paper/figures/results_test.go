package figures

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	const head = "experiment,setting,seed,round,eps_proved,eps_best,eps_paper,value,seconds\n"
	rows, err := readResults(fstest.MapFS{"e1.csv": {Data: []byte(head + "e1,a,1,10,.5,.5,2,.9,1\ne1,a,2,10,.6,.5,,.8,1\ne1,a,1,20,,,,,1\n")}}, "e1")
	if err != nil || len(rows) != 2 || rows[1].Proved != .6 || !math.IsNaN(rows[1].Paper) || rows[0].Paper != 2 || rows[1].Seed != 2 || rows[0].Round != 10 {
		t.Errorf("%+v, %v", rows, err)
	}
	points := gather(rows, func(r row) float64 { return float64(r.Round) })
	if len(points) != 1 || math.Abs(points[0].mean-.85) > 1e-12 || points[0].least != .8 || points[0].most != .9 || points[0].seeds != 2 || points[0].proved != .6 {
		t.Errorf("%+v", points)
	}
	if rows, err := readResults(nil, "e1"); err != nil || rows != nil {
		t.Errorf("%v, %v", rows, err)
	}
	if rows, err := readResults(fstest.MapFS{}, "e1"); err != nil || rows != nil {
		t.Errorf("%v, %v", rows, err)
	}
	for text, want := range map[string]string{
		"":                                  "EOF",
		"setting,seed\n":                    "must begin with",
		head + "e2,a,1,1,1,1,1,1,1\n":       `experiment "e2"`,
		head + "e1,a,1,1,1,1,1,many,1\n":    "line 2: value",
		head + "e1,a,1,1.5,1,1,1,.5,1\n":    "line 2: round",
		head + "e1,a,1,1,1,1,1,.5,1,more\n": "wrong number of fields",
	} {
		if _, err := readResults(fstest.MapFS{"e1.csv": {Data: []byte(text)}}, "e1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// With recordings, pictures have curves and claims have numbers.
func TestFiguresFromRecordings(t *testing.T) {
	recordings := os.DirFS("testdata")
	dir, _ := drawTo(t, Config{Only: []string{"g21-5a", "eab-4", "sci-2b", "cjmp-table1", "cjmp-rates"}, Results: recordings})
	for file, want := range map[string]string{
		"g21-5a.csv": "as printed riffle,", "g21-5a.svg": "as printed, paper", "eab-4.svg": "laplace, ε ≤ 0.9", "cjmp-rates.svg": ">agd/vector-sum/logistic<",
		"cjmp-table1.csv": "agd,d^(2/5)/(εn)^(4/5),agd/vector-sum/logistic,-0.80,-0.80,-0.80,-0.80,–,0.40,–,2", "sci-2b.md": "e4 is not recorded",
	} {
		if !strings.Contains(read(t, dir, file), want) {
			t.Errorf("%s lacks %s", file, want)
		}
	}
	if strings.Contains(read(t, dir, "g21-5a.md"), "not recorded") {
		t.Error("recorded results are said to be missing")
	}
	d := &desk{results: recordings}
	paper, ours, err := recorded("e1", 2.91, byPaper)(context.Background(), d)
	if err != nil || !(paper > 70 && paper < 80) || !(ours > 95) {
		t.Errorf("accuracy at 2.91: %v by the paper's accounting, %v by riffle's; %v", paper, ours, err)
	}
	// A run without privacy is no private one.
	if best, _, err := recorded("e3", math.MaxFloat64, byRiffle)(context.Background(), d); err != nil || !(best < 97) {
		t.Errorf("best private accuracy %v, %v", best, err)
	}
	if free, _, err := d.accuracy("e3", unprotected, unprotected); err != nil || !(free > 98 && free < 98.5) {
		t.Errorf("accuracy without privacy %v, %v", free, err)
	}
	// By a dearer accounting the same accuracy comes later.
	if dear, _, err := recordedBy("e1", e1, 1200, "clones-numeric-strong", 1.4)(context.Background(), d); err != nil || !(dear < paper && dear > 30) {
		t.Errorf("accuracy at 1.4 by strong composition %v, %v", dear, err)
	}
	// Drawn again without recordings, no stale picture stays.
	if _, err := Write(context.Background(), Config{Dir: dir, Only: []string{"cjmp-rates"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/cjmp-rates.svg"); err == nil {
		t.Error("a picture of other data is still there")
	}
}

func TestSlopes(t *testing.T) {
	if got := logSlope([]float64{10, 100, 1000}, []float64{1, .1, .01}); math.Abs(got+1) > 1e-12 {
		t.Errorf("slope %v", got)
	}
	for _, y := range [][]float64{{1}, {1, 0}, {1, -1}} {
		if got := logSlope([]float64{1, 2}[:len(y)], y); !math.IsNaN(got) {
			t.Errorf("slope of %v is %v", y, got)
		}
	}
	rows, err := readResults(os.DirFS("testdata"), "e5")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slopes(rows, byN, byDim, byEpsilon) {
		want := map[string]float64{"psgd": -.5, "agd": -.8, "gd": -1}[strings.Split(s.setting, "/")[0]]
		// Earlier rounds, three times as large, do not count.
		if math.Abs(s.all-want) > 1e-4 || math.Abs(s.last-want) > 1e-4 || len(s.x) != 3 || s.seeds != 2 || s.fixed != [2]float64{50, 1} {
			t.Errorf("%+v, want slope %v", s, want)
		}
	}
}

func TestRatesCover(t *testing.T) {
	for setting, want := range map[string]string{
		"psgd/vector-sum/hinge": "4.1 (baseline)", "agd-smooth/vector-sum/hinge": "4.7", "agd/distributed/logistic": "4.3", "agd-phases/vector-sum/logistic": "4.8",
		"gd/vector-sum/logistic": "4.9", "psgd/local/hinge": "§1, Duchi et al. 2018", "gd/central/logistic": "§1, Bassily et al. 2019",
		"pan-private/central/logistic": "Appendix C (pan-private)", "agd/none/logistic": "", "agd/shuffle/logistic": "", "nonsense": "",
	} {
		var got []string
		for _, r := range rates {
			if r.covers(setting) {
				got = append(got, r.theorem)
			}
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%s is an instance of %v, want %s", setting, got, want)
		}
	}
}
