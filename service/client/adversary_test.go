package client_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// watch gathers notices.
type watch chan client.Notice

func newWatch() watch { return make(watch, 1<<12) }

func (w watch) tell(n client.Notice) { w <- n }

// next waits for a notice of a kind.
func (w watch) next(ctx context.Context, t *testing.T, what string) client.Notice {
	t.Helper()
	var seen []client.Notice
	for {
		select {
		case n := <-w:
			if n.What == what {
				return n
			}
			seen = append(seen, n)
		case <-ctx.Done():
			t.Fatalf("no notice %q, but %+v", what, seen)
		}
	}
}

func shuffleTask() wire.Task {
	return wire.Task{Population: wire.ID{3}, Trust: dp.Shuffle, Participation: dp.All, MinReports: 3, Rounds: 9, Delta: 1e-5,
		Mechanism: wire.Mechanism{Name: "rinf", Dim: dim, Clip: 1, ClipMode: "coordinate", Eps0: 2}}
}

// Whatever a coordinator signs or serves that is not what was agreed to, a client
// says why and speaks to nobody.
func TestClientsDoNotSpeak(t *testing.T) {
	theta := []float32{1, 2, 3, 4, 5}
	announced := func(change func(w *world, a *wire.Announcement)) func(w *world, c *client.JoinConfig) {
		return func(w *world, c *client.JoinConfig) {
			a := w.announcement(1, theta)
			change(w, &a)
			w.publish(a, theta, nil)
		}
	}
	enrolled := func(change func(e *wire.Enrolment)) func(w *world, c *client.JoinConfig) {
		return func(w *world, c *client.JoinConfig) {
			change(&w.enrolment)
			w.publish(w.announcement(1, theta), theta, nil)
		}
	}
	served := func(change func(w *world)) func(w *world, c *client.JoinConfig) {
		return func(w *world, c *client.JoinConfig) {
			w.publish(w.announcement(1, theta), theta, nil)
			change(w)
		}
	}
	agreed := func(change func(p *pure.Policy)) func(w *world, c *client.JoinConfig) {
		return func(w *world, c *client.JoinConfig) {
			w.publish(w.announcement(1, theta), theta, nil)
			change(&c.Policy)
		}
	}
	sum := func(change func(m *wire.Mechanism)) taskChange {
		return func(w *wire.Task) {
			w.Trust, w.Mechanism = dp.Distributed, sumTask(t, 4, 3)
			w.Rounds = 4
			change(&w.Mechanism)
		}
	}
	proved := func(change func(m *wire.Mechanism)) taskChange {
		return sum(func(m *wire.Mechanism) {
			*m = provedTask(t, 4)
			change(m)
		})
	}
	asked := agreed(func(*pure.Policy) {})
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	other, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	expired := func(k wire.Key) wire.Key { k.Expires = time.Now().Add(-time.Second).Unix(); return k }
	// A policy that demands the hybrid, and one party with a key of the other suite.
	downgraded := func(change func(w *world, a *wire.Announcement)) func(w *world, c *client.JoinConfig) {
		return func(w *world, c *client.JoinConfig) {
			c.Policy.Suite = wire.X25519MLKEM768
			a := w.announcement(1, theta)
			change(w, &a)
			w.publish(a, theta, nil)
		}
	}
	hour := time.Hour.Milliseconds()
	for name, c := range map[string]struct {
		cause pure.Cause
		task  func(*wire.Task) // as signed from the start
		act   func(w *world, c *client.JoinConfig)
	}{
		"lowers n-min":         {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.MinReports = 1 })},
		"lowers n-min in task": {pure.CausePolicy, func(task *wire.Task) { task.MinReports = 1 }, agreed(func(*pure.Policy) {})},
		"n-min below operator": {pure.CauseEnrolment, nil, enrolled(func(e *wire.Enrolment) { e.MinReports = 4 })},
		"raises eps0":          {pure.CauseMechanism, nil, announced(func(w *world, a *wire.Announcement) { a.Eps0 = 7 })},
		"raises eps0 in task":  {pure.CausePolicy, func(task *wire.Task) { task.Mechanism.Eps0 = 9 }, agreed(func(*pure.Policy) {})},
		"other randomizer":     {pure.CauseMechanism, nil, announced(func(w *world, a *wire.Announcement) { a.Randomizer = "privunit" })},
		"other clip":           {pure.CauseMechanism, nil, announced(func(w *world, a *wire.Announcement) { a.Clip = 2 })},
		"other sigma":          {pure.CauseMechanism, nil, announced(func(w *world, a *wire.Announcement) { a.Sigma = 2 })},
		"other trust":          {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.Trust = dp.Local })},
		"other participation":  {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.Participation, a.Gamma = dp.CheckIn, 1 })},
		"other task":           {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.Task[0]++ })},
		"beyond last round":    {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.Round = 29 })},
		"other part size":      {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.ReportBytes++ })},
		"a share too many":     {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.ShareBytes = 99 })},
		"an aggregator":        {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.Aggregator = other.Public })},
		"overstates n":         {pure.CauseEnrolment, nil, announced(func(w *world, a *wire.Announcement) { a.Population++ })},
		"another enrolment":    {pure.CauseEnrolment, nil, announced(func(w *world, a *wire.Announcement) { a.Enrolment[0]++ })},
		"another population":   {pure.CauseEnrolment, nil, enrolled(func(e *wire.Enrolment) { e.Population[0]++ })},
		"enrolment is over":    {pure.CauseEnrolment, nil, enrolled(func(e *wire.Enrolment) { e.To = time.Now().Unix() - 1 })},
		"enrolment is to come": {pure.CauseEnrolment, nil, enrolled(func(e *wire.Enrolment) { e.From = time.Now().Unix() + 1000 })},
		"shuffler's key":       {pure.CauseKey, nil, enrolled(func(e *wire.Enrolment) { e.Shuffler = []wire.Key{expired(e.Shuffler[0])} })},
		"coordinator's key":    {pure.CauseKey, nil, announced(func(w *world, a *wire.Announcement) { a.Coordinator = expired(a.Coordinator) })},
		"no coordinator's key": {pure.CauseKey, nil, announced(func(w *world, a *wire.Announcement) { a.Coordinator = wire.Key{} })},
		"deadline has passed":  {pure.CauseClock, nil, announced(func(w *world, a *wire.Announcement) { a.Opens -= hour; a.Deadline -= hour })},
		"deadline is too far":  {pure.CauseClock, nil, announced(func(w *world, a *wire.Announcement) { a.Deadline += 25 * hour })},
		"deadline is too near": {pure.CauseClock, nil, func(w *world, c *client.JoinConfig) {
			c.Policy.MinRound = roundTime + time.Second
			announced(func(*world, *wire.Announcement) {})(w, c)
		}},
		"opens in an hour":      {pure.CauseClock, nil, announced(func(w *world, a *wire.Announcement) { a.Opens += hour; a.Deadline += hour })},
		"opened long ago":       {pure.CauseClock, nil, announced(func(w *world, a *wire.Announcement) { a.Opens = -1 << 62 })},
		"another model":         {pure.CauseModel, nil, served(func(w *world) { w.model[3]++ })},
		"a longer model":        {pure.CauseModel, nil, served(func(w *world) { w.model = append(w.model, 0) })},
		"a shorter model":       {pure.CauseModel, nil, served(func(w *world) { w.model = w.model[1:] })},
		"forged announcement":   {pure.CauseSignature, nil, served(func(w *world) { w.ann[70]++ })},
		"a stranger's":          {pure.CauseSignature, nil, served(func(w *world) { w.ann = wire.Sign(stranger, wire.LabelAnnouncement, wire.Encode(w.open)) })},
		"signed as a task":      {pure.CauseSignature, nil, served(func(w *world) { w.ann = wire.Sign(w.coordinator, wire.LabelTask, wire.Encode(w.open)) })},
		"garbage, signed":       {pure.CauseMessage, nil, served(func(w *world) { w.ann = wire.Sign(w.coordinator, wire.LabelAnnouncement, []byte("garbage")) })},
		"endless announcement":  {pure.CauseMessage, nil, served(func(w *world) { w.ann = make([]byte, 1<<20) })},
		"own enrolment":         {pure.CauseSignature, nil, served(func(w *world) { w.operator = w.coordinator })},
		"another task, signed":  {pure.CauseTask, nil, served(func(w *world) { w.task.Name = "other" })},
		"a stranger's task":     {pure.CauseSignature, nil, func(w *world, c *client.JoinConfig) { c.CoordinatorKey = stranger.Public().(ed25519.PublicKey) }},
		"trust not allowed":     {pure.CausePolicy, nil, agreed(func(p *pure.Policy) { p.Trusts = []dp.Trust{dp.Local} })},
		"randomizer not":        {pure.CausePolicy, nil, agreed(func(p *pure.Policy) { p.Randomizers = []string{"privunit"} })},
		"crowd too small":       {pure.CausePolicy, nil, agreed(func(p *pure.Policy) { p.MinReports = 4 })},
		"report too loud":       {pure.CausePolicy, nil, agreed(func(p *pure.Policy) { p.MaxEps0 = 1.9 })},
		"more than it spends":   {pure.CauseBudget, nil, agreed(func(p *pure.Policy) { p.MaxEps = .5 })},
		"more than a task":      {pure.CauseBudget, nil, agreed(func(p *pure.Policy) { p.MaxTaskEps = .5 })},
		"more without shuffle":  {pure.CauseBudget, nil, agreed(func(p *pure.Policy) { p.MaxLocalEps = 1.9 })},
		"huge model":            {pure.CausePolicy, func(task *wire.Task) { task.Mechanism.Dim = 1 << 24 }, agreed(func(p *pure.Policy) { p.MaxModelBytes = 1 << 20 })},
		"endless model":         {pure.CausePolicy, func(task *wire.Task) { task.Mechanism.Dim = 1 << 60 }, agreed(func(*pure.Policy) {})},
		"unknown randomizer":    {pure.CauseMechanism, func(task *wire.Task) { task.Mechanism.Name = "plain" }, agreed(func(*pure.Policy) {})},
		"unknown clip mode":     {pure.CauseMechanism, func(task *wire.Task) { task.Mechanism.ClipMode = "none" }, agreed(func(*pure.Policy) {})},
		"sum with a shuffle":    {pure.CauseMechanism, sum(func(m *wire.Mechanism) {}).and(func(task *wire.Task) { task.Trust = dp.Shuffle }), agreed(func(*pure.Policy) {})},
		"reports as a sum":      {pure.CauseMechanism, func(task *wire.Task) { task.Trust = dp.Distributed }, agreed(func(*pure.Policy) {})},
		"sum claims more noise": {pure.CauseMechanism, sum(func(m *wire.Mechanism) { m.Sum.Sigma *= 1.01 }), agreed(func(*pure.Policy) {})},
		"sum of too few":        {pure.CauseTask, sum(func(m *wire.Mechanism) { m.Sum.MinUsers = 4 }), agreed(func(*pure.Policy) {})},
		"sum for longer":        {pure.CauseMechanism, sum(func(*wire.Mechanism) {}).and(func(task *wire.Task) { task.Rounds *= 1000 }), agreed(func(*pure.Policy) {})},
		"colluders in a sum":    {pure.CausePolicy, sum(func(*wire.Mechanism) {}), agreed(func(p *pure.Policy) { p.Colluders = 1 })},
		"tails above delta":     {pure.CauseBudget, sum(func(*wire.Mechanism) {}), agreed(func(p *pure.Policy) { p.Delta = 1e-9 })},
		"sum, local limit":      {pure.CauseBudget, sum(func(*wire.Mechanism) {}), agreed(func(p *pure.Policy) { p.MaxLocalEps = 40 })},
		"own aggregator":        {pure.CauseKey, sum(func(*wire.Mechanism) {}), announced(func(w *world, a *wire.Announcement) { a.Aggregator = other.Public })},
		"aggregator for longer": {pure.CauseKey, sum(func(*wire.Mechanism) {}), announced(func(w *world, a *wire.Announcement) { a.Aggregator.Expires++ })},
		"no aggregator":         {pure.CauseKey, sum(func(*wire.Mechanism) {}), announced(func(w *world, a *wire.Announcement) { a.Aggregator, a.ShareBytes = wire.Key{}, 0 })},
		"noise of aggregators":  {pure.CauseMechanism, proved(func(m *wire.Mechanism) { m.Sum.Sigma *= 1.01 }), asked},
		"their noise is less":   {pure.CauseMechanism, proved(func(m *wire.Mechanism) { m.Sum.Variance = m.Sum.Variance * 9 / 10 }), asked},
		"longer vectors":        {pure.CauseMechanism, proved(func(m *wire.Mechanism) { m.Sum.Bound += 100 }), asked},
		"too many steps":        {pure.CauseMechanism, proved(func(m *wire.Mechanism) { m.Sum.Steps++ }), asked},
		"no proofs":             {pure.CauseMechanism, proved(func(m *wire.Mechanism) { m.Sum.Proofs = "" }), asked},
		"other proofs":          {pure.CauseMessage, proved(func(m *wire.Mechanism) { m.Sum.Proofs = "prio" }), asked},
		"clients' noise, too":   {pure.CauseMechanism, proved(func(m *wire.Mechanism) { m.Sum.MinUsers = 3 }), asked},
		"proofs in a shuffle":   {pure.CauseMechanism, proved(func(*wire.Mechanism) {}).and(func(task *wire.Task) { task.Trust = dp.Shuffle }), asked},
		"proofs, local limit":   {pure.CauseBudget, proved(func(*wire.Mechanism) {}), agreed(func(p *pure.Policy) { p.MaxLocalEps = 40 })},
		"proofs, no budget":     {pure.CauseBudget, proved(func(m *wire.Mechanism) { m.Sum.Variance, m.Sum.Sigma = 1<<24, .12 }), asked},
		"proofs, other sigma":   {pure.CauseMechanism, proved(func(*wire.Mechanism) {}), announced(func(w *world, a *wire.Announcement) { a.Sigma *= 2 })},
		"proofs, own key":       {pure.CauseKey, proved(func(*wire.Mechanism) {}), announced(func(w *world, a *wire.Announcement) { a.Aggregator = other.Public })},
		"noise by not allowed":  {pure.CausePolicy, proved(func(*wire.Mechanism) {}), agreed(func(p *pure.Policy) { p.NoiseBy = []vecsum.NoiseBy{vecsum.ByClients} })},
		"proofs are required":   {pure.CausePolicy, sum(func(*wire.Mechanism) {}), agreed(func(p *pure.Policy) { p.RequireProofs = true })},
		"more messages":         {pure.CauseTask, nil, announced(func(w *world, a *wire.Announcement) { a.Messages = 2 })},
		"fewer messages":        {pure.CauseTask, messages(3), announced(func(w *world, a *wire.Announcement) { a.Messages = 2 })},
		"one message of two":    {pure.CauseTask, messages(2), announced(func(w *world, a *wire.Announcement) { a.Messages = 0 })},
		"messages too loud":     {pure.CausePolicy, messages(5), agreed(func(*pure.Policy) {})},
		"1e9 messages":          {pure.CauseMessage, messages(1e9), agreed(func(*pure.Policy) {})},
		"1e9 announced":         {pure.CauseMessage, nil, announced(func(w *world, a *wire.Announcement) { a.Messages = 1e9 })},
		"messages of a sum":     {pure.CauseTask, sum(func(*wire.Mechanism) {}).and(messages(2)), agreed(func(*pure.Policy) {})},
		"more spent at once":    {pure.CauseBudget, messages(3), agreed(func(p *pure.Policy) { p.MaxLocalEps = 5.9 })},
		"coordinator's suite":   {pure.CauseKey, nil, downgraded(func(w *world, a *wire.Announcement) { a.Coordinator = other.Public; w.fitSizes(a) })},
		"shuffler's suite": {pure.CauseKey, nil, downgraded(func(w *world, a *wire.Announcement) {
			w.enrolment.Shuffler = []wire.Key{other.Public}
			a.Enrolment = wire.Digest(w.enrolment)
		})},
		"aggregator's suite": {pure.CauseKey, sum(func(*wire.Mechanism) {}), downgraded(func(w *world, a *wire.Announcement) {
			w.enrolment.Aggregator = append(w.enrolment.Aggregator, other.Public)
			a.Enrolment, a.Aggregator = wire.Digest(w.enrolment), other.Public
			w.fitSizes(a)
		})},
		"no data": {pure.CauseSource, nil, func(w *world, c *client.JoinConfig) {
			w.members[0].Source = client.Func(dim+1, nil)
			w.publish(w.announcement(1, theta), theta, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				task := shuffleTask()
				if c.task != nil {
					c.task(&task)
				}
				suite := wire.X25519
				if strings.HasSuffix(name, "suite") { // all keys but the one that is changed are hybrid
					suite = wire.X25519MLKEM768
				}
				w := newWorldOf(t, suite, 4, task)
				w.members = w.members[:1]
				config := w.config()
				seen := newWatch()
				config.Watch = seen.tell
				c.act(w, &config)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				fleet, err := client.NewFleet(config, w.members)
				if err != nil {
					t.Fatal(err)
				}
				running, stop := context.WithCancel(ctx)
				done := make(chan error, 1)
				go func() { done <- fleet.Run(running) }()
				n := seen.next(ctx, t, client.Declined)
				refused := (*pure.Refused)(nil)
				if !errors.As(n.Err, &refused) || refused.Cause != c.cause {
					t.Errorf("declined for %v, want cause %q", n.Err, c.cause)
				} else if refused.Task == ([32]byte{}) || !strings.Contains(refused.Error(), string(c.cause)) {
					t.Errorf("the error says %q", refused)
				}
				ends := n.Round == 0 && c.cause != pure.CauseSignature && c.cause != pure.CauseMessage
				if ends { // the task is refused, and Run returns of itself
					err = <-done
					stop()
				} else {
					synctest.Wait()
					stop()
					err = <-done
				}
				runtime.ReadMemStats(&after)
				if strings.Contains(name, "model") && after.TotalAlloc-before.TotalAlloc > 1<<30 {
					t.Errorf("%d bytes allocated", after.TotalAlloc-before.TotalAlloc)
				}
				if ends && !errors.As(err, &refused) {
					t.Errorf("a task was refused, and Run returned %v", err)
				}
				if asks, reports := w.asked("POST ask"), w.asked("POST report"); asks+reports != 0 {
					t.Errorf("it spoke: %d asks, %d reports", asks, reports)
				}
				if s := fleet.Snapshot(); s.Declined[c.cause] < 1 || s.Reports[client.Sent] != 0 {
					t.Errorf("snapshot %+v", s)
				}
				if err := fleet.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// provedTask describes sums of n clients with noise by aggregators.
func provedTask(t *testing.T, n int64) wire.Mechanism {
	t.Helper()
	p, err := vecsum.NewAggregated(n, dim, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(4)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewAggregatedSum(p, sigma, n)
	if err != nil {
		t.Fatal(err)
	}
	return m.Describe()
}

// messages asks for several messages of each client.
func messages(m int64) taskChange { return func(t *wire.Task) { t.Messages = m } }

// and is both changes.
func (f taskChange) and(g func(*wire.Task)) func(*wire.Task) {
	return func(t *wire.Task) { f(t); g(t) }
}

type taskChange func(*wire.Task)

// A round is decided once, whatever is announced of it again.
func TestRoundsAreDecidedOnce(t *testing.T) {
	theta := make([]float32, dim)
	for _, participation := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
		t.Run(string(participation), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				task := shuffleTask()
				task.Participation = participation
				w := newWorld(t, 4, task)
				config := w.config()
				seen := newWatch()
				config.Watch = seen.tell
				announce := func(round int64, model []float32) {
					a := w.announcement(round, model)
					if participation == dp.CheckIn {
						a.Gamma = 1
					}
					w.publish(a, model, map[int]bool{0: true, 1: true, 2: true, 3: true})
				}
				// A server that does not heed the last round it is asked after.
				w.before = func(rw http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, "/announcement") {
						w.mu.Lock()
						defer w.mu.Unlock()
						if w.ended {
							rw.WriteHeader(http.StatusGone)
							return true
						}
						rw.Write(w.ann)
						return true
					}
					return false
				}
				announce(2, theta)
				run := func() (stop func()) {
					fleet, err := client.NewFleet(config, w.members)
					if err != nil {
						t.Fatal(err)
					}
					running, cancel := context.WithCancel(ctx)
					done := make(chan error, 1)
					go func() { done <- fleet.Run(running) }()
					return func() {
						cancel()
						if err := errors.Join(<-done, fleet.Close()); err != nil {
							t.Fatal(err)
						}
					}
				}
				cause := func() pure.Cause {
					refused := (*pure.Refused)(nil)
					errors.As(seen.next(ctx, t, client.Declined).Err, &refused)
					return refused.Cause
				}
				expect := func(want pure.Cause) {
					t.Helper()
					for got := cause(); got != want; got = cause() {
						if got != pure.CauseRound && got != pure.CauseEquivocate {
							t.Fatalf("declined for %q, want %q", got, want)
						}
					}
				}
				stop := run()
				w.wait(ctx, 4)
				for range w.members {
					seen.next(ctx, t, client.Sent)
				}
				expect(pure.CauseRound) // the same again
				other := []float32{1, 1, 1, 1, 1}
				announce(2, other) // another of the same round
				expect(pure.CauseEquivocate)
				announce(1, theta) // an earlier one
				expect(pure.CauseRound)
				stop()
				// The same from a process that has nothing but the ledger.
				announce(2, other)
				stop = run()
				expect(pure.CauseEquivocate)
				announce(1, theta)
				expect(pure.CauseRound)
				if len(w.reports) != 0 {
					t.Errorf("%d reports of rounds that were decided", len(w.reports))
				}
				announce(3, other)
				w.wait(ctx, 4)
				w.end()
				stop()
			})
		})
	}
}

