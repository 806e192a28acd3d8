package client

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Policy is what a client agrees to, whatever a coordinator asks. It is checked, together
// with the client's own history, before anything about a round leaves the client. policy.md
// says what is promised and why it holds.
type Policy struct {
	// MaxEps0 is the largest ε₀ of a single report: of several messages the sum of theirs. It is
	// the promise that remains in a round if the shuffler and the coordinator work together. Required, unless Trusts has only modes in
	// which sums are seen.
	MaxEps0 float64
	// MaxEps is the largest ε of everything that this client ever sends, at Delta, if the
	// shuffle can be trusted. Required.
	MaxEps float64
	// MaxTaskEps is the largest ε of a single task, at Delta/MaxTasks. A begun task counts
	// with all of it, however little it has spent, because its progress may depend on what it
	// released. 0: MaxEps/MaxTasks.
	MaxTaskEps float64
	// Delta is divided evenly among MaxTasks tasks. Required.
	Delta float64
	// MaxTasks is the number of tasks in which this client ever takes part; 0: one.
	MaxTasks int64
	// MaxLocalEps is the largest sum of the ε₀ of all messages ever sent, a promise that needs
	// no shuffler; 0: no such limit. With a limit, sums whose single reports have no ε₀ are
	// refused.
	MaxLocalEps float64
	// MinReports is the least number of reports among which the client's report must be: it
	// refuses rounds that may be opened with fewer. Required. Noise that aggregators add hides a
	// client in any crowd; the number is asked for all the same.
	MinReports int64
	// Colluders is the number of a round's clients that are assumed to collude with whoever
	// reads the reports; they hide nobody. Noise that aggregators add does not need others.
	Colluders int64
	// Trusts and Randomizers list what is allowed; empty: everything.
	Trusts      []dp.Trust
	Randomizers []string
	// Measure lists the kinds of questions that are answered, such as histogram; empty: all kinds,
	// NoQuestions alone: none. It says nothing about tasks that train a model.
	Measure []string
	// Suite is the suite of all keys that this client's reports and sessions are sealed to, such
	// as wire.X25519MLKEM768, which a quantum computer does not open either; 0: any.
	Suite wire.Suite
	// NoiseBy lists who may add the noise of a vector sum; empty: clients or aggregators. It says
	// nothing about other tasks.
	NoiseBy []vecsum.NoiseBy
	// RequireProofs refuses vector sums whose reports carry no proof of their norm, so that liars
	// can spoil them.
	RequireProofs bool
	// RequireTokens refuses tasks whose messages carry no tokens of the registrar, so that whoever
	// runs the shuffler can stuff their rounds. It says nothing about trust local.
	RequireTokens bool
	// RequireReceipts refuses tasks whose messages carry no receipts, so that a client cannot see
	// whether its report was counted.
	RequireReceipts bool
	// Count demands that the shuffler tells how many messages it has taken from this client, so
	// that a ledger that was cut or restored is noticed.
	Count bool
	// MaxModelBytes is the largest model that is downloaded; 0: 64 MiB.
	MaxModelBytes int64
	// MaxRound is the longest time until a deadline; 0: a day. MinRound is the shortest; 0: none. In short rounds
	// a gradient may be late, and is reported as 0.
	MaxRound, MinRound time.Duration
	// Skew is the largest difference between clocks; 0: two minutes.
	Skew time.Duration
	// MaxWork is the longest time that checking a task's noise may take, that finding the seeds of a report
	// may take on average, at seedSpeed, and that all messages of a report may take, as measured
	// for one of them; 0: 30 s.
	MaxWork time.Duration
}

// withDefaults returns p with its defaults filled in.
func (p Policy) withDefaults() Policy {
	if p.MaxTasks == 0 {
		p.MaxTasks = 1
	}
	if p.MaxTaskEps == 0 {
		p.MaxTaskEps = p.MaxEps
		if p.MaxTasks > 1 { // rounded down, so that all tasks together stay within MaxEps
			p.MaxTaskEps = math.Nextafter(p.MaxEps/float64(p.MaxTasks), 0)
		}
	}
	if p.MaxModelBytes == 0 {
		p.MaxModelBytes = 64 << 20
	}
	if p.MaxRound == 0 {
		p.MaxRound = 24 * time.Hour
	}
	if p.Skew == 0 {
		p.Skew = 2 * time.Minute
	}
	if p.MaxWork == 0 {
		p.MaxWork = 30 * time.Second
	}
	return p
}

