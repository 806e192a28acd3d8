package external

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// grade says how bad a finding is.
type grade string

const (
	Fine    grade = "ok"
	Warning grade = "warning" // it may be meant so
	Failed  grade = "failed"  // it must be corrected
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	Level grade  `json:"level"`
	Text  string `json:"text"`
}

// Checked is what Check found out about a program.
type Checked struct {
	About    About
	Findings []Finding
	// Clients is the number of clients whose rows were looked at. Norms has the least, the
	// median, the 90th percentile and the largest of their ℓ2 lengths.
	Clients int
	Norms   [4]float64
	// PerSecond is the number of rows a second; 0: not measured. Numbers are those of the
	// initial parameters.
	PerSecond float64
	Numbers   map[string]float64
}

// OK says that nothing failed.
func (c *Checked) OK() bool {
	return !slices.ContainsFunc(c.Findings, func(f Finding) bool { return f.Level == Failed })
}

// checker runs the checks of one program.
type checker struct {
	config Config
	spare  time.Duration // to measure the speed for
	out    *Checked
}

// Check runs a program through its paces: sizes, values that are not finite, whether the same
// question has the same answer, whether a row depends on its own client only, whether steps
// against the gradient help, speed, and the end. An error is a broken session; what was found
// until then comes with it. It takes about as long as two rounds of 256 clients, and speed.
func Check(ctx context.Context, c Config, speed time.Duration) (*Checked, error) {
	k := &checker{config: c, spare: speed, out: &Checked{}}
	c.Purpose = Simulate
	s, err := Open(ctx, c)
	if err != nil {
		return k.out, err
	}
	defer s.Close()
	k.out.About = s.About
	if err := k.session(ctx, s); err != nil {
		return k.out, err
	}
	k.end(s)
	return k.out, k.others(ctx, c)
}

func (k *checker) found(check string, level grade, format string, args ...any) {
	k.out.Findings = append(k.out.Findings, Finding{check, level, fmt.Sprintf(format, args...)})
}

// rows returns the gradients of clients, in order.
func rows(ctx context.Context, s *Session, theta []float32, ids []int64) ([][]float32, error) {
	at := map[int64]int{}
	for i, id := range ids {
		at[id] = i
	}
	out := make([][]float32, len(ids))
	var mu sync.Mutex
	err := s.Each(ctx, 1, theta, ids, 1, func(_ int, id int64, g []float32) error {
		mu.Lock()
		defer mu.Unlock()
		out[at[id]] = slices.Clone(g)
		return nil
	})
	return out, err
}

// session makes the checks of one session.
func (k *checker) session(ctx context.Context, s *Session) (err error) {
	a := s.About
	k.found("open", Fine, "%d parameters in %d tensors, %d clients", a.Dim, len(a.Parameters), a.Clients)
	theta := slices.Clone(a.Initial)
	if theta == nil {
		theta = make([]float32, a.Dim)
		k.found("initial", Warning, "no initial parameters: learning starts at zeros, where a network with hidden layers cannot learn")
	}
	// The checks hold all rows that they compare: 64 MiB of them are enough.
	n := min(int64(s.size()), a.Clients, max(2, int64(64<<20/(4*a.Dim))))
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i) * a.Clients / n // from all parts
	}
	first, err := rows(ctx, s, theta, ids)
	if err != nil {
		return err
	}
	k.values(s, first)
	if err := k.dependence(ctx, s, theta, ids, first); err != nil {
		return err
	}
	if k.out.Numbers, err = s.Evaluate(ctx, theta); err != nil {
		return err
	}
	again, err := s.Evaluate(ctx, theta)
	if err != nil {
		return err
	}
	if loss := k.out.Numbers["loss"]; loss == again["loss"] {
		k.found("evaluate", Fine, "loss %.4g", loss)
	} else {
		k.found("evaluate", Warning, "loss %.6g, and %.6g when asked again: a run cannot be made again exactly", loss, again["loss"])
	}
	if err := k.descent(ctx, s, theta, first); err != nil {
		return err
	}
	return k.speed(ctx, s, theta, ids)
}

