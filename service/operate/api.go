package operate

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	roles "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// operatorAPI serves service/proto/riffle/operator/v1. Whoever may open the role's socket may
// call it; calls are not authenticated further, because such a caller could read the role's
// store and keys as well.
type operatorAPI struct {
	operatorv1.UnimplementedOperatorServiceHandler
	server      *server
	coordinator *coordinatorProcess // nil in other roles
}

// apiError gives an error the code that determines the caller's exit status.
func apiError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrBudget), errors.Is(err, coordinator.ErrCharged):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.Is(err, train.ErrInput), errors.Is(err, coordinator.ErrNotPaused), errors.Is(err, config.ErrInvalid):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, coordinator.ErrStandby):
		return connect.NewError(connect.CodeAborted, err)
	case errors.Is(err, coordinator.ErrNoTask), errors.Is(err, coordinator.ErrNoModel), errors.Is(err, errNoAnswer):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

func (a operatorAPI) need() (*coordinatorProcess, error) {
	if a.coordinator == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("tasks are a coordinator's, this is the %s", a.server.role))
	}
	return a.coordinator, nil
}

func (a operatorAPI) GetStatus(ctx context.Context, _ *connect.Request[operatorv1.GetStatusRequest]) (*connect.Response[operatorv1.GetStatusResponse], error) {
	out := &operatorv1.GetStatusResponse{Role: a.server.role, Version: a.server.options.Version,
		UptimeSeconds: time.Since(a.server.started).Seconds()}
	if err := a.server.ready(ctx); err != nil {
		out.NotReady = err.Error()
	}
	if p := a.server.peers; p != nil {
		out.Peers = p.status()
	}
	return connect.NewResponse(out), nil
}

func (a operatorAPI) CreateTask(ctx context.Context, q *connect.Request[operatorv1.CreateTaskRequest]) (*connect.Response[operatorv1.CreateTaskResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	if s := q.Msg.RoundSeconds; !(s >= 0) || s > 1e9 {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("round_seconds = %v", s))
	}
	id, plan, err := r.create(ctx, q.Msg.Name, q.Msg.Config, q.Msg.Initial, time.Duration(q.Msg.RoundSeconds*float64(time.Second)))
	if err != nil {
		return nil, apiError(err)
	}
	t, err := r.show(id)
	return connect.NewResponse(&operatorv1.CreateTaskResponse{Task: t, Plan: plan.message()}), apiError(err)
}

func (p taskPlan) message() *operatorv1.Plan {
	out := &operatorv1.Plan{Epsilon: p.cost.Eps, Delta: p.cost.Delta, Method: p.cost.Method, Rounds: p.rounds, Fit: p.fit, KnownEpsilon: p.known.Eps, FurtherSums: p.more}
	if p.limit != nil {
		out.Limit = p.limit.Error()
	}
	return out
}

