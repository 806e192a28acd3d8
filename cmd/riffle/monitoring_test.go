package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/operate"
)

// deployDir holds the units and the example configurations.
const deployDir = "../../docs/deploy"

// grafana is what the tests know of Grafana's JSON model.
type grafana struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  *struct{ Type, UID string }
		GridPos     struct{ H, W, X, Y int }
		FieldConfig struct {
			Defaults struct{ Unit string }
		}
		Targets []struct {
			RefID, Expr string
			Datasource  *struct{ Type, UID string }
		}
	}
}

func readDashboard(t *testing.T) (d grafana) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(deployDir, "grafana.json"))
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var metricNames = regexp.MustCompile(`riffle_[a-z0-9_]+`)

// The dashboard is one that Grafana can draw: panels have ids of their own, lie in 24 columns and on no
// other panel, have a data source that is chosen once, and expressions of known units; what only grows
// is shown as a rate.
func TestGrafanaDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.Title != "riffle" || d.UID != "riffle" || d.SchemaVersion < 36 || len(d.Templating.List) != 1 || d.Templating.List[0].Name != "datasource" ||
		d.Templating.List[0].Type != "datasource" || d.Templating.List[0].Query != "prometheus" {
		t.Errorf("%q %q %d %v", d.Title, d.UID, d.SchemaVersion, d.Templating.List)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	grows := regexp.MustCompile(`(rate|increase)\((riffle_[a-z_]+_total)\[(\$__rate_interval|1h)\]\)`)
	for _, p := range d.Panels {
		g := p.GridPos
		if ids[p.ID] || p.ID < 1 || p.Title == "" || g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("panel %d %q at %+v", p.ID, p.Title, g)
		}
		ids[p.ID] = true
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("panels %q and %q lie on each other", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Type != "timeseries" && p.Type != "stat" || p.Datasource == nil || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 ||
			!slices.Contains([]string{"none", "s", "bytes", "cps", "percentunit"}, p.FieldConfig.Defaults.Unit) {
			t.Errorf("panel %q: type %q, unit %q, data source %v, %d expressions", p.Title, p.Type, p.FieldConfig.Defaults.Unit, p.Datasource, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.RefID == "" || q.Datasource == nil || q.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: expression %q", p.Title, q.RefID)
			}
			refs[q.RefID] = true
			if len(metricNames.FindAllString(q.Expr, -1)) == 0 || strings.Count(q.Expr, "(") != strings.Count(q.Expr, ")") || strings.Count(q.Expr, "[") != strings.Count(q.Expr, "]") {
				t.Errorf("panel %q: %q", p.Title, q.Expr)
			}
			if strings.Contains(grows.ReplaceAllString(q.Expr, ""), "_total") || strings.Count(q.Expr, "[") != len(grows.FindAllString(q.Expr, -1)) {
				t.Errorf("panel %q shows a counter as it is, or the rate of something else: %q", p.Title, q.Expr)
			}
		}
	}
}