// values looks at the rows themselves.
func (k *checker) values(s *Session, first [][]float32) {
	k.out.Clients = len(first)
	k.found("sizes", Fine, "%d rows of %d values", len(first), s.About.Dim)
	if odd := s.Odd(); odd > 0 {
		k.found("values", Warning, "%d of %d values are NaN or infinite; each counts as 0", odd, len(first)*s.About.Dim)
	} else {
		k.found("values", Fine, "all are finite")
	}
	var norms []float64
	zero, equal := 0, 0
	for i, g := range first {
		norms = append(norms, math.Sqrt(distance(g, nil)))
		if norms[i] == 0 {
			zero++
		}
		if i > 0 && slices.Equal(g, first[i-1]) {
			equal++
		}
	}
	slices.Sort(norms)
	at := func(q float64) float64 { return norms[int(q*float64(len(norms)-1))] }
	k.out.Norms = [4]float64{norms[0], at(.5), at(.9), at(1)}
	switch {
	case zero == len(first):
		k.found("norms", Failed, "all rows are 0: nothing can be learned")
	case equal == len(first)-1 && len(first) > 1:
		k.found("norms", Failed, "all clients have the same row: a row must come from its own client's data")
	case zero > 0:
		k.found("norms", Warning, "%d of %d rows are 0; half are below %.3g, the longest is %.3g", zero, len(first), at(.5), at(1))
	default:
		k.found("norms", Fine, "from %.3g to %.3g, half are below %.3g, nine tenths below %.3g: --clip about there", at(0), at(1), at(.5), at(.9))
	}
}

// rounding is the relative difference that float32 arithmetic in another order may make.
const rounding = 1e-3

// dependence asks again: for the same, in another order, and for few at a time.
func (k *checker) dependence(ctx context.Context, s *Session, theta []float32, ids []int64, first [][]float32) error {
	second, err := rows(ctx, s, theta, ids)
	if err != nil {
		return err
	}
	same := slices.EqualFunc(first, second, func(a, b []float32) bool { return slices.Equal(a, b) })
	turned, back := slices.Clone(ids), slices.Clone(first)
	slices.Reverse(turned)
	slices.Reverse(back)
	third, err := rows(ctx, s, theta, turned)
	if err != nil {
		return err
	}
	worst, who := 0.0, int64(0)
	compare := func(id int64, a, b []float32) {
		scale := max(distance(a, nil), distance(b, nil))
		if d := math.Sqrt(distance(a, b) / max(scale, 1e-20)); d > worst {
			worst, who = d, id
		}
	}
	for i := range third {
		compare(turned[i], back[i], third[i])
	}
	for i := 0; i < len(ids); i += max(1, len(ids)/4) { // one alone
		alone, err := rows(ctx, s, theta, ids[i:i+1])
		if err != nil {
			return err
		}
		compare(ids[i], first[i], alone[0])
	}
	repeated := 0.0
	for i := range first {
		repeated = max(repeated, math.Sqrt(distance(first[i], second[i])/max(distance(first[i], nil), 1e-20)))
	}
	switch {
	case same:
		k.found("repeated", Fine, "the same question has the same answer, bit for bit")
	default:
		k.found("repeated", Warning, "the same question has another answer (rows move by up to %.2g of their length): a run cannot be made again exactly", repeated)
	}
	switch {
	case worst <= rounding:
		k.found("own data", Fine, "a row does not depend on which others are asked for with it (up to %.1g of its length)", worst)
	case repeated > rounding:
		k.found("own data", Warning, "not known: rows differ even when nothing else does")
	default:
		k.found("own data", Failed, "the row of client %d moves by %.2g of its length with the others that are asked for: it has their data in it (batch normalisation, a mean over the batch?), and they would not be protected", who, worst)
	}
	return nil
}

