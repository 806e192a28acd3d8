package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// question is a query and which of its bounds are wanted.
type question struct {
	Query account.DocumentQuery `json:"query"`
	Which string                `json:"which"`
}

// answered is a document or why there is none.
type answered struct {
	account.Document
	Error string `json:"error"`
}

// drawQuestion draws one, some of which make no sense.
func drawQuestion(r *rand.Rand, methods []string) question {
	log := func(low, high float64) float64 { return math.Exp(math.Log(low) + r.Float64()*math.Log(high/low)) }
	whole := func(low, high float64) int64 { return int64(math.Round(log(low, high))) }
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
	switch q.Participation {
	case dp.Sampled:
		q.K = max(1, int64(float64(q.N)*log(1e-4, 1)))
	case dp.Once:
		q.K = max(1, int64(float64(q.N)*log(1e-4, 1)))
		q.Rounds = min(q.Rounds, max(1, q.N/q.K))
	case dp.CheckIn:
		q.Gamma = log(1e-4, 1)
		if q.Randomizer != dp.Generic && q.Randomizer != dp.Gaussian { // takes seconds where n is large
			q.N, q.Rounds = whole(20, 2000), whole(1, 100)
		}
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
	return question{q, which}
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

// The accountant of the page says what riffle's says: the bounds to 1e-9, all
// else, refusals included, to the letter.
func TestPageAgreesWithRiffle(t *testing.T) {
	const settings, batch = 500, 50
	b := browser(t, 800, 600, false)
	do(b, navigate(b.base+"/plan/"))
	value[bool](b, `(window.desks = [1, 2].map(() => new riffleAccountant.Desk()), true)`)
	r := rand.New(rand.NewPCG(7, 4))
	methods := methodsOf(t)
	var worst float64
	bounds, refused, senseless := 0, 0, 0
	began := time.Now()
	participations := map[dp.Participation]int{}
	for range settings / batch {
		asked := make([]question, batch)
		for i := range asked {
			asked[i] = drawQuestion(r, methods)
			participations[asked[i].Query.Participation]++
		}
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
						const {query, which} = asked[i];
						try { out[i] = (await desk.ask(query, which, {signal: new AbortController().signal, fresh: true})).document; }
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
		want := make([]answered, batch)
		for i, q := range asked {
			reply, err := new(account.Accountant).Ask(context.Background(), q.Query, q.Which, nil)
			if err != nil {
				want[i].Error = err.Error()
				senseless++
			} else {
				want[i].Document = reply.Document()
			}
		}
		for i, g := range <-got {
			worst = max(worst, compare(t, asked[i], g, want[i]))
			for _, w := range want[i].Bounds {
				if w.Eps == nil {
					refused++
				} else {
					bounds++
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d settings (%v), %d bounds within %.2g, %d refusals, %d settings that make no sense, %.0f s",
		settings, participations, bounds, worst, refused, senseless, time.Since(began).Seconds())
	if bounds < settings/2 || refused < 20 || senseless < 10 || len(participations) != 4 {
		t.Errorf("the settings drawn show too little: %d bounds, %d refusals, %d senseless", bounds, refused, senseless)
	}
}

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
	one := func(what string, g, w *account.DocumentBound) {
		switch {
		case g == nil && w == nil:
		case g == nil || w == nil || (g.Eps == nil) != (w.Eps == nil):
			fail(what, g, w)
		case g.Method != w.Method || g.Kind != w.Kind || g.Status != w.Status || g.Source != w.Source || g.Note != w.Note:
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
	g, _ := json.Marshal(got.Query)
	w, _ := json.Marshal(want.Query)
	if string(g) != string(w) {
		fail("query", string(g), string(w))
	}
	return worst
}
