package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// question is a query, perhaps with a randomizer that its reports come from, and which of its
// bounds are wanted.
type question struct {
	Query  account.DocumentQuery `json:"query"`
	Report *reportOf             `json:"report,omitempty"`
	Which  string                `json:"which"`
}

type reportOf struct {
	Name     string    `json:"name"`
	Dim      int       `json:"dim"`
	Eps0     float64   `json:"eps0"`
	Steps    int       `json:"steps,omitempty"`
	Edges    []float64 `json:"edges,omitempty"`
	Encoding string    `json:"encoding,omitempty"`
}

// answered is a document or why there is none.
type answered struct {
	account.Document
	Report *reportOf `json:"report"`
	Error  string    `json:"error"`
}

// ranges returns functions that draw between two numbers, with a uniform logarithm.
func ranges(r *rand.Rand) (real func(low, high float64) float64, whole func(low, high float64) int64) {
	real = func(low, high float64) float64 { return math.Exp(math.Log(low) + r.Float64()*math.Log(high/low)) }
	return real, func(low, high float64) int64 { return int64(math.Round(real(low, high))) }
}

// drawQuestion draws one, some of which make no sense.
func drawQuestion(r *rand.Rand, methods []string) question {
	log, whole := ranges(r)
	pick := func(names ...string) string { return names[r.IntN(len(names))] }
	delta := log(1e-10, 1e-3)
	q := account.DocumentQuery{Participation: dp.Participation(pick("all", "sampled", "check-in", "once")), Eps0: log(.1, 6),
		N: whole(20, 2e5), Rounds: whole(1, 1e4), Delta: &delta}
	switch pick("generic", "generic", "rr2", "krr", "laplace", "gaussian", "gaussian", "vecsum") {
	case "generic":
		q.Randomizer = dp.Generic
	case "rr2":
		q.Randomizer = dp.BinaryRR
	case "krr":
		q.Randomizer, q.Symbols = dp.KRR, int(whole(2, 100))
	case "laplace":
		q.Randomizer = dp.LaplaceL1
	case "gaussian":
		q.Randomizer, q.Trust, q.Eps0, q.Sigma = dp.Gaussian, dp.Distributed, 0, log(.3, 20)
	case "vecsum":
		q.Randomizer, q.Trust, q.Eps0 = account.VectorSumClass, dp.VectorSum, 0
		q.DocumentSum = account.DocumentSum{Dim: int(whole(1, 1000)), Grid: whole(2, 1000), Noise: vecsum.Binomial, NoiseBits: whole(4, 1e5)}
	}
	takePart(&q, log, 1, 1e-4)
	if q.Participation == dp.CheckIn && q.Randomizer != dp.Generic && q.Randomizer != dp.Gaussian { // takes seconds where n is large
		q.N, q.Rounds = whole(20, 2000), whole(1, 100)
	}
	if r.IntN(8) == 0 { // asks for δ
		eps := log(.01, 10)
		q.Eps, q.Delta = &eps, nil
	}
	if r.IntN(12) == 0 {
		q.Dropout = r.Float64()
	}
	if r.IntN(10) == 0 {
		q.Messages = whole(2, 20)
	}
	if q.Randomizer == dp.Generic {
		switch r.IntN(20) { // what the page has no control for
		case 0:
			q.Colluders = q.N / 10
		case 1:
			q.Adaptive = true
		case 2:
			q.KHidden = true
		case 3:
			q.Trust = dp.Local
		case 4:
			q.TV = .1 / (math.Exp(q.Eps0) + 1)
		}
	}
	switch r.IntN(60) { // nonsense
	case 0:
		q.Rounds = 0
	case 1:
		q.K, q.Participation = q.N+1, dp.Sampled
	case 2:
		q.Gamma, q.Participation = 1.5, dp.CheckIn
	case 3:
		q.Delta, q.Eps = new(float64), nil
	case 4:
		q.Eps0 = 60
	case 5:
		q.Rounds, q.Participation, q.K = q.N, dp.Once, 2
	}
	which := "best"
	if r.IntN(2) == 0 {
		which = methods[r.IntN(len(methods))]
	}
	return question{Query: q, Which: which}
}

// takePart draws how many clients take part: at least some, and at least a share of all.
func takePart(q *account.DocumentQuery, log func(low, high float64) float64, least int64, share float64) {
	switch q.Participation {
	case dp.Sampled:
		q.K = max(least, int64(float64(q.N)*log(share, 1)))
	case dp.Once:
		q.K = max(least, int64(float64(q.N)*log(share, 1)))
		q.Rounds = min(q.Rounds, max(1, q.N/q.K))
	case dp.CheckIn:
		q.Gamma = log(share, 1)
	}
}

