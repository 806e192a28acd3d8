package account

import (
	"context"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

func askDocument(t *testing.T, text, which string) (Reply, error) {
	t.Helper()
	d, err := ParseDocumentQuery([]byte(text))
	if err != nil {
		return Reply{}, err
	}
	return new(Accountant).Ask(context.Background(), d, which, nil)
}

// A document's query, asked again, gives the same document.
func TestDocumentsCanBeAskedAgain(t *testing.T) {
	for _, text := range []string{
		`{"participation":"sampled","randomizer":"generic","eps0":2,"n":10000,"k":100,"rounds":30,"delta":1e-6,"dropout":0.1}`,
		`{"participation":"all","randomizer":"krr","symbols":4,"eps0":1,"n":300,"rounds":3,"eps":0.5}`,
		`{"participation":"check-in","trust":"distributed","randomizer":"gaussian","sigma":2,"eps0":0,"n":1000,"gamma":0.1,"rounds":7,"delta":1e-5,"adjacency":"remove"}`,
		`{"participation":"all","randomizer":"generic","eps0":1,"n":300,"rounds":3,"delta":1e-5,"colluders":20,"k_hidden":true,"adaptive_within_round":true,"tv":0.2}`,
		`{"participation":"sampled","randomizer":"vecsum","n":5000,"k":1000,"rounds":2,"delta":1e-6,"dim":30,"grid":100,"noise":"binomial","noise_bits":4000,"honest":0.9}`,
		`{"participation":"all","randomizer":"vecsum","noise_by":"aggregators","n":6000,"rounds":40,"delta":1e-5,"dim":30,"sigma":9,"eps0":0,"every":2,"strategy":"buffered"}`,
		`{"participation":"all","randomizer":"vecsum","noise_by":"aggregators","n":6000,"rounds":7,"eps":0.5,"dim":30,"sigma":9,"eps0":0,"every":3}`,
	} {
		if !longtest.On { // fewer clients where the answer takes long
			text = strings.Replace(text, `"n":1000,"gamma":0.1`, `"n":50,"gamma":0.1`, 1)
		}
		first, err := askDocument(t, text, "best")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		one := first.Document()
		query, err := json.Marshal(one.Query)
		if err != nil {
			t.Fatal(err)
		}
		second, err := askDocument(t, string(query), "best")
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		two := second.Document()
		for _, d := range []*Document{&one, &two} { // times differ
			for i := range d.Bounds {
				d.Bounds[i].Seconds = 0
			}
			for _, b := range []*DocumentBound{d.Upper, d.Best, d.Lower} {
				if b != nil {
					b.Seconds = 0
				}
			}
		}
		a, _ := json.Marshal(one)
		b, _ := json.Marshal(two)
		if string(a) != string(b) || one.Upper == nil {
			t.Errorf("%s\nthen %s", a, b)
		}
	}
}

// The document of a sum with aggregators' noise says what is drawn, and what both add.
func TestDocumentDesign(t *testing.T) {
	for _, text := range []string{
		`{"participation":"all","randomizer":"vecsum","noise_by":"aggregators","n":60000,"rounds":120,"delta":1e-5,"dim":1930,"sigma":90,"eps0":0}`,
		`{"participation":"check-in","randomizer":"vecsum","noise_by":"aggregators","n":1000,"gamma":0.1,"rounds":2,"delta":1e-5,"dim":1,"sigma":5000,"eps0":0}`,
	} {
		r, err := askDocument(t, text, "best")
		if err != nil {
			t.Fatal(err)
		}
		d := r.Document()
		p, err := vecsum.NewAggregated(r.Query.Population, r.Query.Sum.Dim, 1, r.Query.Sigma)
		if err != nil {
			t.Fatal(err)
		}
		if d.Design == nil || d.Design.Steps != p.Steps || d.Design.Bound != p.Bound || d.Design.Variance != p.Variance {
			t.Fatalf("%s: %+v, want %+v", text, d.Design, p)
		}
		// The longest rounded vectors have Bound steps, not Steps.
		longer := float64(p.Bound) / float64(p.Steps)
		if got, want := d.Design.Released, math.Sqrt2*r.Query.Sigma*longer; math.Abs(got/want-1) > 1e-6 {
			t.Errorf("%s: %v is released, want %v", text, got, want)
		}
	}
	r, err := askDocument(t, `{"participation":"sampled","randomizer":"vecsum","n":5000,"k":1000,"rounds":2,"delta":1e-6,"dim":30,"grid":100,"noise":"binomial","noise_bits":4000}`, "best")
	if err != nil || r.Document().Design != nil {
		t.Errorf("%+v, %v", r.Document().Design, err)
	}
}

func TestAskIsAnswer(t *testing.T) {
	q := Query{Participation: dp.All, Class: dp.BinaryRR, Eps0: 1, Population: 200, Rounds: 3, Delta: 1e-5}
	want, err := Answer(context.Background(), q, "all")
	if err != nil {
		t.Fatal(err)
	}
	d := want.Document().Query
	type step struct {
		method   string
		done, of int
	}
	var steps []step
	got, err := new(Accountant).Ask(context.Background(), d, "all", func(method string, done, of int) { steps = append(steps, step{method, done, of}) })
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != len(got.Bounds) || len(got.Bounds) != len(want.Bounds) {
		t.Fatalf("%d steps, %d bounds, want %d", len(steps), len(got.Bounds), len(want.Bounds))
	}
	for i, b := range want.Bounds {
		if steps[i] != (step{b.Method, i, len(want.Bounds)}) || got.Bounds[i].Eps != b.Eps || got.Bounds[i].Note != b.Note {
			t.Errorf("step %+v, bound %+v, want %+v", steps[i], got.Bounds[i], b)
		}
	}
	sum := Query{Class: VectorSumClass, Participation: dp.All, Population: 100, Rounds: 1, Delta: 1e-5, Sum: vecsum.Params{Dim: 3, Grid: 10, Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 100}}}
	wantSum, err := Answer(context.Background(), sum, "best")
	if err != nil {
		t.Fatal(err)
	}
	gotSum, err := new(Accountant).Ask(context.Background(), wantSum.Document().Query, "best", nil)
	if err != nil || gotSum.Upper.Eps != wantSum.Upper.Eps {
		t.Errorf("vector sum: %v %v, want %v", gotSum.Upper, err, wantSum.Upper)
	}
}

func TestQueriesRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"participation":"all","n":10,"rounds":1,"eps0":1,"delta":0.1,"k0":1}`:                                                                              `unknown field "k0"`,
		`{"participation":"all","n":10,"rounds":1,"eps0":1}`:                                                                                                 "exactly one of delta",
		`{"participation":"all","n":10,"rounds":1,"eps0":1,"delta":0.1,"eps":1}`:                                                                             "exactly one of delta",
		`{"participation":"all","n":10,"rounds":1,"eps0":1,"delta":0.1} {}`:                                                                                  "more than one",
		`{"participation":"all","n":10.5,"rounds":1,"eps0":1,"delta":0.1}`:                                                                                   "cannot unmarshal",
		`{"participation":"all","n":10,"rounds":1,"eps0":1,"delta":0.1,"dim":3}`:                                                                             "go with randomizer vecsum",
		`{"participation":"all","n":10,"rounds":1,"eps0":-1,"delta":0.1}`:                                                                                    "eps0 = -1",
		`{"participation":"all","randomizer":"vecsum","trust":"shuffle","n":10,"rounds":1,"delta":0.1,"dim":3}`:                                              "only the sum is seen",
		`{"participation":"all","randomizer":"vecsum","eps0":1,"n":10,"rounds":1,"delta":0.1,"dim":3,"noise_bits":4}`:                                        "single reports",
		`{"participation":"all","n":10,"rounds":1,"eps0":1,"delta":0.1,"every":3}`:                                                                           "every = 3",
		`{"participation":"all","randomizer":"vecsum","n":10,"rounds":1,"delta":0.1,"dim":3,"noise_bits":4,"every":3}`:                                       "every = 3",
		`{"participation":"all","randomizer":"vecsum","noise_by":"aggregators","n":10,"rounds":2,"delta":0.1,"dim":3,"sigma":3,"every":1}`:                   "every = 1 must be at least 2",
		`{"participation":"all","randomizer":"vecsum","noise_by":"aggregators","n":10,"rounds":2,"delta":0.1,"dim":3,"sigma":3,"every":-4}`:                  "every = -4 must be at least 2",
		`{"participation":"all","randomizer":"vecsum","noise_by":"aggregators","n":10,"rounds":2,"delta":0.1,"dim":3,"sigma":3,"strategy":"banded"}`:         "every = 0 must be at least 2",
		`{"participation":"all","randomizer":"vecsum","noise_by":"aggregators","n":10,"rounds":2,"delta":0.1,"dim":3,"sigma":3,"every":2,"strategy":"best"}`: `strategy "best" must be one of`,
		`{"participation":"all","randomizer":"vecsum","noise_by":"aggregators","n":10,"rounds":70000,"delta":0.1,"dim":3,"sigma":3,"every":2}`:               "rounds = 70000",
		`{"participation":"sampled","k":5,"randomizer":"vecsum","noise_by":"aggregators","n":10,"rounds":2,"delta":0.1,"dim":3,"sigma":3,"every":2}`:         "participation all, not sampled",
	} {
		if _, err := askDocument(t, text, "best"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestNumbersInDocuments(t *testing.T) {
	bound := documentBound(dp.Bound{Guarantee: dp.Guarantee{Eps: math.Inf(1), Delta: .1}}, true)
	text, err := json.Marshal(bound)
	if err != nil || !strings.Contains(string(text), `"eps":"inf","delta":0.1`) {
		t.Errorf("%s %v", text, err)
	}
	var back DocumentBound
	if err := json.Unmarshal(text, &back); err != nil || !math.IsInf(float64(*back.Eps), 1) {
		t.Errorf("%+v %v", back, err)
	}
}

// What the messages of a client promise together is never below the product.
func TestLocalRoundsUp(t *testing.T) {
	up := 0
	for m := int64(2); m <= 64; m++ {
		for i := range 200 {
			q := Query{Messages: m, Eps0: .01 * float64(i+1)}
			exact := new(big.Float).SetPrec(200).Mul(big.NewFloat(q.Eps0), new(big.Float).SetInt64(m))
			local := (Reply{Query: q}).Document().Local
			if exact.Cmp(big.NewFloat(local)) > 0 {
				t.Fatalf("%d messages of eps0 = %v promise %v", m, q.Eps0, local)
			}
			nearest, _ := exact.Float64()
			if local > nearest {
				up++
			}
			if local > math.Nextafter(nearest, math.Inf(1)) {
				t.Fatalf("%d messages of eps0 = %v promise %v, too much", m, q.Eps0, local)
			}
		}
	}
	if up == 0 {
		t.Error("nothing was ever rounded up: the test is blind")
	}
}
