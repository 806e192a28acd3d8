package certificate_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// A heap of a few megabytes is collected a hundred times a second. Five times as large it costs a tenth less.
var _ = debug.SetGCPercent(400)

func write(t testing.TB, q account.Query, m string) certificate.Document {
	t.Helper()
	d, err := account.Certify(context.Background(), q, m)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	return d
}

// clone goes through the file's bytes.
func clone(t testing.TB, d certificate.Document) certificate.Document {
	t.Helper()
	text, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := certificate.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var (
	// fewSampled is sampled with fewer reports and rounds.
	fewSampled = account.Query{Participation: dp.Sampled, Eps0: 2, Population: 1e3, Reports: 6, Rounds: 20, Delta: 1e-3}

	sampled = account.Query{Participation: dp.Sampled, Eps0: 2, Population: 1e4, Reports: 60, Rounds: 200, Delta: 1e-6}
	checkIn = account.Query{Participation: dp.CheckIn, Eps0: 1, Population: longtest.Pick[int64](20, 200), Gamma: .1, Rounds: longtest.Pick[int64](5, 15), Delta: longtest.Pick(1e-3, 1e-4)}
	removal = account.Query{Trust: dp.Distributed, Adjacency: dp.AddRemoveOne, Class: dp.Gaussian, Participation: dp.CheckIn, Sigma: 4, Population: longtest.Pick[int64](7, 12), Gamma: .5,
		Rounds: longtest.Pick[int64](4, 6), Delta: longtest.Pick(.08, .05)}
	dropout = account.Query{Participation: dp.Sampled, Eps0: 1, Population: 80, Reports: 15, Dropout: .3, Rounds: 8, Delta: 1e-4}
)

// What is written verifies, agrees with the accountant, and survives its bytes.
func TestWrittenCertificatesVerify(t *testing.T) {
	type written struct {
		q account.Query
		m string
	}
	few := []written{
		{sampled, ""}, {checkIn, ""}, {dropout, ""}, {removal, ""}, {sampled, certificate.ClonesPLD}, {sampled, certificate.Basic},
		{account.Query{Participation: dp.All, Eps0: 1, Population: 3, Rounds: 2, Eps: .7, AskDelta: true}, ""},
		{account.Query{Trust: dp.Local, Participation: dp.Once, Eps0: 1, Population: 9, Reports: 3, Rounds: 2, Delta: 1e-3}, ""},
	}
	all := append([]written{
		{account.Query{Participation: dp.All, Eps0: 3, Population: 500, Rounds: 30, Delta: 1e-5}, ""},
		{account.Query{Participation: dp.All, Eps0: 3, Population: 500, Rounds: 1, Delta: 1e-5}, certificate.BlanketPLD},
		{account.Query{Participation: dp.Once, Eps0: 2, Population: 1e4, Reports: 100, Rounds: 50, Delta: 1e-5}, ""},
		{account.Query{Participation: dp.Sampled, Eps0: 1, Population: 1e4, Reports: 50, Rounds: 77, Delta: 1e-30}, ""},
		{account.Query{Participation: dp.Sampled, Eps0: 1, Population: 1e4, Reports: 50, Rounds: 1e9, Delta: 1e-3}, ""},
		{account.Query{Participation: dp.All, Class: dp.KRR, Symbols: 7, Eps0: .5, Population: 300, Rounds: 40, Eps: .5, AskDelta: true}, ""},
		{account.Query{Participation: dp.All, Eps0: 8, Population: 100, Rounds: 2, Delta: 1e-6}, ""},
		{account.Query{Participation: dp.All, Eps0: 8, Population: 100, Rounds: 2, Eps: 16.1, AskDelta: true}, ""},
		{account.Query{Trust: dp.Local, Participation: dp.All, Eps0: .1, Population: 9, Rounds: 1001, Delta: 1e-3}, ""},
		{account.Query{Participation: dp.CheckIn, Eps0: 1, Population: 40, Gamma: 1, Rounds: 3, Delta: 1e-3}, ""},
		{account.Query{Trust: dp.Distributed, Adjacency: dp.AddRemoveOne, Class: dp.Gaussian, Participation: dp.CheckIn, Sigma: 1, Population: 100, Gamma: .2, Dropout: .2, Colluders: 9,
			Rounds: 100, Eps: 4, AskDelta: true, HiddenReports: true}, ""},
	}, few...)
	for _, c := range longtest.Pick(few, all) {
		d := clone(t, write(t, c.q, c.m))
		v, err := d.Verify(context.Background())
		if err != nil {
			t.Errorf("%+v: %v", c.q, err)
			continue
		}
		if d.Claim.Method != certificate.Basic && !(v.Delta > .9*d.Claim.Delta && v.Delta <= d.Claim.Delta && v.Room >= 0) {
			t.Errorf("%+v: proved %+v, claimed %v", c.q, v, d.Claim.Delta)
		}
		which := d.Claim.Method
		answer, err := account.Answer(context.Background(), c.q, which)
		if err != nil {
			t.Fatal(err)
		}
		// Within the margins that Certify states.
		u := answer.Upper
		if !(d.Claim.Eps >= u.Eps*(1-1e-6) && d.Claim.Eps <= u.Eps*(1+2e-4) && d.Claim.Delta >= u.Delta*(1-1e-6) && d.Claim.Delta <= u.Delta*1.01) {
			t.Errorf("%+v: claim %+v, accountant (%v, %v)", c.q, d.Claim, u.Eps, u.Delta)
		}
	}
}

// unsafe lists changes that would claim more than is true, for every field of a
// document, by its path. A field that is in no change fails the test.
func unsafeChanges(d *certificate.Document) map[string]func() {
	q, c, r, w := &d.Query, &d.Claim, d.Round, d.Composition
	out := map[string]func(){
		"Format":              func() { d.Format = "riffle" },
		"Version":             func() { d.Version = 2 },
		"Query.Trust":         func() { q.Trust = dp.Local },
		"Query.Participation": func() { q.Participation, q.K, q.Gamma = dp.All, 0, 0 },
		"Query.Randomizer":    func() { q.Randomizer = "gaussian" },
		"Query.Symbols":       func() { q.Symbols = 3 },
		"Query.Adjacency":     func() { q.Adjacency = dp.AddRemoveOne },
		"Query.Eps0":          func() { q.Eps0 *= 1.001 },
		"Query.N":             func() { q.N -= max(1, q.N/500) },
		"Query.K":             func() { q.K++ },
		"Query.Gamma":         func() { q.Gamma *= 1.005 },
		"Query.Dropout":       func() { q.Dropout *= .98 },
		"Query.Rounds":        func() { q.Rounds++; r.Times++ },
		"Query.TV":            func() { q.TV = 3 },
		"Query.Height":        func() { q.Height = 1 },
		"Query.Shares":        func() { q.Shares = []float64{.1} },
		"Query.Eta":           func() { q.Eta = .1 },
		"Query.Colluders":     func() { q.Colluders = 1 },
		"Query.Sigma":         func() { q.Sigma = math.Max(.001, .999*q.Sigma) },
		"Claim.Method":        func() { c.Method = certificate.ClonesPLD },
		"Claim.Eps": func() {
			if c.Eps *= .9999; q.Sigma != 0 {
				c.Eps *= .998 // claims on removals have a wider margin
			}
		},
		"Claim.Delta":    func() { c.Delta *= .99 },
		"Round.Step":     func() { r.Step *= .9999 },
		"Round.Infinite": func() { r.Infinite = 0x1p-160 },
		"Round.Q":        func() { r.Q[len(r.Q)/4] *= .9 },
		"Round.Times":    func() { r.Times-- },
		"Round.Clones":   func() { r.Clones = 40 },
		"Round.Reports":  func() { r.Reports = r.Reports[:1] },
		"Round.Drawn":    func() { r.Drawn = []int64{1} },

		"Composition.Low":        func() { w.Low -= w.Points },
		"Composition.Points":     func() { w.Points /= 4 },
		"Composition.Tilt":       func() { w.Tilt *= .98 },
		"Composition.Beyond":     func() { w.Beyond *= .99 },
		"Composition.Inflation":  func() { w.Inflation *= 1.0001 },
		"Composition.Splitting":  func() { w.Splitting *= .99 },
		"Composition.Window":     func() { w.Window *= .99 },
		"Composition.Truncation": func() { w.Truncation *= .99 },
		"Composition.WrapAround": func() { w.WrapAround *= .99 },
		"Composition.RoundOff":   func() { w.RoundOff *= .99 },
		"Composition.Total":      func() { w.Total *= .99 },
	}
	lower := func(r *certificate.Round) func() {
		return func() { // what goes to smaller losses is missing at the balance, which has a larger one
			most := 0
			for i, m := range r.Lower[:max(0, r.Balance-1)] {
				if m > r.Lower[most] {
					most = i
				}
			}
			if r.Balance > 1 {
				r.Lower[most] *= 1.1
			}
		}
	}
	out["Round.Lower"] = lower(r)
	out["Round.Balance"] = func() { r.Balance++ }
	out["Round.Missing"] = func() { r.Missing = .5 }
	if r.Balance > 0 {
		out["Round.Infinite"] = func() { r.Infinite = 0x1p-171 }
		out["Round.Reports"] = func() { r.Reports = []int64{1} }
	}
	if o := d.Reverse; o != nil {
		// The same changes of the other order.
		other := *d
		other.Round, other.Composition, other.Reverse = &o.Round, &o.Composition, nil
		for path, change := range unsafeChanges(&other) {
			if strings.HasPrefix(path, "Round.") || strings.HasPrefix(path, "Composition.") {
				out["Reverse."+path] = change
			}
		}
	}
	return out
}

// written is all of a document, also of one that is not well-formed.
func written(d certificate.Document) string {
	text, err := json.Marshal(d)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// forge writes an account of the composition that adds up whatever the round:
// untilted, with a window that holds everything.
func forge(d *certificate.Document) {
	*d.Composition = booksOf(*d.Round)
	if d.Reverse != nil {
		d.Reverse.Composition = booksOf(d.Reverse.Round)
	}
}

func booksOf(r certificate.Round) certificate.Composition {
	w := certificate.Composition{Low: -1 << 40, Points: 1 << 41, Beyond: 1e-200, Inflation: 1, WrapAround: 1e-200,
		Splitting: r.Step * r.Step, Truncation: r.Infinite * float64(r.Times) * 1.001}
	w.Total = w.Window + w.Truncation + w.WrapAround + w.RoundOff
	return w
}

// leaves lists the paths of a document's fields.
func leaves(prefix string, of reflect.Type) []string {
	var out []string
	for i := range of.NumField() {
		f := of.Field(i)
		in := f.Type
		if in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		if in.Kind() == reflect.Struct {
			out = append(out, leaves(prefix+f.Name+".", in)...)
		} else {
			out = append(out, prefix+f.Name)
		}
	}
	return out
}

func TestTamperedFieldsAreRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and the goroutines of TestWrittenCertificatesVerify")
	}
	caught := map[string]bool{}
	for _, c := range []struct {
		name string
		q    account.Query
	}{{"dropout", dropout}, {"sampled", sampled}, {"check-in", checkIn}, {"removal", removal}} { // cheap checks first
		name, q := c.name, c.q
		method := certificate.BlanketPLD
		if q.Adjacency != "" {
			method = certificate.RemovePLD
		}
		honest := write(t, q, method)
		zero := clone(t, honest)
		for path := range unsafeChanges(&zero) {
			d := clone(t, honest)
			before := written(d)
			if (path == "Query.K" && q.Reports == 0) || (path == "Round.Reports" && len(d.Round.Reports) == 0 && d.Reverse == nil) {
				continue
			}
			if path == "Round.Infinite" && name != "check-in" && name != "removal" {
				continue // nothing was cut: with less infinite mass it is still true
			}
			unsafeChanges(&d)[path]()
			if written(d) == before {
				continue // it has no such value
			}
			if caught[path] && name != "removal" && !longtest.On {
				continue // in another document, by the same check; removals have their own
			}
			caught[path] = true
			v, err := d.Verify(context.Background())
			if !errors.Is(err, certificate.ErrRejected) && !errors.Is(err, certificate.ErrMalformed) {
				t.Errorf("%s: %s changed, verdict %+v, error %v", name, path, v, err)
			}
			if strings.Contains(path, "Composition.") || !longtest.On {
				continue
			}
			// With books that a forger made fit, the proof itself must fail.
			forge(&d)
			v, err = d.Verify(context.Background())
			if !errors.Is(err, certificate.ErrRejected) && !errors.Is(err, certificate.ErrMalformed) {
				t.Errorf("%s: %s changed and the account with it, verdict %+v, error %v", name, path, v, err)
			}
		}
		d := clone(t, honest)
		forge(&d)
		if _, err := d.Verify(context.Background()); err != nil {
			t.Errorf("%s: nothing but the account changed: %v", name, err)
		}
	}
	for _, path := range leaves("", reflect.TypeFor[certificate.Document]()) {
		if !caught[path] && path != "Query.KHidden" { // who sees less learns no more
			t.Errorf("no document had %s changed", path)
		}
	}
}

