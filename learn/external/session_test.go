package external

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
)

func open(t *testing.T, mode string, change func(*Config)) (*Session, error) {
	t.Helper()
	c := Config{Program: program(mode), Purpose: Simulate, Seed: 7, Timeout: 20 * time.Second}
	if change != nil {
		change(&c)
	}
	s, err := Open(t.Context(), c)
	if err == nil {
		t.Cleanup(s.Close)
	}
	return s, err
}

func mustOpen(t *testing.T, mode string, change func(*Config)) *Session {
	t.Helper()
	s, err := open(t, mode, change)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func someIDs(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(3*i+1) % programClients
	}
	return ids
}

// collect returns the gradients by client.
func collect(t *testing.T, s *Session, round int64, theta []float32, ids []int64) (map[int64][]float32, error) {
	t.Helper()
	var mu sync.Mutex
	out := map[int64][]float32{}
	busy := make([]bool, 3)
	err := s.Each(t.Context(), round, theta, ids, len(busy), func(w int, id int64, g []float32) error {
		mu.Lock()
		if busy[w] {
			t.Error("a worker has two gradients at a time")
		}
		busy[w] = true
		out[id] = append([]float32(nil), g...)
		mu.Unlock()
		clear(g)
		mu.Lock()
		busy[w] = false
		mu.Unlock()
		return nil
	})
	return out, err
}

func TestEach(t *testing.T) {
	for _, mode := range []string{"good", "delta", "socket"} {
		t.Run(mode, func(t *testing.T) {
			s := mustOpen(t, mode, func(c *Config) {
				if mode == "socket" {
					c.Program = listen(t, "good")
				}
			})
			if s.About.Dim != programDim || s.About.Clients != programClients || s.About.Delta != (mode == "delta") || s.size() != maxRows {
				t.Fatalf("about %+v, batches of %d", s.About, s.size())
			}
			for round := range int64(3) {
				ids := someIDs([]int{programClients, 1, 300}[round])
				theta := []float32{1, -2, 3, float32(round), 0}
				got, err := collect(t, s, round+1, theta, ids)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != len(ids) {
					t.Fatalf("%d gradients of %d clients", len(got), len(ids))
				}
				for id, g := range got {
					for j := range g {
						if g[j] != gradientOf(theta, id, j) {
							t.Fatalf("client %d: gradient %v", id, g)
						}
					}
				}
				numbers, err := s.Evaluate(t.Context(), theta)
				if err != nil {
					t.Fatal(err)
				}
				if numbers["loss"] != 14+float64(round*round) || numbers["accuracy"] != .5 || !math.IsNaN(numbers["auc"]) || numbers["examples"] != 100 || len(numbers) != 4 {
					t.Errorf("numbers %v", numbers)
				}
			}
			if s.Odd() != 0 {
				t.Errorf("%d odd values", s.Odd())
			}
			if len(s.rows) == 0 || len(s.rows) > maxUnanswered+1 {
				t.Errorf("%d pieces of memory are kept", len(s.rows))
			}
		})
	}
}

func TestOddValuesCountAsZero(t *testing.T) {
	s := mustOpen(t, "nan", nil)
	theta := make([]float32, programDim)
	got, err := collect(t, s, 1, theta, []int64{10, 11, 20})
	if err != nil {
		t.Fatal(err)
	}
	if want := "map[10:[10 10 0 0 10] 11:[11 11 11 11 11] 20:[20 20 0 0 20]]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if s.Odd() != 4 {
		t.Errorf("%d odd values, want 4", s.Odd())
	}
}

func TestAbout(t *testing.T) {
	s := mustOpen(t, "parameters", func(c *Config) { c.Clients = 77 })
	if got := fmt.Sprintf("%+v", s.About); got != "{Dim:5 Clients:77 Delta:false Name:tiny Parameters:[{Name:w Shape:[2 2]} {Name:b Shape:[]}] Initial:[1 2 3 4 5]}" {
		t.Error(got)
	}
	s = mustOpen(t, "no-clients", func(c *Config) { c.Purpose = Client })
	if s.About.Clients != 0 || len(s.About.Parameters) != 1 || s.About.Parameters[0].Name != "theta" {
		t.Errorf("%+v", s.About)
	}
}