// What is spent is spent in every process, and a client that has spent all of it
// goes on fetching: its silence tells nothing but that.
func TestBudgetHoldsOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		theta := make([]float32, dim)
		w := newWorld(t, 3, shuffleTask())
		config := w.config()
		config.Policy.MaxLocalEps = 3 * w.mechanism.Event().Eps0 * (1 + 1e-9)
		seen := newWatch()
		config.Watch = seen.tell
		for round := int64(1); round <= 4; round++ {
			fleet, err := client.NewFleet(config, w.members)
			if err != nil {
				t.Fatal(err)
			}
			w.publish(w.announcement(round, theta), theta, nil)
			running, stop := context.WithCancel(ctx)
			done := make(chan error, 1)
			models := w.asked("GET model")
			go func() { done <- fleet.Run(running) }()
			want := client.Sent
			if round == 4 {
				want = client.Declined
			}
			for range w.members {
				if n := seen.next(ctx, t, want); round == 4 {
					refused := (*pure.Refused)(nil)
					if !errors.As(n.Err, &refused) || refused.Cause != pure.CauseBudget || refused.Round != 4 {
						t.Errorf("declined for %v", n.Err)
					}
				}
			}
			stop()
			if err := errors.Join(<-done, fleet.Close()); err != nil {
				t.Fatal(err)
			}
			if w.asked("GET model") == models {
				t.Error("the model was not fetched")
			}
		}
		if got := w.asked("POST report"); got != 9 {
			t.Errorf("%d reports, want 3 of each of 3 clients", got)
		}
	})
}

