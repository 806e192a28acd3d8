package account

import (
	"context"
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/rdp"
)

func BenchmarkAnswer(b *testing.B) {
	all := Query{Participation: dp.All, Eps0: 3, Population: 60000, Rounds: 80, Delta: 1e-5}
	for name, q := range map[string]Query{"A": settingA, "M1": settingM1, "CI": settingCI, "all60000": all} {
		for _, which := range []string{"best", "all"} {
			b.Run(name+"/"+which, func(b *testing.B) {
				for b.Loop() {
					if _, err := Answer(context.Background(), q, which); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkRenyiQuery(b *testing.B) {
	f, err := amplify.ClonesFamily(2, amplify.Blanket(2))
	if err != nil {
		b.Fatal(err)
	}
	p, err := f.Round(amplify.FamilyRound{Population: 1e6, Reports: 1e3})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		rdp.Divergence(p, 100)
	}
}

// A ledger of rounds of different numbers of reports that grows by one: the cost of each.
func BenchmarkLedgerRound(b *testing.B) {
	for _, kept := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(kept), func(b *testing.B) {
			a := new(Accountant)
			var seq dp.Sequence
			add := func(i int) {
				seq = append(seq, dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle, Participation: dp.Sampled,
					Population: 60000, Reports: 10000 + int64(i*7919%601) - 300})
			}
			for i := range kept {
				add(i)
			}
			if _, err := a.Eps(seq, 1e-5); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				add(kept + i)
				if _, err := a.Eps(seq, 1e-5); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPlanEps0(b *testing.B) {
	q := Query{Participation: dp.All, Population: 60000, Rounds: 80, Delta: 1e-5}
	for b.Loop() {
		if _, _, err := Plan(context.Background(), 1, q, "eps0"); err != nil {
			b.Fatal(err)
		}
	}
}
