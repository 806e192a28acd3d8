//go:build soak

package main

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/netlab"
)

var hostsFaults = flag.Int("soak.partitions", 0, "partitions that are tried of each deployment, 0: all")

// TestHostsMatrix cuts each two machines that talk to each other apart, and each machine from
// all others, in each phase of a round, in bad weather too.
func TestHostsMatrix(t *testing.T) {
	if !netlab.Enter(t) {
		return
	}
	servers := [][2]string{{"coordinator", "shuffler"}, {"clients-0", "coordinator"}, {"clients-1", "coordinator"}}
	for _, c := range []struct {
		name      string
		trust     dp.Trust
		clustered bool
		pairs     [][2]string // that talk; "" is everybody
	}{
		{"full", withAll, false, append(slices.Clone(servers), [2]string{"coordinator", "aggregator"}, [2]string{"aggregator", "shuffler"}, [2]string{"shuffler", "registrar"},
			[2]string{"coordinator", "registrar"}, [2]string{"clients-0", "registrar"}, [2]string{"clients-0", "relay"}, [2]string{"relay", "shuffler"},
			[2]string{"coordinator", ""}, [2]string{"shuffler", ""}, [2]string{"aggregator", ""}, [2]string{"registrar", ""}, [2]string{"relay", ""}, [2]string{"clients-0", ""})},
		{"cluster", "shuffle", true, append(slices.Clone(servers), [2]string{"clients-0", "shuffler"}, [2]string{"clients-1", "shuffler.front"},
			[2]string{"n0", "n1"}, [2]string{"n1", "n2"}, [2]string{"n0", "n2"}, [2]string{"n0", ""}, [2]string{"n1", ""}, [2]string{"n2", ""},
			[2]string{"shuffler", "n0"}, [2]string{"shuffler", "n1"}, [2]string{"coordinator", "n0"}, [2]string{"coordinator", "n2"}, [2]string{"shuffler.front", "n1"}, [2]string{"shuffler.front", ""})},
	} {
		for name, weather := range map[string]netlab.Weather{"fair": {}, "foul": {Loss: .02, Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond, Rate: 2 << 20}} {
			t.Run(c.name+"-"+name, func(t *testing.T) {
				var faults []partition
				var ways = []string{"both", "there", "back", "both"}
				for _, p := range c.pairs {
					for i, phase := range phases {
						if phase.name == "aggregating" && c.trust == "shuffle" {
							continue
						}
						faults = append(faults, partition{some: p[:1], others: p[1:], phase: phase.name, way: ways[(len(faults)+i)%len(ways)]})
					}
					faults = append(faults, partition{some: p[:1], others: p[1:], phase: "collecting", way: "forgotten"})
				}
				s := scenario{clients: 12, processes: 2, trust: c.trust, spread: 200 * time.Millisecond, receipts: true}
				if *hostsFaults > 0 {
					faults = faults[:min(len(faults), *hostsFaults)]
				}
				s.rounds = int64(len(faults)) + 2
				h := onHosts(t, s, c.clustered)
				h.net.Set(weather)
				h.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
				missed := 0
				for _, f := range faults {
					if f.others[0] == "" {
						f.others = h.others(f.some...)
					}
					// Many end before anybody gives up, some after.
					f.span = time.Duration(h.random.Int64N(int64(1500 * time.Millisecond)))
					if h.random.IntN(8) == 0 {
						f.span += 12 * time.Second
					}
					if !h.part(f) {
						missed++
					}
				}
				h.whole(patience)
				h.nothingWrong()
				t.Logf("%s: %d partitions, %d of them in a phase that was not seen in time; %v", c.name, len(faults), missed, fmt.Sprint(h.faults))
			})
		}
	}
}

// others are all machines but some.
func (h *hosts) others(some ...string) (out []string) {
	for name := range h.machine {
		if !slices.Contains(some, name) {
			out = append(out, name)
		}
	}
	return out
}

// TestConnectionsForgotten has a firewall forget the connections between each two machines in
// the middle of a round: new ones are made soon.
func TestConnectionsForgotten(t *testing.T) {
	if !netlab.Enter(t) {
		return
	}
	for _, c := range []struct {
		trust     dp.Trust
		clustered bool
		pairs     [][2]string
	}{
		{withAll, false, [][2]string{{"clients-0", "relay"}, {"clients-0", "coordinator"}, {"relay", "shuffler"}, {"coordinator", "shuffler"}, {"coordinator", "aggregator"}}},
		{"shuffle", true, [][2]string{{"clients-0", "shuffler"}, {"coordinator", "n0"}, {"coordinator", "n1"}, {"coordinator", "n2"}, {"shuffler", "n0"}, {"shuffler", "n1"}, {"shuffler", "n2"}, {"n0", "n1"}, {"n1", "n2"}, {"n0", "n2"}}},
	} {
		t.Run(string(c.trust), func(t *testing.T) {
			h := onHosts(t, scenario{clients: 12, processes: 2, trust: c.trust, rounds: int64(len(c.pairs)) + 2, spread: 200 * time.Millisecond, receipts: true}, c.clustered)
			for _, p := range c.pairs {
				h.part(partition{some: p[:1], others: p[1:], phase: "collecting", way: "forgotten"})
			}
			h.whole(patience)
			h.nothingWrong()
		})
	}
}