// Check returns p with its defaults filled in, or an error that names the first field that is
// missing or out of range.
func (p Policy) Check() (Policy, error) {
	p = p.withDefaults()
	onlySums := len(p.Trusts) > 0 && !slices.ContainsFunc(p.Trusts, func(t dp.Trust) bool { return t.Is(dp.LocallyPrivate) })
	switch {
	case p.MaxEps0 == 0 && !onlySums:
		return p, fmt.Errorf("client: policy needs the largest eps0 of a report")
	case p.MaxEps0 != 0 && dp.CheckEps0(p.MaxEps0) != nil:
		return p, fmt.Errorf("client: policy: %v", dp.CheckEps0(p.MaxEps0))
	case !(p.MaxEps > 0) || math.IsInf(p.MaxEps, 1):
		return p, fmt.Errorf("client: policy: largest epsilon = %v must be above 0 and finite", p.MaxEps)
	case !(p.MaxTaskEps > 0) || math.IsInf(p.MaxTaskEps, 1):
		return p, fmt.Errorf("client: policy: largest epsilon of a task = %v must be above 0 and finite", p.MaxTaskEps)
	case dp.CheckDelta(p.Delta) != nil:
		return p, fmt.Errorf("client: policy: %v", dp.CheckDelta(p.Delta))
	case p.MaxTasks < 1 || dp.CheckDelta(p.Delta/float64(p.MaxTasks)) != nil:
		return p, fmt.Errorf("client: policy: %d tasks must be at least 1 and leave each a delta", p.MaxTasks)
	case !(p.MaxLocalEps >= 0) || math.IsInf(p.MaxLocalEps, 1):
		return p, fmt.Errorf("client: policy: largest local epsilon = %v must be finite and not negative", p.MaxLocalEps)
	case p.MinReports < 1:
		return p, fmt.Errorf("client: policy: smallest crowd of %d reports must be at least 1", p.MinReports)
	case p.Colluders < 0 || p.Colluders >= p.MinReports:
		return p, fmt.Errorf("client: policy: %d colluders must be fewer than the smallest crowd of %d", p.Colluders, p.MinReports)
	case p.Suite != 0 && p.Suite != wire.X25519 && p.Suite != wire.X25519MLKEM768:
		return p, fmt.Errorf("client: policy: unknown suite %d", p.Suite)
	case p.MaxModelBytes < 0 || p.MaxRound < 0 || p.MinRound < 0 || p.Skew < 0 || p.MaxWork < 0:
		return p, fmt.Errorf("client: policy: sizes and times must not be negative")
	case p.MinRound > p.MaxRound:
		return p, fmt.Errorf("client: policy: the shortest round, %v, is longer than the longest, %v", p.MinRound, p.MaxRound)
	}
	for _, t := range p.Trusts {
		if !t.Is(dp.InEvents) {
			return p, fmt.Errorf("client: policy: unknown trust %q", t)
		}
	}
	if err := p.checkMeasure(); err != nil {
		return p, err
	}
	for _, by := range p.NoiseBy {
		if by != vecsum.ByClients && by != vecsum.ByAggregators {
			return p, fmt.Errorf("client: policy: noise by %q must be by %s or %s", by, vecsum.ByClients, vecsum.ByAggregators)
		}
	}
	return p, nil
}

// Terms are a task that a client agreed to, and the client's way to report in it. They do not
// change.
type Terms struct {
	Task      wire.Task
	ID        [32]byte
	Mechanism randomizer.Randomizer
	// Charge is the event that each message in any of the task's rounds is counted as; policy.md.
	Charge dp.Round
	// Tail is what the rounds add to δ in addition to Charge; 0 unless only sums are seen.
	Tail float64

	// Policy is the policy under which the client agreed, with defaults.
	Policy Policy
	// Reporter makes the reports.
	Reporter *Client

	part, share int64 // sizes before sealing
}