// A mechanism that a client may use at the limit of its policy is used.
func TestPolicyAllowsItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := shuffleTask()
		m, err := mechanism.New(task.Mechanism)
		if err != nil {
			t.Fatal(err)
		}
		p := policy()
		p.MaxEps0, p.MinReports, p.Trusts, p.Randomizers, p.MaxModelBytes = m.Event().Eps0, 3, []dp.Trust{dp.Shuffle}, []string{"rinf"}, 4*dim
		p.Colluders = 1
		terms, err := p.Agree(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		want := dp.Round{Report: m.Event(), Trust: dp.Shuffle, Participation: dp.All, Population: 2, Reports: 2}
		if terms.Charge != want {
			t.Errorf("charged as %+v, want %+v", terms.Charge, want)
		}
	})
}

func TestPolicyIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, change := range map[string]func(*pure.Policy){
			"largest eps0 of a report": func(p *pure.Policy) { p.MaxEps0 = 0 },
			"eps0 = 51":                func(p *pure.Policy) { p.MaxEps0 = 51 },
			"largest epsilon = 0":      func(p *pure.Policy) { p.MaxEps = 0 },
			"of a task = -1":           func(p *pure.Policy) { p.MaxTaskEps = -1 },
			"delta = 0":                func(p *pure.Policy) { p.Delta = 0 },
			"-1 tasks":                 func(p *pure.Policy) { p.MaxTasks = -1 },
			"largest local":            func(p *pure.Policy) { p.MaxLocalEps = -1 },
			"smallest crowd":           func(p *pure.Policy) { p.MinReports = 0 },
			"2 colluders":              func(p *pure.Policy) { p.Colluders = 2 },
			"not be negative":          func(p *pure.Policy) { p.Skew = -1 },
			"unknown trust":            func(p *pure.Policy) { p.Trusts = []dp.Trust{"none"} },
		} {
			p := policy()
			change(&p)
			if _, err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
		p := policy()
		p.MaxEps0, p.Trusts = 0, []dp.Trust{dp.Distributed}
		if _, err := p.Check(); err != nil {
			t.Errorf("sums have no eps0: %v", err)
		}
	})
}
