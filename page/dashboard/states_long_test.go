//go:build long

package dashboard

import (
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// said is the text of an element that a selector finds.
func said(p *browsertest.Page, selector string) string {
	return browsertest.Value[string](p, `document.querySelector(`+"`"+selector+"`"+`).innerText`)
}

// A page says how a task stands and, where it shows nothing, why; on a phone all of
// its tables can be read without scrolling.
func TestStatesInABrowser(t *testing.T) {
	p := browsertest.Open(t)
	p.Look(1200, 900, false, false)
	b := &Board{}
	url := serveFor(t, Config{Board: b, Title: "Coordinator", Version: "1.0"})
	nan := dp.Number(math.NaN())
	none := func(id string) View {
		x := exampleTask(id, id, 0, 12)
		x.Eps, x.Accuracy, x.Loss, x.Budget, x.Planned, x.Opened, x.Phase, x.Counts, x.Stages, x.Examined = nan, nan, nan, 0, 2, 0, "", wire.Counts{}, nil, nil
		return x
	}
	see := func(what, expression string) {
		t.Helper()
		p.Until(expression)
		for _, wrong := range p.Audit("state-" + strings.ReplaceAll(what, " ", "-")) {
			t.Errorf("%s: %s", what, wrong)
		}
	}
	empty := `Array.prototype.map.call(document.querySelectorAll("#view-overview figure:not([hidden]) .empty"), function (e) { return e.hidden ? "" : e.textContent; }).join("|")`

	// Before the first round, and before the first evaluation: nothing is said to be 0.
	fresh := none("fresh")
	b.Set(fresh)
	p.Open(url)
	see("no round", empty+` === "No round has ended yet.|No round has ended yet."`)
	fresh.Round, fresh.Released, fresh.Reports, fresh.EvalEvery = 2, 2, 100, 4
	b.Set(fresh)
	see("not evaluated", empty+` === "The model is evaluated every 4 rounds.|ε is counted every 4 rounds."`)
	if got := said(p, "#tiles"); !strings.Contains(got, "ε spent, at most\n\n—") || strings.Contains(got, "after round 0") {
		t.Errorf("before ε was counted: %q", got)
	}

	// One round: the level that is spoken of is there, and so is the outcome.
	one := none("one")
	one.Round, one.Until, one.Released, one.Reports, one.State = 1, 1, 1, 50, Done
	one.Eps, one.EpsAt, one.Accuracy, one.Loss = .5, 1, .9, .3
	b.Set(one)
	b.Ended("one", Round{Round: 1, Reports: 50})
	b.Measured("one", Measure{Round: 1, Eps: .5, Accuracy: .9, Loss: .3})
	p.Open(url)
	see("one round", `document.querySelectorAll("#view-overview .plot canvas").length === 2 && document.getElementById("title").textContent === "one"`)
	dashes := `(function () {
		var c = document.querySelector("#view-overview [data-chart=epsilon] canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, best = 0;
		for (var y = 0; y < c.height; y++) {
			var n = 0; // dark grey
			for (var x = 80; x < c.width; x++) { var i = 4 * (y * c.width + x); if (d[i + 3] > 200 && d[i] < 120 && Math.abs(d[i] - d[i + 2]) < 40) n++; }
			best = Math.max(best, n);
		}
		return best;
	})()`
	if n := browsertest.Value[int](p, dashes); n < 100 {
		t.Errorf("of one round the dashed line has %d pixels", n)
	}
	if got := said(p, "#view-overview .marks"); got != "what all rounds together will cost, ε = 2" {
		t.Errorf("one round is explained as %q", got)
	}

	// The best constant stands beside what was measured, with a warning where that is no
	// better.
	one.Baseline = "11.35 %"
	b.Set(one)
	p.Until(`document.getElementById("tiles").innerText.includes("on 10000 test examples; best constant 11.35 %") && document.getElementById("warning").hidden`)
	one.Warning = "accuracy 10.00 % is no better than the baseline"
	b.Set(one)
	see("no better than a constant", `document.getElementById("warning").innerText === "Warning: accuracy 10.00 % is no better than the baseline."`)
	one.Warning = ""
	b.Set(one)

	// A task that is removed while a page shows it leaves the page to the one before.
	gone := none("gone")
	b.Set(gone)
	p.Open(url)
	p.Until(`document.getElementById("title").textContent === "gone"`)
	b.Remove("gone")
	see("removed", `document.getElementById("title").textContent === "one" && document.querySelectorAll("#task option").length === 2`)

	// Void rounds are marked, said, and no success.
	void := none("void")
	void.Round, void.Until, void.Void, void.Eps, void.EpsAt, void.State = 3, 3, 3, 0, 3, Done
	b.Set(void)
	for r := int64(1); r <= 3; r++ {
		b.Ended("void", Round{Round: r, Void: 1})
		b.Measured("void", Measure{Round: r, Eps: 0, Accuracy: math.NaN(), Loss: math.NaN()})
	}
	p.Open(url)
	see("void", empty+` === "All 3 rounds were void: the model is the one it began with.|" && document.querySelector("#view-overview .plot canvas")`)
	if got := said(p, "#view-overview .marks"); !strings.Contains(got, "3 void rounds: too few reports") {
		t.Errorf("void rounds are explained as %q", got)
	}
	if got := browsertest.Value[string](p, `document.getElementById("state").dataset.kind`); got != "warn" {
		t.Errorf("a task of void rounds is shown as %q", got)
	}
	amber := `(function () {
		var c = document.querySelector("#view-overview [data-chart=epsilon] canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, n = 0;
		for (var i = 0; i < d.length; i += 4) if (d[i + 3] > 200 && d[i] > 200 && d[i + 2] < 110) n++;
		return n;
	})()`
	if n := browsertest.Value[int](p, amber); n < 300 {
		t.Errorf("void rounds are marked by %d pixels", n)
	}
	p.Click(`#nav a[href^="#/rounds"]`)
	see("void rounds", `document.querySelectorAll("#latest tr").length === 3`)
	if got := said(p, "#latest tr"); !strings.Contains(got, "void") {
		t.Errorf("the latest round is %q", got)
	}
	p.Click(`#nav a[href^="#/reports"]`)
	see("void reports", `document.getElementById("stages-none").offsetParent`)

	// Refused is no success either.
	refused := none("refused")
	refused.Round, refused.Until, refused.State, refused.Why, refused.Budget = 0, 12, Refused, "the population's budget is spent", 1
	b.Set(refused)
	p.Open(url)
	see("refused", `document.getElementById("state").textContent === "refused: the ledger takes no further round: the population's budget is spent"`)
	colours := browsertest.Value[[]string](p, `["#state", "#tasks td:nth-of-type(2)"].map(function (s) { return getComputedStyle(document.querySelector(s)).color; })`)
	for _, c := range colours {
		if c != "rgb(179, 38, 30)" {
			t.Errorf("refused is %q", c)
		}
	}

	// A regression has no accuracy, and does not show an empty place for it.
	numbers := none("numbers")
	numbers.Numbers, numbers.Round, numbers.Released, numbers.Loss, numbers.Eps, numbers.EpsAt = true, 2, 2, .04, .2, 2
	b.Set(numbers)
	b.Measured("numbers", Measure{Round: 1, Eps: .1, Accuracy: math.NaN(), Loss: .1})
	b.Measured("numbers", Measure{Round: 2, Eps: .2, Accuracy: math.NaN(), Loss: .04})
	p.Open(url)
	see("numbers", `document.querySelectorAll("#view-overview figure:not([hidden]) canvas").length === 2`)
	if got := said(p, "#tiles") + said(p, "#view-overview .charts"); strings.Contains(got, "Accuracy") || !strings.Contains(got, "Loss") {
		t.Errorf("a regression shows %q", got)
	}
	p.Click(`#nav a[href^="#/mistakes"]`)
	see("numbers mistakes", `document.getElementById("mistakes-sub").textContent.indexOf("The targets are numbers") === 0`)

	// On a phone.
	full := exampleTask("full", "a-task-with-quite-a-long-name-for-people", 9, 12)
	b.Set(full)
	for r := int64(1); r <= 9; r++ {
		exampleRound(b, "full", r, 12)
	}
	p.Look(375, 800, true, false)
	p.Open(url)
	see("phone", ready["overview"])
	for view, body := range map[string]string{"overview": "tasks", "rounds": "latest", "reports": "stages"} {
		p.Click(`#nav a[href^="#/` + view + `"]`)
		p.Until(`document.getElementById("` + body + `").offsetParent`)
		out := browsertest.Value[[]string](p, `Array.prototype.filter.call(document.querySelectorAll("#`+body+` th, #`+body+` td"), function (e) {
			var r = e.getBoundingClientRect(), s = e.closest(".scroll");
			return getComputedStyle(e).display !== "none" && r.width < 1 || r.left < 0 || r.right > innerWidth || s.scrollWidth > s.clientWidth;
		}).map(function (e) { return e.textContent; })`)
		if len(out) > 0 {
			t.Errorf("%s: not seen on a phone: %q", view, out)
		}
	}
	p.Click(`#nav a[href^="#/overview"]`)
	p.Until(`document.getElementById("tasks").offsetParent`)
	if got := said(p, `#tasks td[data-label="Budget or plan"]`); got != "1" {
		t.Errorf("the budget reads %q", got)
	}
	for _, line := range p.Trouble(url) {
		t.Errorf("the page complains: %s", line)
	}
}
