package figures

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/picture"
)

// Names of riffle's own answers among the method ids.
const (
	upper = "riffle-upper" // tightest proved bound
	best  = "riffle-best"  // tightest sound bound, numeric certificates included
	lower = "riffle-lower" // largest proved cost of a concrete mechanism
)

// asker asks the accountant and caches its answers.
type asker struct {
	mu   sync.Mutex
	memo map[question]account.Listed
}

type question struct {
	query  account.Query
	method string
}

// ask returns a method's bound; if the method does not apply, the answer has a note.
func (a *asker) ask(ctx context.Context, q account.Query, method string) (account.Listed, error) {
	key := question{q, method}
	a.mu.Lock()
	l, ok := a.memo[key]
	a.mu.Unlock()
	if ok {
		return l, nil
	}
	l, err := answer(ctx, q, method)
	if err != nil {
		return l, fmt.Errorf("figures: %s: %w", method, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.memo == nil {
		a.memo = map[question]account.Listed{}
	}
	a.memo[key] = l
	return l, nil
}

func answer(ctx context.Context, q account.Query, method string) (account.Listed, error) {
	var own *dp.Bound
	switch method {
	case upper, best:
		r, err := account.Answer(ctx, q, "best")
		if err != nil {
			return account.Listed{}, err
		}
		if own = r.Upper; method == best {
			own = r.Best
		}
	case lower:
		for _, id := range []string{"lower-rr3", "lower-rr2", "lower-gauss"} {
			r, err := account.Answer(ctx, q, id)
			if err != nil {
				return account.Listed{}, err
			}
			if r.Lower != nil && (own == nil || r.Lower.Eps > own.Eps) {
				own = r.Lower
			}
		}
	default:
		r, err := account.Answer(ctx, q, method)
		if err != nil {
			return account.Listed{}, err
		}
		return r.Bounds[0], nil
	}
	if own == nil {
		return account.Listed{Bound: dp.Bound{Note: "no such bound"}}, nil
	}
	return account.Listed{Bound: *own, Applies: true}, nil
}

// eps returns a method's ε, NaN if it has no finite one.
func (a *asker) eps(ctx context.Context, q account.Query, method string) (float64, error) {
	l, err := a.ask(ctx, q, method)
	if err != nil || !l.Applies || math.IsInf(l.Eps, 0) {
		return math.NaN(), err
	}
	return l.Eps, nil
}

// bound is a curve of a sweep.
type bound struct {
	method string
	label  string
	hidden bool
}

// sweep is a set of bounds as functions of one quantity of a query.
type sweep struct {
	query  account.Query
	name   string // the quantity's flag of riffle eps
	label  string // the axis's label
	xs     []float64
	set    func(q *account.Query, x float64)
	bounds []bound
}

// data computes every point, on all processors.
func (s sweep) data(ctx context.Context, d *desk) (data, error) {
	xs := fewer(s.xs, d.points)
	type cell struct{ point, bound int }
	// Starting the expensive methods first would finish soonest; the order of the list is good
	// enough.
	jobs := make(chan cell)
	rows := make([][]float64, len(s.bounds))
	first := make([]account.Listed, len(s.bounds))
	refused := make([]string, len(s.bounds))
	for i := range rows {
		rows[i] = make([]float64, len(xs))
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range max(1, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for j := range jobs {
				q := s.query
				s.set(&q, xs[j.point])
				l, err := d.ask(ctx, q, s.bounds[j.bound].method)
				if err != nil {
					stop(err)
					return
				}
				y := l.Eps
				if !l.Applies || math.IsInf(y, 0) {
					y = math.NaN()
				}
				mu.Lock()
				rows[j.bound][j.point] = y
				if l.Applies {
					first[j.bound] = l
				} else if refused[j.bound] == "" {
					refused[j.bound] = fmt.Sprintf("%s has no bound at %s = %s: %s", s.bounds[j.bound].method, s.name, picture.Number(xs[j.point]), l.Note)
				}
				mu.Unlock()
			}
		})
	}
feed:
	for p := range xs {
		for b := range s.bounds {
			select {
			case jobs <- cell{p, b}:
			case <-ctx.Done():
				break feed
			}
		}
	}
	close(jobs)
	wg.Wait()
	if ctx.Err() != nil {
		return data{}, context.Cause(ctx)
	}
	out := data{XName: s.name, band: true,
		X: picture.Axis{Label: s.label, Scale: picture.Log, Min: xs[0], Max: xs[len(xs)-1]},
		Y: picture.Axis{Label: "ε (nats) at " + deltaText(s.query), Scale: picture.Log}}
	for i, b := range s.bounds {
		kind, source := first[i].Kind, first[i].Source
		if source == "" {
			kind = dp.NoMethod
		}
		out.Series = append(out.Series, series{Name: b.method, Label: b.label, Source: source, Kind: string(kind),
			X: xs, Y: rows[i], Style: styleOf(b.method), Hidden: b.hidden})
		if refused[i] != "" {
			out.Notes = append(out.Notes, refused[i])
		}
	}
	return out, nil
}

func deltaText(q account.Query) string {
	if q.Delta == 0 {
		return "δ = 1/n"
	}
	return "δ = " + picture.Number(q.Delta)
}

// Styles. riffle's curves are black, thick and without markers; the literature's are thin,
// coloured and with markers. So they differ in grey, too.
var (
	blue      = picture.Palette[0]
	vermilion = picture.Palette[1]
	green     = picture.Palette[2]
	purple    = picture.Palette[3]
	sky       = picture.Palette[4]
	orange    = picture.Palette[5]
	grey      = picture.Palette[6]
)

func styleOf(method string) picture.Style {
	switch method {
	case upper, "riffle-blanket":
		return picture.Style{Width: 2.6, Marker: picture.NoMarker}
	case best:
		return picture.Style{Width: 2, Dash: picture.DashDot, Marker: picture.NoMarker}
	case lower:
		return picture.Style{Width: 2, Dash: picture.Dashed, Marker: picture.NoMarker}
	case "girgis-thm1", "sci-thm2", "sci-thm4", "eab-thm1":
		return picture.Style{Colour: blue, Marker: picture.Dot}
	case "girgis-thm2", "sci-thm3", "lower-2rr":
		return picture.Style{Colour: vermilion, Dash: picture.Dotted, Marker: picture.Triangle}
	case "sci-thm1", "sci-thm4-eq10", "gdp-approx":
		return picture.Style{Colour: sky, Dash: picture.Dotted, Marker: picture.Plus}
	case "clones-closed-strong", "checkin-strong", "gauss-strong", "efmrtt-rdp":
		return picture.Style{Colour: purple, Dash: picture.DashDot, Marker: picture.Square}
	case "clones-numeric-strong", "sci-thm4-eq11", "gddsk":
		return picture.Style{Colour: green, Dash: picture.LongDash, Marker: picture.Box}
	case "gddsk-wbk-plain", "gddsk-simple":
		return picture.Style{Colour: grey, Dash: picture.Dashed, Marker: picture.Cross}
	}
	return picture.Style{Colour: orange, Dash: picture.Dotted, Marker: picture.Ring}
}