// TestMisbehaviour has a program for each way to be wrong.
func TestMisbehaviour(t *testing.T) {
	for mode, want := range map[string][]string{
		"dies-open":      {"asked for open: it has ended with exit status 3; its last lines:", "\n  | Traceback (most recent call last):\n  | ModuleNotFoundError: No module named 'torch'"},
		"quiet-end":      {"it has ended (it wrote nothing to standard error)"},
		"deaf":           {"it gave no answer within 300ms"},
		"newline":        {"is no safetensors document (does something print to standard output?): its header must begin with {"},
		"prints":         {`it printed "Downloading 100%" to standard output, which is for answers only`},
		"prints-short":   {`it printed "ok" to standard output`},
		"prints-unended": {`it printed "loading the data`},
		"other-op":       {`it answers "gradients", it was asked for open`},
		"says":           {"it says: no such file: data.npz"},
		"old":            {`it speaks version "0", not 1`},
		"no-dim":         {"lack dim"},
		"large":          {`dim = "10000001" must be a whole number from 1 to 10000000`},
		"no-clients":     {"lack clients"},
		"misspelt":       {`its metadata have "client", which is not known`},
		"other-clients":  {"it has 1000 clients, asked for are 999"},
		"other-update":   {`update = "deltas" must be gradient or delta`},
		"parameters-few": {"parameters have 4 values, dim is 5"},
		"nan-initial":    {"1 of the initial parameters are not finite"},
		"short-initial":  {"initial is F32 [4], want F32 [5]"},
		"other-tensor":   {`it sends a tensor "theta", which is not known`},
		"huge-frame":     {"it answers with a frame of 1099511627776 bytes, at most"},
		"huge-header":    {"header length 1048577 above limit 1048576"},
		"wrong-dim":      {`it sends a tensor "gradients", F32 [256 4], want one tensor gradients, F32 [256 5]`},
		"wrong-rows":     {`it sends a tensor "gradients", F32 [255 5], want one tensor gradients, F32 [256 5]`},
		"flat":           {`it sends a tensor "gradients", F32 [1280], want one tensor gradients, F32 [256 5]`},
		"wrong-type":     {`it sends a tensor "gradients", I64 [256 2]`},
		"wrong-name":     {`it sends a tensor "grads"`},
		"more-words":     {`its metadata have "loss", which is not known`},
		"too-much":       {"it sends 5140 bytes of tensors, at most 5120 can be needed"},
		"nothing":        {"it sends no tensor, want one tensor gradients"},
		"dies":           {"asked for gradients: it has ended with exit status 1; its last lines:\n  | epoch 1\n  | MemoryError: out of memory"},
		"killed":         {"it has ended with signal: killed"},
		"dies-inside":    {"in the middle of its answer; its last lines:\n  | half"},
		"hangs":          {"it gave no answer within 3s, the time that answer-seconds sets; its last lines:\n  | waiting for a lock"},
		"prints-later":   {`it printed "step 2, loss 0.31" to standard output`},
		"no-loss":        {"asked for evaluate: its numbers lack loss"},
		"percent":        {"accuracy = 84.5 must be a share"},
		"no-number":      {`auc = "good" must be a number`},
		"odd-name":       {`"AUC" names a number`},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, err := open(t, mode, func(c *Config) {
				c.Clients = 999
				switch mode {
				case "deaf":
					c.Timeout = 300 * time.Millisecond
				case "hangs": // after it has opened
					c.Timeout = 3 * time.Second
				}
			})
			if err == nil {
				theta := make([]float32, programDim)
				_, err = collect(t, s, 1, theta, someIDs(999))
				if err == nil {
					_, err = s.Evaluate(t.Context(), theta)
				}
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, text := range append(want, `external: program "'`) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q lacks %q", err, text)
				}
			}
			if s == nil {
				return
			}
			// The session is of no more use, and says why.
			if _, again := s.Evaluate(t.Context(), make([]float32, programDim)); again == nil || again.Error() != err.Error() {
				t.Errorf("again: %v", again)
			}
			<-s.peer.exited
		})
	}
}

// What was shown already is not said again.
func TestLinesAreSaidOnce(t *testing.T) {
	var shown bytes.Buffer
	s := mustOpen(t, "dies", func(c *Config) { c.Stderr = &shown })
	_, err := collect(t, s, 1, make([]float32, programDim), someIDs(999))
	if err == nil || strings.Contains(err.Error(), "MemoryError") || !strings.HasSuffix(err.Error(), "it has ended with exit status 1; what it wrote to standard error is above") {
		t.Errorf("error %v", err)
	}
	if got := shown.String(); got != "epoch 1\nMemoryError: out of memory\n" {
		t.Errorf("shown is %q", got)
	}
}

func TestNotThere(t *testing.T) {
	for program, want := range map[string]string{
		"no-such-program-at-all --x": "it cannot be started: executable file not found in $PATH",
		"unix:/nowhere/socket":       "nothing answers there",
		"'python3":                   "a quote is not closed",
		"":                           "it names no program",
	} {
		if _, err := open(t, "", func(c *Config) { c.Program = program }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", program, err, want)
		}
	}
}

func TestClosedConnection(t *testing.T) {
	s := mustOpen(t, "", func(c *Config) { c.Program = listen(t, "quiet-end-later") })
	s.peer.out.Close()
	if _, err := s.Evaluate(t.Context(), make([]float32, programDim)); err == nil || !strings.Contains(err.Error(), "it has closed the connection") {
		t.Error(err)
	}
}

