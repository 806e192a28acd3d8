package operate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"reflect"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	roles "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	service "github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/store"
)

// replayed is the result of running the pure round functions on a coordinator's records.
type replayed struct {
	Rounds   int64 // rounds that ended
	Released int64
	// Charged counts rounds that were charged and not released: they gave no step, or the
	// process ended before their release.
	Charged int64
	Reports int64
	Entries int64    // number of the task's ledger entries
	Epsilon dp.Bound // computed again from the ledger's events, at the task's δ
	Model   [32]byte // digest of the released model, which equals the replay's
	Theta   []float32
	// Evaluation is the result of the released model on the test set; nil if only a program can
	// evaluate it.
	Evaluation *model.Evaluation
	// Baseline is the best constant's result on the same examples.
	Baseline train.Baseline
	Task     wire.Task // as it was signed
	// Local is what a client's messages of a round promise together without the shuffle.
	Local    float64
	Rejected map[wire.Reason]int64

	part, share int64 // sizes of a message's parts before they are sealed
}

// PostSize returns the size of what a client posts in a round: the sealed report.
func (r *replayed) PostSize(s wire.Suite) (int64, error) {
	part, err := envelope.PartSize(s, r.part)
	if err != nil {
		return 0, err
	}
	share := int64(0)
	if r.share > 0 {
		if share, err = envelope.PartSize(s, r.share); err != nil {
			return 0, err
		}
	}
	return envelope.ReportSize(s, part*r.Task.PerClient(), share)
}

// recorded is a task with what its coordinator has stored of it. The coordinator must not be running.
type recorded struct {
	config  config.Coordinator
	store   *store.Store
	made    created
	task    wire.Task // as it was signed
	entries []ledger.Entry
}

// openRecorded opens a coordinator's task. The caller closes its store.
func openRecorded(ctx context.Context, path string, id [32]byte) (_ *recorded, err error) {
	r := &recorded{}
	if r.config, err = config.Load[config.Coordinator](path); err != nil {
		return nil, err
	}
	if r.config.Record == "" {
		return nil, config.Errorf("%s: nothing is recorded", path)
	}
	key, err := config.LoadSigning(r.config.SigningKey)
	if err != nil {
		return nil, config.Errorf("%w", err)
	}
	if r.store, err = openCoordinatorStore(ctx, r.config); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.store.Close()
		}
	}()
	book, _, err := verifyLedger(ctx, r.config, r.store)
	if err != nil {
		return nil, err
	}
	r.entries = book.TaskEntries(id)
	if r.made, r.task, err = readCreated(ctx, r.store, createdKey(id), publicOf(key)); err != nil {
		return nil, fmt.Errorf("operate: %s: %w", createdKey(id), err)
	}
	return r, nil
}

// charged returns the events of the task's ledger entries.
func (t *recorded) charged() dp.Sequence {
	events := make(dp.Sequence, len(t.entries))
	for i, e := range t.entries {
		events[i] = e.Charged()
	}
	return events
}

