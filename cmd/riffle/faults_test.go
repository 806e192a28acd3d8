package main

import (
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/operate"
)

// TestKilledProcesses kills each role once, and then all at the same time. The task
// goes on to its end as if nothing had happened.
func TestKilledProcesses(t *testing.T) {
	longtest.Only(t, "every process is killed and starts again")
	if testing.Short() {
		t.Skip("runs processes; the services have their own tests")
	}
	for _, trust := range []string{"full", "proofs", "vector-sum", "shuffle"} {
		t.Run(trust, func(t *testing.T) {
			kills := []struct{ victim, phase string }{
				{"clients-1", "collecting"}, {"shuffler", "collecting"}, {"coordinator", "opening"}, {"aggregator", "opening"},
				{"shuffler", "charging"}, {"relay", "collecting"}, {"registrar", "collecting"}, {"", "collecting"}}
			d := deploy(t, scenario{clients: 12, processes: 2, trust: dp.Trust(trust), rounds: 2*int64(len(kills)) + 3, spread: 200 * time.Millisecond, receipts: true})
			for _, k := range kills {
				victims := []string{k.victim}
				if k.victim == "" {
					victims = d.all()
				}
				if d.configs[victims[0]] == "" {
					continue
				}
				after := int64(0)
				if d.last != nil {
					after = d.last.Round
				}
				seen := d.phase(after, k.phase, patience)
				if k.phase == "collecting" {
					goOn(100 * time.Millisecond) // half of the reports are there
				}
				d.kill(victims...)
				t.Logf("killed %v in round %d, seen %s: %v", victims, d.last.Round+1, k.phase, seen)
				for _, v := range victims {
					if v == k.victim && v != "clients-1" && v != operate.RoleRelay { // it has no store
						d.fsckKilled(v)
					}
				}
				d.start(victims...)
				d.reach(min(d.last.Round+1, d.rounds), patience)
			}
			d.whole(patience)
			d.nothingWrong()
		})
	}
}
