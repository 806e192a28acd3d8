package client

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// Reports without noise of their own promise nothing by themselves.
func TestReportsOfSumsPromiseNothingAlone(t *testing.T) {
	for _, class := range []dp.Class{dp.Gaussian, dp.GaussianSum} {
		s := &spentOn{}
		s.Charge(dp.Round{Report: dp.Report{Class: class, Sigma: 2}, Trust: dp.Distributed, Participation: dp.All, Population: 5, Reports: 5}, 1, 0)
		if got := s.local(); !math.IsInf(got, 1) {
			t.Errorf("%s: local epsilon %v", class, got)
		}
	}
}