// Agree checks a task against the policy and builds its mechanism; the caller has checked the
// task's signature. For a vector sum it takes up to seconds, and not much more than MaxWork.
// The error is a *Refused.
func (p Policy) Agree(ctx context.Context, task wire.Task) (*Terms, error) {
	p = p.withDefaults()
	t := &Terms{Task: task, ID: wire.Digest(task), Policy: p}
	if r := t.agree(ctx); r != nil {
		return nil, r.In(t.ID, 0)
	}
	return t, nil
}

func (t *Terms) agree(ctx context.Context) *Refused {
	p, task, w := t.Policy, t.Task, t.Task.Mechanism
	switch {
	case len(p.Trusts) > 0 && !slices.Contains(p.Trusts, task.Trust):
		return Refuse(CausePolicy, "trust %s is not allowed", task.Trust)
	case p.RequireTokens && task.Tokens == (wire.Tokens{}) && !task.Trust.Is(dp.Alone):
		return Refuse(CausePolicy, "its messages carry no tokens: whoever runs the shuffler can stuff its rounds")
	case p.RequireReceipts && !task.Receipts:
		return Refuse(CausePolicy, "its messages carry no receipts: nobody would see that a report was dropped")
	case len(p.Randomizers) > 0 && !slices.Contains(p.Randomizers, w.Name):
		return Refuse(CausePolicy, "randomizer %q is not allowed", w.Name)
	case !p.answers(Question(task)):
		return Refuse(CausePolicy, "a question (%s), answered are: %s", Question(task), strings.Join(p.Measure, ", "))
	case task.MinReports < p.MinReports:
		return Refuse(CausePolicy, "n-min = %d is below %d", task.MinReports, p.MinReports)
	case min(w.Dim, task.Parameters()) < 1 || max(w.Dim, task.Parameters()) > p.MaxModelBytes/4:
		return Refuse(CausePolicy, "a model of %d parameters is above %d bytes", max(w.Dim, task.Parameters()), p.MaxModelBytes)
	}
	var err error
	if t.Mechanism, err = mechanism.New(w); err != nil {
		return Refuse(CauseMechanism, "%v", err)
	}
	if correlated := len(w.Weights) > 0; correlated != (task.Every > 0) || correlated && (task.Participation != dp.CheckIn || int64(len(w.Weights)) > task.Every) {
		return Refuse(CauseTask, "%d weights of correlated noise, a client in one of %d rounds, participation %s", len(w.Weights), task.Every, task.Participation)
	}
	report := t.Mechanism.Event()
	// A sum's single reports promise nothing, and the policy counts only their sum as seen.
	// In all other modes each report carries its own promise.
	if class, summed := sumClass(t.Mechanism); summed != task.Trust.Is(dp.SumsOnly) || summed != !report.Class.LDP() || summed && report.Class != class {
		return Refuse(CauseMechanism, "%s is not for trust %s", t.Mechanism.Facts().Name, task.Trust)
	}
	crowd := task.MinReports - p.Colluders
	if task.Trust.Is(dp.SumsOnly) {
		var r *Refused
		if crowd, r = t.agreeSum(ctx); r != nil {
			return r
		}
	} else if m := task.PerClient(); !(dp.TimesUp(report.Eps0, m) <= p.MaxEps0) {
		return Refuse(CausePolicy, "reports with eps0 = %v (messages: %d) are above %v", dp.TimesUp(report.Eps0, m), m, p.MaxEps0)
	}
	facts := t.Mechanism.Facts()
	if work := float64(task.PerClient()) * facts.Tries * float64(facts.Dim) / seedSpeed; !(work <= p.MaxWork.Seconds()) {
		return Refuse(CausePolicy, "to find the seeds of a report takes some %.3g s, above %v", work, p.MaxWork)
	}
	if m, ok := t.Mechanism.(*mechanism.AggregatedSum); ok && len(m.Strategy.Weights) > 0 {
		// Weights reach less far than the client's next round, so each of its rounds costs the same.
		if report, err = m.Charged(0, int64(len(m.Strategy.Weights)), task.Every); err != nil {
			return Refuse(CauseMechanism, "%v", err)
		}
	}
	t.Charge = dp.Round{Report: report, Trust: task.Trust, Participation: dp.All, Population: crowd, Reports: crowd}
	if err := t.Charge.Validate(); err != nil {
		return Refuse(CauseMechanism, "%v", err)
	}
	norm, err := mechanism.Norm(w)
	if err != nil {
		return Refuse(CauseMechanism, "%v", err)
	}
	if t.Reporter, err = New(Config{Mechanism: t.Mechanism, ClipMode: ClipMode(w.ClipMode), Clip: w.Clip, Norm: norm}); err != nil {
		return Refuse(CauseMechanism, "%v", err)
	}
	if t.part, t.share, err = mechanism.ContentSizes(t.Mechanism); err != nil {
		return Refuse(CauseMechanism, "%v", err)
	}
	attached := task.Attachments()
	t.part, t.share = attached.Size(t.part), attached.Size(t.share)
	return nil
}

