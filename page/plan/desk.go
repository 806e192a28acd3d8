package plan

import (
	"bufio"
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/page/plan/ask"
)

// Bounds of what the visitors of a page can have its server do. The process that computes has bounds of its own;
// see [Accountant].
const (
	maxQuestion = 4 << 10          // bytes; the longest one of the page has 2,000
	maxAnswer   = 256 << 10        // bytes; the longest one has some 20,000
	maxWaiting  = 8                // questions that wait while one is answered
	maxKept     = 4 << 20          // bytes of questions and answers that are kept
	perAnswer   = 256              // bytes that keeping one takes besides
	bodyTime    = 10 * time.Second // in which a question must have come
	waitTime    = 10 * time.Second // for which a question waits
	answerTime  = 30 * time.Second // in which it must be answered; a page's server writes for a minute
	idleTime    = time.Minute      // after which a process that nobody asks is ended
	burst       = time.Minute      // of a processor's time at once
	shareOf     = 4                // in the long run questions take a quarter of a processor
)

// desk answers the page's questions, one at a time, by a process that it ends if nobody waits for the answer any
// more. It keeps answers.
type desk struct {
	command func() (*exec.Cmd, error)
	origin  *http.CrossOriginProtection
	waiting atomic.Int64
	free    chan *process // has one value while no question is answered: the process, nil if none runs
	kept    kept

	// The processor time that questions have taken, less what was regained since, as of at. Who took the value of free may use them.
	spent time.Duration
	at    time.Time

	bodyTime, waitTime, answerTime, idleTime time.Duration // tests shorten them
}

func newDesk(command func() (*exec.Cmd, error)) *desk {
	d := &desk{command: command, origin: http.NewCrossOriginProtection(), free: make(chan *process, 1),
		bodyTime: bodyTime, waitTime: waitTime, answerTime: answerTime, idleTime: idleTime}
	d.free <- nil
	return d
}

// ServeHTTP answers with lines of JSON: {"step": …} before each method, then what [ask.Question.Answer] says.
func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if d.origin.Check(r) != nil {
		http.Error(w, "only the page itself may ask", http.StatusForbidden)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "a question is application/json", http.StatusUnsupportedMediaType)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(d.bodyTime)) // fails for a test's recorder, which has no deadlines
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	if err != nil {
		code := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, fmt.Sprintf("a question has at most %d bytes, and comes within %v", maxQuestion, d.bodyTime), code)
		return
	}
	q, err := ask.Parse(text)
	if err == nil {
		text, err = json.Marshal(q) // equal questions are equal texts
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = control.SetReadDeadline(time.Time{}) // its end would look like that of the visitor
	// A visitor who does not read what is sent holds up this handler, but no question.
	steps := make(chan []byte, 64)
	var answer []byte
	go func() {
		defer close(steps)
		answer, err = d.ask(r.Context(), string(text), func(line []byte) {
			select {
			case steps <- line:
			default: // the page can do without a step
			}
		})
	}()
	h.Set("Content-Type", "application/x-ndjson")
	for line := range steps {
		_, _ = w.Write(line) // fails if the visitor has gone
		_ = control.Flush()
	}
	switch {
	case errors.Is(err, errBusy):
		h.Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		answer, _ = json.Marshal(map[string]string{"error": err.Error()}) // strings always have a JSON form
		answer = append(answer, '\n')
	}
	_, _ = w.Write(answer)
}

var (
	errBusy   = errors.New("plan: the server answers other questions; ask again in a second")
	errFailed = errors.New("plan: the accountant failed on this setting")
)