// ReplayTask recomputes a task's model from the recorded reports with the pure functions. It
// returns an error unless the model equals the released one bit for bit, and the charges
// equal the ledger's. The coordinator must not be running.
func ReplayTask(ctx context.Context, path string, id [32]byte) (*replayed, error) {
	r, err := openRecorded(ctx, path, id)
	if err != nil {
		return nil, err
	}
	defer r.store.Close()
	w := r.task
	if roles.Question(w) != "" {
		return nil, config.Errorf("task %x asks a question: it has no model", id[:8])
	}
	task, err := train.OpenTask(ctx, w, r.config.Data, initialOf(r.store, w))
	if err != nil {
		return nil, err
	}
	state, err := service.ReadStatus(ctx, r.store, id)
	if err != nil {
		return nil, err
	}
	out := &replayed{Task: w, Rounds: state.Round, Released: state.Released, Rejected: state.Rejected}
	if out.part, out.share, err = mechanism.ContentSizes(task.Mechanism); err != nil {
		return nil, err
	}
	attached := task.Wire.Attachments()
	out.part, out.share = attached.Size(out.part), attached.Size(out.share)
	_, out.Local = task.LocalEps()
	out.Entries = int64(len(r.entries))
	pure, err := r.replay(ctx, task, task.Limit, task.Mechanism, state.Round, out)
	if err != nil {
		return nil, err
	}
	theta := pure.Parameters
	if charged := out.Charged - openCharge(r.entries, state.Round); w.Participation != dp.Once && charged != state.Failed {
		return nil, fmt.Errorf("operate: of %d charged rounds nothing is recorded, %d gave no step", charged, state.Failed)
	}
	if out.Released != state.Released || out.Reports != state.Reports {
		return nil, fmt.Errorf("operate: %d reports in %d rounds are recorded, %d in %d were released",
			out.Reports, out.Released, state.Reports, state.Released)
	}
	raw := make([]byte, 0, 4*len(theta))
	for _, v := range theta {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	out.Model = sha256.Sum256(raw)
	if out.Model != state.Model {
		return nil, fmt.Errorf("operate: the recorded reports give model %x, %x was released", out.Model, state.Model)
	}
	if events := r.charged(); len(events) > 0 {
		if out.Epsilon, err = task.Limit.Eps(events); err != nil {
			return nil, err
		}
	}
	out.Baseline, out.Theta = task.Baseline, theta
	if task.Config.Dim == 0 {
		out.Evaluation, err = task.Evaluate(theta)
	}
	return out, err
}

// openCharge returns 1 if a charged round has not ended, otherwise 0.
func openCharge(entries []ledger.Entry, rounds int64) int64 {
	if n := len(entries); n > 0 && entries[n-1].Round == rounds+1 {
		return 1
	}
	return 0
}

// replay runs the pure coordinator over all rounds and returns it.
func (t *recorded) replay(ctx context.Context, task setup, limit ledger.Config, m randomizer.Mechanism, rounds int64, out *replayed) (*coordinator.Coordinator, error) {
	w, entries, id := t.task, t.entries, wire.Digest(t.task)
	config, err := task.Coordinator()
	if err != nil {
		return nil, err
	}
	limit.MaxEps = math.Inf(1) // a replay refuses nothing
	budget, err := ledger.New(limit)
	if err != nil {
		return nil, err
	}
	config.Ledger, config.Colluders, config.Tokens = budget, t.config.Colluders, w.Tokens != (wire.Tokens{})
	pure, err := coordinator.New(config)
	if err != nil {
		return nil, err
	}
	charge := map[int64]bool{}
	for _, e := range entries {
		charge[e.Round] = true
	}
	out.Released, out.Reports, out.Charged = 0, 0, openCharge(entries, rounds)
	summed := w.Trust.Is(dp.SumsOnly)
	for round := int64(1); round <= rounds; round++ {
		path := recordPath(filepath.Join(t.config.Record, hex.EncodeToString(id[:])), round)
		announcement, reports, counts, clients, err := readRound(path, m, summed)
		charged := charge[round]
		absent := absentFile(err)
		if absent && !charged {
			if err := pure.Void(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil && !absent {
			return nil, err
		}
		came := clients
		if !summed { // what is recorded are messages, of which each client has several
			came /= w.PerClient()
		}
		// A round is charged whatever number of reports came.
		if err := pure.Receive(ctx, wire.RoundClosed{Announcement: announcement, Round: round, Reports: max(came, w.MinReports), Digest: [32]byte{1}}); err != nil {
			return nil, fmt.Errorf("operate: round %d: %w", round, err)
		}
		if absent {
			if _, _, err := pure.End(); err != nil {
				return nil, fmt.Errorf("operate: round %d: %w", round, err)
			}
			out.Charged++
			continue
		}
		tally, err := pure.NewTally()
		if err != nil {
			return nil, err
		}
		for _, r := range reports {
			tally.Open(r)
		}
		if summed {
			if err := tally.AddSum(counts, clients); err != nil {
				return nil, err
			}
		}
		accepted, _, err := pure.End(tally)
		if err != nil {
			return nil, fmt.Errorf("operate: round %d: %w", round, err)
		}
		out.Released++
		out.Reports += accepted / w.PerClient()
	}
	have := budget.Entries()
	entries = entries[:len(entries)-int(openCharge(entries, rounds))]
	if len(have) != len(entries) {
		return nil, fmt.Errorf("operate: the rounds charge %d entries, the ledger has %d", len(have), len(entries))
	}
	for i := range have {
		if entries[i] != have[i] {
			return nil, fmt.Errorf("operate: entry %d: the rounds charge %+v, the ledger has %+v", i+1, have[i], entries[i])
		}
	}
	return pure, nil
}

func readRound(path string, m randomizer.Mechanism, summed bool) (announcement [32]byte, reports []*randomizer.Report, counts []int64, clients int64, err error) {
	if summed {
		counts, clients, err = readSum(path)
		return announcement, nil, counts, clients, err
	}
	announcement, clients, err = readReports(path, m, func(r *randomizer.Report) { reports = append(reports, r) })
	return announcement, reports, nil, clients, err
}

// ReplayQuestion recomputes a question's answer from the recorded reports with the pure functions. It
// returns an error unless the released sums are the same bit for bit, and the charges equal the
// ledger's. The coordinator must not be running.
func ReplayQuestion(ctx context.Context, path string, id [32]byte) (*Answer, error) {
	r, err := openRecorded(ctx, path, id)
	if err != nil {
		return nil, err
	}
	defer r.store.Close()
	p, err := measure.OpenTask(r.task, r.made.Question)
	if err != nil {
		return nil, err
	}
	stored, state, err := service.ReadLearned(ctx, r.store, id)
	if err != nil {
		return nil, err
	}
	out := &replayed{}
	pure, err := r.replay(ctx, p, p.Limit, p.Mechanism, state.Round, out)
	if err != nil {
		return nil, err
	}
	if out.Released != state.Released || out.Reports != state.Reports || !reflect.DeepEqual(pure.State().Optimizer, stored) {
		return nil, fmt.Errorf("operate: the recorded reports do not give what the question released")
	}
	cost, err := p.Limit.Eps(r.charged())
	if err != nil {
		return nil, err
	}
	state.Task, state.Eps, state.Method = r.task, dp.Number(cost.Eps), cost.Method
	return answerOf(p, state, stored)
}