// The collector's configuration names each role's address, as its example has it, once.
func TestCollectorReadsEachRole(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(deployDir, "otel-collector.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Receivers struct {
			Prometheus struct {
				Config struct {
					Scrape []struct {
						Job      string `yaml:"job_name"`
						Interval string `yaml:"scrape_interval"`
						Path     string `yaml:"metrics_path"`
						Static   []struct {
							Targets []string
							Labels  map[string]string
						} `yaml:"static_configs"`
					} `yaml:"scrape_configs"`
				}
			}
		}
		Processors map[string]any
		Exporters  map[string]any
		Service    struct {
			Pipelines map[string]struct{ Receivers, Processors, Exporters []string }
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	scrape := c.Receivers.Prometheus.Config.Scrape
	if len(scrape) != 1 || scrape[0].Path != "/metrics" || scrape[0].Interval == "" || scrape[0].Job != "riffle" {
		t.Fatalf("%+v", scrape)
	}
	got, want := map[string]string{}, map[string]string{}
	for _, s := range scrape[0].Static {
		if len(s.Targets) != 1 {
			t.Fatalf("%+v", s)
		}
		got[s.Labels["role"]] = s.Targets[0]
	}
	examples, err := filepath.Glob(filepath.Join(deployDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	admin := regexp.MustCompile(`(?m)^# admin: (127\.0\.0\.1:\d+)`)
	for _, path := range examples {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if m := admin.FindSubmatch(b); m != nil {
			want[strings.TrimSuffix(filepath.Base(path), ".yaml")] = string(m[1])
		}
	}
	if len(want) < 6 || !maps.Equal(got, want) {
		t.Errorf("the collector reads %v, the roles' examples have %v", got, want)
	}
	for name, p := range c.Service.Pipelines {
		for _, e := range p.Exporters {
			if _, ok := c.Exporters[e]; !ok {
				t.Errorf("pipeline %s: no exporter %s", name, e)
			}
		}
		for _, one := range p.Processors {
			if _, ok := c.Processors[one]; !ok {
				t.Errorf("pipeline %s: no processor %s", name, one)
			}
		}
		if name != "metrics" || !slices.Equal(p.Receivers, []string{"prometheus"}) {
			t.Errorf("pipeline %s of %v", name, p.Receivers)
		}
	}
}

var (
	aboutLine  = regexp.MustCompile(`^# (HELP|TYPE) ([a-z_][a-z0-9_]*) (.+)$`)
	sampleLine = regexp.MustCompile(`^([a-z_][a-z0-9_]*)(\{[^}]*\})? (\S+)$`)
	labelText  = regexp.MustCompile(`^\{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\}$`)
)

// readExposition reads the text format of Prometheus as strictly as its readers may: each family once,
// with help and type before its samples, no sample twice, counters that end in _total and are not
// negative, gauges that do not, and units at the ends of names. It returns how many samples each has.
func readExposition(text string) (families map[string]int, err error) {
	families = map[string]int{}
	kinds, seen := map[string]string{}, map[string]bool{}
	last := ""
	if !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line has no end")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := aboutLine.FindStringSubmatch(line); m != nil {
			name := m[2]
			switch _, known := families[name]; {
			case m[1] == "HELP" && !known:
				families[name], last = 0, name
			case m[1] == "TYPE" && known && name == last && kinds[name] == "" && (m[3] == "counter" || m[3] == "gauge"):
				kinds[name] = m[3]
				if strings.HasSuffix(name, "_total") != (m[3] == "counter") {
					return nil, fmt.Errorf("%s is a %s", name, m[3])
				}
			default:
				return nil, fmt.Errorf("%q", line)
			}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil || m[1] != last || kinds[last] == "" || m[2] != "" && !labelText.MatchString(m[2]) || seen[m[1]+m[2]] {
			return nil, fmt.Errorf("%q", line)
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil || kinds[last] == "counter" && !(v >= 0 && !math.IsInf(v, 1)) {
			return nil, fmt.Errorf("%q", line)
		}
		seen[m[1]+m[2]] = true
		families[last]++
	}
	return families, nil
}

func TestExpositionsAreReadStrictly(t *testing.T) {
	const about = "# HELP riffle_a_total A.\n# TYPE riffle_a_total counter\n"
	if f, err := readExposition(about + "riffle_a_total{of=\"b\"} 3\nriffle_a_total{of=\"c\"} 1e+06\n"); err != nil || f["riffle_a_total"] != 2 {
		t.Error(f, err)
	}
	for _, bad := range []string{about + "riffle_a_total -1\n", about + "riffle_a_total NaN\n", about + "riffle_a_total 1\nriffle_a_total 1\n", about + about,
		about + "riffle_b_total 1\n", "riffle_a_total 1\n", about + "riffle_a_total 1", about + "riffle_a_total{b=c} 1\n", about + "riffle_a_total 1 2 3\n",
		"# HELP riffle_a A.\n# TYPE riffle_a counter\n", "# HELP riffle_a_total A.\n# TYPE riffle_a_total gauge\n", "# TYPE riffle_a_total counter\n"} {
		if _, err := readExposition(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// Each role serves metrics that collectors read, and all that the dashboard and the guide name.
func TestMetricsOfAllRoles(t *testing.T) {
	longtest.Only(t, "every role as a process")
	if testing.Short() {
		t.Skip("runs processes")
	}
	d := deploy(t, scenario{clients: 6, processes: 1, trust: withAll, rounds: 4})
	d.reach(2, patience)
	admin := regexp.MustCompile(`(?m)^ *admin: "?(127\.0\.0\.1:\d+)"?$`)
	served := map[string]int{}
	for _, role := range []string{operate.RoleShuffler, operate.RoleCoordinator, operate.RoleAggregator, operate.RoleRegistrar, operate.RoleRelay} {
		b, err := os.ReadFile(d.configs[role])
		if err != nil {
			t.Fatal(err)
		}
		m := admin.FindSubmatch(b)
		if m == nil {
			t.Fatalf("%s has no address for metrics:\n%s", role, b)
		}
		resp, err := http.Get("http://" + string(m[1]) + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := resp.Header.Get("Content-Type"); err != nil || resp.StatusCode != http.StatusOK || got != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("%s: %d, %q, %v", role, resp.StatusCode, got, err)
		}
		families, err := readExposition(string(text))
		if err != nil {
			t.Errorf("%s: %v", role, err)
		}
		for name, n := range families {
			served[name] += n
		}
	}
	// These have samples only where something went wrong, or where a program evaluates.
	rare := []string{"riffle_evaluation_failed", "riffle_origins_refused_total"}
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			for _, name := range metricNames.FindAllString(q.Expr, -1) {
				if n, ok := served[name]; !ok || n == 0 && !slices.Contains(rare, name) {
					t.Errorf("panel %q: %s has %d samples, known: %v", p.Title, name, n, ok)
				}
			}
		}
	}
	guide, err := os.ReadFile(filepath.Join(deployDir, "GUIDE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range metricNames.FindAllString(string(guide), -1) {
		if _, ok := served[name]; !ok && !slices.Contains(rare, name) && !strings.HasPrefix(name, "riffle_worker_") {
			t.Errorf("the guide names %s, which no role serves", name)
		}
	}
	d.whole(patience)
}
