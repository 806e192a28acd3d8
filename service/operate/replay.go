package operate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	service "github.com/riffle-dp/riffle/service/coordinator"
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

// PostSize returns the size of what a client posts in a round: the sealed report with its pass.
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
	size, err := envelope.ReportSize(s, part*r.Task.PerClient(), share)
	return size + int64(len(wire.ID{})), err
}

// ReplayTask recomputes a task's model from the recorded reports with the pure functions. It
// returns an error unless the model equals the released one bit for bit, and the charges
// equal the ledger's. The coordinator must not be running.
func ReplayTask(ctx context.Context, path string, id [32]byte) (*replayed, error) {
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		return nil, err
	}
	if c.Record == "" {
		return nil, config.Errorf("%s: nothing is recorded", path)
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		return nil, config.Errorf("%w", err)
	}
	s, err := openCoordinatorStore(ctx, c)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	book, err := verifyLedger(ctx, c, s)
	if err != nil {
		return nil, err
	}
	_, w, err := readCreated(ctx, s, createdKey(id), publicOf(key))
	if err != nil {
		return nil, fmt.Errorf("operate: %s: %w", createdKey(id), err)
	}
	task, err := train.OpenTask(ctx, w, c.Data, initialOf(s, w))
	if err != nil {
		return nil, err
	}
	state, err := service.ReadStatus(ctx, s, id)
	if err != nil {
		return nil, err
	}
	out := &replayed{Task: w, Rounds: state.Round, Released: state.Released, Rejected: state.Rejected}
	if out.part, out.share, err = mechanism.ContentSizes(task.Mechanism); err != nil {
		return nil, err
	}
	_, out.Local = task.LocalEps()
	entries := book.TaskEntries(id)
	out.Entries = int64(len(entries))
	theta, err := replay(ctx, c, task, id, state.Round, entries, out)
	if err != nil {
		return nil, err
	}
	if charged := out.Charged - openCharge(entries, state.Round); w.Participation != dp.Once && charged != state.Failed {
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
	events := make(dp.Sequence, len(entries))
	for i, e := range entries {
		events[i] = e.Charged()
	}
	if len(events) > 0 {
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

// replay runs the pure coordinator over all rounds and returns its model.
func replay(ctx context.Context, c config.Coordinator, task *train.Setup, id [32]byte, rounds int64, entries []ledger.Entry, out *replayed) ([]float32, error) {
	config, err := task.Coordinator()
	if err != nil {
		return nil, err
	}
	limit := task.Limit
	limit.MaxEps = math.Inf(1) // a replay refuses nothing
	budget, err := ledger.New(limit)
	if err != nil {
		return nil, err
	}
	config.Ledger, config.Colluders = budget, c.Colluders
	pure, err := coordinator.New(config)
	if err != nil {
		return nil, err
	}
	charge := map[int64]dp.Round{}
	for _, e := range entries {
		charge[e.Round] = e.Event
	}
	out.Released, out.Reports, out.Charged = 0, 0, openCharge(entries, rounds)
	_, summed := task.Mechanism.(*mechanism.VectorSum)
	for round := int64(1); round <= rounds; round++ {
		path := recordPath(filepath.Join(c.Record, hex.EncodeToString(id[:])), round)
		announcement, reports, counts, clients, err := readRound(path, task.Mechanism, summed)
		event, charged := charge[round]
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
		// With participation once the charge does not hold the number of reports.
		k := max(clients, task.Wire.MinReports)
		if charged && task.Wire.Participation != dp.Once {
			k = event.Reports + config.Fewer() // reports that could not be opened count too
		}
		if err := pure.Receive(ctx, wire.RoundClosed{Announcement: announcement, Round: round, Reports: k, Digest: [32]byte{1}}); err != nil {
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
		out.Reports += accepted / task.Wire.PerClient()
	}
	have := budget.Entries()
	entries = entries[:len(entries)-int(openCharge(entries, rounds))]
	if len(have) != len(entries) {
		return nil, fmt.Errorf("operate: the rounds charge %d entries, the ledger has %d", len(have), len(entries))
	}
	for i := range have {
		if !entries[i].Pays(have[i]) {
			return nil, fmt.Errorf("operate: entry %d: the rounds charge %+v, the ledger has %+v", i+1, have[i], entries[i])
		}
	}
	return pure.Parameters, nil
}

func readRound(path string, m randomizer.Mechanism, summed bool) (announcement [32]byte, reports []*randomizer.Report, counts []int64, clients int64, err error) {
	if summed {
		counts, clients, err = readSum(path)
		return announcement, nil, counts, clients, err
	}
	announcement, clients, err = readReports(path, m, func(r *randomizer.Report) { reports = append(reports, r) })
	return announcement, reports, nil, clients, err
}