// native answers as riffle eps does.
func native(q question) (out answered) {
	d := q.Query
	if q.Report != nil {
		c := randomizer.Config{Dim: q.Report.Dim, Radius: 1, Eps0: q.Report.Eps0, Steps: q.Report.Steps, Edges: q.Report.Edges, Encoding: q.Report.Encoding}
		m, err := randomizer.New(q.Report.Name, c)
		if err != nil {
			return answered{Error: err.Error()}
		}
		used := *q.Report
		if used.Edges, err = randomizer.Edges(used.Name, c); err != nil {
			return answered{Error: err.Error()}
		}
		e := m.Event()
		d.Randomizer, d.Eps0, d.TV, d.Height, d.Shares, d.Eta = e.Class, e.Eps0, e.TV, e.Steps.Height, e.Steps.Each(), e.Steps.Eta
		out.Report = &used
	}
	reply, err := new(account.Accountant).Ask(context.Background(), d, q.Which, nil)
	if err != nil {
		return answered{Error: err.Error()}
	}
	out.Document = reply.Document()
	return out
}

// methodsOf lists the bounds of a cheap question.
func methodsOf(t *testing.T) []string {
	t.Helper()
	delta := 1e-3
	r, err := new(account.Accountant).Ask(context.Background(), account.DocumentQuery{Participation: dp.All, Randomizer: dp.Generic, Eps0: 1, N: 10, Rounds: 1, Delta: &delta}, "all", nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, b := range r.Bounds {
		out = append(out, b.Method)
	}
	return out
}

// The accountant for browsers says what riffle's says: the bounds to 1e-9, all
// else, refusals included, to the letter.
func TestPageAgreesWithRiffle(t *testing.T) {
	const batch = 50
	settings := longtest.Pick3(0, 150, 500)
	b := accountants(t)
	r := rand.New(rand.NewPCG(7, 4))
	methods := methodsOf(t)
	var all agreement
	began := time.Now()
	participations := map[dp.Participation]int{}
	for range settings / batch {
		asked := make([]question, batch)
		for i := range asked {
			asked[i] = drawQuestion(r, methods)
			participations[asked[i].Query.Participation]++
		}
		all.ask(t, b, asked)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d settings (%v), %+v, %.0f s", settings, participations, all, time.Since(began).Seconds())
	if all.bounds < settings/2 || all.refused < settings/25 || all.senseless < settings/50 || len(participations) != 4 {
		t.Errorf("the settings drawn show too little: %+v", all)
	}
}

// accountants opens a static page with two accountants of its own.
func accountants(t *testing.T) *tab {
	t.Helper()
	files := httptest.NewServer(http.FileServer(http.Dir(site(t))))
	t.Cleanup(files.Close)
	b := browser(t, 800, 600, false)
	b.base = files.URL
	do(b, navigate(b.base+"/plan/"))
	value[bool](b, `(window.desks = [1, 2].map(() => new riffleAccountant.Desk()), true)`)
	return b
}

// agreement counts what was compared.
type agreement struct {
	bounds, refused, senseless int     // the last: questions that were refused
	worst                      float64 // relative difference of two numbers
}

// ask puts questions to the page and to riffle, and compares.
func (a *agreement) ask(t *testing.T, b *tab, asked []question) {
	t.Helper()
	text, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	// The page works while this process does.
	got := make(chan []answered, 1)
	go func() {
		defer close(got)
		out, err := evaluate[[]answered](b, fmt.Sprintf(`(async asked => {
			const out = [];
			let next = 0;
			const work = async desk => {
				for (let i; (i = next++) < asked.length;) {
					const {which, ...question} = asked[i];
					try { out[i] = (await desk.ask(question, which, {signal: new AbortController().signal, fresh: true})).document; }
					catch (e) { out[i] = {error: e.message}; }
				}
			};
			await Promise.all(desks.map(work));
			return out;
		})(%s)`, text))
		if err != nil {
			t.Error(err)
			return
		}
		got <- out
	}()
	want := make([]answered, len(asked))
	for i, q := range asked {
		if want[i] = native(q); want[i].Error != "" {
			a.senseless++
		}
	}
	for i, g := range <-got {
		a.worst = max(a.worst, compare(t, asked[i], g, want[i]))
		for _, w := range want[i].Bounds {
			if w.Eps == nil {
				a.refused++
			} else {
				a.bounds++
			}
		}
	}
}

// Randomizers by name, with one and several messages, all participations: the page counts their
// reports as riffle eps does.
func TestPageAgreesOnNamedRandomizers(t *testing.T) {
	b := accountants(t)
	r := rand.New(rand.NewPCG(16, 1))
	var all agreement
	methods, times := map[string]int{}, longtest.Pick3(0, 1, 3)
	for _, name := range []string{randomizer.PrivUnit, randomizer.StepUnit} {
		for _, participation := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
			var asked []question
			for _, messages := range []int64{1, 2, 8} {
				for range times {
					asked = append(asked, drawNamed(r, name, participation, messages))
				}
			}
			all.ask(t, b, asked)
			for _, q := range asked {
				if u := native(q).Upper; u != nil {
					methods[u.Method]++
				}
			}
		}
	}
	delta := 1e-5
	var wrong []question
	for _, report := range []reportOf{{Name: "privunit", Dim: 0, Eps0: 2}, {Name: "stepunit", Dim: 100, Eps0: 2, Edges: []float64{1, .5}},
		{Name: "stepunit", Dim: 100, Eps0: 2, Steps: 17}, {Name: "stepunit", Dim: 100, Eps0: 2, Steps: 2, Edges: []float64{1}}, {Name: "privunit", Dim: 100, Eps0: 13, Encoding: "seed"}} {
		wrong = append(wrong, question{account.DocumentQuery{Participation: dp.All, N: 1000, Rounds: 10, Delta: &delta}, &report, "best"})
	}
	all.ask(t, b, wrong)
	t.Logf("%+v, best bounds %v", all, methods)
	if all.senseless != len(wrong) || methods["cap-pld"] < 3*times || methods["rising-pld"] < 6*times {
		t.Errorf("the settings drawn show too little: %+v, %v", all, methods)
	}
}

// drawNamed draws a question on reports of a randomizer.
func drawNamed(r *rand.Rand, name string, participation dp.Participation, messages int64) question {
	log, whole := ranges(r)
	delta := log(1e-10, 1e-4)
	q := account.DocumentQuery{Participation: participation, N: whole(500, 1e5), Rounds: whole(1, 1000), Delta: &delta, Messages: messages}
	takePart(&q, log, 100, 1e-2)
	report := &reportOf{Name: name, Dim: int(whole(2, 1e5)), Eps0: log(.3, 5)}
	if r.IntN(2) == 0 {
		report.Encoding = randomizer.Seed
	}
	if name == randomizer.StepUnit {
		switch r.IntN(3) {
		case 0:
			report.Steps = 1 + r.IntN(6)
		case 1:
			report.Edges = []float64{.7 * r.Float64(), .7 + .6*r.Float64()} // below sqrt(dim)
		}
	}
	return question{q, report, []string{"best", "all"}[r.IntN(2)]}
}

var decimals = regexp.MustCompile(`\d+\.\d+(e[-+]\d+)?`)

// compare returns the largest relative difference of two answers.
func compare(t *testing.T, q question, got, want answered) float64 {
	t.Helper()
	fail := func(what string, g, w any) {
		text, _ := json.Marshal(q)
		t.Errorf("%s: %s is %v in the page, %v here", text, what, g, w)
	}
	if got.Error != want.Error {
		fail("error", got.Error, want.Error)
		return 0
	}
	if len(got.Bounds) != len(want.Bounds) {
		fail("number of bounds", len(got.Bounds), len(want.Bounds))
		return 0
	}
	var worst float64
	number := func(what string, g, w float64) {
		d := math.Abs(g-w) / math.Abs(w)
		if g == w { // also infinities and zeros
			d = 0
		}
		if !(d <= 1e-9) {
			fail(what, g, w)
		}
		worst = max(worst, d)
	}
	note := func(s string) string { return s }
	if q.Report != nil { // notes may name what the page has computed
		note = func(s string) string {
			return decimals.ReplaceAllStringFunc(s, func(x string) string {
				f, _ := strconv.ParseFloat(x, 64)
				return strconv.FormatFloat(f, 'g', 9, 64)
			})
		}
	}
	one := func(what string, g, w *account.DocumentBound) {
		switch {
		case g == nil && w == nil:
		case g == nil || w == nil || (g.Eps == nil) != (w.Eps == nil):
			fail(what, g, w)
		case g.Method != w.Method || g.Kind != w.Kind || g.Status != w.Status || g.Source != w.Source || note(g.Note) != note(w.Note):
			fail(what, *g, *w)
		case g.Eps != nil:
			number(what+" "+g.Method+" eps", float64(*g.Eps), float64(*w.Eps))
			number(what+" "+g.Method+" delta", *g.Delta, *w.Delta)
		}
	}
	one("upper", got.Upper, want.Upper)
	one("best", got.Best, want.Best)
	one("lower", got.Lower, want.Lower)
	for i := range want.Bounds {
		one("bound", &got.Bounds[i], &want.Bounds[i])
	}
	if q.Report != nil { // the page has computed what the reports promise
		close := func(g *float64, w float64) {
			if math.Abs(*g-w) <= 1e-9*math.Abs(w) {
				*g = w
			}
		}
		g, w := &got.Query, want.Query
		close(&g.Eps0, w.Eps0)
		close(&g.TV, w.TV)
		close(&g.Height, w.Height)
		close(&g.Eta, w.Eta)
		close(&got.Local, want.Local)
		for i := range min(len(g.Shares), len(w.Shares)) {
			close(&g.Shares[i], w.Shares[i])
		}
	}
	if got.Local != want.Local || (got.Report == nil) != (want.Report == nil) || got.Report != nil && !slices.Equal(got.Report.Edges, want.Report.Edges) {
		fail("local guarantee or report", got, want)
	}
	g, _ := json.Marshal(got.Query)
	w, _ := json.Marshal(want.Query)
	if string(g) != string(w) {
		fail("query", string(g), string(w))
	}
	return worst
}
