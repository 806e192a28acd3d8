package dp

import (
	"math"
	"strings"
	"testing"
)

func TestRoundsAreChecked(t *testing.T) {
	good := Round{Report: Report{Class: Generic, Eps0: 1}, Trust: Shuffle, Participation: Sampled, Population: 10, Reports: 4}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Round){
		"eps0 = 0 must be above 0":                 func(r *Round) { r.Report.Eps0 = 0 },
		"eps0 = -1 must be above 0":                func(r *Round) { r.Report.Eps0 = -1 },
		"eps0 = NaN must be above 0":               func(r *Round) { r.Report.Eps0 = math.NaN() },
		"eps0 = +Inf must be above 0":              func(r *Round) { r.Report.Eps0 = math.Inf(1) },
		"eps0 = 50.00000000000001 must be":         func(r *Round) { r.Report.Eps0 = math.Nextafter(50, 51) },
		`unknown randomizer class "other"`:         func(r *Round) { r.Report.Class = "other" },
		`unknown trust ""`:                         func(r *Round) { r.Trust = "" },
		`unknown participation "some"`:             func(r *Round) { r.Participation = "some" },
		"n = 0 must be at least 1":                 func(r *Round) { r.Population = 0 },
		"k = 11 must lie between 1 and n = 10":     func(r *Round) { r.Reports = 11 },
		"k = 0 must lie between 1 and n = 10":      func(r *Round) { r.Reports = 0 },
		"k = 4 must equal n = 10":                  func(r *Round) { r.Participation = All },
		"gamma = 0 must be above 0":                func(r *Round) { r.Participation = CheckIn },
		"gamma = NaN must be above 0":              func(r *Round) { r.Participation, r.Gamma = CheckIn, math.NaN() },
		"at most 1":                                func(r *Round) { r.Participation, r.Gamma = CheckIn, math.Nextafter(1, 2) },
		"sigma = 0 must be above 0":                func(r *Round) { r.Report = Report{Class: Gaussian} },
		"sigma = 1e+10 must be":                    func(r *Round) { r.Report = Report{Class: Gaussian, Sigma: 1e10} },
		"eps0 = 1 given for class gaussian":        func(r *Round) { r.Report = Report{Class: Gaussian, Sigma: 1, Eps0: 1} },
		"sigma = 1 given for class":                func(r *Round) { r.Report.Sigma = 1 },
		"for class gaussian only":                  func(r *Round) { r.Trust = Distributed },
		"n-min = 5 must lie between 1 and the 4":   func(r *Round) { r.Least = 5 },
		"n-min = -1 must lie between":              func(r *Round) { r.Participation, r.Reports, r.Gamma, r.Least = CheckIn, 0, .5, -1 },
		"n-min = 11 must lie between 1 and the 10": func(r *Round) { r.Participation, r.Reports, r.Gamma, r.Least = CheckIn, 0, .5, 11 },
		"n-min = 3 has no meaning":                 func(r *Round) { r.Participation, r.Reports, r.Least = All, 0, 3 },
	} {
		r := good
		change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", r, err, want)
		}
	}
}

func TestRoundsInRange(t *testing.T) {
	report := Report{Class: BinaryRR, Eps0: 50}
	for _, r := range []Round{
		{Report: report, Trust: Local, Participation: All, Population: 1},
		{Report: report, Trust: Shuffle, Participation: All, Population: 7, Reports: 7},
		{Report: report, Trust: Shuffle, Participation: Once, Population: 7, Reports: 7},
		{Report: report, Trust: Shuffle, Participation: CheckIn, Population: 7, Gamma: 1},
		{Report: report, Trust: Shuffle, Participation: CheckIn, Population: 7, Gamma: .1, Least: 7},
		{Report: report, Trust: Shuffle, Participation: Sampled, Population: 7, Reports: 5, Least: 5},
	} {
		if err := r.Validate(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestDeltaLiesStrictlyBetweenZeroAndOne(t *testing.T) {
	for _, d := range []float64{0, 1, -1e-300, math.Nextafter(1, 2), math.NaN(), math.Inf(1)} {
		if CheckDelta(d) == nil {
			t.Errorf("accepted delta = %v", d)
		}
	}
	for _, d := range []float64{5e-324, 1e-5, math.Nextafter(1, 0)} {
		if err := CheckDelta(d); err != nil {
			t.Error(err)
		}
	}
}