// Every atom that carries weight is needed, and none can be moved to loss 0.
func TestEveryAtomMatters(t *testing.T) {
	honest := write(t, account.Query{Participation: dp.Sampled, Eps0: 1.5, Population: 200, Reports: 40, Rounds: 3000, Delta: 1e-5}, "")
	var mass float64
	for _, m := range honest.Round.Q {
		mass += m
	}
	checked := 0
	for j, m := range honest.Round.Q {
		if m < 1e-6*mass {
			continue
		}
		checked++
		d := clone(t, honest)
		d.Round.Q[j] *= .9
		if _, err := d.Verify(context.Background()); !errors.Is(err, certificate.ErrRejected) {
			t.Errorf("atom %d of mass %v: a tenth less, error %v", j, m, err)
		}
	}
	if checked < 10 {
		t.Errorf("only %d atoms of %d", checked, len(honest.Round.Q))
	}
	d := clone(t, honest)
	for j := range d.Round.Q {
		d.Round.Q[j] *= 3
	}
	if _, err := d.Verify(context.Background()); !errors.Is(err, certificate.ErrRejected) {
		t.Errorf("masses above 1: error %v", err)
	}
}

// Changes that stay on the safe side still verify: the checker proves what is
// true, it does not compare with a copy.
func TestSafeChangesVerify(t *testing.T) {
	for name, change := range map[string]func(*certificate.Document){
		"weaker claim":   func(d *certificate.Document) { d.Claim.Delta *= 1.5 },
		"more clients":   func(d *certificate.Document) { d.Query.N += 1000 },
		"smaller eps0":   func(d *certificate.Document) { d.Query.Eps0 *= .999 },
		"a class":        func(d *certificate.Document) { d.Query.Randomizer = dp.BinaryRR },
		"a promise more": func(d *certificate.Document) { d.Query.TV = .1 },
		"k hidden":       func(d *certificate.Document) { d.Query.KHidden = true },
		"from clones": func(d *certificate.Document) {
			*d = write(t, longtest.Pick(fewSampled, sampled), certificate.ClonesPLD)
			d.Claim.Method = certificate.BlanketPLD
		},
		"blocks": func(d *certificate.Document) { d.Round.Reports = longtest.Pick([]int64{1, 3, 10}, []int64{1, 50, 100}) },
	} {
		d := clone(t, write(t, longtest.Pick(fewSampled, sampled), ""))
		change(&d)
		if _, err := d.Verify(context.Background()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// exactDelta composes a protocol's pair by listing every outcome of every round.
func exactDelta(eps0, gamma float64, k, times int, eps float64) float64 {
	e := math.Exp(eps0)
	rate := 2 / (e + 1)
	choose := func(n, x int) float64 {
		c := 1.
		for i := range x {
			c *= float64(n-i) / float64(i+1)
		}
		return c
	}
	type outcome struct{ p, q float64 }
	var round []outcome
	rest := 1.
	for c := range k {
		m := c + 1
		for a := m/2 + 1; a <= m; a++ {
			w := choose(k-1, c) * math.Pow(rate, float64(c)) * math.Pow(1-rate, float64(k-1-c)) * choose(m, a) * math.Pow(.5, float64(m)) * 2 / (float64(m) * (e + 1))
			q := w * (float64(a) + e*float64(m-a))
			p := (1-gamma)*q + gamma*w*(e*float64(a)+float64(m-a))
			round = append(round, outcome{p, q}, outcome{q, p})
			rest -= p + q
		}
	}
	round = append(round, outcome{rest, rest})
	all := []outcome{{1, 1}}
	for range times {
		var next []outcome
		for _, x := range all {
			for _, y := range round {
				next = append(next, outcome{x.p * y.p, x.q * y.q})
			}
		}
		all = next
	}
	var delta float64
	for _, x := range all {
		delta += math.Max(0, x.p-math.Exp(eps)*x.q)
	}
	return delta
}

// What is proved is never below the exact δ, and a claim just below it fails.
func TestVerdictsAgainstEveryOutcome(t *testing.T) {
	for _, c := range []struct {
		eps0, eps   float64
		n, k, times int
	}{{1, .3, 3, 3, 2}, {2, .5, 10, 4, 3}, {.5, .2, 2, 1, 4}, {3, 2, 6, 6, 2}, {1, 0, 4, 2, 3}} {
		exact := exactDelta(c.eps0, float64(c.k)/float64(c.n), c.k, c.times, c.eps)
		d := write(t, account.Query{Participation: dp.Sampled, Eps0: c.eps0, Population: int64(c.n), Reports: int64(c.k), Rounds: int64(c.times),
			Eps: c.eps, AskDelta: true}, certificate.BlanketPLD)
		v, err := d.Verify(context.Background())
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if v.Delta < exact || v.Delta > exact*1.005 {
			t.Errorf("%+v: proved delta <= %v, exact %v", c, v.Delta, exact)
		}
		d.Claim.Delta = exact * (1 - 1e-9)
		d.Composition.Window, d.Composition.Truncation, d.Composition.RoundOff = 0, d.Round.Infinite*float64(c.times), 0
		d.Composition.Total = d.Composition.Window + d.Composition.Truncation + d.Composition.WrapAround + d.Composition.RoundOff
		if _, err := d.Verify(context.Background()); !errors.Is(err, certificate.ErrRejected) || !strings.Contains(err.Error(), "above the claimed") {
			t.Errorf("%+v: a claim below the exact delta: %v", c, err)
		}
	}
}

func TestMalformedDocuments(t *testing.T) {
	text, err := write(t, sampled, "").Encode()
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	for name, bad := range map[string]string{
		"empty":           "",
		"not JSON":        "riffle",
		"null":            "null",
		"cut":             good[:len(good)/2],
		"something after": good + "{}",
		"unknown key":     strings.Replace(good, `"claim"`, `"claims"`, 1),
		"key twice":       strings.Replace(good, `"eps0": 2,`, `"eps0": 1, "eps0": 2,`, 1),
		"other letters":   strings.Replace(good, `"eps0"`, `"EPS0"`, 1),
		"more digits":     strings.Replace(good, `"eps0": 2,`, `"eps0": 2.0,`, 1),
		"text":            strings.Replace(good, `"eps0": 2,`, `"eps0": "2",`, 1),
		"no round":        strings.Replace(good, `"round"`, `"Round"`, 1),
		"negative":        strings.Replace(good, `"eps0": 2,`, `"eps0": -2,`, 1),
		"huge":            good + strings.Repeat(" ", certificate.MaxSize),
	} {
		if bad == good {
			t.Fatalf("%s: nothing was replaced", name)
		}
		if _, err := certificate.Decode([]byte(bad)); !errors.Is(err, certificate.ErrMalformed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// Spaces are free.
	if _, err := certificate.Decode([]byte(strings.ReplaceAll(good, "\n", "\r\n\t"))); err != nil {
		t.Error(err)
	}
}

func TestVerifyStopsWhenTold(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := write(t, sampled, "").Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestMethodsWithoutACheckAreRefused(t *testing.T) {
	for _, m := range []string{"blanket-rdp", "rr2-pld", "x"} {
		if _, err := account.Certify(context.Background(), sampled, m); !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("%s: error %v", m, err)
		}
	}
}

// Whatever is decoded can be verified without a panic.
func FuzzDecode(f *testing.F) {
	for _, q := range []account.Query{
		{Trust: dp.Local, Participation: dp.All, Eps0: 1, Population: 1, Rounds: 3, Delta: 1e-2},
		{Participation: dp.CheckIn, Eps0: 1, Population: 4, Gamma: .5, Rounds: 2, Delta: 1e-2},
		removal,
	} {
		methods := []string{certificate.BlanketPLD, certificate.Basic}
		if q.Adjacency != "" {
			methods = []string{certificate.RemovePLD}
		}
		for _, m := range methods {
			d := write(f, q, m)
			if d.Round != nil && len(d.Round.Q) > 64 {
				d.Round.Q = d.Round.Q[:64] // small, and no longer true
			}
			text, err := d.Encode()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := certificate.Decode(text)
		if err != nil {
			return
		}
		again, err := d.Encode()
		if err != nil {
			t.Fatalf("read but not written: %v", err)
		}
		if _, err := certificate.Decode(again); err != nil {
			t.Fatalf("written but not read: %v", err)
		}
		if d.Query.N > 1000 || d.Round != nil && (len(d.Round.Q) > 100 || d.Round.Times > 100) {
			return // may take long
		}
		if _, err := d.Verify(t.Context()); err != nil && !errors.Is(err, certificate.ErrRejected) {
			t.Fatal(err)
		}
	})
}

// Where hardly anybody reports, next to all mass has the one loss log(1−γ), and float64 knows what balances the laws
// to few digits.
func TestRareRemovalsVerify(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes, in one goroutine")
	}
	for _, q := range []account.Query{
		{Sigma: 38.80820816231481, Population: 77, Gamma: 1.382196965474382e-06, Rounds: 8, Delta: 7.762473183793182e-10},
		{Sigma: 14.010243056497723, Population: 2417, Gamma: 7.240731518006437e-06, Rounds: 84, Delta: 1.2117643206190178e-13},
	}[:longtest.Pick(1, 2)] {
		q.Trust, q.Adjacency, q.Class, q.Participation = removal.Trust, removal.Adjacency, removal.Class, removal.Participation
		if _, err := clone(t, write(t, q, certificate.RemovePLD)).Verify(t.Context()); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// A document of another version is refused by its version, whatever else it has.
func TestOtherVersions(t *testing.T) {
	for text, want := range map[string]string{
		`{"format":"riffle-certificate","version":2,"later":1}`: `version 2; want "riffle-certificate", version 1`,
		`{"format":"riffle-certificate","query":{}}`:            "version 0; want",
		`{"format":"another","version":1}`:                      `format "another"`,
		`{"format":"riffle-certificate","version":1,"later":1}`: `unknown field "later"`,
	} {
		if _, err := certificate.Decode([]byte(text)); !errors.Is(err, certificate.ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
