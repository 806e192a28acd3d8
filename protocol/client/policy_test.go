package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// What a client counts for a report is never less than what the accountant says
// of any round it can have been in, given that it was.
func TestPolicyChargeIsAboveTheCoordinators(t *testing.T) {
	a := new(account.Accountant)
	for _, name := range []string{"rinf", "privunit", "laplace"} {
		for _, eps0 := range longtest.Pick([]float64{3}, []float64{.5, 3}) {
			task := wire.Task{Trust: dp.Shuffle, Participation: dp.Sampled, MinReports: 60, Rounds: 100, Delta: 1e-6,
				Mechanism: wire.Mechanism{Name: name, Dim: 4, Clip: 1, ClipMode: "norm", Eps0: eps0}}
			m, err := mechanism.New(task.Mechanism)
			if err != nil {
				t.Fatal(err)
			}
			terms, err := (client.Policy{MaxEps0: 6, MaxEps: 100, Delta: 1e-6, MinReports: 50, Colluders: 10}).Agree(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			charged, err := a.Eps(dp.Repeat{Event: terms.Charge, Times: 7}, 1e-6)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range []dp.Round{
				{Participation: dp.All, Population: 60},
				{Participation: dp.Sampled, Population: 1000, Reports: 100, Least: 60},
				{Participation: dp.CheckIn, Population: 1000, Gamma: .2, Least: 60},
			} {
				r.Report, r.Trust = m.Event(), dp.Shuffle
				if name != "laplace" && r.Participation == dp.CheckIn && !longtest.On {
					continue
				}
				got, err := a.Eps(dp.Repeat{Event: r, Times: 7}, 1e-6)
				if err != nil {
					t.Fatal(err)
				}
				if !(got.Eps <= charged.Eps*(1+1e-9)) {
					t.Errorf("%s at eps0 = %v: %+v costs %v, charged are %v", name, eps0, r, got.Eps, charged.Eps)
				}
			}
		}
	}
}

// A client's limits, and what it makes of a task.
func ExamplePolicy() {
	policy := client.Policy{
		MaxEps0:    4,    // of one report, if shuffler and coordinator work together
		MaxEps:     2,    // of everything, if they do not
		Delta:      1e-6, //
		MinReports: 500,  // never in a smaller crowd
		Trusts:     []dp.Trust{dp.Shuffle},
	}
	task := wire.Task{
		Name: "digits", Trust: dp.Shuffle, Participation: dp.All, MinReports: 800, Rounds: 20, Delta: 1e-6,
		Mechanism: wire.Mechanism{Name: "privunit", Dim: 1930, Clip: 0.2, ClipMode: "norm", Eps0: 3},
	}
	terms, err := policy.Agree(context.Background(), task)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("counted as one of %d reports\n", terms.Charge.Reports)

	task.MinReports = 100
	_, err = policy.Agree(context.Background(), task)
	fmt.Println(err.(*client.Refused).Cause, err.(*client.Refused).Detail)
	// Output:
	// counted as one of 800 reports
	// policy n-min = 100 is below 500
}