// Affordable refuses a task of which making one message took each: all messages of a report would take longer
// than MaxWork. What was measured must not depend on data.
func (t *Terms) Affordable(each time.Duration) error {
	if m := t.Task.PerClient(); float64(m)*each.Seconds() > t.Policy.MaxWork.Seconds() {
		return Refuse(CausePolicy, "to make the %d messages of a report takes some %.3g s, above %v", m, float64(m)*each.Seconds(), t.Policy.MaxWork).In(t.ID, 0)
	}
	return nil
}

// seedSpeed is the number of values of seeds that a slow processor expands in a second.
const seedSpeed = 5e7

// Admit checks an announcement against the task, the enrolment and the clock; the caller has
// checked the announcement's signature. It does not use the client's history. The error is a
// *Refused.
func (t *Terms) Admit(ann wire.Announcement, enrolment wire.Enrolment, now time.Time) error {
	if r := t.admit(ann, enrolment, now); r != nil {
		return r.In(t.ID, ann.Round)
	}
	return nil
}

func (t *Terms) admit(ann wire.Announcement, e wire.Enrolment, now time.Time) *Refused {
	task, p := t.Task, t.Policy
	skew := p.Skew
	opens, deadline := time.UnixMilli(ann.Opens), time.UnixMilli(ann.Deadline)
	switch {
	case ann.Task != t.ID:
		return Refuse(CauseTask, "announced for task %x", ann.Task[:4])
	case ann.Trust != task.Trust || ann.Participation != task.Participation:
		return Refuse(CauseTask, "trust %s, participation %s, the task has %s, %s", ann.Trust, ann.Participation, task.Trust, task.Participation)
	case ann.PerClient() != task.PerClient():
		return Refuse(CauseTask, "%d messages, the task has %d", ann.PerClient(), task.PerClient())
	case ann.MinReports != task.MinReports:
		return Refuse(CauseTask, "n-min = %d, the task has %d", ann.MinReports, task.MinReports)
	case ann.MinClients != task.MinClients:
		return Refuse(CauseTask, "counts on %d clients, the task on %d", ann.MinClients, task.MinClients)
	case ann.Population < task.MinClients:
		return Refuse(CauseTask, "n = %d, the task counts on %d", ann.Population, task.MinClients)
	case task.Every > 0 && ann.Gamma != 1/float64(task.Every):
		return Refuse(CauseTask, "gamma = %v, of the task a client is in one of %d rounds", ann.Gamma, task.Every)
	case ann.Round > task.LastRound():
		return Refuse(CauseTask, "the task has %d rounds, and none after %d", task.Rounds, task.LastRound())

	case e.Population != task.Population:
		return Refuse(CauseEnrolment, "population %x, the task's is %x", e.Population[:4], task.Population[:4])
	case ann.Enrolment != wire.Digest(e):
		return Refuse(CauseEnrolment, "announced for another enrolment")
	case now.Add(skew).Unix() < e.From || now.Unix() >= e.To:
		return Refuse(CauseEnrolment, "the enrolment does not hold now")
	case ann.Population != e.Clients:
		return Refuse(CauseEnrolment, "n = %d, enrolled are %d", ann.Population, e.Clients)
	case ann.MinReports > e.Clients:
		return Refuse(CauseEnrolment, "n-min = %d, enrolled are %d", ann.MinReports, e.Clients)
	case ann.MinReports < e.MinReports:
		return Refuse(CauseEnrolment, "n-min = %d is below the enrolment's %d", ann.MinReports, e.MinReports)

	case !now.Before(deadline):
		return Refuse(CauseClock, "the deadline has passed")
	case opens.After(now.Add(skew)):
		return Refuse(CauseClock, "opens in %v", opens.Sub(now))
	case deadline.Sub(now) > p.MaxRound || deadline.Sub(opens) > p.MaxRound:
		return Refuse(CauseClock, "the deadline is %v off, at most %v", deadline.Sub(opens), p.MaxRound)
	case deadline.Sub(now) < p.MinRound || deadline.Sub(opens) < p.MinRound:
		return Refuse(CauseClock, "the deadline is %v off, at least %v", min(deadline.Sub(now), deadline.Sub(opens)), p.MinRound)
	}
	if err := t.Reporter.Check(ann); err != nil {
		return Refuse(CauseMechanism, "%v", err)
	}
	return t.admitKeys(ann, e, now)
}