// descent looks whether steps against the mean gradient lower the loss.
func (k *checker) descent(ctx context.Context, s *Session, theta []float32, first [][]float32) error {
	mean := make([]float64, len(theta))
	for _, g := range first {
		for j, x := range g {
			mean[j] += float64(x) / float64(len(first))
		}
	}
	length := 0.0
	for _, x := range mean {
		length += x * x
	}
	start := k.out.Numbers["loss"]
	if length = math.Sqrt(length); length == 0 || math.IsNaN(start) || math.IsInf(start, 0) {
		return nil
	}
	up := 0
	sizes := []float64{.001, .01, .1, 1}
	for _, size := range sizes {
		moved := slices.Clone(theta)
		for j := range moved {
			moved[j] -= float32(size * mean[j] / length)
		}
		numbers, err := s.Evaluate(ctx, moved)
		if err != nil {
			return err
		}
		if numbers["loss"] < start {
			k.found("direction", Fine, "a step of length %g against the mean row changes the loss from %.5g to %.5g", size, start, numbers["loss"])
			return nil
		}
		if numbers["loss"] > start {
			up++
		}
	}
	hint := "is it a gradient of this loss?"
	if s.About.Delta {
		hint = "is a row the model after local steps minus theta, not the other way round?"
	}
	if up == 0 {
		k.found("direction", Warning, "steps against the mean row do not change the loss; %s", hint)
	} else {
		k.found("direction", Warning, "no step against the mean row, of lengths %v, lowers the loss; %s", sizes, hint)
	}
	return nil
}

// speed measures rows a second.
func (k *checker) speed(ctx context.Context, s *Session, theta []float32, ids []int64) error {
	if k.spare <= 0 {
		return nil
	}
	many := slices.Clone(ids)
	for range 7 { // so that batches are computed ahead
		if len(ids) == s.size() { // else a request would have an id twice
			many = append(many, ids...)
		}
	}
	before, n := time.Now(), 0
	for time.Since(before) < k.spare {
		if err := s.Each(ctx, 1, theta, many, 1, func(int, int64, []float32) error { return nil }); err != nil {
			return err
		}
		n += len(many)
	}
	k.out.PerSecond = float64(n) / time.Since(before).Seconds()
	k.found("speed", Fine, "%.0f rows a second; a round of all %d clients takes about %v", k.out.PerSecond, s.About.Clients,
		time.Duration(float64(s.About.Clients)/k.out.PerSecond*float64(time.Second)).Round(time.Millisecond))
	return nil
}

// end looks whether the program ends when it is told to.
func (k *checker) end(s *Session) {
	before := time.Now()
	s.Close()
	switch took := time.Since(before); {
	case s.peer.cmd == nil:
	case took < graceful:
		k.found("end", Fine, "it ended %v after close", took.Round(time.Millisecond))
	default:
		k.found("end", Warning, "it did not end within %v after close, and was ended", graceful)
	}
}

// others opens the program for other purposes, and again for the same.
func (k *checker) others(ctx context.Context, c Config) error {
	again, err := Open(ctx, c)
	if err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	same := again.About.Dim == k.out.About.Dim && again.About.Clients == k.out.About.Clients && slices.Equal(again.About.Initial, k.out.About.Initial)
	again.Close()
	if same {
		k.found("opened again", Fine, "the same model and the same start")
	} else {
		k.found("opened again", Failed, "another model or another start: both should follow from seed, or a run cannot be resumed")
	}
	c.Purpose, c.Clients = Client, max(1, k.out.About.Clients)
	one, err := Open(ctx, c)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		k.found("client", Warning, "it does not serve a client: %s", reason(err))
		return nil
	}
	defer one.Close()
	theta := make([]float32, one.About.Dim)
	copy(theta, k.out.About.Initial)
	switch g, err := rows(ctx, one, theta, []int64{0}); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		k.found("client", Warning, "as one client's program it fails: %s", reason(err))
	case one.About.Dim != k.out.About.Dim:
		k.found("client", Warning, "as one client's program it has %d parameters", one.About.Dim)
	default:
		k.found("client", Fine, "it serves one client too; client 0 has a row of length %.3g", math.Sqrt(distance(g[0], nil)))
	}
	return nil
}

// reason is a session's error without the program's name.
func reason(err error) string {
	var named *sessionError
	if errors.As(err, &named) {
		return named.what
	}
	return err.Error()
}

// distance returns the squared distance of two rows; nil is 0.
func distance(a, b []float32) (sum float64) {
	for j, x := range a {
		d := float64(x)
		if b != nil {
			d -= float64(b[j])
		}
		sum += d * d
	}
	return sum
}
