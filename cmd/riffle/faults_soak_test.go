//go:build soak

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	"github.com/riffle-dp/riffle/service/store"
)

var soakSeeds = flag.Int("soak.seeds", 3, "runs of the fault matrix for each kind of trust")

// phases of a round, as the coordinator shows them, and how long after a phase
// begins a kill may come: the rest of the round is then reached too.
var phases = []struct {
	name string
	span time.Duration
}{{"announcing", 5 * time.Millisecond}, {"collecting", 400 * time.Millisecond}, {"charging", 8 * time.Millisecond},
	{"opening", 30 * time.Millisecond}, {"aggregating", 30 * time.Millisecond}, {"releasing", 10 * time.Millisecond}, {"evaluating", 10 * time.Millisecond}}

// TestFaultMatrix kills every role in every phase of a round, at random moments of
// it, and everything at the same time. What was hit is read off the stores.
func TestFaultMatrix(t *testing.T) {
	hit := map[string]int{}
	for _, trust := range []string{"shuffle", "vector-sum", "proofs", "full"} {
		for seed := range uint64(*soakSeeds) {
			t.Run(fmt.Sprint(trust, "-", seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 6))
				type fault struct {
					victims []string
					phase   int
				}
				var faults []fault
				victims := [][]string{{"shuffler"}, {"coordinator"}, {"clients-0"}, {"shuffler", "coordinator"}, {"shuffler", "coordinator", "aggregator", "clients-0", "clients-1"}}
				if trust != "shuffle" {
					victims = append(victims, []string{"aggregator"})
				}
				if trust == "full" {
					victims = append(victims, []string{"registrar"}, []string{"relay"}, []string{"registrar", "relay", "shuffler", "coordinator", "aggregator", "clients-0", "clients-1"})
				}
				for _, v := range victims {
					for i, p := range phases {
						if p.name != "aggregating" || trust != "shuffle" {
							faults = append(faults, fault{v, i})
						}
					}
				}
				random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
				d := deploy(t, scenario{clients: 12, processes: 2, trust: dp.Trust(trust), rounds: int64(len(faults)) + 4, spread: 300 * time.Millisecond})
				missed := 0
				for _, f := range faults {
					after := int64(0)
					if d.last != nil {
						after = d.last.Round
					}
					p := phases[f.phase]
					if !d.phase(after, p.name, patience) {
						missed++
					}
					goOn(time.Duration(random.Int64N(int64(p.span))))
					d.kill(f.victims...)
					for _, v := range f.victims {
						if slices.Contains(d.roles(), v) && random.IntN(2) == 0 {
							hit[trust+" "+v+": "+d.stage(v)]++
							d.fsckKilled(v)
						}
					}
					goOn(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
					up := slices.DeleteFunc(slices.Clone(f.victims), func(v string) bool { return d.configs[v] == "" })
					random.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
					d.start(up...)
					d.reach(min(after+1, d.rounds), patience)
				}
				d.whole(patience)
				t.Logf("%d faults, %d of them in a phase that was not seen in time", len(faults), missed)
			})
		}
	}
	for _, what := range slices.Sorted(maps.Keys(hit)) {
		t.Logf("%3d %s", hit[what], what)
	}
}

// stage says at which step of DATA_MODEL.md a role that is not running died.
func (d *deployment) stage(role string) string {
	d.t.Helper()
	var p config.Process
	switch role {
	case operate.RoleShuffler:
		c, err := config.Load[config.Shuffler](d.configs[role])
		if err != nil {
			d.t.Fatal(err)
		}
		p = c.Process
	case operate.RoleCoordinator:
		c, err := config.Load[config.Coordinator](d.configs[role])
		if err != nil {
			d.t.Fatal(err)
		}
		p = c.Process
	default:
		c, err := config.Load[config.Aggregator](d.configs[role])
		if err != nil {
			d.t.Fatal(err)
		}
		p = c.Process
	}
	ctx := d.t.Context()
	s, err := store.Open(ctx, p.Store)
	if err != nil {
		d.t.Fatal(err)
	}
	defer s.Close()
	read := func(key string, v any) bool {
		e, err := s.Get(ctx, key)
		if err == nil {
			err = json.Unmarshal(e.Value, v)
		}
		return err == nil
	}
	switch role {
	case operate.RoleCoordinator:
		var state struct {
			Round int64 `json:"round"`
			Open  *struct {
				Closed   []byte `json:"closed"`
				Charged  bool   `json:"charged"`
				Key      []byte `json:"key"` // with proofs
				Excluded string `json:"excluded"`
				Agreed   []byte `json:"agreed"`
				Noise    string `json:"noise"`
			} `json:"open"`
		}
		read("state."+d.task, &state)
		last, _ := s.LastEntry(ctx) // 0 without a ledger
		switch {
		case state.Open == nil:
			return "between rounds"
		case state.Open.Noise != "":
			return "noise named"
		case state.Open.Agreed != nil:
			return "set agreed"
		case state.Open.Excluded != "":
			return "set stored"
		case state.Open.Key != nil:
			return "key stored"
		case state.Open.Charged:
			return "charged"
		case last > uint64(state.Round):
			return "entered, not yet noted"
		case state.Open.Closed != nil:
			return "closed"
		}
		return "announced"
	case operate.RoleShuffler:
		open, err := s.List(ctx, store.Values, "open.")
		if err != nil {
			d.t.Fatal(err)
		}
		var out []string
		for _, key := range open {
			var round struct {
				State string  `json:"state"`
				Cut   *uint64 `json:"cut"`
			}
			name := strings.TrimPrefix(key, "open.")
			if !read("round."+name, &round) {
				round.State = "being opened"
			}
			if round.State == "closing" && round.Cut != nil {
				round.State = "cut"
			}
			if round.State == "open" {
				if _, last, err := s.StreamSize(ctx, "in-"+name); err == nil && last > 0 {
					round.State = "open, with reports"
				}
			}
			out = append(out, round.State)
		}
		if len(out) == 0 {
			return "between rounds"
		}
		slices.Sort(out)
		return strings.Join(out, "; ")
	}
	keys, err := s.List(ctx, store.Values, "sum.")
	if err != nil {
		d.t.Fatal(err)
	}
	prepared, summed, named, done := 0, 0, 0, 0
	for _, key := range keys {
		var sum struct{ Summed, Noise, Partial string }
		none := strings.Repeat("0", 64)
		switch {
		case !read(key, &sum):
		case sum.Partial != none:
			done++
		case sum.Noise != "":
			named++
		case sum.Summed != none:
			summed++
		default:
			prepared++
		}
	}
	switch {
	case named > 0:
		return "noise named"
	case summed > 0:
		return "excluded"
	case prepared > 0:
		return "prepared"
	}
	return "between rounds"
}