func (t *Terms) admitKeys(ann wire.Announcement, e wire.Enrolment, now time.Time) *Refused {
	if err := ann.Coordinator.Valid(now); err != nil {
		return Refuse(CauseKey, "coordinator: %v", err)
	}
	if _, err := t.Policy.ShufflerKey(e, now); err != nil {
		return Refuse(CauseKey, "%v", err)
	}
	if !t.Policy.takes(ann.Coordinator) {
		return Refuse(CauseKey, "the coordinator's key has suite %d, want %d", ann.Coordinator.Suite, t.Policy.Suite)
	}
	part, err := envelope.PartSize(ann.Coordinator.Suite, t.part)
	if err != nil {
		return Refuse(CauseKey, "coordinator: %v", err)
	}
	var share int64
	if t.share > 0 {
		if err := ann.Aggregator.Valid(now); err != nil {
			return Refuse(CauseKey, "aggregator: %v", err)
		}
		if !t.Policy.takes(ann.Aggregator) {
			return Refuse(CauseKey, "the aggregator's key has suite %d, want %d", ann.Aggregator.Suite, t.Policy.Suite)
		}
		same := func(k wire.Key) bool {
			return k.Suite == ann.Aggregator.Suite && k.Expires == ann.Aggregator.Expires && slices.Equal(k.Public, ann.Aggregator.Public)
		}
		if !slices.ContainsFunc(e.Aggregator, same) {
			return Refuse(CauseKey, "the aggregator's key %x is none of the enrolment's", ann.Aggregator.ID())
		}
		if share, err = envelope.PartSize(ann.Aggregator.Suite, t.share); err != nil {
			return Refuse(CauseKey, "aggregator: %v", err)
		}
	} else if !ann.Aggregator.None() {
		return Refuse(CauseTask, "an aggregator's key, but reports have one part")
	}
	if ann.ReportBytes != part || ann.ShareBytes != share {
		return Refuse(CauseTask, "parts of %d and %d bytes, they have %d and %d", ann.ReportBytes, ann.ShareBytes, part, share)
	}
	return nil
}

// takes says whether something may be sealed to a key of that suite.
func (p Policy) takes(k wire.Key) bool { return p.Suite == 0 || k.Suite == p.Suite }

// ShufflerKey returns the key of an enrolment that the client seals to: the first that is valid
// and has the policy's suite.
func (p Policy) ShufflerKey(e wire.Enrolment, now time.Time) (wire.Key, error) {
	if p.Suite == 0 {
		return e.ShufflerKey(now)
	}
	all := len(e.Shuffler)
	if e.Shuffler = slices.DeleteFunc(slices.Clone(e.Shuffler), func(k wire.Key) bool { return !p.takes(k) }); len(e.Shuffler) == 0 {
		return wire.Key{}, fmt.Errorf("none of the shuffler's %d keys has suite %d", all, p.Suite)
	}
	return e.ShufflerKey(now)
}