func (a operatorAPI) ListTasks(context.Context, *connect.Request[operatorv1.ListTasksRequest]) (*connect.Response[operatorv1.ListTasksResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	out := &operatorv1.ListTasksResponse{}
	for _, s := range r.service.List() {
		out.Tasks = append(out.Tasks, r.message(s))
	}
	return connect.NewResponse(out), nil
}

func (a operatorAPI) GetTask(_ context.Context, q *connect.Request[operatorv1.GetTaskRequest]) (*connect.Response[operatorv1.GetTaskResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	id, err := r.find(q.Msg.Task)
	if err != nil {
		return nil, apiError(err)
	}
	t, err := r.show(id)
	return connect.NewResponse(&operatorv1.GetTaskResponse{Task: t}), apiError(err)
}

func (a operatorAPI) GetModel(ctx context.Context, q *connect.Request[operatorv1.GetModelRequest]) (*connect.Response[operatorv1.GetModelResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	id, err := r.find(q.Msg.Task)
	if err != nil {
		return nil, apiError(err)
	}
	theta, s, err := r.service.Released(ctx, id)
	if err != nil {
		return nil, apiError(err)
	}
	r.mu.Lock()
	made := r.tasks[id]
	r.mu.Unlock()
	if roles.Question(s.Task) != "" {
		return nil, apiError(fmt.Errorf("%w: task %q asks a question and has an answer: riffle task answer", coordinator.ErrNoModel, s.Task.Name))
	}
	if made == nil {
		return nil, apiError(fmt.Errorf("%w: this program cannot read the description of task %q", coordinator.ErrNoModel, s.Task.Name))
	}
	if made.Data == nil { // the task ended before this process began, so its data were not read
		if made, err = train.OpenTask(ctx, made.Wire, r.config.Data, initialOf(r.store, made.Wire)); err != nil {
			return nil, apiError(fmt.Errorf("%w: the model's shape follows from the data of task %q, which cannot be read: %v", coordinator.ErrNoModel, s.Task.Name, err))
		}
	}
	var head [32]byte
	r.journal.View(func(b *ledger.Book) {
		if all := b.Entries(); len(all) > 0 {
			head = wire.Digest(all[len(all)-1])
		}
	})
	file, err := made.ModelFile(s.Round, theta, float64(s.Eps), s.Method, head)
	if err != nil {
		return nil, apiError(err)
	}
	return connect.NewResponse(&operatorv1.GetModelResponse{Safetensors: file, Task: r.message(s)}), nil
}

func (a operatorAPI) GetAnswer(ctx context.Context, q *connect.Request[operatorv1.GetAnswerRequest]) (*connect.Response[operatorv1.GetAnswerResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	id, err := r.find(q.Msg.Task)
	if err != nil {
		return nil, apiError(err)
	}
	answer, err := r.answer(ctx, id)
	if err != nil {
		return nil, apiError(err)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, apiError(err)
	}
	t, err := r.show(id)
	return connect.NewResponse(&operatorv1.GetAnswerResponse{Json: text, Task: t}), apiError(err)
}

// maxReason is the largest length of an operator's reason.
const maxReason = 1000

func (a operatorAPI) StopTask(ctx context.Context, q *connect.Request[operatorv1.StopTaskRequest]) (*connect.Response[operatorv1.StopTaskResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	id, err := r.find(q.Msg.Task)
	if err != nil {
		return nil, apiError(err)
	}
	if len(q.Msg.Reason) > maxReason {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("a reason of %d bytes, at most %d", len(q.Msg.Reason), maxReason))
	}
	if err := r.service.Stop(ctx, id, q.Msg.Reason); err != nil {
		return nil, apiError(err)
	}
	t, err := r.show(id)
	return connect.NewResponse(&operatorv1.StopTaskResponse{Task: t}), apiError(err)
}

func (a operatorAPI) RemoveTask(ctx context.Context, q *connect.Request[operatorv1.RemoveTaskRequest]) (*connect.Response[operatorv1.RemoveTaskResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	if err := r.remove(ctx, q.Msg.Task); err != nil {
		return nil, apiError(err)
	}
	return connect.NewResponse(&operatorv1.RemoveTaskResponse{}), nil
}

func (a operatorAPI) ResumeTask(ctx context.Context, q *connect.Request[operatorv1.ResumeTaskRequest]) (*connect.Response[operatorv1.ResumeTaskResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	id, err := r.find(q.Msg.Task)
	if err != nil {
		return nil, apiError(err)
	}
	if err := r.service.Resume(ctx, id); err != nil {
		return nil, apiError(err)
	}
	t, err := r.show(id)
	return connect.NewResponse(&operatorv1.ResumeTaskResponse{Task: t}), apiError(err)
}

func (a operatorAPI) GetLedger(ctx context.Context, _ *connect.Request[operatorv1.GetLedgerRequest]) (*connect.Response[operatorv1.GetLedgerResponse], error) {
	r, err := a.need()
	if err != nil {
		return nil, err
	}
	if err := r.journal.Refresh(ctx); err != nil {
		return nil, apiError(err)
	}
	var entries []wire.Entry
	var spent dp.Bound
	r.journal.View(func(b *ledger.Book) {
		entries = b.Entries()
		spent, err = b.Spent()
	})
	if err != nil {
		return nil, apiError(err)
	}
	out := &operatorv1.GetLedgerResponse{Epsilon: spent.Eps, Delta: r.config.Budget.Delta, Method: spent.Method, Basis: spent.Source}
	for i, e := range entries {
		out.Entries = append(out.Entries, &operatorv1.LedgerEntry{Sequence: int64(i) + 1, Task: hex.EncodeToString(e.Task[:]), Round: e.Round,
			Announcement: hex.EncodeToString(e.Announcement[:]), Batch: hex.EncodeToString(e.Batch[:]), Event: DescribeCharge(e.Event, e.Times)})
	}
	return connect.NewResponse(out), nil
}

// DescribeCharge describes an event for people, and how often it is charged, if more than once.
func DescribeCharge(e dp.Round, times int64) string {
	text := fmt.Sprintf("%s %s n=%d", e.Trust, e.Participation, e.Population)
	if e.Reports != 0 {
		text += fmt.Sprintf(" k=%d", e.Reports)
	}
	if e.Gamma != 0 {
		text += fmt.Sprintf(" gamma=%g", e.Gamma)
	}
	if e.Least != 0 {
		text += fmt.Sprintf(" n-min=%d", e.Least)
	}
	text += " " + string(e.Report.Class)
	if e.Report.Eps0 != 0 {
		text += fmt.Sprintf(" eps0=%.6g", e.Report.Eps0)
	}
	if e.Report.Sigma != 0 {
		text += fmt.Sprintf(" sigma=%.6g", e.Report.Sigma)
	}
	if times > 1 {
		text += fmt.Sprintf(" x %d", times)
	}
	return text
}

func (r *coordinatorProcess) show(id [32]byte) (*operatorv1.Task, error) {
	s, err := r.service.Show(id)
	if err != nil {
		return nil, err
	}
	return r.message(s), nil
}

// message returns a status in the form of the operator API.
func (r *coordinatorProcess) message(s wire.Status) *operatorv1.Task {
	t := &operatorv1.Task{Id: hex.EncodeToString(s.ID[:]), Name: s.Task.Name, State: s.State, Why: s.Why, Rounds: s.Task.Rounds, Round: s.Round,
		Released: s.Released, Model: hex.EncodeToString(s.Model[:]), Epsilon: float64(s.Eps), Delta: s.Task.Delta, Reports: s.Reports,
		RoundsVoid: s.Void, RoundsFailed: s.Failed, LedgerEntries: s.Charged, Phase: s.Phase, Error: s.Error, Rejected: map[string]int64{},
		Failure: s.Failure, FailedRound: s.FailedRound, StepsShortened: s.Shortened, SpareReports: s.Spare, Failed: s.FailedBy,
		Question: roles.Question(s.Task), Trust: string(s.Task.Trust), Participation: string(s.Task.Participation), NMin: s.Task.MinReports}
	if s.Task.Trust.Is(dp.SumsOnly) {
		t.NoiseBy, t.Proofs = cmp.Or(s.Task.Mechanism.Sum.NoiseBy, string(vecsum.ByClients)), s.Task.Mechanism.Sum.Proofs
	}
	for reason, n := range s.Rejected {
		t.Rejected[string(reason)] = n
	}
	if e, ok := s.Evaluation.(evaluation); ok && !math.IsNaN(float64(e.Loss)) {
		loss := float64(e.Loss)
		t.Accuracy, t.Loss = e.Accuracy, &loss
		t.BaselineAccuracy, t.BaselineLoss = e.BaselineAccuracy, e.BaselineLoss
	}
	if e, ok := s.Evaluation.(evaluation); ok && e.beside {
		t.EvaluatedRound, t.EvaluationError, t.Numbers = s.EvaluatedAt, e.failure, map[string]float64{}
		for name, x := range e.Numbers {
			t.Numbers[name] = float64(x)
		}
	}
	if m := r.measured(s); m != nil {
		t.EvaluatedRound, t.Numbers = s.Round, measuredNumbers(m)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.questions[s.ID]; p != nil {
		t.Trust = string(p.Trust)
	}
	made := r.tasks[s.ID]
	if made != nil {
		if one, all := made.LocalEps(); all > 0 {
			t.Eps0, t.Eps0Asked, t.Messages, t.LocalEpsilon = one, made.Config.Eps0, s.Task.PerClient(), all
		}
		t.Trust = string(made.Config.Trust) // the mode that was chosen; the wire has Recorded of it
		if made.Mechanism != nil {          // nil without the data
			t.LargestReport = made.Mechanism.Facts().Largest
			if t.LargestReport > 0 && s.Task.Mechanism.Encoding == wire.EncodingSeed {
				t.LargestReportTries = 1 << randomizer.TriesExponent
			}
		}
	}
	return t
}

// OperatorClient returns a client of a running role's socket.
func OperatorClient(socket string) operatorv1.OperatorServiceClient {
	return operatorv1.NewOperatorServiceClient(newSocketClient(socket), "http://operator")
}