// TestFullStores runs a shuffler and a coordinator out of disk in the middle of a
// task, which the operator then gives more of.
func TestFullStores(t *testing.T) {
	for _, c := range []struct {
		role string
		size int
	}{{"shuffler", 45_000}, {"shuffler", 60_000}, {"shuffler", 120_000}, {"coordinator", 150_000}, {"coordinator", 185_000}} {
		role, full := c.role, fmt.Sprint("max-bytes: ", c.size)
		t.Run(fmt.Sprint(role, "-", c.size), func(t *testing.T) {
			d := deploy(t, scenario{clients: 12, processes: 2, rounds: 12, round: 6 * time.Second, spread: 100 * time.Millisecond,
				encoding: "values"}) // seeds would not fill a disk
			d.reach(2, patience)
			d.stop(role)
			replaceInFile(t, d.configs[role], "max-bytes: 0", full)
			d.start(role)
			begin := time.Now()
			d.wait("the disk is full", patience, func() bool {
				d.look(d.api())
				b, err := os.ReadFile(d.log(role))
				return err == nil && (strings.Contains(string(b), "full") || strings.Contains(string(b), "resource"))
			})
			at := d.last.Round
			goOn(8 * time.Second) // a round's deadline passes
			d.look(d.api())
			t.Logf("full in round %d, after %v; 8 s later round %d, %d void, last error %s", at+1, time.Since(begin), d.last.Round, d.last.RoundsVoid, d.last.Error)
			d.kill(role)
			d.fsckKilled(role)
			t.Logf("died when: %s", d.stage(role))
			replaceInFile(t, d.configs[role], full, "max-bytes: 0")
			d.start(role)
			o := d.finish(patience)
			t.Logf("%+v", o)
			// A round that was open when the disk was full may be void or have fewer.
			if o.failed != 0 || o.void > 3 || o.reports > o.sent || o.reports < 12*(o.released-3) {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestKilledNodes runs a whole task on a cluster whose servers are killed in the
// middle of rounds: one, two in turn, two and three at the same time, and the roles
// as well.
func TestKilledNodes(t *testing.T) {
	for _, trust := range []string{"shuffle", "vector-sum"} {
		t.Run(trust, func(t *testing.T) {
			c := newCluster(t, nil)
			schedule := []struct {
				nodes []int
				roles []string
			}{{nodes: []int{0}}, {nodes: []int{1}}, {nodes: []int{2}}, {nodes: []int{0, 1}}, {nodes: []int{1, 2}}, {nodes: []int{0, 1, 2}},
				{roles: []string{"shuffler"}}, {roles: []string{"coordinator"}}, {nodes: []int{0, 1, 2}, roles: []string{"shuffler", "coordinator"}}}
			d := deploy(t, scenario{clients: 12, processes: 2, trust: dp.Trust(trust), rounds: int64(len(schedule)) + 2, round: 5 * time.Minute, spread: time.Second,
				edit: func(d *deployment) { c.migrate(d) }})
			random := rand.New(rand.NewPCG(7, 7))
			for _, s := range schedule {
				after := int64(0)
				if d.last != nil {
					after = d.last.Round
				}
				d.phase(after, "collecting", patience)
				goOn(time.Duration(random.Int64N(int64(1500 * time.Millisecond))))
				begin := time.Now()
				c.kill(s.nodes...)
				d.kill(s.roles...)
				goOn(time.Second)
				c.start(s.nodes...)
				d.start(s.roles...)
				d.reach(min(after+1, d.rounds), patience)
				t.Logf("killed nodes %v, roles %v in round %d: it ended %v later", s.nodes, s.roles, after+1, time.Since(begin).Round(time.Millisecond))
			}
			d.whole(patience)
		})
	}
}

// TestFilesAfterKills is a smoke of what lies about: no round's streams or keys
// outlive it, however it was killed. What sessions' keys are made from is no
// round's (DATA_MODEL.md).
func TestFilesAfterKills(t *testing.T) {
	d := deploy(t, scenario{clients: 12, processes: 2, rounds: 6, spread: 100 * time.Millisecond})
	for round := int64(0); round < 5; round++ {
		d.phase(round, "opening", patience)
		d.kill("shuffler")
		d.start("shuffler")
		d.reach(round+1, patience)
	}
	d.whole(patience)
	streams, err := filepath.Glob(filepath.Join(filepath.Dir(d.configs["shuffler"]), "data", "jetstream", "*", "streams", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		if name := filepath.Base(s); strings.Contains(name, "_log_") || strings.Contains(name, "_key_") && !strings.Contains(name, "_key_session-") {
			t.Errorf("%s is still there", name)
		}
	}
}
