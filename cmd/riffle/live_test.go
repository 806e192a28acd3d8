package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/run/simulate"
	"github.com/riffle-dp/riffle/run/train"
)

// liveRun starts a run with a page and returns the page's address and what it
// prints on stderr besides.
func liveRun(t *testing.T, args ...string) (cmd *exec.Cmd, url string, stderr *strings.Builder, ended func() int) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if err := tiny(data, 500, 200, false); err != nil {
		t.Fatal(err)
	}
	cmd = process(t, append([]string{"train", "--data", data, "--out", filepath.Join(t.TempDir(), "run"), "--no-progress", "--serve"}, args...)...)
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	stderr = &strings.Builder{}
	for url == "" && lines.Scan() {
		fmt.Fprintln(stderr, lines.Text())
		_, url, _ = strings.Cut(lines.Text(), "live page: ")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() {
			fmt.Fprintln(stderr, lines.Text())
		}
	}()
	var waited bool
	ended = func() int {
		if !waited {
			waited = true
			timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
			<-done
			_ = cmd.Wait() // the exit code says it
			timer.Stop()
		}
		return cmd.ProcessState.ExitCode()
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		ended()
	})
	if url == "" {
		t.Fatalf("no page: exit %d\n%s", ended(), stderr)
	}
	return cmd, url, stderr, ended
}