// ask returns the answer to a question, and calls step before each method.
func (d *desk) ask(ctx context.Context, question string, step func(line []byte)) (answer []byte, err error) {
	if answer, ok := d.kept.get(question); ok {
		return answer, nil
	}
	p, err := d.take(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { d.giveBack(p) }()
	if answer, ok := d.kept.get(question); ok { // it was the question before
		return answer, nil
	}
	if d.spend(time.Now(), 0) > burst {
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.answerTime, fmt.Errorf("plan: this setting takes more than %v; riffle eps has no limit", d.answerTime))
	defer cancel()
	for {
		fresh, begun := p == nil, time.Now()
		if fresh {
			if p, err = startProcess(d.command); err != nil {
				return nil, fmt.Errorf("plan: no accountant can be started: %w", err)
			}
		}
		answer, took, err := p.ask(ctx, question, step)
		if err == nil {
			d.spend(time.Now(), took)
			d.kept.put(question, answer)
			return answer, nil
		}
		d.spend(time.Now(), time.Since(begun))
		p.end()
		p = nil
		if fresh || !errors.Is(err, errFailed) { // else the process may have ended before the question, as where memory is short
			return nil, err
		}
	}
}

// spend adds time to what was spent, and returns that.
func (d *desk) spend(now time.Time, took time.Duration) time.Duration {
	d.spent = max(0, d.spent-now.Sub(d.at)/shareOf) + took
	d.at = now
	return d.spent
}

// take waits until no question is answered.
func (d *desk) take(ctx context.Context) (*process, error) {
	select {
	case p := <-d.free: // nobody waits
		return p, nil
	default:
	}
	defer d.waiting.Add(-1)
	if d.waiting.Add(1) > maxWaiting {
		return nil, errBusy
	}
	patience := time.NewTimer(d.waitTime)
	defer patience.Stop()
	select {
	case p := <-d.free:
		return p, nil
	case <-patience.C:
		return nil, errBusy
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// giveBack lets the next question begin. A process that nobody asks for a while is ended.
func (d *desk) giveBack(p *process) {
	switch {
	case p == nil:
	case p.idle == nil:
		p.idle = time.AfterFunc(d.idleTime, func() {
			select {
			case now := <-d.free:
				if now == p {
					p.end()
					now = nil
				}
				d.free <- now
			default: // it is asked
			}
		})
	default: // one timer, however many questions
		p.idle.Reset(d.idleTime)
	}
	d.free <- p
}

// process is a program that runs [Accountant].
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	idle *time.Timer // ends it; nil before its first answer. As for the rest, who took the value of free may use it
}

func startProcess(command func() (*exec.Cmd, error)) (*process, error) {
	cmd, err := command()
	if err != nil {
		return nil, err
	}
	cmd.Env = []string{"GOMAXPROCS=1"}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd, in: in, out: bufio.NewReaderSize(out, maxAnswer)}, nil
}

// ask asks the process. At the end of ctx it kills it. After an error it must be ended.
func (p *process) ask(ctx context.Context, question string, step func(line []byte)) (answer []byte, took time.Duration, err error) {
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() }) // fails if it has ended
	_, err = io.WriteString(p.in, question+"\n")
	for err == nil {
		var line []byte
		if line, err = p.out.ReadSlice('\n'); err != nil {
			break
		}
		switch line = bytes.Clone(line); {
		case bytes.HasPrefix(line, stepBegins):
			step(line)
		case bytes.HasPrefix(line, tookBegins):
			_, err = fmt.Sscanf(string(line[len(tookBegins):]), "%d}", &took)
		case stop():
			return line, took, nil
		default:
			err = ctx.Err() // it is being killed
		}
	}
	stop()
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	return nil, 0, errFailed
}

// end kills the process. What it was started with is closed and its end is waited for.
func (p *process) end() {
	if p.idle != nil {
		p.idle.Stop()
	}
	_ = p.cmd.Process.Kill() // fails if it has ended
	_ = p.cmd.Wait()         // says that it was killed
}

// kept holds the answers that were asked for last.
type kept struct {
	mu    sync.Mutex
	bytes int
	order list.List // of pairs, the last one asked for in front
	at    map[string]*list.Element
}

type pair struct {
	question string
	answer   []byte
}

func (k *kept) get(question string) ([]byte, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.at[question]
	if !ok {
		return nil, false
	}
	k.order.MoveToFront(e)
	return e.Value.(pair).answer, true
}

func (k *kept) put(question string, answer []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at == nil {
		k.at = map[string]*list.Element{}
	}
	k.at[question] = k.order.PushFront(pair{question, answer})
	k.bytes += perAnswer + len(question) + len(answer)
	for k.bytes > maxKept {
		old := k.order.Remove(k.order.Back()).(pair)
		delete(k.at, old.question)
		k.bytes -= perAnswer + len(old.question) + len(old.answer)
	}
}
