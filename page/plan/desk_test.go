package plan

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// The test's program is the process for questions, or one that behaves badly.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "answer" {
		behave(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

var greed []byte

func behave(how string) {
	var err error
	questions := bufio.NewScanner(os.Stdin)
	switch how {
	case "":
		err = Accountant(os.Stdin, os.Stdout)
	case "never": // until it is killed, or the test ends
		questions.Scan()
		fmt.Println(`{"step":{"method":"slow","done":0,"of":1}}`)
		_, err = io.Copy(io.Discard, os.Stdin)
	case "long":
		questions.Scan()
		_, err = os.Stdout.Write(bytes.Repeat([]byte("x"), maxAnswer+1))
	case "greedy":
		modest()
		questions.Scan()
		twice := int64(2 * maxMemory)
		greed = make([]byte, twice) // asked for, and not written to
		fmt.Println(`{"error":"has it"}`)
	case "modest": // says how readily the system ends it for want of memory
		modest()
		questions.Scan()
		var score []byte
		if score, err = os.ReadFile("/proc/self/oom_score_adj"); err == nil {
			fmt.Printf("{\"error\":\"%s\"}\n", bytes.TrimSpace(score))
		}
	case "half":
		questions.Scan()
		fmt.Print(`{"upper":`)
	case "once": // then it ends
		questions.Scan()
		fmt.Println(`{"error":"once"}`)
	case "waits": // for a file with the question's name
		for questions.Scan() {
			fmt.Println(`{"step":{"method":"waits","done":0,"of":1}}`)
			var q question
			if err = json.Unmarshal(questions.Bytes(), &q); err != nil {
				break
			}
			for _, gone := os.Stat(q.Which); gone != nil; _, gone = os.Stat(q.Which) {
				time.Sleep(time.Millisecond)
			}
			fmt.Println(`{"error":"done"}`)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// program is the test's program that behaves so.
func program(how string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) {
		self, err := os.Executable()
		return exec.Command(self, "answer", how), err
	}
}

// counting counts how often a program is started.
func counting(how string, n *int) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) { *n++; return program(how)() }
}

// end ends the desk's process.
func (d *desk) end(t *testing.T) {
	t.Helper()
	p := <-d.free
	if p != nil {
		p.end()
	}
	d.free <- nil
}

func newTestDesk(t *testing.T, command func() (*exec.Cmd, error)) *desk {
	d := newDesk(command)
	t.Cleanup(func() { d.end(t) })
	return d
}

// post asks as the page does, and returns the status and all lines.
func post(d http.Handler, body string, change ...func(*http.Request)) (int, []string) {
	r := httptest.NewRequest(http.MethodPost, "https://here.example/plan/ask", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", "https://here.example")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Code, strings.Split(strings.TrimSpace(w.Body.String()), "\n")
}

// asked is a question about so many clients.
func asked(n int, which string) string {
	return fmt.Sprintf(`{"query":{"participation":"all","randomizer":"generic","eps0":2,"n":%d,"rounds":10,"delta":1e-5},"which":%q}`, n, which)
}

// The server says what riffle says, to the last digit, and refuses what riffle refuses.
func TestServerAgreesWithRiffle(t *testing.T) {
	starts := 0
	d := newTestDesk(t, counting("", &starts))
	r := rand.New(rand.NewPCG(32, 2))
	bounds, errs := 0, 0
	for range 40 {
		q := drawQuestion(r, []string{"blanket-pld"})
		q.Which = "quick"
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		code, lines := post(d, string(text))
		var got answered
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); code != 200 || err != nil {
			t.Fatalf("%s: %d, %v, %q", text, code, err, lines)
		}
		want := native(q)
		if d := compare(t, q, got, want); d != 0 {
			t.Errorf("%s: the server's numbers differ by %g", text, d)
		}
		if want.Error != "" {
			errs++
		} else {
			bounds += len(want.Bounds)
		}
	}
	if starts != 1 || bounds < 20 || errs < 1 {
		t.Errorf("%d bounds and %d errors of %d processes", bounds, errs, starts)
	}
}

func TestStepsAndKeptAnswers(t *testing.T) {
	starts := 0
	d := newTestDesk(t, counting("", &starts))
	code, first := post(d, asked(1000, "best"))
	if code != 200 || len(first) < 2 || first[0] != `{"step":{"method":"blanket-pld","done":0,"of":50}}` && !strings.HasPrefix(first[0], `{"step":{"method":"`) {
		t.Fatalf("%d %q", code, first)
	}
	d.end(t)
	// The same question in other words is answered from memory.
	again := strings.Replace(strings.Replace(asked(1000, "best"), `"n":1000`, `"n": 1000`, 1), `"eps0":2,`, "", 1)
	again = strings.Replace(again, `"rounds"`, `"eps0":2.0,"rounds"`, 1)
	if code, second := post(d, again); code != 200 || len(second) != 1 || second[0] != first[len(first)-1] || starts != 1 {
		t.Errorf("%d %q after %d starts", code, second, starts)
	}
	if code, other := post(d, asked(1001, "best")); code != 200 || len(other) < 2 || starts != 2 {
		t.Errorf("another question: %d %q after %d starts", code, other, starts)
	}
}

// Nothing is computed for who may not ask, and the refusal says why.
func TestStrangersQuestions(t *testing.T) {
	good := asked(1000, "quick")
	starts := 0
	d := newTestDesk(t, counting("", &starts))
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for what, c := range map[string]struct {
		body   string
		change func(*http.Request)
		code   int
		says   string
	}{
		"another site":           {good, header("Sec-Fetch-Site", "cross-site"), 403, "only the page itself"},
		"a site beside":          {good, header("Sec-Fetch-Site", "same-site"), 403, "only the page itself"},
		"another origin":         {good, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") }, 403, "only the page itself"},
		"no origin":              {good, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") }, 403, "only the page itself"},
		"a form":                 {good, header("Content-Type", "application/x-www-form-urlencoded"), 415, "application/json"},
		"plain text":             {good, header("Content-Type", "text/plain"), 415, "application/json"},
		"no type":                {good, func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "application/json"},
		"too long":               {good + strings.Repeat(" ", maxQuestion), nil, 413, "at most 4096 bytes"},
		"too long, length wrong": {good + strings.Repeat(" ", maxQuestion), func(r *http.Request) { r.ContentLength = -1 }, 413, "at most 4096 bytes"},
		"nothing":                {"", nil, 400, "question"},
		"no JSON":                {"eps0=2", nil, 400, "invalid character"},
		"two values":             {good + good, nil, 400, "more than one JSON value"},
		"an unknown key":         {strings.Replace(good, `"which"`, `"x":1,"which"`, 1), nil, 400, `unknown field "x"`},
		"an unknown query key":   {strings.Replace(good, `"n"`, `"x":1,"n"`, 1), nil, 400, `unknown field "x"`},
		"a wrong type":           {strings.Replace(good, `1000`, `"many"`, 1), nil, 400, "cannot unmarshal"},
		"a number too large":     {strings.Replace(good, `1000`, `1e400`, 1), nil, 400, "cannot unmarshal"},
		"deep":                   {strings.Repeat("[", maxQuestion-1), nil, 400, "question"},
		"an array":               {"[" + good + "]", nil, 400, "cannot unmarshal"},
	} {
		change := c.change
		if change == nil {
			change = func(*http.Request) {}
		}
		if code, lines := post(d, c.body, change); code != c.code || !strings.Contains(lines[0], c.says) {
			t.Errorf("%s: %d %q, want %d and %q", what, code, lines, c.code, c.says)
		}
	}
	if starts != 0 {
		t.Errorf("%d processes were started", starts)
	}
	// Who is no browser needs no origin.
	if code, _ := post(d, good, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Del("Origin") }); code != 200 {
		t.Errorf("a program: %d", code)
	}
}

// An accountant that fails costs one answer, and is not kept.
func TestAccountantFails(t *testing.T) {
	for how, says := range map[string]string{"long": "failed on this setting", "half": "failed on this setting"} {
		starts := 0
		d := newTestDesk(t, counting(how, &starts))
		for i := range 2 {
			if code, lines := post(d, asked(1000, "best")); code != 200 || !strings.Contains(lines[len(lines)-1], says) || starts != i+1 {
				t.Errorf("%s: %d %q after %d starts", how, code, lines, starts)
			}
		}
	}
	if runtime.GOOS == "linux" {
		if _, lines := post(newTestDesk(t, program("greedy")), asked(1000, "best")); !strings.Contains(lines[0], "failed on this setting") {
			t.Errorf("one that takes too much memory: %q", lines)
		}
		if _, lines := post(newTestDesk(t, program("modest")), asked(1000, "best")); lines[0] != `{"error":"1000"}` {
			t.Errorf("where memory is short the system may end others first: %q", lines)
		}
	}
	// One that ends after its answer costs the next question nothing but the start of another.
	starts := 0
	d := newTestDesk(t, counting("once", &starts))
	for n := range 3 {
		if _, lines := post(d, asked(1000+n, "best")); !strings.Contains(lines[0], "once") || starts != 1+n {
			t.Errorf("question %d: %q after %d starts", n, lines, starts)
		}
	}
	d = newTestDesk(t, func() (*exec.Cmd, error) { return nil, errors.New("no program") })
	if code, lines := post(d, asked(1000, "best")); code != 200 || lines[0] != `{"error":"plan: no accountant can be started: no program"}` {
		t.Errorf("no program: %d %q", code, lines)
	}
}

// A question that takes too long is ended with its process.
func TestQuestionsEnd(t *testing.T) {
	d := newTestDesk(t, program("never"))
	d.answerTime = 200 * time.Millisecond
	if code, lines := post(d, asked(1000, "all")); code != 200 || !strings.Contains(lines[len(lines)-1], "takes more than 200ms; riffle eps has no limit") {
		t.Errorf("%d %q", code, lines)
	}
	if p := <-d.free; p != nil {
		t.Error("the process is kept")
	}
	d.free <- nil
	if _, ok := d.kept.get(asked(1000, "all")); ok || d.kept.order.Len() > 0 {
		t.Error("no answer is kept as one")
	}
	// So is one whose visitor leaves.
	d.answerTime = time.Hour
	left, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(d)
	defer server.Close()
	r, err := http.NewRequestWithContext(left, http.MethodPost, server.URL, strings.NewReader(asked(1000, "all")))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"step":`) {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	if p := <-d.free; p != nil {
		t.Error("the process is kept")
	}
	d.free <- nil
}

// However many ask, one question is answered at a time, a few wait, and the others are told to ask again.
func TestManyQuestions(t *testing.T) {
	go1 := t.TempDir() + "/go"
	starts := 0
	d := newTestDesk(t, counting("waits", &starts))
	d.waitTime = time.Hour
	var wg sync.WaitGroup
	type result struct {
		code  int
		lines []string
	}
	results := make(chan result, 1+maxWaiting)
	ask := func(n int) {
		wg.Go(func() {
			code, lines := post(d, asked(n, go1))
			results <- result{code, lines}
		})
	}
	ask(0)
	until(t, "the first does not begin", func() bool { return len(d.free) == 0 && d.waiting.Load() == 0 })
	for n := range maxWaiting {
		ask(1 + n)
	}
	until(t, "the others do not wait", func() bool { return d.waiting.Load() == maxWaiting })
	for n := range 3 {
		refused := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/plan/ask", strings.NewReader(asked(100+n, go1)))
		r.Header.Set("Content-Type", "application/json")
		if d.ServeHTTP(refused, r); refused.Code != 503 || refused.Header().Get("Retry-After") != "1" || !strings.Contains(refused.Body.String(), "ask again") {
			t.Errorf("one more: %d %v %s", refused.Code, refused.Header(), refused.Body)
		}
	}
	// One that has waited too long, too.
	impatient := newTestDesk(t, program("never"))
	p := <-impatient.free
	impatient.waitTime = time.Millisecond
	if code, lines := post(impatient, asked(1000, "best")); code != 503 {
		t.Errorf("after its time: %d %q", code, lines)
	}
	impatient.free <- p
	if err := os.WriteFile(go1, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for range 1 + maxWaiting {
		if r := <-results; r.code != 200 || r.lines[len(r.lines)-1] != `{"error":"done"}` {
			t.Errorf("%+v", r)
		}
	}
	if starts != 1 {
		t.Errorf("%d processes", starts)
	}
}

// Over a long time, a quarter of the time goes into questions. What is kept is answered always.
func TestShareOfTime(t *testing.T) {
	d := newTestDesk(t, program(""))
	now := time.Now()
	if spent := d.spend(now, time.Minute); spent != time.Minute {
		t.Fatal(spent)
	}
	if spent := d.spend(now.Add(2*time.Minute), time.Second); spent != 31*time.Second {
		t.Errorf("after two minutes %v, want 31s", spent)
	}
	d.spent, d.at = 0, time.Now()
	if code, _ := post(d, asked(1000, "all")); code != 200 || d.spent <= 0 {
		t.Errorf("within the burst: %d, %v are spent", code, d.spent)
	}
	d.spent, d.at = burst+time.Hour, time.Now()
	if code, _ := post(d, asked(1001, "quick")); code != 503 {
		t.Errorf("beyond it: %d", code)
	}
	if code, lines := post(d, asked(1000, "all")); code != 200 || len(lines) != 1 || strings.Contains(lines[0], "took") {
		t.Errorf("a kept answer: %d %q", code, lines)
	}
	d.at = d.at.Add(-5 * time.Hour)
	if code, _ := post(d, asked(1001, "quick")); code != 200 {
		t.Errorf("hours later: %d", code)
	}
}

// A visitor who sends slowly keeps nobody else from asking, and is let go.
func TestSlowBody(t *testing.T) {
	d := newTestDesk(t, program(""))
	d.bodyTime = 300 * time.Millisecond
	server := httptest.NewServer(d)
	defer server.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	question := asked(1000, "quick")
	fmt.Fprintf(conn, "POST /plan/ask HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(question), question[:20])
	if code, lines := post(d, question); code != 200 {
		t.Errorf("meanwhile: %d %q", code, lines)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(text), "within 300ms") {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// stuck is a visitor who reads nothing until it is closed.
type stuck struct {
	http.ResponseWriter
	closed chan struct{}
}

func (s stuck) Write([]byte) (int, error) { <-s.closed; return 0, errors.New("gone") }

// A visitor who does not read keeps nobody else from asking.
func TestSlowReader(t *testing.T) {
	d := newTestDesk(t, program(""))
	s := stuck{httptest.NewRecorder(), make(chan struct{})}
	r := httptest.NewRequest(http.MethodPost, "/plan/ask", strings.NewReader(asked(1000, "all")))
	r.Header.Set("Content-Type", "application/json")
	var wg sync.WaitGroup
	d.waitTime = time.Minute
	wg.Go(func() { d.ServeHTTP(s, r) })
	if code, lines := post(d, asked(1001, "quick")); code != 200 {
		t.Errorf("meanwhile: %d %q", code, lines)
	}
	close(s.closed)
	wg.Wait()
}

// Kept answers are bounded in bytes, and those asked for last stay.
func TestKeptAnswersAreBounded(t *testing.T) {
	var k kept
	large := bytes.Repeat([]byte("x"), maxAnswer)
	for i := range 100 {
		k.put(fmt.Sprint(i), large)
		k.get("0")
	}
	if _, ok := k.get("0"); !ok {
		t.Error("one that is asked for again and again is gone")
	}
	if _, ok := k.get("50"); ok {
		t.Error("an old one is kept")
	}
	if n := len(k.at); n != k.order.Len() || n*maxAnswer > maxKept || n < maxKept/maxAnswer-1 {
		t.Errorf("%d answers", n)
	}
	for i := range 100_000 {
		k.put("small "+fmt.Sprint(i), nil)
	}
	if n := len(k.at); n > maxKept/perAnswer || k.bytes > maxKept {
		t.Errorf("%d small answers in %d bytes", n, k.bytes)
	}
}

// Many questions within a minute leave no timers behind.
func TestOneTimerOfMany(t *testing.T) {
	d := newTestDesk(t, program(""))
	var timer *time.Timer
	for n := range 3 {
		if code, lines := post(d, asked(1000+n, "nothing")); code != 200 || !strings.Contains(lines[0], "unknown method") {
			t.Fatalf("%d %q", code, lines)
		}
		p := <-d.free
		if timer == nil {
			timer = p.idle
		}
		if p.idle == nil || p.idle != timer {
			t.Errorf("question %d has a timer of its own", n)
		}
		d.free <- p
	}
}

// A process that nobody asks is ended.
func TestIdleProcessEnds(t *testing.T) {
	d := newTestDesk(t, program(""))
	d.idleTime = time.Millisecond
	if code, lines := post(d, asked(1000, "quick")); code != 200 {
		t.Fatalf("%d %q", code, lines)
	}
	until(t, "it goes on", func() bool {
		p := <-d.free
		d.free <- p
		return p == nil
	})
}