// A page that is open while a run lasts sees it come on and end, shows what it
// costs and promises, and its report; then the process ends by itself.
func TestFollowARunInABrowser(t *testing.T) {
	var p *browsertest.Page
	var cmd *exec.Cmd
	var url string
	var stderr *strings.Builder
	var ended func() int
	// A browser that is slow beside the run gets a longer one.
	rounds := 150
	for ; ; rounds *= 4 {
		p = browsertest.Open(t)
		cmd, url, stderr, ended = liveRun(t, "127.0.0.1:0", "--rounds", fmt.Sprint(rounds), "--population", "1500", "--eps0", "1", "--eval-every", "5", "--serve-after", "5m")
		p.Open(url)
		p.Until(`["live", "finished"].includes(document.getElementById("live").textContent)`)
		first := math.MaxInt
		if browsertest.Value[string](p, `document.getElementById("live").textContent`) == "live" {
			first = browsertest.Value[int](p, `+document.getElementById("progress").getAttribute("aria-valuenow")`)
		}
		if first <= 4*rounds/5 {
			p.Until(fmt.Sprintf(`+document.getElementById("progress").getAttribute("aria-valuenow") > %d`, first+3))
			break
		}
		_ = cmd.Process.Kill()
		if ended(); rounds > 150 {
			t.Fatalf("the page came too late to see anything of %d rounds\n%s", rounds, stderr)
		}
	}
	p.Until(`document.getElementById("live").textContent === "finished"`)
	p.Until(fmt.Sprintf(`document.getElementById("progress-text").textContent.startsWith("Round %d of %[1]d")`, rounds))
	summary := readSummary(t, cmd)
	// The last figures may come a moment after the state.
	p.Until(fmt.Sprintf(`document.querySelector(".tile.accent .value").textContent === %q`, fmt.Sprintf("%.2f %%", 100*summary.Accuracy)))
	p.Until(fmt.Sprintf(`document.querySelector(".tile.violet .value").textContent === %q`, roundUp(summary.Epsilon)))
	for view, complete := range map[string]string{
		"rounds":  `document.querySelectorAll('#view-rounds canvas').length === 4 && document.querySelector("#latest th")?.textContent === "150"`,
		"reports": `document.querySelectorAll("#stages tr").length === 2 && document.querySelector("#report-tiles .value")?.textContent === "150"`,
		"ledger":  `document.querySelector("#ledger-tiles .value")?.textContent === "150" && document.querySelector("#ledger-lines td.code")?.textContent.includes("eps0=1")`,
		"privacy": `document.getElementById("lead")?.textContent.startsWith("Proved: differential privacy") && document.getElementById("lead")?.textContent.includes("the whole run of 150 rounds")`,
	} {
		p.Click(fmt.Sprintf(`#nav a[href^="#/%s"]`, view))
		p.Until(strings.ReplaceAll(complete, "150", fmt.Sprint(rounds)))
		for _, wrong := range p.Audit("train-" + view) {
			t.Errorf("%s: %s", view, wrong)
		}
	}
	p.Click(`#nav a[href^="#/overview"]`)
	for _, wrong := range p.Audit("train-overview") {
		t.Errorf("overview: %s", wrong)
	}
	p.Click("#files a[href=report]")
	p.Until(`document.querySelector(".brand") && document.querySelector(".brand").textContent.includes("training report") && document.querySelectorAll(".plot canvas").length === 4`)
	for _, line := range p.Trouble(url) {
		t.Errorf("the page: %s", line)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := ended(); code != exitDone {
		t.Errorf("exit %d after the run had ended\n%s", code, stderr)
	}
}

type shownSummary struct {
	Accuracy float64 `json:"test_accuracy"`
	Epsilon  float64 `json:"epsilon"`
}

func readSummary(t *testing.T, cmd *exec.Cmd) (s shownSummary) {
	t.Helper()
	for i, a := range cmd.Args {
		if a == "--out" {
			b, err := os.ReadFile(filepath.Join(cmd.Args[i+1], "summary.json"))
			if err == nil {
				err = json.Unmarshal(b, &s)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// Without a browser: the last news of a run reach who listens, then the process
// ends by itself; off loopback nobody gets in without the token.
func TestServeEndsWithItsRun(t *testing.T) {
	longtest.Only(t, "trains with a page open")
	if testing.Short() {
		t.Skip("runs processes")
	}
	_, url, stderr, ended := liveRun(t, "0.0.0.0:0", "--rounds", "40", "--population", "3000", "--eps0", "1")
	base, token, ok := strings.Cut(url, "?token=")
	if !ok || len(token) != 32 {
		t.Fatalf("the page %q has no token", url)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(base, "http://"), ":")
	base = "http://127.0.0.1:" + port
	resp, err := http.Get(base + "api/tasks")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", resp.Status)
	}
	r, err := http.NewRequest(http.MethodGet, base+"api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err = http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if code := ended(); code != exitDone {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	_, last, _ := strings.Cut(string(text), `"state":"done"`)
	if !strings.Contains(last, "event: end") || !strings.Contains(last, `"round":40,"rounds":40`) || !strings.Contains(last, `"report":true`) {
		t.Errorf("the stream does not tell of the end:\n%s", text[max(0, len(text)-2000):])
	}
}

// The page of a resumed run shows what went before.
func TestServeShowsThePast(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := tiny(data, 300, 100, false); err != nil {
		t.Fatal(err)
	}
	c := train.Default()
	c.Data, c.Rounds, c.Eps0, c.EvalEvery, c.Dropout, c.NMin = data, 12, 1, 2, .5, 150
	r, err := train.Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	if err := r.Create(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	void := int64(0)
	_, err = r.Train(ctx, train.Observer{Round: func(result simulate.Result) {
		if result.Void {
			void++
		}
		if result.Round == 8 {
			cancel()
		}
	}})
	if !errors.Is(err, train.ErrInterrupted) {
		t.Fatal(err)
	}
	if r, err = train.Resume(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	planned, err := r.Planned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page := serving{address: "127.0.0.1:0", given: func(string) bool { return true }}
	l, err := serve(t.Context(), page, r, planned)
	if err != nil {
		t.Fatal(err)
	}
	var history struct {
		Measures struct{ Round []int64 }
		Rounds   struct{ Round, Reports, Void []int64 }
	}
	var examined struct {
		Round  int64
		Matrix struct{ Right string }
	}
	var all struct {
		Tasks []struct {
			Round, Reports, Charged, Void, Released int64
			Baseline                                string
		}
	}
	for path, into := range map[string]any{"api/history?task=run": &history, "api/tasks": &all, "api/examined?task=run": &examined} {
		resp, err := http.Get(l.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		resp.Body.Close()
	}
	reports, empty := int64(0), int64(0)
	for i, n := range history.Rounds.Reports {
		reports += n
		empty += history.Rounds.Void[i]
	}
	if examined.Round != r.Resumed || !strings.HasSuffix(examined.Matrix.Right, " of 100 right") {
		t.Errorf("examined: %+v", examined)
	}
	for i, n := range history.Rounds.Void { // a void round is not one with a charged one
		if n > 0 && history.Rounds.Reports[i] > 0 {
			t.Errorf("round %d is void and has %d reports", history.Rounds.Round[i], history.Rounds.Reports[i])
		}
	}
	entries := int64(len(r.Charged))
	if n := len(history.Measures.Round); n < 4 || history.Measures.Round[n-1] > r.Resumed || reports != r.Reports || entries == 0 {
		t.Errorf("%+v, %d reports were summed", history, r.Reports)
	}
	if s := all.Tasks[0]; s.Round != r.Resumed || s.Reports != reports || s.Charged != entries || s.Released != entries || s.Void != empty || s.Void+s.Released != s.Round || s.Void < void || void == 0 || s.Baseline != r.Baseline.Short {
		t.Errorf("%+v, at least %d rounds were void", s, void)
	}
	l.close(t.Context(), page, false, io.Discard, output{})
}
