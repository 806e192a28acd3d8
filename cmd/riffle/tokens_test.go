package main

import (
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/operate"
)

// TestTokens runs all roles as processes, with a registrar: every report has its token, and every
// round gives its step.
func TestTokens(t *testing.T) {
	longtest.Only(t, "runs all roles as processes")
	if testing.Short() {
		t.Skip("runs processes; the services have their own tests")
	}
	for name, p := range map[string]scenario{
		"shuffle":    {trust: dp.Shuffle},
		"messages":   {trust: dp.Shuffle, messages: 3},
		"vector-sum": {trust: dp.Distributed},
	} {
		t.Run(name, func(t *testing.T) {
			p.clients, p.processes, p.rounds, p.tokens = 12, 2, 2, true
			if p.trust == dp.Distributed {
				p.trust = "vector-sum"
			}
			d := deploy(t, p)
			d.wait("both rounds have ended", patience, func() bool {
				now := d.look(d.api())
				return now != nil && now.Released == 2
			})
			if now := d.look(d.api()); now.Reports != 24 || len(now.Rejected) != 0 {
				t.Errorf("%d reports, rejected %v", now.Reports, now.Rejected)
			}
			d.whole(patience)
			d.stop(operate.RoleRegistrar)
			d.fsck(operate.RoleRegistrar)
		})
	}
}
