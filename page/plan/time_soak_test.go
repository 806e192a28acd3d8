//go:build soak && linux

package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

// How much of a processor the tightest bound and the quick one take without WebAssembly, over settings that the
// sliders of /plan reach, with drop-outs, colluders and a total variation:
// go test -tags soak -run AnswersTake -v ./page/plan
func TestHowLongAnswersTake(t *testing.T) {
	for _, which := range []string{"quick", "best"} {
		t.Run(which, func(t *testing.T) { answersTake(t, which) })
	}
}

func answersTake(t *testing.T, which string) {
	r := rand.New(rand.NewPCG(100, 3))
	type timed struct {
		took time.Duration
		q    string
	}
	var all []timed
	kinds := map[string][]time.Duration{}
	for range 240 {
		q := drawSliders(r)
		before := processor(t)
		a := native(question{Query: q, Which: which})
		took := processor(t) - before
		if a.Error != "" {
			t.Errorf("%+v: %s", q, a.Error)
			continue
		}
		if took > time.Second {
			t.Logf("slow, %v: %+v", took, q)
		}
		all = append(all, timed{took, fmt.Sprintf("%+v", q)})
		kind := fmt.Sprintf("%s %s", q.Participation, q.Randomizer)
		kinds[kind] = append(kinds[kind], took)
	}
	slices.SortFunc(all, func(a, b timed) int { return int(a.took - b.took) })
	for _, share := range []float64{.5, .75, .9, .95, 1} {
		t.Logf("%3.0f %% within %v", 100*share, all[int(share*float64(len(all)-1))].took)
	}
	for kind, took := range kinds {
		slices.Sort(took)
		t.Logf("%-24s %3d, median %v, most %v", kind, len(took), took[len(took)/2], took[len(took)-1])
	}
	for _, slow := range all[len(all)-8:] {
		t.Logf("%v: %s", slow.took, slow.q)
	}
}

// processor is the processor time of this process.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// drawSliders draws a setting within the sliders' ranges.
func drawSliders(r *rand.Rand) account.DocumentQuery {
	log, whole := ranges(r)
	delta := log(1e-12, 1e-2)
	q := account.DocumentQuery{Participation: []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once}[r.IntN(4)], Eps0: log(.05, 8),
		N: whole(100, 1e9), Rounds: whole(1, 1e6), Delta: &delta, Randomizer: dp.Generic}
	switch r.IntN(6) {
	case 0:
		q.Randomizer = dp.BinaryRR
	case 1:
		q.Randomizer, q.Symbols = dp.KRR, int(whole(2, 1000))
	case 2:
		q.Randomizer = dp.LaplaceL1
	case 3:
		q.Randomizer, q.Trust, q.Eps0, q.Sigma = dp.Gaussian, dp.Distributed, 0, log(.1, 100)
	}
	takePart(&q, log, 1, 1e-6)
	if r.IntN(4) == 0 {
		q.Dropout = r.Float64()
	}
	if q.Randomizer == dp.Generic {
		switch r.IntN(3) {
		case 0:
			q.TV = log(.05, 1) / (math.Exp(q.Eps0) + 1)
		case 1:
			q.Colluders = int64(r.Float64() * float64(q.N) / 2)
		}
	}
	return q
}

// The same in the browser, with one accountant, as the page asks: the first bound and the sharp one.
func TestHowLongAnswersTakeInThePage(t *testing.T) {
	b := accountants(t)
	r := rand.New(rand.NewPCG(100, 3))
	took := map[string][]float64{}
	value[bool](b, `(async () => { await desks[0].open(); return true; })()`)
	for range 240 {
		q := drawSliders(r)
		text, err := json.Marshal(question{Query: q})
		if err != nil {
			t.Fatal(err)
		}
		got := value[[]float64](b, `(async ({query}) => {
			const signal = new AbortController().signal, out = [];
			for (const which of ["quick", "best"]) {
				const {document, ms} = await desks[0].ask({query}, which, {signal, fresh: which === "quick"});
				out.push(ms, document.upper.eps === "inf" ? -1 : document.upper.eps);
			}
			return out;
		})(%s)`, text)
		if got[1] < got[3]*(1-1e-3) {
			t.Errorf("%+v: quick %v, best %v", q, got[1], got[3])
		}
		took["quick"], took["best"] = append(took["quick"], got[0]), append(took["best"], got[2])
	}
	for which, all := range took {
		slices.Sort(all)
		for _, share := range []float64{.5, .75, .9, .95, 1} {
			t.Logf("%s: %3.0f %% within %.0f ms", which, 100*share, all[int(share*float64(len(all)-1))])
		}
	}
}