// A call whose context ends with the last gradient fails, however fast its workers are.
func TestContextEndsLast(t *testing.T) {
	s := mustOpen(t, "good", nil)
	theta := make([]float32, programDim)
	for k := range int64(50) {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		if err := s.Each(ctx, k+1, theta, someIDs(3), 1, func(int, int64, []float32) error {
			if n++; n == 3 {
				cancel()
			}
			return nil
		}); !errors.Is(err, context.Canceled) {
			t.Fatalf("call %d, after %d gradients: %v", k, n, err)
		}
	}
}

// TestContext stops in the middle of a round; the session goes on.
func TestContext(t *testing.T) {
	s := mustOpen(t, "slow", nil)
	ctx, cancel := context.WithCancel(t.Context())
	theta := make([]float32, programDim)
	before := time.Now()
	n := 0
	err := s.Each(ctx, 1, theta, someIDs(programClients), 1, func(int, int64, []float32) error {
		if n++; n == 5 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n > maxRows {
		t.Errorf("after %d gradients: %v", n, err)
	}
	if since := time.Since(before); since > 10*time.Second {
		t.Errorf("it took %v", since)
	}
	if err := s.Each(ctx, 1, theta, someIDs(3), 1, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	mine := errors.New("mine")
	if err := s.Each(t.Context(), 1, theta, someIDs(programClients), 2, func(int, int64, []float32) error { return mine }); err != mine {
		t.Error(err)
	}
	got, err := collect(t, s, 2, theta, someIDs(600))
	if err != nil || len(got) != 600 {
		t.Errorf("afterwards: %d gradients, %v", len(got), err)
	}
	// A request that is not waited for.
	if _, err := s.Evaluate(ctx, theta); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.Evaluate(t.Context(), theta); err != nil {
		t.Error(err)
	}
	if _, err := Open(ctx, Config{Program: program("deaf"), Purpose: Simulate}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestClose ends programs that end, that have to be told, that have to be killed, and that leave
// others behind.
func TestClose(t *testing.T) {
	for mode, most := range map[string]time.Duration{"good": graceful, "stays": graceful + 10*time.Second, "stays-firmly": graceful + terminating + 10*time.Second, "child": graceful} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if most > graceful {
				longtest.Only(t, "a program takes seconds to be ended")
			}
			s := mustOpen(t, mode, nil)
			pid := s.peer.cmd.Process.Pid
			before := time.Now()
			s.Close()
			s.Close()
			if since := time.Since(before); since > most {
				t.Errorf("it took %v", since)
			}
			for end := time.Now().Add(time.Minute); len(group(pid)) > 0; runtime.Gosched() { // a killed process may take a moment
				if time.Now().After(end) {
					t.Fatalf("processes %v are left", group(pid))
				}
			}
			if _, err := s.Evaluate(t.Context(), make([]float32, programDim)); err == nil || !strings.Contains(err.Error(), "the session is closed") {
				t.Error(err)
			}
		})
	}
}

// group lists the processes of a process group that are no zombies; on systems without /proc
// none.
func group(pgid int) (out []string) {
	stats, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range stats {
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		words := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(words) > 2 && words[2] == fmt.Sprint(pgid) && words[0] != "Z" {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestSplit(t *testing.T) {
	for line, want := range map[string]string{
		`python3 grad.py`:              `["python3" "grad.py"]`,
		"  a\tb \n":                    `["a" "b"]`,
		`a 'b c' "d e"f`:               `["a" "b c" "d ef"]`,
		`a '' ""`:                      `["a" "" ""]`,
		`a\ b c\\d`:                    `["a b" "c\\d"]`,
		`"a\"b\\c\d" '\x'`:             `["a\"b\\c\\d" "\\x"]`,
		`sh -c 'echo "$HOME" | cat'`:   `["sh" "-c" "echo \"$HOME\" | cat"]`,
		`'a`:                           "a quote is not closed",
		`a\`:                           "a backslash is last",
		` `:                            "it names no program",
		`'' a`:                         "it names no program",
		`/opt/größe/x --name=äöü 'ß '`: `["/opt/größe/x" "--name=äöü" "ß "]`,
	} {
		words, err := split(line)
		got := fmt.Sprintf("%q", words)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

func TestTail(t *testing.T) {
	var shown bytes.Buffer
	last := &tail{show: &shown}
	for i := range 20 {
		fmt.Fprintf(last, "10 %%\r50 %%\rline %d\r\n", i)
	}
	fmt.Fprint(last, strings.Repeat("x", 1000)+"\n\xff\nend")
	last.flush()
	lines := strings.Split(last.text(), "\n")
	if len(lines) != keptLines || lines[0] != "line 11" || lines[9] != strings.Repeat("x", longestLine)+"…" || lines[10] != "?" || lines[11] != "end" {
		t.Errorf("%q", lines)
	}
	if strings.Count(shown.String(), "\n") != 23 || !strings.HasPrefix(shown.String(), "line 0\nline 1\n") {
		t.Errorf("%q", shown.String())
	}
}
